package provisioner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// TestPauseRefusesNewNodes: new nodes get a code and a retry time; fleet nodes confirm, connect and renew. The pause
// outlives a restart.
func TestPauseRefusesNewNodes(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	inside, halfway := f.Node("web1.example.net"), f.Node("web2.example.net")
	given := f.Enroll(inside)
	f.Apply(inside, given)
	offered := f.Enroll(halfway)
	if _, err := f.Daemon().Orders().Pauses.Begin(f.Context(), "", false, operator); err != nil {
		t.Fatal(err)
	}
	newcomer := f.Node("web3.example.net")
	for range 2 {
		r := f.Ask(newcomer)
		if r.Refusal == nil || r.Refusal.Code != wire.CodePaused || r.Refusal.Wait() < 10*time.Second {
			t.Fatalf("reply while paused: %+v, want %s and a time to come back", r.Refusal, wire.CodePaused)
		}
		if code := f.Refused(inside); code != wire.CodePaused {
			t.Errorf("a fleet node that enrolls again: %s", code)
		}
		if reply := f.Apply(halfway, offered); reply.Refusal != nil {
			t.Errorf("a confirmation is refused: %+v", reply.Refusal)
		}
		inside, given = f.Renew(inside, given)
		f.Eventually("the alarm stands", func() bool {
			alarms := f.Daemon().Alarms()
			return len(alarms) == 1 && alarms[0].Code == wire.CodePaused &&
				strings.Contains(alarms[0].Cause, "by ann") && strings.Contains(alarms[0].Cause, "ticket 17")
		})
		f.Stop()
		f.Start()
	}
	p := f.Daemon().Operator()
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); err != nil {
		t.Fatal(err)
	}
	f.Apply(newcomer, f.Enroll(newcomer))
	f.Eventually("the alarm is over", func() bool { return len(f.Daemon().Alarms()) == 0 })
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); !errors.Is(err, operate.ErrNotPaused) {
		t.Errorf("resumed twice: %v", err)
	}
	for _, is := range []events.Type{events.Paused, events.Resumed} {
		if e := eventsOf(f, is); len(e) != 1 || e[0].By != "ann" || e[0].Why != "ticket 17" {
			t.Errorf("events %s: %+v", is, e)
		}
	}
	f.Check()
}

func TestPauseOfRenewals(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	f.Apply(n, given)
	p := f.Daemon().Operator()
	if _, err := testbed.Orders(p).Pauses.Begin(f.Context(), "", true, operator); err != nil {
		t.Fatal(err)
	}
	next := f.Successor(n)
	if r := f.AskRenew(n, given, next); r.Refusal == nil || r.Refusal.Code != wire.CodePaused {
		t.Errorf("renewal: %+v, want %s", r.Refusal, wire.CodePaused)
	}
	if !f.Admits(n.Identity, given.Serial) {
		t.Error("a fleet node is not admitted to the fleet while enrollment is paused")
	}
	if _, err := testbed.Orders(p).Pauses.Begin(f.Context(), "", false, operator); err != nil { // replaces the first
		t.Fatal(err)
	}
	f.Renew(n, given)
	f.Check()
}

// TestPauseOfASite concerns the site's tokens only, at every provisioner of the store.
func TestPauseOfASite(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	other := f.Provisioner(nil)
	p := f.Daemon().Operator()
	if _, err := testbed.Orders(p).Pauses.Begin(f.Context(), "ams1", false, operator); err != nil {
		t.Fatal(err)
	}
	f.Eventually("another provisioner knows", func() bool { return len(testbed.Orders(other).Pauses.List()) == 1 })
	there := f.Node("web1.example.net")
	there.Token = f.Token(func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Site: "ams1"}); err != nil {
			t.Fatal(err)
		}
	})
	from := provisioner.Source{Address: "192.0.2.1", Server: wire.ServerName("broker", "ams1")}
	if _, err := other.Enroll(f.Context(), there.Request(), from); provisioner.CodeOf(err) != wire.CodePaused {
		t.Errorf("with the site's token: %v", err)
	}
	if _, err := other.Enroll(f.Context(), f.Node("web2.example.net").Request(),
		from); provisioner.CodeOf(err) != wire.CodePaused {
		t.Errorf("from the site's broker: %v", err)
	}
	f.Enroll(f.Node("web3.example.net"))
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); !errors.Is(err, operate.ErrNotPaused) {
		t.Errorf("the installation, which is not paused, resumed: %v", err)
	}
	if err := testbed.Orders(other).Pauses.End(f.Context(), "ams1", operator); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the first knows that it is over", func() bool { return len(testbed.Orders(p).Pauses.List()) == 0 })
	if _, err := other.Enroll(f.Context(), there.Request(), from); err != nil {
		t.Errorf("after it was resumed: %v", err)
	}
	for _, site := range []jwt.Site{"a b", jwt.Site(strings.Repeat("x", 64))} {
		_, err := testbed.Orders(p).Pauses.Begin(f.Context(), site, false, operator)
		if invalid := (*provisioner.OrderError)(nil); !errors.As(err, &invalid) {
			t.Errorf("pause of site %q: %v", site, err)
		}
	}
}
