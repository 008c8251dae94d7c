package bench

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
)

// A node is a simulated node: a [simnode.Node] without what all of them share.
type node struct {
	identity string
	boot     string
	key      crypto.Signer
	csr      []byte // DER

	conn   *credentials // of its own connection, or nil where those are shared
	link   int          // which of the shared ones is its
	sealed *sealedRequest

	// What it got, checked when the clock has stopped.
	certificate, ca string
}

// sealedRequest is a request that was sealed beforehand.
type sealedRequest struct {
	id     string
	data   []byte
	opener *seal.ReplyOpener
}

// identityOf is the name of the node with this number.
func identityOf(run string, i int) string { return "n" + strconv.Itoa(i) + "." + run + ".bench.muster" }

// newCredentials makes what a connection presents.
func (d *driver) newCredentials() (*credentials, error) {
	c := &credentials{name: wire.NewID(), token: d.order.Token}
	if !d.sealed {
		return c, nil
	}
	var err error
	if c.session, err = seal.NewSession(d.sealKey, wire.Secret(d.order.Token)); err != nil {
		return nil, err
	}
	c.token = c.session.Token()
	return c, nil
}

// prepare makes all nodes, on all cores, and calls one for each.
func (d *driver) prepare(ctx context.Context, one func()) error {
	d.nodes = make([]*node, d.order.Nodes)
	var g errgroup.Group
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < len(d.nodes) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				n, err := d.newNode(i)
				if err != nil {
					return err
				}
				d.nodes[i] = n
				one()
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// newNode makes one node.
func (d *driver) newNode(i int) (*node, error) {
	s, err := simnode.New(identityOf(d.order.Run, d.order.First+i*d.order.Step), "")
	if err != nil {
		return nil, err
	}
	n := &node{identity: s.Identity, boot: s.Boot, key: s.Key, csr: s.CSR}
	if len(d.links) > 0 {
		n.link = i % len(d.links)
	} else if n.conn, err = d.newCredentials(); err != nil {
		return nil, err
	}
	if d.sealed {
		n.sealed, err = d.seal(n)
	}
	return n, err
}

// credentials returns those of the node's connection.
func (d *driver) credentials(n *node) *credentials {
	if n.conn != nil {
		return n.conn
	}
	return d.links[n.link].credentials
}

// seal makes a sealed request of the node for its connection.
func (d *driver) seal(n *node) (*sealedRequest, error) {
	s := &sealedRequest{id: wire.NewID()}
	facts := json.RawMessage(replaceMark(d.facts, n.identity))
	var err error
	s.data, s.opener, err = d.credentials(n).session.EncodeRequest(&wire.EnrollRequest{
		ID: s.id, Identity: n.identity, Token: wire.Secret(d.order.Token), CSR: n.csr, Facts: facts, Agent: "bench", Boot: n.boot,
	})
	return s, err
}

// public is the node's public key.
func (n *node) public() *ecdsa.PublicKey {
	k, _ := n.key.Public().(*ecdsa.PublicKey) // simnode makes no other
	return k
}

// confirmation returns the node's word that it has what it was given, after
// checking that it is what the provisioner says it is.
func (n *node) confirmation(e *wire.Enrolled) (*wire.Applied, error) {
	digest := wire.Digest(e.Certificate, e.Files)
	if digest != e.Digest {
		return nil, fmt.Errorf("%s: digest %.16s, the provisioner says %.16s", n.identity, digest, e.Digest)
	}
	a := &wire.Applied{ID: wire.NewID(), Identity: n.identity, Serial: e.Serial, Digest: digest}
	var err error
	a.Signature, err = wire.Sign(n.key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest))
	return a, err
}
