package setup

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/keyfile"
	"muster/provisioner/ca"
)

// Files of an authority.
const (
	rootFile       = "root.pem"
	rootKeyFile    = "root-key.pem"
	issuingFile    = "issuing.pem"
	issuingKeyFile = "issuing-key.pem"
	crossFile      = "cross.pem"
)

// A Maker makes certificate authorities of an installation.
type Maker struct {
	// Config is the path of provisioner.yaml. Required.
	Config string

	// RootKey is the current root's key; "" means root-key.pem beside its certificate.
	RootKey string

	// Keys finds the passphrase of the current keys. New keys are encrypted like the current ones.
	Keys keyfile.Ring

	// Now defaults to [time.Now].
	Now func() time.Time
}

// read returns the configuration, and its path without links.
func (m *Maker) read() (path string, cfg daemon.Config, err error) {
	if m.Now == nil {
		m.Now = time.Now
	}
	if path, err = filepath.EvalSymlinks(m.Config); err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		cfg, err = daemon.ReadConfig(path)
	}
	m.Keys.File = cmp.Or(m.Keys.File, cfg.Keys.PassphraseFile)
	return path, cfg, err
}

func (m *Maker) rootKeyPath(cfg *daemon.Config) string {
	return cmp.Or(m.RootKey, filepath.Join(filepath.Dir(cfg.CA.Root), rootKeyFile))
}

// rootKey reads the root's key and its passphrase.
func (m *Maker) rootKey(cfg *daemon.Config) (crypto.Signer, []byte, error) {
	key, passphrase, err := m.Keys.SignerAndPassphrase(m.rootKeyPath(cfg))
	if errors.Is(err, fs.ErrNotExist) && m.RootKey == "" {
		err = fmt.Errorf("%w: bring the root's key back to this machine, or name its file with --root-key", err)
	}
	return key, passphrase, err
}

// A Rolled is a new authority on disk that provisioner.yaml does not name yet: see [Rolled.Lines].
type Rolled struct {
	Dir         string // of the new authority
	RootKey     string // path of the root's key, to be moved off the machine
	Fingerprint string // of the root; see [ca.Authority.Fingerprint]
	Found       bool   // made by an earlier run
	Brokers     bool   // external brokers need new certificates

	config string        // path without links
	after  daemon.Config // to be configured
}

// Roll makes the complete next authority, or nothing. It overwrites no file. Until provisioner.yaml changes, a repeated
// Roll returns the authority of the first. A second roll-over is refused before the first is over.
func (m *Maker) Roll() (*Rolled, error) {
	path, cfg, err := m.read()
	if err != nil {
		return nil, err
	}
	if len(cfg.CA.Previous) > 0 {
		return nil, fmt.Errorf("%s: ca.previous is set, so the last roll-over is not over: remove ca.previous once "+
			"the provisioner's log says that the previous authority has no live certificate", path)
	}
	old, err := daemon.ReadCertificate(cfg.CA.Root)
	if err != nil {
		return nil, err
	}
	_, n := ca.Generation(old)
	dir := filepath.Join(filepath.Dir(path), fmt.Sprintf("ca-%d", n+1))
	out := &Rolled{
		Dir:     dir,
		RootKey: filepath.Join(dir, rootKeyFile),
		Brokers: cfg.Broker.URL != "",
		config:  path,
		after:   cfg,
	}
	is := &out.after.CA
	is.Root, is.Certificate = filepath.Join(dir, rootFile), filepath.Join(dir, issuingFile)
	is.Key = filepath.Join(dir, issuingKeyFile)
	is.Previous = []daemon.PreviousConfig{{
		Root:        cfg.CA.Root,
		Certificate: cfg.CA.Certificate,
		Key:         cfg.CA.Key,
		Cross:       filepath.Join(dir, crossFile),
	}}
	switch _, err := os.Lstat(dir); {
	case err == nil:
		if _, err := os.Stat(is.Root); err != nil { // Roll leaves no incomplete directory
			return nil, fmt.Errorf("%s exists, but has no authority of a roll-over: remove it", dir)
		}
		out.Found = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if err := m.roll(dir, &cfg, old); err != nil {
			return nil, err
		}
	}
	// The new authority must be readable and succeed the old one.
	authority, err := daemon.LoadAuthority(out.after, m.Now, &m.Keys)
	if err != nil && out.Found && !errors.Is(err, fs.ErrPermission) { // else no reason to remove the directory
		err = fmt.Errorf("%s cannot be used; it may be of another authority "+
			"(if no roll-over was begun with it, remove it): %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	out.Fingerprint = authority.Fingerprint()
	return out, nil
}

// Lines returns the new `ca:` section of provisioner.yaml.
func (r *Rolled) Lines() (string, error) {
	is := r.after.CA
	is.Previous = slices.Clone(is.Previous)
	before := &is.Previous[0]
	for _, path := range []*string{
		&is.Root, &is.Certificate, &is.Key, &before.Root, &before.Certificate, &before.Key, &before.Cross,
	} {
		if rel, err := filepath.Rel(filepath.Dir(r.config), *path); err == nil && filepath.IsLocal(rel) {
			*path = rel
		}
	}
	return conffile.MarshalYAML(map[string]any{"ca": is})
}

func (m *Maker) roll(dir string, cfg *daemon.Config, old *x509.Certificate) error {
	rootKey, rootPass, err := m.rootKey(cfg)
	if err != nil {
		return err
	}
	defer clear(rootPass)
	_, issuingPass, err := m.Keys.SignerAndPassphrase(cfg.CA.Key)
	if err != nil {
		return err
	}
	defer clear(issuingPass)
	next, err := ca.Roll(old, rootKey, m.Now())
	if err != nil {
		return fmt.Errorf("%s and %s: %w", cfg.CA.Root, m.rootKeyPath(cfg), err)
	}
	return makeDir(dir, 0o755, func(w *writer) error { // the keys in it are 0600
		w.file(rootFile, 0o644, []byte(next.RootPEM))
		w.file(issuingFile, 0o644, []byte(next.IssuingPEM))
		w.file(crossFile, 0o644, []byte(next.CrossPEM))
		w.passphrase = rootPass
		w.key(rootKeyFile, next.RootKey)
		w.passphrase = issuingPass
		w.key(issuingKeyFile, next.IssuingKey)
		return cmp.Or(w.err, giveToOwnerOf(cfg.CA.Key, w.dir))
	})
}

// ReadAuthorities describes the certificate authorities of a configuration file, the current one first. It reads no key
// and verifies no chain.
func ReadAuthorities(path string) ([]ca.CertificateInfo, error) {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	present, previous, err := cfg.ReadAuthorities()
	if err != nil {
		return nil, err
	}
	var branches []ca.Previous
	if cfg.Puppet.Configured() {
		_, branch, err := cfg.Puppet.ReadBundle()
		if err != nil {
			return nil, err
		}
		branches = append(branches, branch)
	}
	return ca.Describe(present, previous, branches...), nil
}
