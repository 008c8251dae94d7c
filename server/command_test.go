package server_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server"
)

// tell sends a command as it is and returns the answer.
func (f *fleet) tell(t *testing.T, nc *nats.Conn, c wire.Command) *wire.CommandReply {
	t.Helper()
	b, err := wire.Encode(&c)
	if err != nil {
		t.Fatal(err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := nc.RequestWithContext(deadline, wire.CommandSubject("web1.example.net"), b)
	for errors.Is(err, nats.ErrNoResponders) && deadline.Err() == nil { // it has just connected
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

// insist orders until that is accepted, of a node that leaves its connection again and
// again: what it was told over the one before is lost.
func (f *fleet) insist(t *testing.T, nc *nats.Conn, id string, verb wire.Verb) {
	t.Helper()
	ask := func(c wire.Command) *wire.CommandReply {
		b, err := wire.Encode(&c)
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.Request(wire.CommandSubject("web1.example.net"), b, time.Second)
		if err != nil {
			return &wire.CommandReply{}
		}
		r, err := wire.DecodeCommandReply(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for began := time.Now(); ; {
		c := wire.Command{ID: id, Identity: "web1.example.net", Verb: verb}
		if c.Nonce = ask(c).Nonce; c.Nonce != "" {
			c.Proof = wire.CommandProof(wire.CommandKey(secret, "web1.example.net"), &c)
			if ask(c).Accepted != nil {
				return
			}
		}
		if time.Since(began) > patience {
			t.Fatalf("not accepted within %v; log:\n%s", patience, f.log.String())
		}
	}
}

// order asks for a nonce and sends the proof, by the token's secret.
func (f *fleet) order(t *testing.T, nc *nats.Conn, id string, verb wire.Verb) (sent wire.Command, answer *wire.CommandReply) {
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
	// The subscription follows the connection: until it is there nobody answers.
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

// TestReprovisionWithATokenThatNoBrokerTakesEnds orders what cannot be done: the node
// goes back to the fleet with what it has, and stays there after a restart.
func TestReprovisionWithATokenThatNoBrokerTakesEnds(t *testing.T) {
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
	f.awaitLog("node is not reprovisioned")
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
	// The same command again, proven anew: it is known, and not done again.
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

	// A recorded command is worth nothing, neither now nor on the next connection.
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

// TestANonceIsOfOneConnection proves a command that the node was asked about on the connection
// before, as who kept it back would while the machine slept.
func TestANonceIsOfOneConnection(t *testing.T) {
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
	a.await(server.EventConnected, 2) // it has seen the file
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

// TestANodeThatWouldNotStartAgainIsNotRestarted orders a restart of a node whose files its
// agent would not begin with: it works on with what it has read, and can be mended.
func TestANodeThatWouldNotStartAgainIsNotRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg, a, nc := f.fleetNode(t)
	key := filepath.Join(cfg.SSLDir, "private.pem")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, r := f.order(t, nc, "open", wire.VerbRestart)
	wantRefused(t, r, wire.CodeCommandImpossible)
	if r.Refusal != nil && !strings.Contains(r.Refusal.Message, "chmod 600 "+key) {
		t.Errorf("message = %q, want what to do", r.Refusal.Message)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	f.insist(t, nc, "closed", wire.VerbRestart)
	if err := a.end(); !errors.Is(err, server.ErrRestart) {
		t.Errorf("Run = %v, want ErrRestart", err)
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

// TestKilledWhileReconfiguring kills the agent after each step of an order to
// reconfigure. The next one goes on with it, and ends with the new
// configuration, confirmed, for the key and certificate that it had.
func TestKilledWhileReconfiguring(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	prepare := func(t *testing.T) (server.Config, job) {
		cfg := f.node("web1.example.net")
		f.member(t, cfg)
		writeOrder(t, cfg, wire.NewID(), wire.VerbReconfigure)
		return cfg, until(newJob(cfg), server.EventConfirmed)
	}
	cfg, _ := prepare(t)
	var steps []string
	cfg.SetSteps(func(name string) { steps = append(steps, name) })
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if len(steps) < 15 || !slices.Contains(steps, "switched") || !slices.Contains(steps, "order done") {
		t.Fatalf("steps = %q", steps)
	}
	eachStep(t, steps, func(t *testing.T, step string, occurrence int) {
		cfg, j := prepare(t)
		before := readFile(t, filepath.Join(cfg.SSLDir, "private.pem"))
		j.KillAfter, j.Occurrence = step, occurrence
		cmd, stderr := startChild(t, j)
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("child ended with %v, want it killed; it said:\n%s", err, stderr.String())
		}
		a := f.run(cfg)
		a.await(server.EventConnected, 1)
		f.await("the new configuration, confirmed", func() bool {
			_, err := os.Stat(filepath.Join(cfg.SSLDir, "..data", "applied.json"))
			b, _ := os.ReadFile(cfg.ConfFile)
			return err != nil && strings.Contains(string(b), "generation = new")
		})
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if readFile(t, filepath.Join(cfg.SSLDir, "private.pem")) != before {
			t.Error("the node has another key")
		}
	})
}

// TestASignalDuringARestartEndsTheAgent tells an agent to start anew and to end at the
// same time: a signal that was taken does not come again.
func TestASignalDuringARestartEndsTheAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.SetSteps(func(name string) {
		if name == "order answered" {
			cancel() // SIGTERM
		}
	})
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	nc := f.client(t, "provisioner")
	f.await("startup", func() bool { return len(f.lifecycle("startup")) == 1 })
	_, r := f.order(t, nc, "first", wire.VerbRestart)
	wantAccepted(t, r, false)
	if err := <-done; err != nil {
		t.Errorf("Run = %v after its context has ended, want nil: it would be started again", err)
	}
}

// TestAnOrderThatIsNotOnDiskIsNotDone has a disk fail when an order's name is to be
// synced: whoever gave it is told so, and neither this agent does it nor the next.
func TestAnOrderThatIsNotOnDiskIsNotDone(t *testing.T) {
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
