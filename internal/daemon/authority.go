package daemon

import (
	"cmp"
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
	clone.File = cmp.Or(clone.File, c.Keys.PassphraseFile)
	return clone
}

// LoadAuthority reads the authority and the previous ones, whose keys may be missing. It reads no branch.
func LoadAuthority(cfg Config, now func() time.Time, keys *keyfile.Ring) (*ca.Authority, error) {
	return loadAuthority(cfg, now, keys, nil)
}

func loadAuthority(cfg Config, now func() time.Time, keys *keyfile.Ring, branch *ca.Authority) (*ca.Authority, error) {
	present, previous, err := cfg.ReadAuthorities()
	key, unread := keys.Signer(cfg.CA.Key)
	err = errors.Join(err, unread)
	for i, p := range cfg.CA.Previous {
		if p.Key != "" {
			previous[i].Key, unread = keys.Signer(p.Key)
			err = errors.Join(err, unread)
		}
	}
	if err != nil {
		return nil, err
	}
	authority, err := ca.New(ca.Config{
		Root:        present.Root,
		Issuing:     present.Issuing,
		Key:         key,
		TrustDomain: cfg.TrustDomain,
		Previous:    previous,
		MaxTTL:      time.Duration(cfg.Certificates.MaxLifetime),
		DefaultTTL:  time.Duration(cfg.Certificates.Lifetime),
		Branch:      branch,
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

// ReadAuthorities reads the certificates of all authorities, but no key.
func (c *Config) ReadAuthorities() (present ca.Previous, previous []ca.Previous, err error) {
	present, err = (&PreviousConfig{Root: c.CA.Root, Certificate: c.CA.Certificate}).read()
	for _, p := range c.CA.Previous {
		read, unread := p.read()
		err = errors.Join(err, unread)
		previous = append(previous, read)
	}
	return present, previous, err
}

func (p *PreviousConfig) read() (read ca.Previous, err error) {
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
	return inputfile.Parse(path, inputfile.Configured, ca.ParseCertificates)
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
