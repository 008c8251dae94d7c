package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/ca"
	"muster/provisioner/store"
)

// A site is an embedded broker with a connection to the account of provisioners.
type site struct {
	ctx    context.Context
	broker *broker.Broker
	conn   *nats.Conn
	js     jetstream.JetStream // for looking, and for invalid writes
}

// start starts a broker on a directory. stop ends it before the test does.
func start(t testing.TB, dir string) (s *site, stop func()) {
	t.Helper()
	return startWith(t, broker.Config{StoreDir: dir})
}

// startWith is start for benchmarks too, with a directory and more of cfg.
func startWith(t testing.TB, cfg broker.Config) (s *site, stop func()) {
	t.Helper()
	limit := time.Minute
	if _, ok := t.(*testing.B); ok {
		limit = time.Hour // a large store takes its time to fill
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	shown := certificate(t)
	cfg.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &shown, nil }
	cfg.Listen, cfg.ClientCAs = "127.0.0.1:0", x509.NewCertPool()
	cfg.Gate = broker.GateConfig{
		TrustDomain: "fleet.test",
		VerifyToken: func(broker.Presented) (time.Time, error) { return time.Time{}, errors.New("no tokens here") },
		AdmitNode: func(context.Context, wire.Identity,
			broker.Certificate) error {
			return errors.New("no nodes here")
		},
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := b.Connect("store test")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		conn.Close()
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	})
	t.Cleanup(stop)
	return &site{ctx: ctx, broker: b, conn: conn, js: js}, stop
}

// certificate returns a certificate for a broker.
func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	g, err := ca.Generate("fleet.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text string) *x509.Certificate {
		c, err := ca.ParseCertificates([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c[0]
	}
	authority, err := ca.New(ca.Config{Root: parse(g.RootPEM), Issuing: parse(g.IssuingPEM), Key: g.IssuingKey,
		TrustDomain: "fleet.test"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(ca.Request{Role: wire.RoleBroker, Name: "broker.fleet.test", PublicKey: key.Public(),
		DNSNames: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Certificate{PrivateKey: key}
	for rest := []byte(issued.Chain + authority.RootsPEM()); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return c
		}
		c.Certificate = append(c.Certificate, block.Bytes)
	}
}

// open opens the store of a site for the authority with this fingerprint.
func (s *site) open(t testing.TB, fingerprint string) *store.Store {
	t.Helper()
	opened, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// newStore returns a store in a directory of its own.
func newStore(t testing.TB) (*store.Store, *site) {
	t.Helper()
	s, _ := start(t, t.TempDir())
	return s.open(t, ours), s
}
