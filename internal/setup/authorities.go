package setup

import (
	"errors"

	"muster/internal/daemon"
	"muster/provisioner/ca"
)

// ReadAuthorities describes the certificate authorities of a configuration file, the current one first. It reads no key
// and verifies no chain.
func ReadAuthorities(path string) ([]ca.CertificateInfo, error) {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	present, err := (&daemon.PreviousConfig{Root: cfg.CA.Root, Certificate: cfg.CA.Certificate}).Read()
	var previous []ca.Previous
	for _, p := range cfg.CA.Previous {
		read, unread := p.Read()
		err = errors.Join(err, unread)
		previous = append(previous, read)
	}
	if err != nil {
		return nil, err
	}
	return ca.Describe(present, previous), nil
}
