package puppet

import (
	"errors"
	"fmt"
	"net"

	"muster/internal/conffile"
	"muster/internal/wire"
)

// Reserved are names that no node of this gateway can have: they mean something else in paths, or to agents.
var Reserved = []string{"puppet", "ca", "autosign", "validate"}

// Settings is `puppet:` in provisioner.yaml, as `muster ca puppet` prints it.
type Settings struct {
	// Empty: no gateway, but its authority is trusted.
	Listen string `yaml:"listen"`

	// Host names and addresses; reserved.
	Names []string `yaml:"names"`

	// Issuing certificate and root in PEM, served as it is.
	Bundle string `yaml:"bundle"`

	Key string `yaml:"key"`

	RootCRL string `yaml:"root_crl"`
}

// Enabled reports whether there is a gateway.
func (s *Settings) Enabled() bool { return s.Listen != "" }

// Hosts returns the names of the gateway's certificate.
func (s *Settings) Hosts() (names []string, addresses []net.IP) {
	for _, n := range s.Names {
		if ip := net.ParseIP(n); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, n)
		}
	}
	return names, addresses
}

// Configured reports whether there is an authority for agents.
func (s *Settings) Configured() bool { return s.Bundle != "" }

// Files returns the paths.
func (s *Settings) Files() []*string { return []*string{&s.Bundle, &s.Key, &s.RootCRL} }

// Check lists the mistakes, each with its key. It reads no file.
func (s *Settings) Check() []error {
	var errs []error
	for i, n := range s.Names {
		if _, err := wire.ParseIdentity(n); err != nil && net.ParseIP(n) == nil {
			errs = append(errs, conffile.Prefix(fmt.Sprintf("puppet.names[%d]", i), err))
		}
	}
	if s.Listen == "" && len(s.Names) == 0 && s.Bundle == "" && s.Key == "" && s.RootCRL == "" {
		return nil
	}
	if s.Enabled() && len(s.Names) == 0 {
		errs = append(errs, errors.New("puppet.names: missing: the names and addresses under which agents reach it"))
	}
	for i, key := range []string{"bundle", "key", "root_crl"} {
		if *s.Files()[i] == "" {
			errs = append(errs, errors.New("puppet."+key+": missing: `muster ca puppet` makes it"))
		}
	}
	return errs
}
