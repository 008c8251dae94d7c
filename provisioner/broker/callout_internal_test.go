package broker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/wire"
)

// TestWhoWaitedTooLongIsNotAskedFor asks about a connection after more and more
// waiting. When brokers ask more than can be answered, all wait as long as that is
// allowed to be: were it nearly as long as brokers wait, no answer would come in time.
func TestWhoWaitedTooLongIsNotAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testWaited) // where no time passes, so that the limit is met to the nanosecond
}

func testWaited(t *testing.T) {
	asked := 0
	gate, err := NewGate(GateConfig{
		TrustDomain: "example.net",
		VerifyToken: func(Presented) (time.Time, error) { asked++; return time.Now().Add(time.Hour), nil },
		AdmitNode:   func(context.Context, wire.Identity, string) error { return nil },
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
	text, err := request.Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := brokers.Seal([]byte(text), ours)
	if err != nil {
		t.Fatal(err)
	}
	c := &callout{gate: gate, issuer: issuer, xkey: xkey, log: newNATSLog(slog.New(slog.DiscardHandler), nil), turn: func() func() { return func() {} }}
	for waited, want := range map[time.Duration]int{0: 1, maxCalloutWait: 1, maxCalloutWait + 1: 0, admitTimeout - 1: 0} {
		asked = 0
		m := &nats.Msg{Data: sealed, Header: nats.Header{server.AuthRequestXKeyHeader: {theirs}}}
		c.answer(t.Context(), question{m, time.Now().Add(-waited)})
		if asked != want {
			t.Errorf("after %v, limit %v: the gate was asked %d times, want %d", waited, maxCalloutWait, asked, want)
		}
	}
}
