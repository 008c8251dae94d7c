package choria

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/jwt"
)

// TokenFiles are the paths of a client JWT and of its seed.
type TokenFiles struct {
	Token string `yaml:"token"`
	Seed  string `yaml:"seed"`
}

// Load reads the files. The error may wrap [jwt.ErrClient].
func (f TokenFiles) Load() (*jwt.Client, error) {
	text, err := keyfile.ReadLine(f.Token, inputfile.Configured)
	if err != nil {
		return nil, err
	}
	seed, err := keyfile.ReadLine(f.Seed, inputfile.Configured)
	if err != nil {
		return nil, err
	}
	client, err := jwt.ParseClient(string(text), string(seed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Token, err)
	}
	return client, nil
}

// A Login has the files of a [Fleet]: of a certificate and its key, or of a token.
type Login struct {
	URL         string `yaml:"url"`
	CA          string `yaml:"ca"` // of the broker; "": the system's
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	TokenFiles  `yaml:",inline"`
}

// Load reads the files. The error says what servers would not take.
func (l Login) Load() (*Fleet, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	fleet := &Fleet{URL: l.URL, TLS: config}
	if l.CA != "" {
		b, err := inputfile.ReadText(l.CA, inputfile.Configured)
		if err != nil {
			return nil, err
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s: no certificate in PEM", l.CA)
		}
	}
	if l.Token != "" {
		var err error
		fleet.Client, err = l.TokenFiles.Load()
		return fleet, err
	}
	certificate, err := inputfile.ReadText(l.Certificate, inputfile.Configured)
	if err != nil {
		return nil, err
	}
	key, err := keyfile.ReadKey(l.Key, inputfile.Configured)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key) // with its Leaf
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Certificate, err)
	}
	fleet.Certificate, config.Certificates = &pair, []tls.Certificate{pair}
	return fleet, fleet.check()
}
