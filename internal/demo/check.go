package demo

import (
	"crypto"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// checksAtOnce bounds the reconnections in flight: enough to keep both ends busy.
const checksAtOnce = 16

// check looks at every node from outside: at the files on its disk, whatever agent and provisioner say.
func (d *run) check() {
	var connected atomic.Int64
	var g errgroup.Group
	g.SetLimit(checksAtOnce)
	one, end := d.cfg.Progress("reconnecting", d.cfg.Nodes)
	defer end()
	for i := range d.cfg.Nodes {
		g.Go(func() error {
			defer one()
			if err := d.reconnect(identity(i)); err != nil {
				d.missing("%s: %v", identity(i), err)
				return nil
			}
			connected.Add(1)
			return nil
		})
	}
	_ = g.Wait() // what went wrong is in the result
	d.result.Connected = int(connected.Load())
	if d.result.Provisioned < d.cfg.Nodes {
		d.missing("%d of %d nodes are not provisioned", d.cfg.Nodes-d.result.Provisioned, d.cfg.Nodes)
	}
}

// reconnect connects to the fleet with what is on a node's disk: mutual TLS verifies the certificate and the broker's.
func (d *run) reconnect(node string) error {
	path := func(name string) string { return filepath.Join(d.dir(node), name) }
	// This fails if the key is not that of the certificate.
	pair, err := tls.LoadX509KeyPair(path("certificate.pem"), path("private.pem"))
	if err != nil {
		return err
	}
	certificate, cerr := os.ReadFile(path("certificate.pem"))
	roots, rerr := os.ReadFile(path("ca.pem"))
	_, serr := os.Stat(path("server.conf"))
	if err := errors.Join(cerr, rerr, serr, pair.Leaf.VerifyHostname(node)); err != nil {
		return err
	}
	if string(roots) != d.daemon.RootsPEM() {
		return errors.New("ca.pem is not the installation's")
	}
	n := simnode.Node{Identity: node, Key: pair.PrivateKey.(crypto.Signer)}
	nc, err := n.DialFleet("nats://"+d.url, &wire.Enrolled{Certificate: string(certificate), CA: string(roots)})
	if err != nil {
		return err
	}
	defer nc.Close()
	return nc.FlushTimeout(10 * time.Second)
}
