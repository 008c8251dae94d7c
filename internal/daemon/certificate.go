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

// certificateCheck is how often the broker's certificate is looked at; it is
// renewed days before it ends.
const certificateCheck = time.Hour

// brokerCertificate is the certificate that the broker shows. It is issued at
// each start, with a key that never touches the disk, and again at two thirds
// of its life.
type brokerCertificate struct {
	cfg       Config
	authority *ca.Authority
	now       func() time.Time
	log       *slog.Logger
}

// issue makes a new key and certificate.
func (c *brokerCertificate) issue() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("broker key: %w", err)
	}
	r := ca.Request{
		Role: wire.RoleBroker, Name: c.cfg.Name, PublicKey: key.Public(), TTL: c.cfg.Certificates.MaxLifetime, DNSNames: c.cfg.Broker.Names,
	}
	for _, a := range c.cfg.Broker.Addresses {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
	}
	issued, err := c.authority.Issue(r)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("broker certificate: %w", err)
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
	return certificate, nil
}

// run hands the broker a new certificate in time, until ctx is done.
func (c *brokerCertificate) run(ctx context.Context, show func(tls.Certificate) error) error {
	life := c.cfg.Certificates.MaxLifetime
	renew := c.now().Add(life * 2 / 3)
	tick := time.NewTicker(min(certificateCheck, life/10))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if c.now().Before(renew) {
			continue
		}
		certificate, err := c.issue()
		if err == nil {
			err = show(certificate)
		}
		if err != nil {
			c.log.ErrorContext(ctx, "broker certificate not renewed", "err", err)
			continue
		}
		renew = c.now().Add(life * 2 / 3)
		c.log.InfoContext(ctx, "broker certificate renewed")
	}
}
