package daemon

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"muster/internal/keyfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// After a wrong clock is corrected, no node can connect until a new certificate is issued.
const certificateCheckInterval = time.Minute

// An ownCertificate is issued at each start and at two thirds of its life. Its key is never on disk.
type ownCertificate struct {
	what      string // for messages
	request   ca.Request
	key       func() (crypto.Signer, error)
	authority *ca.Authority
	now       func() time.Time
	log       *slog.Logger

	renew time.Time // when to issue the next one
	from  time.Time // start of the last one
	until time.Time // end of the last one
}

func newOwnCertificate(what string, r ca.Request, key func() (crypto.Signer, error), authority *ca.Authority,
	opts Options) *ownCertificate {
	return &ownCertificate{
		what:      what,
		request:   r,
		key:       key,
		authority: authority,
		now:       opts.Now,
		log:       opts.Log,
	}
}

// due reports whether there is no certificate yet, or the last one is to be replaced. A certificate issued while the
// clock was ahead is not valid yet.
func (c *ownCertificate) due() bool {
	now := c.now()
	return !now.Before(c.renew) || now.Before(c.from)
}

// issue is not safe for concurrent use. The error wraps [ca.ErrAuthority] if the authority cannot issue.
func (c *ownCertificate) issue() (tls.Certificate, error) {
	key, err := c.key()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s key: %w", c.what, err)
	}
	r := c.request
	r.PublicKey = key.Public()
	issued, err := c.authority.Issue(r)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s certificate: %w", c.what, err)
	}
	certificate := tls.Certificate{PrivateKey: key}
	// The root is included for nodes that know only its hash.
	blocks, _ := keyfile.Blocks([]byte(issued.Chain + c.authority.RootsPEM())) // well-formed
	for _, block := range blocks {
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	c.renew = c.now().Add(issued.NotAfter.Sub(c.now()) * 2 / 3)
	c.from, c.until = issued.NotBefore, issued.NotAfter
	return certificate, nil
}

// p256 returns a key that every TLS peer supports.
func p256() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func (c *Config) ownRequest() ca.Request {
	if c.Broker.URL == "" {
		return c.BrokerRequest(c.Name)
	}
	return ca.Request{Role: wire.RoleProvisioner, Name: c.Name, TTL: time.Duration(c.Certificates.MaxLifetime)}
}

// BrokerRequest returns the request for a broker's certificate.
func (c *Config) BrokerRequest(name string) ca.Request {
	return ca.Request{
		Role:        wire.RoleBroker,
		Name:        name,
		TTL:         time.Duration(c.Certificates.MaxLifetime),
		DNSNames:    c.Broker.Names,
		IPAddresses: parseIPs(c.Broker.Addresses),
	}
}

func parseIPs(addresses []string) (all []net.IP) {
	for _, a := range addresses {
		all = append(all, net.ParseIP(a))
	}
	return all
}

func (c *ownCertificate) run(ctx context.Context, show func(tls.Certificate)) error {
	var failure string
	return span.Every(ctx, min(certificateCheckInterval, c.request.TTL/10), func(ctx context.Context) {
		if !c.due() {
			return
		}
		certificate, err := c.issue()
		switch {
		case err == nil:
			show(certificate)
			failure = ""
			c.log.InfoContext(ctx, "certificate renewed", "of", c.what)
		case err.Error() != failure: // once per reason
			failure = err.Error()
			c.log.ErrorContext(ctx, "certificate not renewed", "of", c.what, "err", err)
		}
	})
}
