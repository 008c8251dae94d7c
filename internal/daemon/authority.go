package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/provisioner/ca"
)

// Keyring returns the reader of private keys.
func (c *Config) Keyring(ring *keyfile.Ring) *keyfile.Ring {
	clone := ring.Clone()
	if clone.File == "" {
		clone.File = c.Keys.PassphraseFile
	}
	return clone
}

// LoadAuthority reads the authority and the previous ones, whose keys may be missing.
func LoadAuthority(cfg Config, now func() time.Time, keys *keyfile.Ring) (*ca.Authority, error) {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	root, err := ReadCertificate(cfg.CA.Root)
	note(err)
	issuing, err := ReadCertificate(cfg.CA.Certificate)
	note(err)
	key, err := keys.Signer(cfg.CA.Key)
	note(err)
	var previous []ca.Previous
	for _, p := range cfg.CA.Previous {
		read, err := p.Read()
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
		Root:        root,
		Issuing:     issuing,
		Key:         key,
		TrustDomain: cfg.TrustDomain,
		Previous:    previous,
		MaxTTL:      time.Duration(cfg.Certificates.MaxLifetime),
		DefaultTTL:  time.Duration(cfg.Certificates.Lifetime),
		Now:         now,
	})
	if err == nil {
		err = authority.Try(cfg.BrokerRequest(cfg.Name))
	}
	if err != nil {
		return nil, conffile.Prefix(fmt.Sprintf("%s, %s and %s", cfg.CA.Root, cfg.CA.Certificate, cfg.CA.Key), err)
	}
	return authority, nil
}

// Read reads the certificates of a previous authority.
func (p *PreviousConfig) Read() (read ca.Previous, err error) {
	var errs [3]error
	read.Root, errs[0] = ReadCertificate(p.Root)
	read.Issuing, errs[1] = ReadCertificate(p.Certificate)
	if p.Cross != "" {
		read.Cross, errs[2] = ReadCertificates(p.Cross)
	}
	return read, errors.Join(errs[:]...)
}

// ReadCertificate reads a file with exactly one certificate.
func ReadCertificate(path string) (*x509.Certificate, error) {
	certificates, err := ReadCertificates(path)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("%s: %d certificates, want 1", path, len(certificates))
	}
	return certificates[0], nil
}

// ReadCertificates reads all certificates in a file.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	b, err := inputfile.ReadText(path, inputfile.Configured)
	if err != nil {
		return nil, err
	}
	certificates, err := ca.ParseCertificates(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificates, nil
}

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
