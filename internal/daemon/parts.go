package daemon

import (
	"crypto"
	"crypto/ecdh"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"muster/internal/conffile"
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
// once.
func loadParts(cfg Config, opts Options) (*parts, error) {
	p := &parts{site: jwt.Site(cfg.Site)}
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	var err error
	p.tokens, err = loadSigners(cfg, opts)
	add("tokens", err)
	p.authority, err = loadAuthority(cfg, opts)
	add("ca", err)
	if err == nil {
		p.certificate = &brokerCertificate{cfg: cfg, authority: p.authority, now: opts.Now, log: opts.Log}
		p.shown, err = p.certificate.issue()
		add("broker", err)
	}
	for i, path := range cfg.Seal.Keys {
		add(fmt.Sprintf("seal.keys[%d]", i), checkSealKey(path))
	}
	p.policy, err = policies.Load(policies.Config{Paths: []string{cfg.Policy}, Log: opts.Log, Now: opts.Now})
	add("policy", err)
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

func loadSigners(cfg Config, opts Options) (*jwt.Verifier, error) {
	var errs []error
	var signers []jwt.Signer
	for _, c := range cfg.Tokens.Signers {
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
	return ca.New(ca.Config{
		Root: root, Issuing: issuing, Key: key, TrustDomain: cfg.TrustDomain,
		MaxTTL: cfg.Certificates.MaxLifetime, DefaultTTL: cfg.Certificates.Lifetime, Now: opts.Now,
	})
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
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		return fmt.Errorf("%s: want one PRIVATE KEY block in PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if k, ok := key.(*ecdh.PrivateKey); !ok || k.Curve() != ecdh.X25519() {
		return fmt.Errorf("%s: key is %T, want X25519", path, key)
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
		h, err := helper.New(helper.Config{Command: command, Timeout: cfg.Configuration.Timeout, Log: opts.Log})
		if err != nil {
			return nil, fmt.Errorf("helper: %w", err)
		}
		return helped{h}, nil
	default:
		return nil, nil
	}
}
