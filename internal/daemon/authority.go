package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"

	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/provisioner/ca"
)

// keyring returns what reads the private keys that cfg names.
func (o *Options) keyring(cfg Config) *keyfile.Ring {
	ring := o.Keys.Clone()
	if ring.File == "" {
		ring.File = cfg.Keys.PassphraseFile
	}
	return ring
}

// loadAuthority reads certificates and key of the authority and of those before
// it, which may lack their keys.
func loadAuthority(cfg Config, opts Options, keys *keyfile.Ring) (*ca.Authority, error) {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	root, err := readCertificate(cfg.CA.Root)
	note(err)
	issuing, err := readCertificate(cfg.CA.Certificate)
	note(err)
	key, err := keys.Signer(cfg.CA.Key)
	note(err)
	var previous []ca.Previous
	for _, p := range cfg.CA.Previous {
		read, err := p.read()
		note(err)
		if p.Key != "" {
			read.Key, err = keys.Signer(p.Key)
			note(err)
		}
		previous = append(previous, read)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	authority, err := ca.New(ca.Config{
		Root: root, Issuing: issuing, Key: key, TrustDomain: cfg.TrustDomain, Previous: previous,
		MaxTTL: cfg.Certificates.MaxLifetime, DefaultTTL: cfg.Certificates.Lifetime, Now: opts.Now,
	})
	if err != nil {
		for _, err := range leaves(err) {
			note(fmt.Errorf("%s, %s and %s: %w", cfg.CA.Root, cfg.CA.Certificate, cfg.CA.Key, err))
		}
		return nil, errors.Join(errs...)
	}
	return authority, nil
}

// read reads the certificates of an authority before the present one.
func (p *PreviousConfig) read() (read ca.Previous, err error) {
	var errs [3]error
	read.Root, errs[0] = readCertificate(p.Root)
	read.Issuing, errs[1] = readCertificate(p.Certificate)
	if p.Cross != "" {
		read.Cross, errs[2] = readCertificates(p.Cross)
	}
	return read, errors.Join(errs[:]...)
}

// readCertificate reads the one certificate in a file.
func readCertificate(path string) (*x509.Certificate, error) {
	certificates, err := readCertificates(path)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("%s: %d certificates, want 1", path, len(certificates))
	}
	return certificates[0], nil
}

func readCertificates(path string) ([]*x509.Certificate, error) {
	b, err := conffile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certificates, err := ca.ParseCertificates(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificates, nil
}

// loadSealKey reads a key for sealed requests.
func loadSealKey(path string, keys *keyfile.Ring) (*seal.PrivateKey, error) {
	x, err := keys.X25519(path)
	if err != nil {
		return nil, err
	}
	key, err := seal.NewPrivateKey(x)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}
