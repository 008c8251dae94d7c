package setup

import (
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
	present, previous, err := cfg.ReadAuthorities()
	if err != nil {
		return nil, err
	}
	return ca.Describe(present, previous), nil
}
