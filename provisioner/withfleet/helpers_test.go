package provisioner_test

import (
	"context"
	"crypto/x509"
	"testing"

	"muster/provisioner/orders"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

func keyHash(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// vouch has a node's key vouch for the key of a request.
func vouch(t *testing.T, by *simnode.Node, r *wire.EnrollRequest) {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(by.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := wire.Sign(by.Key, wire.ContinuityDigest(r.ID, r.Identity, r.CSR))
	if err != nil {
		t.Fatal(err)
	}
	r.Continuity = &wire.Continuity{PublicKey: spki, Signature: signature}
}

// forged is a renewal with the header that only the broker writes.
func forged(data []byte) *nats.Msg {
	m := nats.NewMsg(wire.SubjectRenew)
	m.Data = data
	m.Header.Set("Nats-Request-Info", `{"acc":"FLEET","user":"web1.example.net","host":"192.0.2.1"}`)
	return m
}

// putGrant writes a grant as it is.
func putGrant(f interface {
	Daemon() *daemon.Daemon
	Context() context.Context
}, g *orders.Grant) error {
	if r, _, err := f.Daemon().Store().Record(f.Context(), g.Identity); err == nil && r != nil && g.Owned.IsZero() {
		g.Owned = r.OwnedSince
	}
	grants := f.Daemon().Store().Logs().Grants
	newest, _ := grants.Get(g.LogKey())
	_, err := grants.Put(f.Context(), g.LogKey(), g, newest.Revision)
	return err
}
