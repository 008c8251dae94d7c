package services_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const (
	web1 = "web1.example.net"
	db1  = "db1.example.net"
)

var cause = trust.Cause{By: "ada", Why: "a test"}

// A policy that lets nodes have whatever they ask for.
const anything = `package muster.certificate

default allow := true

certificate := {
	"dns_names": input.csr.dns_names,
	"ip_addresses": input.csr.ip_addresses,
	"uris": input.csr.uris,
	"server_auth": "server" in input.certificate.usages,
}
`

// newFleet has a policy about service certificates, or the built-in rules.
func newFleet(t *testing.T, policy string) *testbed.Fleet {
	t.Helper()
	return testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		if policy == "" {
			return
		}
		if err := os.WriteFile(filepath.Join(c.Policy, "certificate.rego"), []byte(policy), 0o600); err != nil {
			t.Error(err)
		}
	}})
}

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

func csr(t *testing.T, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// request asks for DNS names for a key.
func (n *node) request(name string, key crypto.Signer, dns ...string) *wire.CertificateRequest {
	n.t.Helper()
	return &wire.CertificateRequest{ID: wire.NewID(), Identity: n.Identity, Name: name, Verb: wire.CertificateIssue,
		Source: "file", CSR: csr(n.t, key, x509.CertificateRequest{DNSNames: dns})}
}

// granted wants a certificate, over NATS.
func (n *node) granted(r *wire.CertificateRequest) *wire.ServiceCertificate {
	n.t.Helper()
	reply := n.ask(r)
	if reply.Certificate == nil {
		n.t.Fatalf("service certificate %q refused: %+v: %s", r.Name, reply.Refusal, n.f.Cause(n.Identity))
	}
	return reply.Certificate
}

func (n *node) ask(message any) *wire.Reply {
	n.t.Helper()
	b, err := wire.Encode(message)
	if err != nil {
		n.t.Fatal(err)
	}
	m, err := n.conn.RequestWithContext(n.f.Context(), wire.SubjectCertificate, b)
	if err != nil {
		n.t.Fatal(err)
	}
	reply, err := wire.DecodeReply(m.Data)
	if err != nil {
		n.t.Fatal(err)
	}
	return reply
}

// code passes the request to the service, as from the node's session. It returns the code of the refusal, or "".
func (n *node) code(r *wire.CertificateRequest) wire.Code {
	n.t.Helper()
	_, err := handle(n.f.Context(), n.f.Daemon().Services(), r, n.Identity)
	return provisioner.CodeOf(err)
}

func handle(ctx context.Context, s *services.Service, r *wire.CertificateRequest, session string,
) (*wire.ServiceCertificate, error) {
	b, err := wire.Encode(r)
	if err != nil {
		return nil, err
	}
	r, err = wire.DecodeCertificate(b)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return nil, &provisioner.Refusal{Code: wire.CodeTooLarge, Err: err}
	case err != nil:
		return nil, &provisioner.Refusal{Code: wire.CodeBadRequest, Err: err}
	}
	return s.Handle(ctx, r, provisioner.Source{Address: "192.0.2.7", Node: wire.Identity(session)})
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

// wantRevoked waits until certificates are on the CRL.
func wantRevoked(f *testbed.Fleet, serials ...string) {
	for _, serial := range serials {
		f.Eventually("service certificate "+serial+" is on the CRL", func() bool { return f.OnCRL(serial) })
	}
}
