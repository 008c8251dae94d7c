package daemon

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/puppet"
)

// puppetLifetime and puppetMaxLifetime are those of agents 8.x, which renew, and 7.x, which do not.
const (
	puppetLifetime    = 365 * 24 * time.Hour
	puppetMaxLifetime = (5*365 + 1) * 24 * time.Hour
)

// puppetFiles are the authority of Puppet agents.
type puppetFiles struct {
	authority       *ca.Authority
	bundle, rootCRL []byte
	rootCRLEnds     time.Time
	certificate     *api // of the listener; nil without one
}

func (c *Config) validatePuppet(v *Mistakes) {
	for _, err := range c.Puppet.Check() {
		v.Check("puppet", err)
	}
	if c.Puppet.Enabled() {
		v.Listen("puppet.listen", c.Puppet.Listen)
	}
}

// ReadBundle reads the certificates that agents trust, and no key.
func (c *Config) ReadBundle() (text []byte, branch ca.Previous, err error) {
	text, err = inputfile.ReadText(c.Puppet.Bundle, inputfile.Configured)
	if err != nil {
		return nil, ca.Previous{}, err
	}
	certificates, err := ca.ParseCertificates(text)
	if err == nil && len(certificates) != 2 {
		err = fmt.Errorf("%d certificates, want the issuing one and the root", len(certificates))
	}
	if err != nil {
		return nil, ca.Previous{}, fmt.Errorf("%s: %w", c.Puppet.Bundle, err)
	}
	branch.Issuing, branch.Root = certificates[0], certificates[1]
	if bytes.Equal(branch.Issuing.RawSubject, branch.Issuing.RawIssuer) {
		branch.Issuing, branch.Root = branch.Root, branch.Issuing
	}
	return text, branch, nil
}

// CheckPuppet reads the authority of Puppet agents.
func (c *Config) CheckPuppet(now func() time.Time, keys *keyfile.Ring) error {
	_, err := c.loadPuppet(Options{Now: now}.complete(), keys)
	return err
}

// loadPuppet returns nil without Puppet.
func (c *Config) loadPuppet(opts Options, keys *keyfile.Ring) (*puppetFiles, error) {
	if !c.Puppet.Configured() {
		return nil, nil
	}
	f := &puppetFiles{}
	text, branch, err := c.ReadBundle()
	key, unread := keys.Signer(c.Puppet.Key)
	if err := errors.Join(err, unread); err != nil {
		return nil, err
	}
	f.bundle = text
	f.authority, err = ca.New(ca.Config{
		Root:        branch.Root,
		Issuing:     branch.Issuing,
		Key:         key,
		TrustDomain: c.TrustDomain,
		Backdate:    ca.BranchBackdate,
		MaxTTL:      puppetMaxLifetime,
		DefaultTTL:  puppetLifetime,
		Now:         opts.Now,
	})
	request := c.serverRequest(c.Puppet.Hosts())
	if err == nil {
		err = f.authority.Try(request)
	}
	if err != nil {
		return nil, conffile.Prefix(c.Puppet.Bundle+" and "+c.Puppet.Key, err)
	}
	if err := f.readRootCRL(c.Puppet.RootCRL, branch.Root); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Puppet.RootCRL, err)
	}
	if c.Puppet.Enabled() {
		f.certificate, err = ownAPI("Puppet", request, f.authority, opts)
	}
	return f, err
}

func (f *puppetFiles) readRootCRL(path string, root *x509.Certificate) (err error) {
	if f.rootCRL, err = inputfile.ReadText(path, inputfile.Configured); err != nil {
		return err
	}
	block, _ := pem.Decode(f.rootCRL)
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
	f.rootCRLEnds = list.NextUpdate
	return nil
}

// branch is nil without Puppet.
func (f *puppetFiles) branch() *ca.Authority {
	if f == nil {
		return nil
	}
	return f.authority
}

// listens reports whether there is a gateway.
func (f *puppetFiles) listens() bool { return f != nil && f.certificate != nil }

// puppetSettings are what Foreman asks for.
func (b *base) puppetSettings() map[string]any {
	url, err := url.Parse(b.PuppetURL())
	if err != nil || url.Host == "" {
		return nil
	}
	return map[string]any{
		"puppet_url":   "https://" + net.JoinHostPort(b.cfg.Puppet.Names[0], url.Port()),
		"use_provider": []string{"puppetca_token_whitelisting", "puppetca_http_api"},
	}
}

// puppetFault returns why agents are not served, or nil.
func (b *base) puppetFault() error {
	f, now := b.parts.puppet, b.opts.Now()
	switch {
	case b.live.puppet.Load() == nil:
		return errors.New("the listener is not open")
	case now.After(f.rootCRLEnds):
		return fmt.Errorf("the root's CRL, %s, expired at %s: agents refuse the authority", b.cfg.Puppet.RootCRL,
			f.rootCRLEnds.Format(time.RFC3339))
	}
	return f.certificate.usable(now)
}

// PuppetURL is the https URL of Puppet agents, or "".
func (b *base) PuppetURL() string {
	if s := b.live.puppet.Load(); s != nil {
		return s.URL()
	}
	return ""
}

// openPuppet opens the gateway, if there is one.
func (d *Daemon) openPuppet(nodes *fleet.Index) error {
	f := d.parts.puppet
	if !f.listens() {
		return nil
	}
	s := puppet.New(puppet.Config{
		Provisioner: d.Operator(),
		Login:       login.New(d.Operator()),
		Orders:      d.Orders(),
		Nodes:       func() *fleet.Index { return nodes },
		Runs:        d.Store().Runs,
		Settings:    d.cfg.Puppet,
		Bundle:      f.bundle,
		RootCRL:     f.rootCRL,
		Certificate: f.certificate.certificate,
		Log:         d.opts.Log,
		Now:         d.opts.Now,
	})
	if err := listenError(s.Open(), "puppet.listen"); err != nil {
		return err
	}
	d.live.puppet.Store(s)
	d.opts.Log.Info("Puppet agents are served", "url", s.URL())
	return nil
}

// foreman is nil without a gateway.
func (d *Daemon) foreman() http.Handler {
	if s := d.live.puppet.Load(); s != nil {
		return s.Foreman()
	}
	return nil
}

// run renews the listener's certificate.
func (f *puppetFiles) run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	return f.certificate.run(ctx)
}

// runPuppet serves the gateway, if there is one.
func (d *Daemon) runPuppet(ctx context.Context) error {
	if s := d.live.puppet.Load(); s != nil {
		return s.Run(ctx)
	}
	return nil
}
