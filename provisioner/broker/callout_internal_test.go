package broker

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/wire"
)

// If a request could wait nearly as long as brokers do, no answer would arrive in time under overload.
func TestExpiredCalloutRequestsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testWaited) // where no time passes, so that the limit is met to the nanosecond
}

func testWaited(t *testing.T) {
	asked := 0
	c, sealed, header := asking(t, func() { asked++ })
	for waited, want := range map[time.Duration]int{0: 1, maxCalloutWait: 1, maxCalloutWait + 1: 0,
		admitTimeout - 1: 0} {
		asked = 0
		m := &nats.Msg{Data: sealed, Header: header}
		c.answer(t.Context(), calloutRequest{m, time.Now().Add(-waited)})
		if asked != want {
			t.Errorf("after %v, limit %v: the gate was asked %d times, want %d", waited, maxCalloutWait, asked, want)
		}
	}
}

func TestCalloutWithoutUserIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		asked := 0
		c, sealed, header := asking(t, func() { asked++ },
			func(r *jwt.AuthorizationRequestClaims) { r.UserNkey = user })
		if c.answer(t.Context(), calloutRequest{&nats.Msg{Data: sealed, Header: header}, time.Now()}) || asked > 0 {
			t.Errorf("a request about the user %q is answered; the gate was asked %d times", user, asked)
		}
	}
}

// asking returns a callout that calls asked for each call of the gate, and an encrypted request with its header.
func asking(t testing.TB, asked func(), edit ...func(*jwt.AuthorizationRequestClaims)) (c *callout, sealed []byte,
	header nats.Header) {
	t.Helper()
	gate, err := NewGate(GateConfig{
		TrustDomain: "example.net",
		VerifyToken: func(Presented) (time.Time, error) { asked(); return time.Now().Add(time.Hour), nil },
		AdmitNode:   func(context.Context, wire.Identity, Certificate) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k, err := make()
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, public
	}
	issuer, _ := pair(nkeys.CreateAccount)
	xkey, ours := pair(nkeys.CreateCurveKeys)
	brokers, theirs := pair(nkeys.CreateCurveKeys)
	signer, _ := pair(nkeys.CreateServer)
	_, user := pair(nkeys.CreateUser)

	request := jwt.NewAuthorizationRequestClaims(user)
	request.UserNkey = user
	request.ClientInformation.Kind, request.ClientInformation.Type = "Client", "nats"
	request.ConnectOptions.Name, request.ConnectOptions.Token = "AAAAAAAAAAAAAAAAAAAAAA", "a token"
	for _, edit := range edit {
		edit(request)
	}
	text, err := request.Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err = brokers.Seal([]byte(text), ours)
	if err != nil {
		t.Fatal(err)
	}
	keys := keyPairs{issuer: keyPair{KeyPair: issuer}, xkey: keyPair{KeyPair: xkey}}
	c = &callout{gate: gate, keys: keys, log: newNATSLog(slog.New(slog.DiscardHandler))}
	return c, sealed, nats.Header{server.AuthRequestXKeyHeader: {theirs}}
}

// The broker sends requests and reads no answer. Without the wait, old answers would pile up unnoticed.
func TestCalloutWaitsForDeliveryOfAnswers(t *testing.T) {
	t.Parallel()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(broker.Shutdown)
	if !broker.ReadyForConnections(10 * time.Second) {
		t.Fatal("the broker does not start")
	}
	link := &slowWire{}
	nc, err := nats.Connect(broker.ClientURL(), nats.SetCustomDialer(link), nats.Timeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()

	const most = 4 // few, so that a slow machine has answered all of them long before admitTimeout
	var asked atomic.Int32
	c, sealed, header := asking(t, func() { asked.Add(1) })
	c.workers = most
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.run(ctx, nc, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	link.hold()
	asks, err := nats.Connect(broker.ClientURL(), nats.Timeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	ask := func() {
		t.Helper()
		if err := asks.PublishMsg(&nats.Msg{Subject: server.AuthCalloutSubject, Reply: asks.NewInbox(), Data: sealed,
			Header: header}); err != nil {
			t.Fatal(err)
		}
		if err := asks.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for given := time.Now(); asked.Load() < most; ask() { // in a loop, for a request that waited too long is dropped
		if time.Since(given) > 10*time.Second {
			t.Fatalf("%d requests have an answer under way, want %d", asked.Load(), most)
		}
	}
	for range most {
		ask()
	}
	<-time.After(200 * time.Millisecond) // nothing is waited for: for so long the broker is stalled
	if n := asked.Load(); n > most {
		t.Errorf("%d answers are under way to a broker that reads none, want %d", n, most)
	}
	link.release()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(4 * admitTimeout):
		t.Error("the callout does not end")
	}
}

// A slowWire's far end reads nothing while it is held.
type slowWire struct {
	net.Conn

	mu   sync.Mutex
	held bool
	kept []byte
}

func (w *slowWire) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	w.Conn = c
	return w, err
}

func (w *slowWire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		w.kept = append(w.kept, b...)
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *slowWire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

func (w *slowWire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	_, _ = w.Conn.Write(w.kept)
}
