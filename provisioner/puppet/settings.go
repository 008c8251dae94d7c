package puppet

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
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

// DefaultTTL is the life of certificates of agents from version 8 on, which renew theirs.
const DefaultTTL = 365 * 24 * time.Hour

// An Authority issues the certificates of agents.
type Authority struct {
	*ca.Authority

	// Bundle and RootCRL are the files, which agents get byte for byte.
	Bundle, RootCRL []byte

	rootCRLEnds time.Time
}

// Load reads the authority, which has the trust domain and the clock of cfg, and tries to issue the gateway's own
// certificate.
func (s *Settings) Load(cfg ca.Config, own ca.Request, keys *keyfile.Ring) (*Authority, error) {
	a := &Authority{}
	text, branch, err := s.ReadBundle()
	key, unread := keys.Signer(s.Key)
	if err := errors.Join(err, unread); err != nil {
		return nil, err
	}
	a.Bundle = text
	cfg.Root, cfg.Issuing, cfg.Key = branch.Root, branch.Issuing, key
	cfg.Backdate, cfg.MaxTTL, cfg.DefaultTTL = ca.BranchBackdate, provisioner.PuppetMaxTTL, DefaultTTL
	if a.Authority, err = ca.New(cfg); err == nil {
		err = a.Try(own)
	}
	if err != nil {
		return nil, conffile.Prefix(s.Bundle+" and "+s.Key, err)
	}
	if err := a.readRootCRL(s.RootCRL, branch.Root); err != nil {
		return nil, fmt.Errorf("%s: %w", s.RootCRL, err)
	}
	return a, nil
}

// ReadBundle reads the certificates that agents trust, and no key.
func (s *Settings) ReadBundle() (text []byte, branch ca.Previous, err error) {
	if text, err = inputfile.ReadText(s.Bundle, inputfile.Configured); err != nil {
		return nil, ca.Previous{}, err
	}
	certificates, err := ca.ParseCertificates(text)
	if err == nil && len(certificates) != 2 {
		err = fmt.Errorf("%d certificates, want the issuing one and the root", len(certificates))
	}
	if err != nil {
		return nil, ca.Previous{}, fmt.Errorf("%s: %w", s.Bundle, err)
	}
	branch.Issuing, branch.Root = certificates[0], certificates[1]
	if bytes.Equal(branch.Issuing.RawSubject, branch.Issuing.RawIssuer) {
		branch.Issuing, branch.Root = branch.Root, branch.Issuing
	}
	return text, branch, nil
}

func (a *Authority) readRootCRL(path string, root *x509.Certificate) (err error) {
	if a.RootCRL, err = inputfile.ReadText(path, inputfile.Configured); err != nil {
		return err
	}
	block, _ := pem.Decode(a.RootCRL)
	if block == nil {
		return errors.New("not a CRL in PEM")
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err == nil {
		err = list.CheckSignatureFrom(root)
	}
	if err != nil {
		return fmt.Errorf("not a CRL of the root in the bundle: %w", err)
	}
	a.rootCRLEnds = list.NextUpdate
	return nil
}

// CheckRootCRL returns why agents refuse the authority, or nil.
func (a *Authority) CheckRootCRL(now time.Time) error {
	if now.Before(a.rootCRLEnds) {
		return nil
	}
	return fmt.Errorf("the root's CRL expired at %s, so agents refuse the authority",
		a.rootCRLEnds.Format(time.RFC3339))
}

// Features returns what Foreman asks of a gateway at the URL.
func (s *Settings) Features(url string) map[string]any {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
	if err != nil || len(s.Names) == 0 {
		return nil
	}
	return map[string]any{
		"puppet_url":   "https://" + net.JoinHostPort(s.Names[0], port),
		"use_provider": []string{"puppetca_token_whitelisting", "puppetca_http_api"},
	}
}
