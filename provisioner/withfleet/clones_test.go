package provisioner_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// refusesClones is the open policy with the example that refuses clones.
func refusesClones(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../examples/policies/clones/policy.rego")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\nallow := true\n"
}

// cloneEvents counts reports of clones with both addresses.
func cloneEvents(f *testbed.Fleet, identity string) int {
	n := 0
	for _, e := range f.Events() {
		if e.Type == events.Cloned && e.Node == identity && strings.Count(e.Cause, " at 127.0.0.1") == 2 {
			n++
		}
	}
	return n
}

// logged counts the log lines of this identity's agents with a message.
func logged(f *testbed.Fleet, identity, msg string) int {
	n := 0
	for line := range strings.Lines(f.Log()) {
		if strings.Contains(line, `"msg":"`+msg+`"`) && strings.Contains(line, `"agent":"`+identity+`"`) {
			n++
		}
	}
	return n
}

const connected = "connected to the fleet"

// grace is longer than cloneGrace.
const grace = 2 * time.Minute

// TestACopiedDiskIsReported starts a second agent from a copy of the disk.
func TestACopiedDiskIsReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy  string
		refused bool
	}{
		"is reported":                        {"package muster.enroll\n\nallow := true\n", false},
		"is refused if the policy denies it": {refusesClones(t), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Policy: tt.policy, Alive: 50 * time.Millisecond})
			a := f.Agent("web1.example.net", f.Token(nil))
			other := f.Agent("web2.example.net", f.Token(nil))
			f.WaitProvisioned(a, other)
			a.Clone()
			f.Eventually("both are in the fleet", func() bool { return logged(f, a.Identity, connected) >= 2 })
			if n := cloneEvents(f, a.Identity); n != 0 {
				t.Fatalf("%d reports of clones before the time of a reboot was over", n)
			}
			f.Eventually("clones are on record", func() bool {
				f.Clock.Advance(grace)
				return f.Record(a.Identity).Cloned != nil
			})
			r := f.Record(a.Identity)
			one, two := r.Cloned.Machines[0], r.Cloned.Machines[1]
			if one.Boot == two.Boot || one.Address != "127.0.0.1" || two.Address != "127.0.0.1" {
				t.Errorf("record says %+v, want two boots and their addresses", r.Cloned)
			}
			if err := f.Daemon().Admits(f.Context(), wire.Identity(a.Identity), r.Current.Serial); err != nil {
				t.Errorf("Admits = %v, want it admitted", err)
			}
			if tt.refused {
				n, _ := a.Copy()
				if code := f.Refused(n); code != wire.CodeIdentityCloned {
					t.Errorf("enroll = %s, want %s", code, wire.CodeIdentityCloned)
				}
				f.Stop()
				f.Start()
				if code := f.Refused(n); code != wire.CodeIdentityCloned {
					t.Errorf("enroll after a restart = %s, want %s", code, wire.CodeIdentityCloned)
				}
			}
			f.Clock.Advance(grace)
			f.Eventually("the report", func() bool { return cloneEvents(f, a.Identity) > 0 })
			if n := cloneEvents(f, a.Identity); n != 1 {
				t.Errorf("%d reports of clones, want one for the pair", n)
			}
			if r := f.Record(other.Identity); r.Cloned != nil {
				t.Errorf("%s is cloned, too: %+v", other.Identity, r.Cloned)
			}
		})
	}
}

// TestRebootsAreNoClones restarts an agent again and again, also with messages still under way.
func TestRebootsAreNoClones(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t), Alive: 20 * time.Millisecond})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	const reboots = 6
	for n := range reboots {
		f.Eventually("it is back", func() bool { return logged(f, a.Identity, connected) > n })
		f.Clock.Advance(grace)
		a.Stop()
		a.Start()
	}
	f.Eventually("it is back", func() bool { return logged(f, a.Identity, connected) > reboots })
	if n := cloneEvents(f, a.Identity); n != 0 || f.Record(a.Identity).Cloned != nil {
		t.Errorf("%d reports of clones, record %+v, want none", n, f.Record(a.Identity).Cloned)
	}
	f.Check()
}

// TestARecordedRequestMakesNoClone replays the enroll request of a restarted node. The replayer knows the token but
// no key.
func TestARecordedRequestMakesNoClone(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t)})
	n := f.Node("web1.example.net")
	recorded, err := wire.Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *wire.Reply {
		m, err := f.Dial(n.Token).RequestWithContext(f.Context(), wire.SubjectEnroll, recorded)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.DecodeReply(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	e := ask().Enrolled
	f.Apply(n, e)
	conn := f.DialFleet(n, e)
	said, err := json.Marshal(map[string]any{"data": map[string]string{"boot": wire.NewID(), "serial": e.Serial}})
	if err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Second)
	if err := conn.Publish(wire.EventSubject("web1.example.net", "startup"), said); err != nil {
		t.Fatal(err)
	}
	// The next reply on this connection follows the event.
	f.AppliedOverFleet(n, e)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.Clock.Advance(grace)
		if r := ask(); r.Refusal != nil {
			t.Errorf("asked again, it is refused: %s", r.Refusal.Code)
		}
	}
	if c := f.Record("web1.example.net").Cloned; c != nil {
		t.Errorf("the node is cloned for a recorded request: %+v", c)
	}
	if !f.Admits("web1.example.net", e.Serial) {
		t.Error("the node is kept out of the fleet")
	}
	if conn.IsClosed() {
		t.Error("the node was dropped")
	}
}
