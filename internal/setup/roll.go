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

// A Roll makes the next certificate authority of an installation.
type Roll struct {
	// Config is the path of provisioner.yaml. Required.
	Config string

	// RootKey is the current root's key; "" means root-key.pem beside its certificate.
	RootKey string

	// Keys finds the passphrase of the current keys. New keys are encrypted like the current ones.
	Keys keyfile.Ring

	// Now defaults to [time.Now].
	Now func() time.Time
}

// A Rolled is a new authority on disk that provisioner.yaml does not name yet: see [Rolled.Lines].
type Rolled struct {
	Dir         string // of the new authority
	RootKey     string // path of the root's key, to be moved off the machine
	Fingerprint string // of the root; see [ca.Authority.Fingerprint]
	Found       bool   // made by an earlier run
	Brokers     bool   // external brokers need new certificates

	config string        // path without links
	before daemon.Config // as configured
	after  daemon.Config // to be configured
	keys   *keyfile.Ring
}

// Make writes the complete new authority, or nothing. It overwrites no file. Until provisioner.yaml changes, a repeated
// Make returns the authority of the first.
func (r *Roll) Make() (*Rolled, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	out, err := r.read()
	if err != nil {
		return nil, err
	}
	old, err := daemon.ReadCertificate(out.before.CA.Root)
	if err != nil {
		return nil, err
	}
	_, n := ca.Generation(old)
	out.Dir = filepath.Join(filepath.Dir(out.config), fmt.Sprintf("ca-%d", n+1))
	out.RootKey = filepath.Join(out.Dir, rootKeyFile)
	out.name()
	switch _, err := os.Lstat(out.Dir); {
	case err == nil:
		if _, err := os.Stat(filepath.Join(out.Dir, rootFile)); err != nil { // Make leaves no incomplete directory
			return nil, fmt.Errorf("%s exists, but has no authority of a roll-over: remove it",
				out.Dir)
		}
		out.Found = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if err := r.make(out, old); err != nil {
			return nil, err
		}
	}
	return out, out.check(r.Now)
}

// read refuses a second roll-over before the first is over.
func (r *Roll) read() (*Rolled, error) {
	path, err := filepath.EvalSymlinks(r.Config)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	if len(cfg.CA.Previous) > 0 {
		return nil, fmt.Errorf("%s: ca.previous is set, so the last roll-over is not over: remove ca.previous once "+
			"the provisioner's log says that the previous authority has no live certificate", path)
	}
	r.Keys.File = cmp.Or(r.Keys.File, cfg.Keys.PassphraseFile)
	return &Rolled{Brokers: cfg.Broker.URL != "", config: path, before: cfg, keys: &r.Keys}, nil
}

func (r *Rolled) name() {
	r.after = r.before
	r.after.CA.Root, r.after.CA.Certificate = filepath.Join(r.Dir, rootFile), filepath.Join(r.Dir, issuingFile)
	r.after.CA.Key = filepath.Join(r.Dir, issuingKeyFile)
	r.after.CA.Previous = []daemon.PreviousConfig{{
		Root:        r.before.CA.Root,
		Certificate: r.before.CA.Certificate,
		Key:         r.before.CA.Key,
		Cross:       filepath.Join(r.Dir, crossFile),
	}}
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

func (r *Roll) make(out *Rolled, old *x509.Certificate) error {
	keyPath := cmp.Or(r.RootKey, filepath.Join(filepath.Dir(out.before.CA.Root), rootKeyFile))
	rootKey, rootPass, err := readRootKey(&r.Keys, keyPath, r.RootKey == "")
	if err != nil {
		return err
	}
	defer clear(rootPass)
	_, issuingPass, err := r.Keys.SignerAndPassphrase(out.before.CA.Key)
	if err != nil {
		return err
	}
	defer clear(issuingPass)
	next, err := ca.Roll(ca.RollConfig{Root: old, RootKey: rootKey, TrustDomain: out.before.TrustDomain, Now: r.Now})
	if err != nil {
		return fmt.Errorf("%s and %s: %w", out.before.CA.Root, keyPath, err)
	}
	return makeDir(out.Dir, 0o755, func(w *writer) error { // the keys in it are 0600
		w.file(rootFile, 0o644, []byte(next.RootPEM))
		w.file(issuingFile, 0o644, []byte(next.IssuingPEM))
		w.file(crossFile, 0o644, []byte(next.CrossPEM))
		w.passphrase = rootPass
		w.key(rootKeyFile, next.RootKey)
		w.passphrase = issuingPass
		w.key(issuingKeyFile, next.IssuingKey)
		return cmp.Or(w.err, giveToOwnerOf(out.before.CA.Key, w.dir))
	})
}

func readRootKey(keys *keyfile.Ring, path string, byDefault bool) (crypto.Signer, []byte, error) {
	key, passphrase, err := keys.SignerAndPassphrase(path)
	if errors.Is(err, fs.ErrNotExist) && byDefault {
		err = fmt.Errorf("%w: bring the root's key back to this machine, or name its file with --root-key", err)
	}
	return key, passphrase, err
}

// check verifies that the new authority is readable and succeeds the old one.
func (r *Rolled) check(now func() time.Time) error {
	authority, err := daemon.LoadAuthority(r.after, now, r.keys)
	if err != nil && r.Found && !errors.Is(err, fs.ErrPermission) { // else no reason to remove the directory
		return fmt.Errorf("%s cannot be used; it may be of another authority "+
			"(if no roll-over was begun with it, remove it): %w", r.Dir, err)
	}
	if err != nil {
		return err
	}
	r.Fingerprint = authority.Fingerprint()
	return nil
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
