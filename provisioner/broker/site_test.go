package broker_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

const (
	trustDomain = "fleet.example.net"
	goodToken   = "eyJhbGciOiJFZERTQSJ9.eyJjaHQiOiJzZWNyZXQifQ.c2lnbmF0dXJl"
	patience    = 30 * time.Second // for what takes milliseconds, unless the machine stands still
)

// errToken refuses every token but the site's.
var errToken = errors.New("not signed by a trusted signer")

// authority is a root that signs leaves.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(tb)
	return &authority{cert: create(tb, template, template, key, key), key: key}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func create(tb testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

func (a *authority) issue(tb testing.TB, role wire.Role, name string,
	edits ...func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		URIs:         []*url.URL{wire.RoleURI(trustDomain, role, name)},
		NotBefore:    time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if role == wire.RoleBroker {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	for _, edit := range edits {
		edit(template)
	}
	key := newKey(tb)
	cert := create(tb, template, a.cert, key, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw, a.cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// site is a running broker with its authority, log and refusals.
type site struct {
	*broker.Broker
	ca    *authority
	log   *buffer
	shown atomic.Pointer[tls.Certificate]

	takes time.Duration // how long the gate takes for a token; only set before config

	mu      sync.Mutex
	revoked map[string]error // by the SHA-256 of the certificate
	refused []*broker.Denied
}

// newSite starts a broker after editing its configuration.
func newSite(t testing.TB, edits ...func(*broker.Config)) *site {
	t.Helper()
	s := &site{ca: newAuthority(t), log: &buffer{}, revoked: make(map[string]error)}
	s.show(s.ca.issue(t, wire.RoleBroker, "broker1.example.net"))
	cfg := s.config(t)
	for _, edit := range edits {
		edit(&cfg)
	}
	s.Broker = start(t, cfg)
	return s
}

func (s *site) show(c tls.Certificate) { s.shown.Store(&c) }

func (s *site) config(t testing.TB) broker.Config {
	t.Helper()
	return broker.Config{
		Listen:        "127.0.0.1:0",
		StoreDir:      t.TempDir(),
		MaxStoreBytes: 64 << 20,
		Certificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.shown.Load(), nil },
		ClientCAs:     s.ca.pool(),
		Gate: broker.GateConfig{
			TrustDomain: trustDomain,
			VerifyToken: func(p broker.Presented) (time.Time, error) {
				<-time.After(s.takes)
				if p.Token != goodToken {
					return time.Time{}, errToken
				}
				return time.Now().Add(time.Minute), nil
			},
			AdmitNode: func(_ context.Context, _ wire.Identity, c broker.Certificate) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.revoked[c.SHA256]
			},
		},
		Refused: func(_ context.Context, p broker.Presented, d *broker.Denied) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p.Token != "" || p.Signature != "" {
				t.Error("Refused got a secret")
			}
			s.refused = append(s.refused, d)
		},
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
}

func start(t testing.TB, cfg broker.Config) *broker.Broker {
	t.Helper()
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t testing.TB, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func (s *site) revoke(cert tls.Certificate, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked[fmt.Sprintf("%x", sha256.Sum256(cert.Leaf.Raw))] = why
}

// lastRefusal waits for a refusal of the gate.
func (s *site) lastRefusal(t *testing.T) *broker.Denied {
	t.Helper()
	var d *broker.Denied
	eventually(t, "a refusal", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.refused); n > 0 {
			d = s.refused[n-1]
		}
		return d != nil
	})
	return d
}

func (s *site) muster(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := s.Connect("provisioner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// client returns a connection with a new name, and its inbox prefix.
func (s *site) client(t testing.TB, opts ...nats.Option) (*nats.Conn, string) {
	t.Helper()
	name := wire.NewID()
	nc, err := nats.Connect(s.URL(), append([]nats.Option{nats.Name(name),
		nats.CustomInboxPrefix(wire.InboxPrefix(name)), nats.NoReconnect(), nats.Timeout(patience)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, wire.InboxPrefix(name)
}

func (s *site) mutual(cert tls.Certificate) nats.Option {
	return nats.Secure(s.tlsConfig(cert))
}

func (s *site) tlsConfig(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: s.ca.pool(), ServerName: "127.0.0.1", Certificates: certs}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("no %s within %v", what, patience)
		case <-tick.C:
		}
	}
}

// receive waits for a value or the end of the channel.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
		panic("not reached")
	}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
