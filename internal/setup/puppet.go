package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/provisioner/ca"
	"muster/provisioner/puppet"
)

// MadePuppet is an authority of Puppet agents on disk.
type MadePuppet struct {
	Dir     string
	RootKey string // path of the root's key
	Found   bool   // made by an earlier run
	Lines   string // `puppet:` of provisioner.yaml
}

const puppetDir = "puppet-ca"

// Puppet makes the authority of Puppet agents, beside the configuration: all files or nothing. It overwrites no file: a
// repeated Puppet returns the authority of the first.
func (m *Maker) Puppet() (*MadePuppet, error) {
	path, cfg, err := m.read()
	if err != nil {
		return nil, err
	}
	made := &MadePuppet{Dir: filepath.Join(filepath.Dir(path), puppetDir), RootKey: m.rootKeyPath(&cfg)}
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
	} else if err := m.makePuppet(made.Dir, &cfg); err != nil {
		return nil, err
	}
	cfg.Puppet = puppet.Settings{}
	for i, file := range []string{bundleFile, keyFile, rootCRLFile} {
		*cfg.Puppet.Files()[i] = filepath.Join(made.Dir, file)
	}
	_, err = cfg.LoadPuppet(m.Now, &m.Keys)
	return made, err
}

// Files of the authority of Puppet agents.
const (
	bundleFile  = "bundle.pem"
	keyFile     = "key.pem"
	rootCRLFile = "root-crl.pem"
)

func (m *Maker) makePuppet(dir string, cfg *daemon.Config) error {
	root, err := daemon.ReadCertificate(cfg.CA.Root)
	if err != nil {
		return err
	}
	rootKey, unused, err := m.rootKey(cfg)
	if err != nil {
		return err
	}
	clear(unused)
	_, passphrase, err := m.Keys.SignerAndPassphrase(cfg.CA.Key)
	if err != nil {
		return err
	}
	defer clear(passphrase)
	branch, err := ca.NewBranch(root, rootKey, m.Now())
	if err != nil {
		return fmt.Errorf("%s and %s: %w", cfg.CA.Root, m.rootKeyPath(cfg), err)
	}
	return makeDir(dir, 0o755, func(w *writer) error { // the key in it is 0600
		w.passphrase = passphrase
		w.file(bundleFile, 0o644, []byte(branch.BundlePEM))
		w.file(rootCRLFile, 0o644, []byte(branch.RootCRLPEM))
		w.key(keyFile, branch.Key)
		return cmp.Or(w.err, giveToOwnerOf(cfg.CA.Key, w.dir))
	})
}
