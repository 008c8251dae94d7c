package daemon

import (
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

// An ownCertificate is one that the installation's authority issues for the broker or the API, at each start and again
// at two thirds of its life, with a key that never touches the disk.
type ownCertificate struct {
	what      string // for messages
	request   ca.Request
	authority *ca.Authority
	now       func() time.Time
	log       *slog.Logger

	renew time.Time // when the last one is to be followed by another; see issue
	from  time.Time // when the last one begins
}

// issue makes a new key and certificate. The error wraps [ca.ErrAuthority] if
// the authority cannot issue. It is called by one goroutine at a time.
func (c *ownCertificate) issue() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
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

// ownRequest asks for the certificate of the broker in the process, or for the one that is shown to others.
func (c *Config) ownRequest() ca.Request {
	if c.Broker.URL == "" {
		return c.BrokerRequest(c.Name)
	}
	return ca.Request{Role: wire.RoleProvisioner, Name: c.Name, TTL: time.Duration(c.Certificates.MaxLifetime)}
}

// BrokerRequest asks for the certificate of a broker of this name, under which
// nodes look for it by what the configuration says.
func (c *Config) BrokerRequest(name string) ca.Request {
	r := ca.Request{Role: wire.RoleBroker, Name: name, TTL: time.Duration(c.Certificates.MaxLifetime), DNSNames: c.Broker.Names}
	for _, a := range c.Broker.Addresses {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
	}
	return r
}

// run shows a new certificate in time, until ctx is done. It returns nil.
func (c *ownCertificate) run(ctx context.Context, show func(tls.Certificate)) error {
	look := time.NewTicker(min(certificateLook, c.request.TTL/10))
	defer look.Stop()
	var failure string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		// One that was issued while the clock was ahead is good for nobody once that is right.
		if now := c.now(); now.Before(c.renew) && !now.Before(c.from) {
			continue
		}
		certificate, err := c.issue()
		if err == nil {
			show(certificate)
			failure = ""
			c.log.InfoContext(ctx, "certificate renewed", "of", c.what)
			continue
		}
		if err.Error() != failure { // the same is not worth a line a minute
			failure = err.Error()
			c.log.ErrorContext(ctx, "certificate not renewed", "of", c.what, "err", err)
		}
	}
}
