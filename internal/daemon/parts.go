package daemon

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"muster/internal/conffile"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/helper"
)

// parts are what the configuration's files contain.
type parts struct {
	site         jwt.Site
	tokens       *jwt.Verifier
	authority    *ca.Authority
	certificate  *brokerCertificate
	shown        tls.Certificate // the broker's first
	policy       *policies.Engine
	allow        *allowList
	reserved     *reserved
	configurator provisioner.Configurator // nil if only the policy configures
}

// loadParts reads everything that cfg names, and reports everything wrong at
// once. Of a configuration that is not valid it reads what is named, for the
// errors only.
func loadParts(cfg Config, opts Options) (*parts, error) {
	p := &parts{site: jwt.Site(cfg.Site)}
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	var err error
	if len(cfg.Tokens.Signers) > 0 {
		p.tokens, err = loadSigners(cfg, opts)
		add("tokens", err)
	}
	if cfg.CA.Root != "" && cfg.CA.Certificate != "" && cfg.CA.Key != "" {
		p.authority, err = loadAuthority(cfg, opts)
		add("ca", err)
	}
	if p.authority != nil && len(cfg.Broker.Names) > 0 {
		p.certificate = &brokerCertificate{cfg: cfg, authority: p.authority, now: opts.Now, log: opts.Log}
		p.shown, err = p.certificate.issue()
		add("broker", err)
	}
	for i, path := range cfg.Seal.Keys {
		add(fmt.Sprintf("seal.keys[%d]", i), checkSealKey(path))
	}
	if cfg.DataDir != "" {
		add("data_dir", checkDataDir(cfg.DataDir))
	}
	if cfg.Policy != "" {
		p.policy, err = policies.Load(policies.Config{Paths: []string{cfg.Policy}, Log: opts.Log, Now: opts.Now})
		add("policy", err)
	}
	p.allow, err = loadAllowList(cfg.AllowList, opts)
	add("allow_list", err)
	p.reserved, err = newReserved(cfg, opts)
	add("reserved", err)
	p.configurator, err = loadConfigurator(cfg, opts)
	add("configuration", err)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

// checkDataDir reports why the data directory could not be used, before it is
// made: what is there must be a directory, and one that we can write to.
func checkDataDir(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir)
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no directory", dir)
		default:
			if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		}
	}
}

func loadSigners(cfg Config, opts Options) (*jwt.Verifier, error) {
	var errs []error
	var signers []jwt.Signer
	for _, c := range cfg.Tokens.Signers {
		if c.File == "" {
			continue // said already
		}
		b, err := os.ReadFile(c.File)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s, err := jwt.ParseSigner(b)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.File, err))
			continue
		}
		s.Name = c.name()
		for _, site := range c.Sites {
			s.Sites = append(s.Sites, jwt.Site(site))
		}
		for _, pattern := range c.Identities {
			s.Identities = append(s.Identities, wire.Pattern(pattern))
		}
		signers = append(signers, s)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return jwt.NewVerifier(jwt.VerifierConfig{Signers: signers, Now: opts.Now})
}

func loadAuthority(cfg Config, opts Options) (*ca.Authority, error) {
	var errs []error
	certificate := func(path string) *x509.Certificate {
		b, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		certificates, err := ca.ParseCertificates(b)
		if err == nil && len(certificates) != 1 {
			err = fmt.Errorf("%d certificates, want 1", len(certificates))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			return nil
		}
		return certificates[0]
	}
	root, issuing := certificate(cfg.CA.Root), certificate(cfg.CA.Certificate)
	key, err := readPrivateKey(cfg.CA.Key)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	authority, err := ca.New(ca.Config{
		Root: root, Issuing: issuing, Key: key, TrustDomain: cfg.TrustDomain,
		MaxTTL: cfg.Certificates.MaxLifetime, DefaultTTL: cfg.Certificates.Lifetime, Now: opts.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("%s, %s and %s: %w", cfg.CA.Root, cfg.CA.Certificate, cfg.CA.Key, err)
	}
	return authority, nil
}

// readPrivateKey reads a signing key that only we may read.
func readPrivateKey(path string) (crypto.Signer, error) {
	if err := conffile.CheckSecretFile(path); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := jwt.ParsePrivateKey(b, func() ([]byte, error) {
		return nil, errors.New("the key is encrypted, and a provisioner cannot ask for its passphrase: decrypt it with openssl pkcs8")
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// checkSealKey reports what is wrong with a key for sealed requests.
func checkSealKey(path string) error {
	if err := conffile.CheckSecretFile(path); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := seal.ParsePrivateKey(b); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func loadConfigurator(cfg Config, opts Options) (provisioner.Configurator, error) {
	switch {
	case cfg.Configuration.Template != "":
		b, err := os.ReadFile(cfg.Configuration.Template)
		if err != nil {
			return nil, err
		}
		t, err := newTemplate(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Configuration.Template, err)
		}
		return t, nil
	case cfg.Configuration.Helper != "":
		command, err := helper.Split(cfg.Configuration.Helper)
		if err != nil {
			return nil, fmt.Errorf("helper: %w", err)
		}
		// A program beside the configuration, as every other path.
		if strings.Contains(command[0], "/") && !filepath.IsAbs(command[0]) {
			command[0] = filepath.Join(cfg.dir, command[0])
		}
		h, err := helper.New(helper.Config{Command: command, Timeout: cfg.Configuration.Timeout, Log: opts.Log})
		if err != nil {
			return nil, err
		}
		return helped{h}, nil
	default:
		return nil, nil
	}
}
