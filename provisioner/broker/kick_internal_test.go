package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

const kickedNode wire.Identity = "web1.example.net"

// kicking returns an External of one server, which admits no certificate any more, and a
// connection of kickedNode to that. What it closes is closed when the connection is.
func kicking(t *testing.T) (e *External, closed chan struct{}) {
	t.Helper()
	keys, err := NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	keys.System = "control:secret"
	fleet, system := server.NewAccount(AccountFleet), server.NewAccount(AccountSystem)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, SystemAccount: AccountSystem, Accounts: []*server.Account{fleet, system},
		Users: []*server.User{{Username: string(kickedNode), Password: "secret", Account: fleet}, {Username: "control", Password: "secret", Account: system}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	e, err = NewExternal(ExternalConfig{URLs: s.ClientURL(), Keys: keys, Gate: GateConfig{
		TrustDomain: "example.net",
		VerifyToken: func(Presented) (time.Time, error) { return time.Time{}, nil },
		AdmitNode:   func(context.Context, wire.Identity, string) error { return nil },
		LiveNode:    func(context.Context, wire.Identity) ([]string, error) { return nil, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	closed = make(chan struct{})
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(string(kickedNode), "secret"), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return e, closed
}

// TestASilentServerHoldsUpNoOther knows a server that does not answer: what is connected
// to another one is dropped long before the silent one is given up, which is said.
func TestASilentServerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*External) error{
		"disconnected": func(e *External) error { return e.Disconnect(kickedNode) },
		"looked at": func(e *External) error {
			again, err := e.Recheck(context.Background(), kickedNode)
			if len(again) != 1 {
				t.Errorf("Recheck = %v, %v, want to be asked again", again, err)
			}
			return err
		},
		"looked at with everybody": func(e *External) error {
			again, whole, err := e.RecheckAll(context.Background())
			if whole || len(again) > 0 {
				t.Errorf("RecheckAll = %v, %v, %v, want not all to be looked at, and nobody else to be repeated", again, whole, err)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, closed := kicking(t)
			e.alive("silent")
			began, done := time.Now(), make(chan error, 1)
			go func() { done <- drop(e) }()
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Fatal("the connection to the server that answers is not dropped")
			}
			if took := time.Since(began); took > answerTimeout/2 {
				t.Errorf("dropped after %v, and the silent server is given up after %v", took, answerTimeout)
			}
			if err := <-done; err == nil || !strings.Contains(err.Error(), "none came from silent") {
				t.Errorf("error = %v, want one that says who is silent", err)
			}
		})
	}
}

// TestAnErrorAboutManyNodesIsShort has a store that answers about none of a thousand.
func TestAnErrorAboutManyNodesIsShort(t *testing.T) {
	t.Parallel()
	var u unsettled
	for range 1000 {
		u.add(errors.New("the store is away"), kickedNode)
	}
	if text := u.err().Error(); len(u.ids) != 1000 || len(text) > 300 || !strings.Contains(text, "1000 nodes: ") || !strings.Contains(text, "store is away") {
		t.Errorf("%d are left, the error says %q; want how many there are and what ails some", len(u.ids), text)
	}
}

// TestASilentServerIsWaitedForOnce asks again and again while a server is silent, and once
// more after a sign of life.
func TestASilentServerIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	e, _ := kicking(t)
	e.alive("silent")
	for i, waits := range []bool{true, false, false} {
		began := time.Now()
		if err := e.Disconnect(kickedNode); err == nil {
			t.Errorf("call %d: no error, want one that says who is silent", i+1)
		}
		if took := time.Since(began); took >= answerTimeout != waits {
			t.Errorf("call %d took %v, and a server is waited for for %v", i+1, took, answerTimeout)
		}
	}
	answered := make(map[string]bool)
	e.mu.Lock()
	for id := range e.servers {
		answered[id] = id != "silent"
	}
	e.mu.Unlock()
	e.alive("silent")
	if ids, wait := e.silent(answered); !wait || len(ids) != 1 {
		t.Errorf("after a sign of life %v are silent, waited for: %v", ids, wait)
	}
}
