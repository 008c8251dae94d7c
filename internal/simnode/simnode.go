// Package simnode is a node without a disk: it speaks the protocol of package wire over a real connection, for tests
// and the demo. It can send messages that an honest agent never sends, and does not check replies.
package simnode

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

// Tests run on busy machines.
const dialTimeout = 10 * time.Second

// A Node is the data of a node. It is not safe for concurrent use.
type Node struct {
	Identity string
	Token    string
	Key      crypto.Signer
	CSR      []byte // DER
	Facts    json.RawMessage
	Boot     string
}

// New returns a node with a new P-256 key and certificate request.
func New(identity, token string) (*Node, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("node key: %w", err)
	}
	n := &Node{Identity: identity, Token: token, Key: key, Boot: wire.NewID()}
	n.CSR, err = CSR(key, identity)
	return n, err
}

// CSR returns a certificate request in DER with name as common name and DNS name.
func CSR(key crypto.Signer, name string) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return der, nil
}

// Request returns a new enroll request with a new id.
func (n *Node) Request() *wire.EnrollRequest {
	return &wire.EnrollRequest{
		ID:       wire.NewID(),
		Identity: n.Identity,
		Token:    wire.Secret(n.Token),
		CSR:      n.CSR,
		Facts:    n.Facts,
		Agent:    "simnode",
		Boot:     n.Boot,
	}
}

// Confirm returns the confirmation of e.
func (n *Node) Confirm(e *wire.Enrolled) (*wire.Applied, error) {
	a := &wire.Applied{
		ID:       wire.NewID(),
		Identity: n.Identity,
		Serial:   e.Serial,
		Digest:   wire.Digest(e.Certificate, e.Files),
	}
	var err error
	a.Signature, err = wire.Sign(n.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest))
	return a, err
}

// Dial connects with a token and no certificate; the token is sealed if it asks for that. The connection does not
// reconnect.
func Dial(url, token string, opts ...nats.Option) (*nats.Conn, error) {
	credentials, err := credentials(token)
	if err != nil {
		return nil, err
	}
	return connect(url, slices.Concat([]nats.Option{
		nats.SetCustomDialer(&dialer{Dialer: net.Dialer{Timeout: dialTimeout}}),
	}, credentials, opts))
}

func connect(url string, opts []nats.Option) (*nats.Conn, error) {
	name := wire.NewID()
	return nats.Connect(url, append([]nats.Option{
		nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)), nats.NoReconnect(), nats.Timeout(dialTimeout),
		nats.UseOldRequestStyle(), // an inbox per request, like the agent
		quiet,
	}, opts...)...)
}

// quiet keeps nats.go from printing errors to standard error.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

// DialFleet connects by mutual TLS, as a provisioned node does.
func (n *Node) DialFleet(url string, e *wire.Enrolled, opts ...nats.Option) (*nats.Conn, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(e.CA)) {
		return nil, errors.New("no certificate in ca")
	}
	blocks, err := keyfile.Blocks([]byte(e.Certificate))
	if err != nil {
		return nil, err
	}
	certificate := tls.Certificate{PrivateKey: n.Key}
	for _, block := range blocks {
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	secure := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	return connect(url, append([]nats.Option{nats.Secure(secure)}, opts...))
}

// Enroll sends a request and returns the reply. On a sealed connection, an unsealed reply is the error [seal.ErrPlain].
func Enroll(ctx context.Context, nc *nats.Conn, r *wire.EnrollRequest) (*wire.Reply, error) {
	return ask(ctx, nc, wire.SubjectEnroll, r)
}

// Apply sends a confirmation and returns the reply.
func Apply(ctx context.Context, nc *nats.Conn, a *wire.Applied) (*wire.Reply, error) {
	return ask(ctx, nc, wire.SubjectApplied, a)
}

// Certificate sends a request about a service certificate and returns the reply.
func Certificate(ctx context.Context, nc *nats.Conn, r *wire.CertificateRequest) (*wire.Reply, error) {
	return ask(ctx, nc, wire.SubjectCertificate, r)
}

func ask(ctx context.Context, nc *nats.Conn, subject string, message any) (*wire.Reply, error) {
	b, decode, err := Encode(Session(nc), message)
	if err != nil {
		return nil, err
	}
	m, err := nc.RequestWithContext(ctx, subject, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return decode(m.Data)
}

// Successor returns the node with a new key, as after a renewal.
func (n *Node) Successor() (*Node, error) {
	next, err := New(n.Identity, n.Token)
	if err == nil {
		next.Facts, next.Boot = n.Facts, n.Boot
	}
	return next, err
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
