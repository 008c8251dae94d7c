package setup

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"muster/internal/daemon"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/broker"
)

// Files of an external nats-server.
const (
	serverConfigFile      = "nats-server.conf"
	serverCertificateFile = "certificate.pem"
	serverKeyFile         = "key.pem"
	serverCAFile          = "ca.pem"
)

// BrokerServer is a nats-server that `muster broker config` configures.
type BrokerServer struct {
	// Certificate, keys and authority are set here.
	broker.ServerConfig

	// Dir is the directory of the files on the server's machine. Required.
	Dir string

	// Keyring finds the passphrase of encrypted keys.
	Keyring keyfile.Ring
}

// Text returns the server's configuration for the installation with the provisioner.yaml at path.
func (s BrokerServer) Text(path string) (string, error) {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return "", err
	}
	return s.text(cfg, path)
}

func (s BrokerServer) text(cfg daemon.Config, path string) (string, error) {
	if cfg.Broker.URL == "" {
		return "", fmt.Errorf("%s: broker.url: missing: this provisioner has its own broker; "+
			"'muster provisioner init --broker-urls' sets one up for external brokers", path)
	}
	keys, err := daemon.LoadBrokerKeys(&cfg.Broker.External)
	if err != nil {
		return "", err
	}
	if s.Cluster != nil {
		password, err := keyfile.ReadLine(filepath.Join(filepath.Dir(cfg.Broker.External.Credentials),
			filepath.Base(routesFile)), inputfile.Configured)
		if err != nil {
			return "", fmt.Errorf("password of the cluster: %w", err)
		}
		keys.Routes = wire.Secret(password)
	}
	s.Keys = keys
	if s.Leaves != nil {
		s.Leaves.TrustDomain = cfg.TrustDomain
	}
	if s.Hub != nil {
		if _, err := jwt.ParseSite(s.Hub.Site); err != nil {
			return "", err
		}
	}
	s.Certificate = filepath.Join(s.Dir, serverCertificateFile)
	s.Key, s.CA = filepath.Join(s.Dir, serverKeyFile), filepath.Join(s.Dir, serverCAFile)
	return s.ServerConfig.Text()
}

// Write makes dir with the server's configuration, key, certificate and roots: all of it or nothing. dir must not
// exist.
func (s BrokerServer) Write(path, dir string) error {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return err
	}
	text, err := s.text(cfg, path)
	if err != nil {
		return err
	}
	files, err := s.certificate(cfg)
	if err != nil {
		return err
	}
	return makeDir(filepath.Clean(dir), 0o700, func(w *writer) error {
		for name, content := range files {
			w.file(name, 0o600, content)
		}
		w.file(serverConfigFile, 0o600, []byte(text))
		return w.err
	})
}

// Renew replaces key, certificate and roots in dir, file by file. The server reads them at its next reload. After a
// crash between two files the reload fails, since key and certificate do not match: renew again.
func (s BrokerServer) Renew(path, dir string) error {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return err
	}
	files, err := s.certificate(cfg)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, serverKeyFile)); err != nil {
		return fmt.Errorf("%w: want the directory that `muster broker config --write` made", err)
	}
	// An unreadable certificate is replaced. All servers share the DNS names; only the URI names the server.
	if old, err := daemon.ReadCertificates(filepath.Join(dir, serverCertificateFile)); err == nil {
		if _, name, err := wire.RoleOf(old[0], cfg.TrustDomain); err == nil && name != s.Name {
			return fmt.Errorf("%s is the certificate of %s, not of %s: "+
				"give the server's own name, or another directory",
				filepath.Join(dir, serverCertificateFile), name, s.Name)
		}
	}
	var errs []error
	for name, content := range files {
		path := filepath.Join(dir, name)
		// the server may not run as root
		errs = append(errs, renameio.WriteFile(path, content, 0o600), giveToOwnerOf(dir, path))
	}
	return errors.Join(errs...)
}

// certificate issues the server's certificate, and returns it with key and roots by file name.
func (s BrokerServer) certificate(cfg daemon.Config) (map[string][]byte, error) {
	ring := cfg.Keyring(&s.Keyring)
	defer ring.Forget()
	authority, err := daemon.LoadAuthority(cfg, time.Now, ring)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the server: %w", err)
	}
	r := cfg.BrokerRequest(s.Name)
	r.PublicKey = key.Public()
	issued, err := authority.Issue(r)
	if err != nil {
		return nil, fmt.Errorf("certificate of the server: %w", err)
	}
	text, err := keyfile.Marshal(key, nil)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		serverKeyFile:         text,
		serverCertificateFile: []byte(issued.Chain + authority.RootsPEM()),
		serverCAFile:          []byte(authority.RootsPEM()),
	}, nil
}
