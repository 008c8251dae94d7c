package bench

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"muster/internal/daemon"
	"muster/internal/seal"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/choria"
)

// policy has about 30 lines that read facts, like a real fleet's.
//
//go:embed policy.rego
var policy []byte

func signerKey(kind string) (crypto.Signer, error) {
	if kind == "ed25519" {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return rsa.GenerateKey(rand.Reader, 4096)
}

// install makes a setup in a temporary directory, as `muster provisioner init` does.
func install(cfg *Config) (_ *serving, err error) {
	s := &serving{}
	if s.dir, err = os.MkdirTemp("", "muster-bench-"); err != nil {
		return nil, fmt.Errorf("%w: set TMPDIR to a directory for it", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()
	installation := setup.Installation{
		Name:          "provisioner.bench.muster",
		TrustDomain:   "bench.muster",
		Listen:        "127.0.0.1:0",
		BrokerNames:   []string{"localhost"},
		Addresses:     []string{"127.0.0.1"},
		TrustFirstUse: true,
	}
	if cfg.Provisioners > 0 {
		if s.broker, err = freePort(); err != nil {
			return nil, err
		}
		installation.Cluster, installation.Replicas = "tls://"+s.broker, 1
	}
	if err := setup.Init(s.home(), installation); err != nil {
		return nil, err
	}
	if err := s.configure(cfg); err != nil {
		return nil, err
	}
	if cfg.Provisioners > 0 {
		return s, s.installExternal(cfg)
	}
	return s, nil
}

// configure replaces signer and policy, and removes the quotas, since all nodes have one address and token.
func (s *serving) configure(cfg *Config) (err error) {
	if s.key, err = signerKey(cfg.Token.Key); err != nil {
		return err
	}
	public, err := jwt.MarshalPublicKey(s.key.Public())
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.config(0))
	if err != nil {
		return err
	}
	gateway, err := s.gateway(cfg)
	if err != nil {
		return err
	}
	agents, err := s.puppetSection(cfg)
	if err != nil {
		return err
	}
	edited := strings.NewReplacer(
		"\nquotas:\n", "\nquotas:\n  per_token: 0\n  per_source: 0\n  verifications_per_source: 0\n",
		"\nchoria:\n", "\nchoria:\n"+gateway,
		"\npuppet:\n", "\n"+agents,
	)
	policies := filepath.Join(s.home(), "policy")
	root, rerr := os.ReadFile(filepath.Join(s.home(), "ca", "root.pem"))
	key, serr := os.ReadFile(filepath.Join(s.home(), "seal.pub"))
	if err := errors.Join(
		rerr,
		serr,
		os.WriteFile(s.config(0), []byte(edited.Replace(string(text))), 0o644),
		os.WriteFile(filepath.Join(s.home(), "signer.pem"), public, 0o644),
		os.RemoveAll(policies),
		os.Mkdir(policies, 0o755),
		os.WriteFile(filepath.Join(policies, "bench.rego"), policy, 0o644),
	); err != nil {
		return err
	}
	if s.seal, err = seal.ParsePublicKey(strings.TrimSpace(string(key))); err != nil {
		return err
	}
	roots, err := ca.ParseCertificates(root)
	if err != nil {
		return fmt.Errorf("root.pem: %w", err)
	}
	s.root = roots[0]
	return nil
}

func (s *serving) pin() string { return fmt.Sprintf("%x", sha256.Sum256(s.root.Raw)) }

func (s *serving) token(cfg *Config) (string, error) {
	if s.given != "" || cfg.Puppet.Enabled { // such agents need none
		return s.given, nil
	}
	now := time.Now().UTC()
	c := jwt.Claims{
		Token:      "bench",
		Brokers:    strings.TrimPrefix(s.url, "nats://"),
		Default:    true,
		Secure:     cfg.Connection.TLS,
		ProtocolV2: cfg.Choria == choria.V2,
		Purpose:    jwt.Purpose,
		Subject:    jwt.Purpose,
		Issuer:     "muster bench",
		IssuedAt:   now,
		ExpiresAt:  now.Add(24 * time.Hour),
		JTI:        jwt.NewJTI(),
	}
	limits := jwt.Limits{Uses: cfg.Token.Uses, CA: s.pin()}
	if cfg.Connection.Sealed {
		limits.Seal = s.seal.String()
	}
	if err := c.SetLimits(limits); err != nil {
		return "", err
	}
	return jwt.Sign(s.key, c)
}

// commands returns the arguments of the serving processes in their order; the last one is a provisioner.
func (s *serving) commands(cfg *Config) (all [][]string) {
	if cfg.Provisioners > 0 {
		all = append(all, []string{"broker", "run", filepath.Join(s.brokerDir(), "nats-server.conf")})
	}
	for i := range max(1, cfg.Provisioners) {
		all = append(all, []string{"provisioner", "run", "--config", s.config(i)})
	}
	return all
}

func (s *serving) brokerDir() string { return filepath.Join(s.dir, "broker") }

func (s *serving) config(i int) string {
	if i == 0 {
		return filepath.Join(s.home(), "provisioner.yaml")
	}
	return filepath.Join(s.home(), "provisioner"+strconv.Itoa(i+1)+".yaml")
}

// freePort returns an unused address. If another process takes it, the broker's start fails.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port), err
}

// installExternal makes the broker's files, and the configurations of all further provisioners: the same keys, with
// their own name and data_dir.
func (s *serving) installExternal(cfg *Config) error {
	server := setup.BrokerServer{Dir: s.brokerDir()}
	server.Name = "broker.bench.muster"
	server.Listen = strings.Replace(s.broker, "localhost", "127.0.0.1", 1)
	server.StoreDir = filepath.Join(s.brokerDir(), "store")
	if err := server.Write(s.config(0), s.brokerDir()); err != nil {
		return fmt.Errorf("configure a broker: %w", err)
	}
	text, err := os.ReadFile(s.config(0))
	if err != nil {
		return err
	}
	for i := 1; i < cfg.Provisioners; i++ {
		data := "data" + strconv.Itoa(i+1)
		own := strings.NewReplacer(
			"\nname: provisioner.", fmt.Sprintf("\nname: provisioner%d.", i+1),
			"\ndata_dir: data\n", "\ndata_dir: "+data+"\n",
		)
		err := errors.Join(
			os.WriteFile(s.config(i), []byte(own.Replace(string(text))), 0o644),
			os.Mkdir(filepath.Join(s.home(), data), 0o700),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// As many requests as a provisioner handles at a time.
const fillers = 256

// fill writes records of provisioned nodes before the serving provisioner starts, through a provisioner in this
// process.
func (s *serving) fill(ctx context.Context, cfg *Config) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "fill.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	config, logger := filepath.Join(s.home(), "provisioner.yaml"), slog.New(slog.NewTextHandler(log, nil))
	d, err := daemon.Load(config, daemon.Options{Log: logger}) //nolint:contextcheck // policy tests have a time-out
	if err != nil {
		return err
	}
	err = d.RunDuring(ctx, func(ctx context.Context) error {
		s.url = d.BrokerURL()
		f, err := s.provision(ctx, cfg, 1)
		if err != nil {
			return err
		}
		model, _, err := d.Store().Record(ctx, wire.Identity(f.nodes[0].Identity))
		if err != nil {
			return err
		}
		return each(ctx, cfg.Stored-1, fillers, func(i int) error {
			_, err := d.Store().Put(ctx, anotherRecord(*model, identityOf(f.run, i+1)), 0)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	debug.FreeOSMemory()
	return nil
}

// anotherRecord returns a record of the same size for another node.
func anotherRecord(r provisioner.Record, identity string) *provisioner.Record {
	sum := sha256.Sum256([]byte(identity))
	hash, issued := hex.EncodeToString(sum[:]), *r.Current
	issued.Serial, issued.KeyHash, issued.Digest = hash[:32], hash, hash
	issued.DER = bytes.Repeat(sum[:], len(issued.DER)/len(sum))
	r.Identity, r.Current, r.Lineage = wire.Identity(identity), &issued, []string{hash}
	r.Attempt, r.Boot = wire.NewID(), wire.NewID()
	return &r
}
