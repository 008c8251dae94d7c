package testbed_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// order sends a command to a connected node, as an operator would.
func order(t *testing.T, f *testbed.Fleet, identity string, o operate.CommandOrder) *operate.Obeyed {
	t.Helper()
	var done *operate.Obeyed
	f.Eventually(identity+" takes the command", func() bool {
		var err error
		done, err = f.Daemon().Orders().Nodes.Command(f.Context(), wire.Identity(identity), o,
			trust.Cause{By: "test", Why: "to see"})
		if err != nil && !errors.Is(err, operate.ErrNodeAway) {
			t.Fatal(err)
		}
		return err == nil
	})
	return done
}

// happened counts the events of a node.
func happened(f *testbed.Fleet, identity string, what events.Type) (n int) {
	for _, e := range f.Events() {
		if e.Type == what && e.Node == identity {
			n++
		}
	}
	return n
}

func TestANodeIsReprovisionedWithItsOwnKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	before := f.Record("web1.example.net")
	done := order(t, f, "web1.example.net", operate.CommandOrder{Verb: wire.VerbReprovision})
	f.Eventually("web1 is provisioned again", func() bool {
		return happened(f, "web1.example.net", events.Enrolled) >= 2
	})
	// The same id again: the node has returned, and recognizes it.
	if again := order(t, f, "web1.example.net",
		operate.CommandOrder{ID: done.ID, Verb: wire.VerbReprovision}); !again.Repeated {
		t.Error("a command that came twice was taken twice")
	}
	f.WaitProvisioned(a)
	after := f.Record("web1.example.net")
	if after.Current.KeyHash != before.Current.KeyHash || after.Current.Serial != before.Current.Serial {
		t.Error("the node came back with another key or certificate")
	}
	f.Check()
}

func TestANodeGetsItsConfigurationAnew(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	before := f.Record("web1.example.net")
	order(t, f, "web1.example.net", operate.CommandOrder{Verb: wire.VerbReconfigure})
	f.Eventually("the order is done", func() bool {
		b, err := os.ReadFile(filepath.Join(a.Dir, ".orders"))
		return err == nil && !strings.Contains(string(b), "doing")
	})
	f.WaitProvisioned(a)
	if after := f.Record("web1.example.net"); after.Current.Serial != before.Current.Serial {
		t.Error("the node has another certificate")
	}
	f.Check()
}

func TestCommandsThatAreNotSent(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	command := func(identity string, o operate.CommandOrder) error {
		_, err := f.Daemon().Orders().Nodes.Command(f.Context(), wire.Identity(identity), o, trust.Cause{By: "test"})
		return err
	}
	if err := command("web2.example.net", operate.CommandOrder{Verb: wire.VerbRestart}); !errors.Is(err,
		provisioner.ErrNoRecord) {
		t.Errorf("to a node that never was: %v", err)
	}
	order(t, f, "web1.example.net", operate.CommandOrder{Verb: wire.VerbRestart}) // connected
	f.Eventually("it is back", func() bool { return strings.Count(f.Log(), "connected to the fleet") >= 2 })

	// With the secret of another token.
	other := f.Token(func(c *jwt.Claims) { c.Token = "anothersecret" })
	f.Eventually("the node refuses another secret", func() bool {
		err := command("web1.example.net", operate.CommandOrder{Verb: wire.VerbShutdown, Token: wire.Secret(other)})
		return provisioner.CodeOf(err) == wire.CodeCommandProof
	})
	f.PutRecord("web1.example.net", func(r *provisioner.Record) { r.CommandKey = nil })
	if err := command("web1.example.net", operate.CommandOrder{Verb: wire.VerbRestart}); !errors.Is(err,
		operate.ErrNoCommandKey) {
		t.Errorf("without a key on record: %v", err)
	}
	a.Stop()
	if err := command("web1.example.net", operate.CommandOrder{Verb: wire.VerbRestart,
		Token: wire.Secret(f.Token(nil))}); !errors.Is(err, operate.ErrNodeAway) {
		t.Errorf("to a node that is off: %v", err)
	}
	f.Revoke("web1.example.net")
	if err := command("web1.example.net", operate.CommandOrder{Verb: wire.VerbRestart}); !errors.Is(err,
		trust.ErrState) {
		t.Errorf("to a revoked node: %v", err)
	}
}
