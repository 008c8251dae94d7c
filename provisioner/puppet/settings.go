package puppet

import (
	"errors"
	"fmt"
	"net"

	"muster/internal/conffile"
	"muster/internal/wire"
)

// Settings is `puppet:` in provisioner.yaml. Paths are relative to the file's directory.
type Settings struct {
	// Listen is the address, like ":8140". Empty: no gateway, but certificates of its authority stay known.
	Listen string `yaml:"listen"`

	// Names are host names and addresses under which agents reach the gateway; reserved.
	Names []string `yaml:"names"`

	// Bundle has the issuing certificate and the root in PEM, as `muster ca puppet` writes them. Agents get its bytes.
	Bundle string `yaml:"bundle"`

	// Key is the issuing certificate's.
	Key string `yaml:"key"`

	// RootCRL is a list of the root, in PEM, that is good as long as the root.
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
			errs = append(errs, conffile.Prefix(fmt.Sprintf("names[%d]", i), err))
		}
	}
	if s.Listen == "" && len(s.Names) == 0 && s.Bundle == "" && s.Key == "" && s.RootCRL == "" {
		return nil
	}
	if s.Enabled() && len(s.Names) == 0 {
		errs = append(errs, errors.New("names: missing: the names and addresses under which agents reach it"))
	}
	for i, key := range []string{"bundle", "key", "root_crl"} {
		if *s.Files()[i] == "" {
			errs = append(errs, errors.New(key+": missing: `muster ca puppet` makes it"))
		}
	}
	return errs
}
