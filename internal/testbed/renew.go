package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/server"
)

// DialFleet connects with a node's certificate, and closes when the test ends.
func (f *Fleet) DialFleet(n *simnode.Node, e *wire.Enrolled) *nats.Conn {
	f.t.Helper()
	nc, err := n.DialFleet(f.URL(), e)
	if err != nil {
		f.t.Fatalf("connect %s to the fleet: %v", n.Identity, err)
	}
	f.t.Cleanup(nc.Close)
	return nc
}

// AskRenew asks to renew n, which has got e, to the key of next over a new connection, and returns the reply.
func (f *Fleet) AskRenew(n *simnode.Node, e *wire.Enrolled, next *simnode.Node) *wire.Reply {
	f.t.Helper()
	request, err := n.Renewal(next)
	must(f.t, err)
	return overFleet(f, n, e, func(nc *nats.Conn) (*wire.Reply, error) {
		return simnode.Renew(f.Context(), nc, request)
	})
}

// AskService asks for service certificate name of n, which has got e, with a DNS name and a new key; with a state it
// reports that instead. It returns the reply.
func (f *Fleet) AskService(
	n *simnode.Node, e *wire.Enrolled, name, dns string, state *wire.CertificateState,
) *wire.Reply {
	f.t.Helper()
	r := &wire.CertificateRequest{
		ID:       wire.NewID(),
		Identity: n.Identity,
		Name:     name,
		Verb:     wire.CertificateReport,
		Source:   "file",
		Report:   state,
	}
	if state == nil {
		with, err := simnode.New(dns, "")
		must(f.t, err)
		r.Verb, r.CSR = wire.CertificateIssue, with.CSR
	}
	return overFleet(f, n, e, func(nc *nats.Conn) (*wire.Reply, error) {
		return simnode.Certificate(f.Context(), nc, r)
	})
}

// overFleet sends a request over a new connection. If that is dropped, it repeats the request, as an agent does: an
// order about an identity drops its connections, even those of its next owner.
func overFleet(f *Fleet, n *simnode.Node, e *wire.Enrolled, ask func(*nats.Conn) (*wire.Reply, error)) *wire.Reply {
	f.t.Helper()
	for {
		nc := f.DialFleet(n, e)
		r, err := ask(nc)
		nc.Close()
		if errors.Is(err, nats.ErrConnectionClosed) && f.Context().Err() == nil {
			continue
		}
		if err != nil {
			f.t.Fatalf("%s: %v", n.Identity, err)
		}
		return r
	}
}

// Renew renews to a new key, and fails the test if the renewal is refused. It returns the node with the new key, and
// its certificate.
func (f *Fleet) Renew(n *simnode.Node, e *wire.Enrolled) (*simnode.Node, *wire.Enrolled) {
	f.t.Helper()
	next := f.Successor(n)
	r := f.AskRenew(n, e, next)
	if r.Refusal != nil {
		f.t.Fatalf("renew %s: refused: %s: %s", n.Identity, r.Refusal.Code, f.Cause(n.Identity))
	}
	return next, r.Enrolled
}

// Successor returns the node with a new key.
func (f *Fleet) Successor(n *simnode.Node) *simnode.Node {
	f.t.Helper()
	next, err := n.Successor()
	must(f.t, err)
	return next
}

// Admits reports whether the certificate is admitted to the fleet now.
func (f *Fleet) Admits(identity, serial string) bool {
	return f.daemon.Admits(f.Context(), wire.Identity(identity), serial) == nil
}

// AppliedOverFleet confirms over a new connection to the fleet, as an agent does after a renewal.
func (f *Fleet) AppliedOverFleet(n *simnode.Node, e *wire.Enrolled) *wire.Reply {
	f.t.Helper()
	a, err := n.Confirm(e)
	must(f.t, err)
	return overFleet(f, n, e, func(nc *nats.Conn) (*wire.Reply, error) { return simnode.Apply(f.Context(), nc, a) })
}

// WatchOften shortens an agent's watch interval, for tests that move the clock.
func WatchOften(c *server.Config) { c.WatchInterval = 50 * time.Millisecond }

// Serial returns the serial of the certificate on the agent's disk.
func (a *Agent) Serial() string {
	leaf, err := readCertificate(filepath.Join(a.Dir, "certificate.pem"))
	if err != nil {
		return ""
	}
	return ca.Serial(leaf)
}

// Copy returns a node with the agent's key and certificate, as if its disk were stolen.
func (a *Agent) Copy() (*simnode.Node, *wire.Enrolled) {
	a.f.t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(a.Dir, name))
		must(a.f.t, err)
		return b
	}
	key, err := jwt.ParsePrivateKey(read("private.pem"), nil)
	must(a.f.t, err)
	token, err := os.ReadFile(a.Token)
	must(a.f.t, err)
	n := &simnode.Node{Identity: a.Identity, Token: string(token), Key: key, Boot: wire.NewID()}
	n.CSR, err = simnode.CSR(key, a.Identity)
	must(a.f.t, err)
	return n, &wire.Enrolled{Serial: a.Serial(), Certificate: string(read("certificate.pem")),
		CA: string(read("ca.pem"))}
}
