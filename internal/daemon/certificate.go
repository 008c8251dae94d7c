package daemon

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// certificateLook is how often it is looked whether the broker's certificate is to be renewed, which is so days before
// its end, or is not valid by the clock as it is now: until then no node of the fleet comes in.
const certificateLook = time.Minute

// brokerCertificate is the certificate that the embedded broker shows, or that
// the provisioner shows to others. It is issued at each start, with a key that
// never touches the disk, and again at two thirds of its life.
type brokerCertificate struct {
	cfg       Config
	authority *ca.Authority
	now       func() time.Time
	log       *slog.Logger
	again     chan struct{} // holds one wish for another certificate before its time

	what string                   // "broker" if empty
	ask  func(*Config) ca.Request // nil asks for the broker's

	renew time.Time // when the last one is to be followed by another; see issue
	from  time.Time // when the last one begins
}

// name says whose certificate it is.
func (c *brokerCertificate) name() string { return cmp.Or(c.what, "broker") }

// wish asks run for another certificate: the chain has changed.
func (c *brokerCertificate) wish() {
	select {
	case c.again <- struct{}{}:
	default: // one is wished for already
	}
}

// issue makes a new key and certificate. The error wraps [ca.ErrAuthority] if
// the authority cannot issue. It is called by one goroutine at a time.
func (c *brokerCertificate) issue() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s key: %w", c.name(), err)
	}
	r := c.cfg.BrokerRequest(c.cfg.Name)
	if c.ask != nil {
		r = c.ask(&c.cfg)
	} else if c.cfg.Broker.URL != "" {
		r = ca.Request{Role: wire.RoleProvisioner, Name: c.cfg.Name, TTL: c.cfg.Certificates.MaxLifetime}
	}
	r.PublicKey = key.Public()
	issued, err := c.authority.Issue(r)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s certificate: %w", c.name(), err)
	}
	certificate := tls.Certificate{PrivateKey: key}
	// The root goes along: a node that knows only its hash can check it.
	for rest := []byte(issued.Chain + c.authority.RootsPEM()); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	// Where the authority ends soon, so does what it issues.
	c.renew, c.from = c.now().Add(issued.NotAfter.Sub(c.now())*2/3), issued.NotBefore
	return certificate, nil
}

// BrokerRequest asks for the certificate of a broker of this name, under which
// nodes look for it by what the configuration says.
func (c *Config) BrokerRequest(name string) ca.Request {
	r := ca.Request{Role: wire.RoleBroker, Name: name, TTL: c.Certificates.MaxLifetime, DNSNames: c.Broker.Names}
	for _, a := range c.Broker.Addresses {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
	}
	return r
}

// run hands the broker a new certificate in time, until ctx is done.
func (c *brokerCertificate) run(ctx context.Context, show func(tls.Certificate) error) error {
	look := time.NewTicker(min(certificateLook, c.cfg.Certificates.MaxLifetime/10))
	defer look.Stop()
	var failure string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.again:
			c.renew = c.now()
		case <-look.C:
		}
		// One that was issued while the clock was ahead is good for nobody once that is right.
		if now := c.now(); now.Before(c.renew) && !now.Before(c.from) {
			continue
		}
		certificate, err := c.issue()
		if err == nil {
			err = show(certificate)
		}
		if err == nil {
			failure = ""
			c.log.InfoContext(ctx, "certificate renewed", "of", c.name())
			continue
		}
		c.renew = c.now()           // it may have been issued, and not shown
		if err.Error() != failure { // the same is not worth a line a minute
			failure = err.Error()
			c.log.ErrorContext(ctx, "certificate not renewed", "of", c.name(), "err", err)
		}
	}
}
