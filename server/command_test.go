package server_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server"
)

// tell sends a command and returns the answer.
func (f *fleet) tell(t *testing.T, nc *nats.Conn, c wire.Command) *wire.CommandReply {
	t.Helper()
	b, err := wire.Encode(&c)
	if err != nil {
		t.Fatal(err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := nc.RequestWithContext(deadline, wire.CommandSubject("web1.example.net"), b)
	for errors.Is(err, nats.ErrNoResponders) && deadline.Err() == nil { // the agent has just connected
		m, err = nc.RequestWithContext(deadline, wire.CommandSubject("web1.example.net"), b)
	}
	if err != nil {
		t.Fatalf("command: %v; log:\n%s", err, f.log.String())
	}
	r, err := wire.DecodeCommandReply(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// order asks for a nonce and sends the proof by the token's secret.
func (f *fleet) order(t *testing.T, nc *nats.Conn, id string, verb wire.Verb) (sent wire.Command,
	answer *wire.CommandReply) {
	t.Helper()
	c := wire.Command{ID: id, Identity: "web1.example.net", Verb: verb}
	asked := f.tell(t, nc, c)
	if asked.Nonce == "" || asked.ID != id {
		t.Fatalf("answer to a question = %+v, want a nonce", asked)
	}
	c.Nonce = asked.Nonce
	c.Proof = wire.CommandProof(wire.CommandKey(secret, "web1.example.net"), &c)
	return c, f.tell(t, nc, c)
}

// fleetNode runs an agent until it is a connected member of the fleet.
func (f *fleet) fleetNode(t *testing.T) (server.Config, *agent, *nats.Conn) {
	t.Helper()
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	nc := f.client(t, "provisioner")
	// The node subscribes after it connects; until then there is no answer.
	f.await("startup", func() bool { return len(f.lifecycle("startup")) == 1 })
	return cfg, a, nc
}

func wantAccepted(t *testing.T, r *wire.CommandReply, repeated bool) {
	t.Helper()
	if r.Accepted == nil || r.Accepted.Repeated != repeated {
		t.Fatalf("answer = %+v (%+v), want accepted, repeated %v", r, r.Refusal, repeated)
	}
}

func wantRefused(t *testing.T, r *wire.CommandReply, code wire.Code) {
	t.Helper()
	if r.Refusal == nil || r.Refusal.Code != code {
		t.Errorf("answer = %+v (%+v), want %s", r, r.Refusal, code)
	}
}

// The node gives up, goes back to the fleet with what it has, and stays there after a restart.
func TestReprovisionWithARefusedTokenIsAbandoned(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	serial := a.await(server.EventConnected, 1).Serial
	a.await(server.EventConfirmed, 1)
	nc := f.client(t, "provisioner")
	f.await("startup", func() bool { return len(f.lifecycle("startup")) == 1 })
	f.set(func() { f.admit = func(_ string, cert *x509.Certificate) bool { return cert != nil } })
	_, r := f.order(t, nc, "first", wire.VerbReprovision)
	wantAccepted(t, r, false)
	if got := a.await(server.EventConnected, 2).Serial; got != serial {
		t.Errorf("back with certificate %s, want %s", got, serial)
	}
	f.awaitLog("node not reprovisioned")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.run(cfg).await(server.EventConnected, 1)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want the first alone", n)
	}
}

func TestReprovisionKeepsTheKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg, a, nc := f.fleetNode(t)
	before := readFile(t, filepath.Join(cfg.SSLDir, "private.pem"))
	_, r := f.order(t, nc, "first", wire.VerbReprovision)
	wantAccepted(t, r, false)
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	if after := readFile(t, filepath.Join(cfg.SSLDir, "private.pem")); after != before {
		t.Error("the node came back with another key")
	}
	if n := len(f.requests()); n != 2 {
		t.Errorf("%d enroll requests, want 2", n)
	}
	// The same command with a new proof is recognized and not carried out again.
	_, r = f.order(t, nc, "first", wire.VerbReprovision)
	wantAccepted(t, r, true)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(f.requests()); n != 2 {
		t.Errorf("%d enroll requests after the command came twice, want 2", n)
	}
}

func TestCommandsThatProveNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg, a, nc := f.fleetNode(t)
	ask := func(id string, verb wire.Verb) wire.Command {
		c := wire.Command{ID: id, Identity: "web1.example.net", Verb: verb}
		c.Nonce = f.tell(t, nc, c).Nonce
		return c
	}
	key := wire.CommandKey(secret, "web1.example.net")

	c := ask("wrong-secret", wire.VerbShutdown)
	c.Proof = wire.CommandProof(wire.CommandKey("guessed", "web1.example.net"), &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandProof)
	c.Proof = wire.CommandProof(key, &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandStale) // one nonce, one try

	c = ask("other-node", wire.VerbShutdown)
	c.Proof = wire.CommandProof(wire.CommandKey(secret, "web2.example.net"), &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandProof)

	c = ask("other-verb", wire.VerbReconfigure)
	c.Proof = wire.CommandProof(key, &c)
	c.Verb = wire.VerbShutdown
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandProof)

	c = ask("one", wire.VerbShutdown)
	c.ID = "another"
	c.Proof = wire.CommandProof(key, &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandStale)

	c = ask("made-up", wire.VerbShutdown)
	c.Nonce = wire.NewID()
	c.Proof = wire.CommandProof(key, &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandStale)

	c = wire.Command{ID: "for-another", Identity: "web2.example.net", Verb: wire.VerbShutdown}
	c.Nonce = f.tell(t, nc, c).Nonce
	c.Proof = wire.CommandProof(wire.CommandKey(secret, "web2.example.net"), &c)
	wantRefused(t, f.tell(t, nc, c), wire.CodeBadRequest)

	// A recorded command is worthless, on this connection and on the next.
	recorded, r := f.order(t, nc, "recorded", wire.VerbReconfigure)
	wantAccepted(t, r, false)
	a.await(server.EventConnected, 2)
	wantRefused(t, f.tell(t, nc, recorded), wire.CodeCommandStale)

	if _, err := os.Stat(filepath.Join(cfg.SSLDir, ".orders")); err != nil {
		t.Errorf("the accepted command is not on disk: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}

// The proof answers a nonce of the former connection, as if it had been held back.
func TestANonceIsValidOnOneConnection(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, a, nc := f.fleetNode(t)
	c := wire.Command{ID: "kept-back", Identity: "web1.example.net", Verb: wire.VerbShutdown}
	c.Nonce = f.tell(t, nc, c).Nonce
	c.Proof = wire.CommandProof(wire.CommandKey(secret, "web1.example.net"), &c)
	if err := f.broker.DisconnectClientByID(f.fleetClient(t)); err != nil {
		t.Fatal(err)
	}
	a.await(server.EventConnected, 2)
	wantRefused(t, f.tell(t, nc, c), wire.CodeCommandStale)
}

func TestANodeThatWouldNotComeBackStays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg, a, nc := f.fleetNode(t)
	c := f.claims()
	c.ExpiresAt = time.Now().Add(-time.Hour)
	writeToken(t, cfg.TokenFile, c)
	a.await(server.EventConnected, 2) // the agent has read the file
	_, r := f.order(t, nc, "expired", wire.VerbReprovision)
	wantRefused(t, r, wire.CodeCommandImpossible)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want 1", n)
	}
}

func TestRefusedForGoodItGoesBackToTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, a, nc := f.fleetNode(t)
	f.set(func() { f.enroll = refuse(wire.CodeTokenRevoked, time.Hour) })
	_, r := f.order(t, nc, "revoked", wire.VerbReprovision)
	wantAccepted(t, r, false)
	a.await(server.EventRefused, 1)
	a.await(server.EventConnected, 2)
}

func TestRestartAndShutdown(t *testing.T) {
	t.Parallel()
	for verb, want := range map[wire.Verb]error{wire.VerbRestart: server.ErrRestart, wire.VerbShutdown: nil} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg, a, nc := f.fleetNode(t)
			_, r := f.order(t, nc, "once", verb)
			wantAccepted(t, r, false)
			if err := a.end(); !errors.Is(err, want) {
				t.Fatalf("the agent ended with %v, want %v", err, want)
			}
			f.await("shutdown event", func() bool { return len(f.lifecycle("shutdown")) == 1 })
			next := f.run(cfg)
			next.await(server.EventConnected, 1)
			f.await("second startup", func() bool { return len(f.lifecycle("startup")) == 2 })
			_, r = f.order(t, nc, "once", verb)
			wantAccepted(t, r, true)
			if err := next.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func writeOrder(t *testing.T, cfg server.Config, id string, verb wire.Verb) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"doing": map[string]any{"id": id, "verb": verb}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(cfg.SSLDir, ".orders"), string(b))
}

// The sync of the order fails: the sender gets a refusal, and no agent carries the order out.
func TestAnOrderThatCannotBeWrittenIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.AliveInterval = 20 * time.Millisecond
	var failing atomic.Bool
	cfg.SetSync(func(string) error {
		if failing.Load() {
			return syscall.EIO
		}
		return nil
	})
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	nc := f.client(t, "provisioner")
	f.await("startup", func() bool { return len(f.lifecycle("startup")) == 1 })
	failing.Store(true)
	for _, verb := range []wire.Verb{wire.VerbShutdown, wire.VerbReconfigure} {
		_, r := f.order(t, nc, "lost-"+string(verb), verb)
		wantRefused(t, r, wire.CodeCommandImpossible)
	}
	alive := len(f.lifecycle("alive"))
	f.await("many turns", func() bool { return len(f.lifecycle("alive")) > alive+3 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	failing.Store(false)
	a = f.run(cfg)
	a.await(server.EventConnected, 1)
	alive = len(f.lifecycle("alive"))
	f.await("many turns", func() bool { return len(f.lifecycle("alive")) > alive+3 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(f.renewals()); n > 0 {
		t.Errorf("%d requests for an order that was refused", n)
	}
}
