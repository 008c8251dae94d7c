package simnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// Successor returns the node with a new key, as after a renewal.
func (n *Node) Successor() (*Node, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("node key: %w", err)
	}
	next := *n
	next.Key = key
	next.CSR, err = CSR(key, n.Identity)
	return &next, err
}

// Renewal returns a request for a certificate for the key of next, signed by n's key. If next is n, the key stays.
func (n *Node) Renewal(next *Node) (*wire.RenewRequest, error) {
	r := &wire.RenewRequest{
		ID:       wire.NewID(),
		Identity: n.Identity,
		CSR:      next.CSR,
		Facts:    n.Facts,
		Agent:    "simnode",
		Boot:     n.Boot,
	}
	c, err := wire.SignContinuity(n.Key, r.ID, r.Identity, r.CSR)
	if err != nil {
		return nil, err
	}
	r.Continuity = *c
	return r, nil
}

// Renew sends a renewal over a connection from [Node.DialFleet] and returns the reply.
func Renew(ctx context.Context, nc *nats.Conn, r *wire.RenewRequest) (*wire.Reply, error) {
	return ask(ctx, nc, wire.SubjectRenew, r)
}
