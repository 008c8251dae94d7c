package services_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const web1 = "web1.example.net"

var cause = trust.Cause{By: "ada", Why: "a test"}

// A node is a provisioned node with a connection to the fleet.
type node struct {
	*simnode.Node
	f    *testbed.Fleet
	t    *testing.T
	conn *nats.Conn
}

func connected(t *testing.T, f *testbed.Fleet, identity string) *node {
	t.Helper()
	n := f.Node(identity)
	e := f.Enroll(n)
	f.Apply(n, e)
	return &node{n, f, t, f.DialFleet(n, e)}
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func csr(t *testing.T, key crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// request asks for DNS names for a key.
func (n *node) request(name string, key crypto.Signer, dns ...string) *wire.CertificateRequest {
	n.t.Helper()
	return &wire.CertificateRequest{ID: wire.NewID(), Identity: n.Identity, Name: name, Verb: wire.CertificateIssue,
		Source: "file", CSR: csr(n.t, key, &x509.CertificateRequest{DNSNames: dns})}
}

func (n *node) ask(r *wire.CertificateRequest) *wire.Reply {
	n.t.Helper()
	reply, err := ask(n.f.Context(), n.conn, r)
	if err != nil {
		n.t.Fatal(err)
	}
	return reply
}

func ask(ctx context.Context, conn *nats.Conn, r *wire.CertificateRequest) (*wire.Reply, error) {
	b, err := wire.Encode(r)
	if err != nil {
		return nil, err
	}
	m, err := conn.RequestWithContext(ctx, wire.SubjectCertificate, b)
	if err != nil {
		return nil, err
	}
	return wire.DecodeReply(m.Data)
}

// granted wants a certificate.
func (n *node) granted(r *wire.CertificateRequest) *wire.ServiceCertificate {
	n.t.Helper()
	reply := n.ask(r)
	if reply.Certificate == nil {
		n.t.Fatalf("service certificate %q refused: %+v, want it", r.Name, reply.Refusal)
	}
	return reply.Certificate
}

// refused wants a refusal with a code as sent to the node.
func (n *node) refused(r *wire.CertificateRequest, code wire.Code) {
	n.t.Helper()
	reply := n.ask(r)
	if reply.Refusal == nil || reply.Refusal.Code != code.SentAs() {
		n.t.Fatalf("service certificate %q: %+v, %+v, want code %s", r.Name, reply.Certificate, reply.Refusal, code)
	}
}

func leaf(t *testing.T, c *wire.ServiceCertificate) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(c.Certificate))
	if block == nil {
		t.Fatal("no PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (n *node) listed(name string) services.Listed {
	l, _, _ := n.f.Daemon().Services().Index().Get(wire.Identity(n.Identity), name)
	return l
}
