package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// checksAtOnce bounds the reconnections in flight: enough to keep both ends
// busy.
const checksAtOnce = 16

// check looks at every node from outside: at the files on its disk, not at what
// agent or provisioner say.
func (f *fleet) check(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(checksAtOnce)
	one, end := f.cfg.Progress("reconnecting", f.cfg.Nodes)
	defer end()
	for i := range f.cfg.Nodes {
		g.Go(func() error {
			defer one()
			pair, roots, err := f.verify(i)
			if err != nil {
				f.missing("%s: %v", identity(i), err)
				return nil
			}
			f.mu.Lock()
			f.result.Verified++
			f.mu.Unlock()
			if err := f.reconnect(ctx, pair, roots); err != nil {
				f.missing("%s: mutual TLS: %v", identity(i), err)
				return nil
			}
			f.mu.Lock()
			f.result.Connected++
			f.mu.Unlock()
			return nil
		})
	}
	_ = g.Wait() // what went wrong is in the result
	if f.result.Provisioned < f.cfg.Nodes {
		f.missing("%d of %d nodes are not provisioned", f.cfg.Nodes-f.result.Provisioned, f.cfg.Nodes)
	}
	f.result.Example = f.dir(0)
}

// verify checks the files of one node against each other and against the
// installation's root.
func (f *fleet) verify(i int) (tls.Certificate, *x509.CertPool, error) {
	dir := f.dir(i)
	read := func(name string) string { return filepath.Join(dir, name) }
	info, err := os.Stat(read("private.pem"))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	if info.Mode().Perm() != 0o600 {
		return tls.Certificate{}, nil, fmt.Errorf("private.pem has mode %v, want 0600", info.Mode().Perm())
	}
	// The key of the pair must be the certificate's.
	pair, err := tls.LoadX509KeyPair(read("certificate.pem"), read("private.pem"))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(f.daemon.RootsPEM())) {
		return tls.Certificate{}, nil, errors.New("no roots")
	}
	given, err := os.ReadFile(read("ca.pem"))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	if string(given) != f.daemon.RootsPEM() {
		return tls.Certificate{}, nil, errors.New("ca.pem is not the installation's")
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return tls.Certificate{}, nil, err
		}
		between.AddCert(c)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{
		DNSName: identity(i), Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	_, err = os.Stat(read("server.conf"))
	return pair, roots, err
}

// reconnect connects to the fleet with what is on a node's disk.
func (f *fleet) reconnect(ctx context.Context, pair tls.Certificate, roots *x509.CertPool) error {
	name := wire.NewID()
	nc, err := nats.Connect(f.url(), nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)), nats.NoReconnect(), nats.Timeout(10*time.Second),
		nats.Secure(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}))
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
