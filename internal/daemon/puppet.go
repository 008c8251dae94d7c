package daemon

import (
	"errors"
	"time"

	"muster/internal/keyfile"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/puppet"
)

// puppetFiles are the authority of Puppet agents and the listener's certificate, which is nil without a gateway.
type puppetFiles struct {
	*puppet.Authority
	certificate *shownCertificate
}

// LoadPuppet reads the authority of Puppet agents.
func (c *Config) LoadPuppet(now func() time.Time, keys *keyfile.Ring) (*puppet.Authority, error) {
	own := ca.Config{TrustDomain: c.TrustDomain, Now: now}
	return c.Puppet.Load(own, c.serverRequest(c.Puppet.Hosts()), keys)
}

// loadPuppet returns nil without Puppet.
func (c *Config) loadPuppet(opts Options, keys *keyfile.Ring) (*puppetFiles, error) {
	if !c.Puppet.Configured() {
		return nil, nil
	}
	authority, err := c.LoadPuppet(opts.Now, keys)
	if err != nil {
		return nil, err
	}
	f := &puppetFiles{Authority: authority}
	if c.Puppet.Enabled() {
		f.certificate, err = showOwn("Puppet", c.serverRequest(c.Puppet.Hosts()), f.Authority.Authority, opts)
	}
	return f, err
}

// branch is nil without Puppet.
func (f *puppetFiles) branch() *ca.Authority {
	if f == nil {
		return nil
	}
	return f.Authority.Authority
}

// listens reports whether there is a gateway.
func (f *puppetFiles) listens() bool { return f != nil && f.certificate != nil }

// puppetFault returns why agents are not served, or nil.
func (b *base) puppetFault() error {
	if b.live.puppet.Load() == nil {
		return errors.New("the listener is not open")
	}
	f, now := b.parts.puppet, b.opts.Now()
	return errors.Join(f.CheckRootCRL(now), f.certificate.usable(now))
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
		Login:       login.New(d.Operator(), d.parts.oidc),
		Orders:      d.Orders(),
		Nodes:       func() *fleet.Index { return nodes },
		Runs:        d.Store(),
		Settings:    d.cfg.Puppet,
		Bundle:      f.Bundle,
		RootCRL:     f.RootCRL,
		Certificate: f.certificate.certificate,
		Log:         d.opts.Log,
		Now:         d.opts.Now,
	})
	if err := listenError(s.Open(), "puppet.listen"); err != nil {
		return err
	}
	d.live.puppet.Store(s)
	d.opts.Log.Info("agents of Puppet are served", "url", s.URL())
	return nil
}
