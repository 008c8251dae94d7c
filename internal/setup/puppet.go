package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/keyfile"
	"muster/provisioner/ca"
	"muster/provisioner/puppet"
)

// Puppet makes the authority of Puppet agents, beside the configuration.
type Puppet struct {
	// Config is the path of provisioner.yaml. Required.
	Config string

	// RootKey is the root's key; "" means root-key.pem beside its certificate.
	RootKey string

	// Keys finds the passphrase of the keys. The new key is encrypted like the issuing one.
	Keys keyfile.Ring

	// Now defaults to [time.Now].
	Now func() time.Time
}

// MadePuppet is an authority of Puppet agents on disk.
type MadePuppet struct {
	Dir     string
	RootKey string // path of the root's key
	Found   bool   // made by an earlier run
	Lines   string // `puppet:` of provisioner.yaml
}

const puppetDir = "puppet-ca"

// Make writes all files or nothing. It overwrites no file: a repeated Make returns the authority of the first.
func (p *Puppet) Make() (*MadePuppet, error) {
	path, err := filepath.EvalSymlinks(p.Config)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	p.Keys.File = cmp.Or(p.Keys.File, cfg.Keys.PassphraseFile)
	made := &MadePuppet{
		Dir:     filepath.Join(filepath.Dir(path), puppetDir),
		RootKey: cmp.Or(p.RootKey, filepath.Join(filepath.Dir(cfg.CA.Root), rootKeyFile)),
	}
	is := puppet.Settings{
		Listen:  ":8140",
		Names:   cfg.API.Names,
		Bundle:  filepath.Join(puppetDir, bundleFile),
		Key:     filepath.Join(puppetDir, keyFile),
		RootCRL: filepath.Join(puppetDir, rootCRLFile),
	}
	if len(is.Names) == 0 {
		is.Names = cfg.Broker.Names
	}
	if made.Lines, err = conffile.MarshalYAML(map[string]any{"puppet": is}); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(made.Dir); err == nil {
		made.Found = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	} else if err := p.make(made, &cfg); err != nil {
		return nil, err
	}
	cfg.Puppet = puppet.Settings{}
	for i, file := range []string{bundleFile, keyFile, rootCRLFile} {
		*cfg.Puppet.Files()[i] = filepath.Join(made.Dir, file)
	}
	_, err = cfg.LoadPuppet(p.Now, &p.Keys)
	return made, err
}

// Files of the authority of Puppet agents.
const (
	bundleFile  = "bundle.pem"
	keyFile     = "key.pem"
	rootCRLFile = "root-crl.pem"
)

func (p *Puppet) make(made *MadePuppet, cfg *daemon.Config) error {
	root, err := daemon.ReadCertificate(cfg.CA.Root)
	if err != nil {
		return err
	}
	rootKey, unused, err := readRootKey(&p.Keys, made.RootKey, p.RootKey == "")
	if err != nil {
		return err
	}
	clear(unused)
	_, passphrase, err := p.Keys.SignerAndPassphrase(cfg.CA.Key)
	if err != nil {
		return err
	}
	defer clear(passphrase)
	branch, err := ca.NewBranch(ca.BranchConfig{Root: root, RootKey: rootKey, Now: p.Now})
	if err != nil {
		return fmt.Errorf("%s and %s: %w", cfg.CA.Root, made.RootKey, err)
	}
	return makeDir(made.Dir, 0o755, func(w *writer) error { // the key in it is 0600
		w.passphrase = passphrase
		w.file(bundleFile, 0o644, []byte(branch.BundlePEM))
		w.file(rootCRLFile, 0o644, []byte(branch.RootCRLPEM))
		w.key(keyFile, branch.Key)
		return cmp.Or(w.err, giveToOwnerOf(cfg.CA.Key, w.dir))
	})
}
