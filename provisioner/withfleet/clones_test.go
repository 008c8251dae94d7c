package provisioner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/broker"
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

// cloneEvents counts the reports of clones.
func cloneEvents(f *testbed.Fleet, identity string) int {
	n := 0
	for _, e := range f.Events() {
		if e.Type == provisioner.EventCloned && e.Node == identity {
			n++
		}
	}
	return n
}

// connected is what an agent logs when it is in the fleet.
const connected = "connected to the fleet"

// grace is longer than what an earlier boot instance has left to say.
const grace = 2 * time.Minute

// TestACopiedDisk starts a second agent from a copy of the first one's disk:
// the same key, certificate and configuration.
func TestACopiedDisk(t *testing.T) {
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
			f.CopyAgent(a)
			f.Eventually("both are in the fleet", func() bool { return f.Said(a.Identity, connected) >= 2 })
			if n := cloneEvents(f, a.Identity); n != 0 {
				t.Fatalf("%d reports of clones before the time of a reboot was over", n)
			}
			f.Eventually("clones are on record", func() bool {
				f.Clock.Advance(grace)
				return f.Record(a.Identity).Cloned != nil
			})
			r := f.Record(a.Identity)
			if r.Cloned.Refused != tt.refused || r.Cloned.Boots[0] == r.Cloned.Boots[1] {
				t.Errorf("record says %+v, want two boots, refused %v", r.Cloned, tt.refused)
			}
			if !tt.refused {
				if err := f.Daemon().Admits(f.Context(), wire.Identity(a.Identity), r.Current.Serial); err != nil {
					t.Errorf("Admits = %v, want it admitted", err)
				}
			} else {
				f.Eventually("both are out", func() bool { return f.Said(a.Identity, "connection to the fleet lost") >= 2 })
				err := f.Daemon().Admits(f.Context(), wire.Identity(a.Identity), r.Current.Serial)
				if d := (*broker.Denied)(nil); !errors.As(err, &d) || d.Code != wire.CodeIdentityCloned {
					t.Errorf("Admits = %v, want %s", err, wire.CodeIdentityCloned)
				}
				// Their token does not help either.
				n := f.NodeOf(a)
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

// TestRebootsAreNoClones starts one agent again and again, also while what it
// said before is still on its way.
func TestRebootsAreNoClones(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t), Alive: 20 * time.Millisecond})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	const reboots = 6
	for n := range reboots {
		f.Eventually("it is back", func() bool { return f.Said(a.Identity, connected) > n })
		f.Clock.Advance(grace)
		a.Stop()
		a.Start()
	}
	f.Eventually("it is back", func() bool { return f.Said(a.Identity, connected) > reboots })
	if n := cloneEvents(f, a.Identity); n != 0 || f.Record(a.Identity).Cloned != nil {
		t.Errorf("%d reports of clones, record %+v, want none", n, f.Record(a.Identity).Cloned)
	}
	f.Check()
}

// TestClonesThatOnlyEnroll are found by their requests.
func TestClonesThatOnlyEnroll(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	one := f.SealedNode("web1.example.net")
	two := *one
	two.Boot = wire.NewID()
	f.Enroll(one)
	f.Enroll(&two)
	f.Enroll(one) // at once: it may be a retry that was on its way when the machine restarted
	if n := cloneEvents(f, one.Identity); n != 0 {
		t.Fatalf("%d reports of clones within the grace", n)
	}
	f.Clock.Advance(grace)
	f.Enroll(&two)
	if n := cloneEvents(f, one.Identity); n != 0 {
		t.Fatalf("%d reports of clones although only the later machine spoke", n)
	}
	f.Enroll(one)
	if n := cloneEvents(f, one.Identity); n != 1 {
		t.Errorf("%d reports of clones, want one", n)
	}
	f.Check()
}

// TestAnIdentityThatChangesHands is not cloned by the machine that it was taken
// from, and its record of clones ends with its owner.
func TestAnIdentityThatChangesHands(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t)})
	p := f.Provisioner(nil)
	id := wire.Identity("web1.example.net")
	enroll := func(n *simnode.Node) *wire.Enrolled {
		t.Helper()
		e, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{Sealed: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	reports := func(when string, want int) {
		t.Helper()
		if n := cloneEvents(f, string(id)); n != want {
			t.Errorf("%s: %d reports of clones, want %d", when, n, want)
		}
	}
	old := f.SealedNode(string(id))
	twin := *old
	twin.Boot = wire.NewID()
	e := enroll(old)
	f.Apply(old, e)
	enroll(&twin)
	f.Clock.Advance(grace)
	enroll(old)
	if r := f.Record(old.Identity); r.Cloned == nil || !r.Cloned.Refused {
		t.Fatalf("record = %+v, want clones that are refused", r.Cloned)
	}
	if _, err := p.Enroll(f.Context(), old.Request(), provisioner.Source{Sealed: true}); provisioner.CodeOf(err) != wire.CodeIdentityCloned {
		t.Errorf("enroll = %v, want %s", err, wire.CodeIdentityCloned)
	}

	successor := f.SealedNode(old.Identity)
	grant := &provisioner.Grant{ID: wire.NewID(), Identity: id, At: f.Clock.Now(), ExpiresAt: f.Clock.Now().Add(time.Hour)}
	if err := f.Daemon().Store().PutGrant(f.Context(), grant, provisioner.AnyRevision); err != nil {
		t.Fatal(err)
	}
	offer := enroll(successor)
	if r := f.Record(old.Identity); r.Cloned != nil {
		t.Errorf("record after a grant = %+v, want no clones", r.Cloned)
	}
	// The machine before it is still in the fleet, and speaks in between, as
	// long as the new one has not confirmed.
	p.Heard(f.Context(), id, old.Boot, e.Serial)
	f.Clock.Advance(time.Second)
	p.Heard(f.Context(), id, "another-boot", offer.Serial)
	f.Clock.Advance(grace)
	p.Heard(f.Context(), id, old.Boot, e.Serial)
	reports("taken over", 1)
	f.Apply(successor, offer)

	// Another process has heard two machines of the owner before, and was not
	// asked when the identity changed hands.
	q := f.Provisioner(nil)
	q.Heard(f.Context(), id, successor.Boot, offer.Serial)
	q.Heard(f.Context(), id, "its-twin", offer.Serial)
	f.Clock.Advance(time.Second)

	f.PutRecord(old.Identity, func(r *provisioner.Record) { r.State = provisioner.StateRetired })
	f.Clock.Advance(grace)
	p.Heard(f.Context(), id, successor.Boot, offer.Serial)
	reports("retired", 1)
	again := f.SealedNode(old.Identity)
	again.Boot = successor.Boot
	anew := enroll(again)
	f.Clock.Advance(grace)
	enroll(again)
	q.Heard(f.Context(), id, again.Boot, anew.Serial)
	reports("enrolled anew", 1)

	// That does not excuse the next twin, in either process.
	p.Heard(f.Context(), id, "its-twin", anew.Serial)
	q.Heard(f.Context(), id, "its-twin", anew.Serial)
	f.Clock.Advance(grace)
	q.Heard(f.Context(), id, again.Boot, anew.Serial)
	p.Heard(f.Context(), id, again.Boot, anew.Serial)
	reports("cloned anew", 2)
	f.Check()
}

// TestAPolicyThatForgivesClones lets machines in again that one before it
// refused.
func TestAPolicyThatForgivesClones(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t)})
	one := f.SealedNode("web1.example.net")
	two := *one
	two.Boot = wire.NewID()
	e := f.Enroll(one)
	f.Enroll(&two)
	f.Clock.Advance(grace)
	f.Enroll(one)
	if code := f.Refused(one); code != wire.CodeIdentityCloned {
		t.Fatalf("enroll = %s, want %s", code, wire.CodeIdentityCloned)
	}
	f.Write(filepath.Join("policy", "policy.rego"), "package muster.enroll\n\nallow := true\n")
	f.Eventually("the new policy lets them in", func() bool { return f.Ask(one).Enrolled != nil })
	if err := f.Daemon().Admits(f.Context(), wire.Identity(one.Identity), e.Serial); err != nil {
		t.Errorf("Admits = %v, want it admitted", err)
	}
	if r := f.Record(one.Identity); r.Cloned == nil || r.Cloned.Refused {
		t.Errorf("record = %+v, want clones that are not refused", r.Cloned)
	}
	f.Check()
}

// TestClonesAreNoticedOnce has a node that makes up boot instances: one revision
// and one report, whoever speaks next.
func TestClonesAreNoticedOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := provisioned(f, web1)
	p := f.Daemon().Operator()
	before := f.Revisions(web1)
	for round := range 10 {
		for i := range 4 { // who speaks first makes another pair each time
			p.Heard(f.Context(), web1, fmt.Sprint("boot", (round+i)%4), e.Serial)
		}
		f.Clock.Advance(grace)
	}
	r := f.Record(web1)
	if r.Cloned == nil || cloneEvents(f, web1) != 1 || f.Revisions(web1) != before+1 {
		t.Errorf("record says %+v, %d reports, %d more revisions, want one of each", r.Cloned, cloneEvents(f, web1), f.Revisions(web1)-before)
	}
}

// TestANodeThatSpeaksALot has its record looked at once a minute.
func TestANodeThatSpeaksALot(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := provisioned(f, web1)
	_, other := provisioned(f, "web2.example.net")
	p := f.Daemon().Operator()
	for i := range 3 {
		p.Heard(f.Context(), web1, fmt.Sprint("boot", i), e.Serial)
		p.Heard(f.Context(), "web2.example.net", fmt.Sprint("boot", i), other.Serial)
	}
	f.Clock.Advance(grace)
	p.Heard(f.Context(), web1, "boot0", "not its own")
	p.Heard(f.Context(), web1, "boot1", e.Serial)
	if c := f.Record(web1).Cloned; c != nil {
		t.Errorf("record says %+v, want it not looked at twice at once", c)
	}
	p.Heard(f.Context(), "web2.example.net", "boot0", other.Serial)
	if f.Record("web2.example.net").Cloned == nil {
		t.Error("another identity waits for the one that speaks a lot")
	}
	f.Clock.Advance(grace)
	p.Heard(f.Context(), web1, "boot1", e.Serial)
	if f.Record(web1).Cloned == nil {
		t.Error("not looked at again after a while")
	}
}

// TestAOneTimeTokenAfterClones gives the identity to another machine.
func TestAOneTimeTokenAfterClones(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t)})
	_, e := provisioned(f, web1)
	p := f.Daemon().Operator()
	p.Heard(f.Context(), web1, "one", e.Serial)
	p.Heard(f.Context(), web1, "two", e.Serial)
	f.Clock.Advance(grace)
	p.Heard(f.Context(), web1, "one", e.Serial)
	if r := f.Record(web1); r.Cloned == nil || !r.Cloned.Refused {
		t.Fatalf("record = %+v, want clones that are refused", r.Cloned)
	}
	successor := f.Node(web1)
	successor.Token = f.Token(func(c *jwt.Claims) {
		testbed.Limited(1, web1)(c)
		c.IssuedAt = f.Clock.Now()
	})
	f.Apply(successor, f.Enroll(successor))
	if r := f.Record(web1); r.Cloned != nil || r.Decision.Reason != provisioner.ReasonOneTimeToken {
		t.Errorf("record = %+v on the ground %s, want no clones", r.Cloned, r.Decision.Reason)
	}
}

// TestClonesAreJudgedByTheSharedAllowList has the policy tolerate two machines
// with one key where the allow-list has their name, and the entry that does be in
// the store: unlimited, or used up by this very machine.
func TestClonesAreJudgedByTheSharedAllowList(t *testing.T) {
	t.Parallel()
	const policy = "package muster.enroll\n\nallow := true\n\ndeny contains \"cloned, and not on the list\" if {\n\tinput.node.cloned\n\tnot input.allow.pattern\n}\n"
	f := testbed.New(t, testbed.Options{Policy: policy, AllowList: "allow:\n  - pattern: file.example.net\n"})
	p := f.Daemon().Operator()
	for pattern, uses := range map[string]int{"any.example.net": 0, "once.example.net": 1, "other*.example.net": 1} {
		if _, err := p.AllowNames(f.Context(), pattern, 0, uses, false, operator); err != nil {
			t.Fatal(err)
		}
	}
	f.Enroll(f.Node("other1.example.net")) // uses its entry up
	for _, tt := range []struct {
		name    string
		refused bool
	}{{"file.example.net", false}, {"any.example.net", false}, {"once.example.net", false}, {"other2.example.net", true}, {"nobody.example.net", true}} {
		n := f.Node(tt.name)
		f.Apply(n, f.Enroll(n))
		serial := f.Record(tt.name).Current.Serial
		for _, boot := range []string{"a", "b", "a"} {
			p.Heard(f.Context(), wire.Identity(tt.name), boot, serial)
			f.Clock.Advance(grace)
		}
		if c := f.Record(tt.name).Cloned; c == nil || c.Refused != tt.refused {
			t.Errorf("%s: on record %+v, want refused %v", tt.name, c, tt.refused)
		}
	}
	f.Check()
}

// cutOff ends a context right behind the next read of a record.
type cutOff struct {
	provisioner.Store
	after func()
}

func (s *cutOff) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, provisioner.Revision, error) {
	r, at, err := s.Store.Record(ctx, id)
	if s.after != nil {
		s.after()
	}
	return r, at, err
}

// TestAPolicyThatWasBrokenOffHasNotFailed has the time for a look at clones be over
// before the policy has been asked.
func TestAPolicyThatWasBrokenOffHasNotFailed(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: "package muster.enroll\n\nallow if count([x | some x in numbers.range(1, 2000); x > 0]) > 0\n"})
	s := &cutOff{}
	p := f.Provisioner(func(records provisioner.Store) provisioner.Store { s.Store = records; return s })
	n, e := provisioned(f, web1)
	_ = n
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	s.after = cancel
	p.Heard(ctx, web1, "boot-one", e.Serial)
	p.Heard(ctx, web1, "boot-two", e.Serial)
	f.Clock.Advance(grace)
	p.Heard(ctx, web1, "boot-one", e.Serial)
	for _, a := range f.Daemon().Alarms() {
		if a.Code == wire.CodePolicyFailed {
			t.Errorf("alarm %+v, want none: the policy is well", a)
		}
	}
}

// TestARecordedRequestMakesNoClone has a listener of plain mode send the request again
// with which a node was enrolled, after that was started anew: it knows the token, and no
// key. The node is no clone for it, and stays in the fleet.
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
	// Another request on the same connection is answered after the event was taken.
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
