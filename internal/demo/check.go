package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// checksAtOnce bounds the reconnections in flight: enough to keep both ends busy.
const checksAtOnce = 16

// check looks at every node from outside: at the files on its disk, whatever agent and provisioner say.
func (d *run) check(ctx context.Context) {
	var verified, connected atomic.Int64
	var g errgroup.Group
	g.SetLimit(checksAtOnce)
	one, end := d.cfg.Progress("reconnecting", d.cfg.Nodes)
	defer end()
	for i := range d.cfg.Nodes {
		g.Go(func() error {
			defer one()
			pair, roots, err := d.verify(identity(i))
			if err == nil {
				verified.Add(1)
				err = d.reconnect(ctx, pair, roots)
			}
			if err != nil {
				d.missing("%s: %v", identity(i), err)
				return nil
			}
			connected.Add(1)
			return nil
		})
	}
	_ = g.Wait() // what went wrong is in the result
	d.result.Verified, d.result.Connected = int(verified.Load()), int(connected.Load())
	if d.result.Provisioned < d.cfg.Nodes {
		d.missing("%d of %d nodes are not provisioned", d.cfg.Nodes-d.result.Provisioned, d.cfg.Nodes)
	}
}

// verify checks the files of a node against each other and against the installation's root.
func (d *run) verify(node string) (pair tls.Certificate, roots *x509.CertPool, err error) {
	path := func(name string) string { return filepath.Join(d.dir(node), name) }
	info, err := os.Stat(path("private.pem"))
	if err != nil {
		return pair, nil, err
	}
	if info.Mode().Perm() != 0o600 {
		return pair, nil, fmt.Errorf("private.pem has mode %v, want 0600", info.Mode().Perm())
	}
	// This fails if the key is not that of the certificate.
	if pair, err = tls.LoadX509KeyPair(path("certificate.pem"), path("private.pem")); err != nil {
		return pair, nil, err
	}
	given, err := os.ReadFile(path("ca.pem"))
	if err != nil {
		return pair, nil, err
	}
	roots = x509.NewCertPool()
	if !roots.AppendCertsFromPEM(given) || string(given) != d.daemon.RootsPEM() {
		return pair, nil, errors.New("ca.pem is not the installation's")
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return pair, nil, err
		}
		between.AddCert(c)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		DNSName:       node,
		Roots:         roots,
		Intermediates: between,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return pair, nil, err
	}
	_, err = os.Stat(path("server.conf"))
	return pair, roots, err
}

// reconnect connects to the fleet with what is on a node's disk.
func (d *run) reconnect(ctx context.Context, pair tls.Certificate, roots *x509.CertPool) error {
	name := wire.NewID()
	nc, err := nats.Connect("nats://"+d.url, nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)),
		nats.NoReconnect(), nats.Timeout(10*time.Second),
		nats.Secure(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}))
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
