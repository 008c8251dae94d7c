package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestFactsAreKeptOnRecord follows what a node says of itself from its first request
// on: what is named is on record, whole, and changes when the node comes again.
func TestFactsAreKeptOnRecord(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Fleet.Facts = []string{"role", "os.name", "cores", "tags"} }})
	is := func(when, want string, revisions int) {
		t.Helper()
		if got := fmt.Sprint(f.Record(web1).Facts); got != want || f.Revisions(web1) != revisions {
			t.Errorf("%s: %s at revision %d, want %s at %d", when, got, f.Revisions(web1), want, revisions)
		}
	}
	n := f.Node(web1)
	n.Facts = testbed.Facts(t, map[string]any{"role": "web", "os": map[string]any{"name": "Debian"}, "cores": 4, "tags": []string{"a"}, "private": testbed.Fact})
	first := f.Enroll(n)
	is("enrolled", "[{cores 4} {os.name Debian} {role web}]", 1)
	f.Enroll(n)
	is("the same again", "[{cores 4} {os.name Debian} {role web}]", 1)
	f.Apply(n, first)
	is("confirmed", "[{cores 4} {os.name Debian} {role web}]", 2)

	// A command to reconfigure has it ask with the same key.
	n.Facts = testbed.Facts(t, map[string]any{"role": "db", "cores": strings.Repeat("x", provisioner.MaxFactBytes+1)})
	if r := f.AskRenew(n, first, n); r.Enrolled == nil || r.Enrolled.Serial != first.Serial {
		t.Fatalf("asked again: %+v", r)
	}
	is("reconfigured", "[{role db}]", 3)
	if r := f.Record(web1); r.State != provisioner.StateProvisioned || r.Next != nil || r.Current.Serial != first.Serial {
		t.Errorf("other facts have changed more: %+v", r)
	}
	if r := f.AskRenew(n, first, n); r.Enrolled == nil {
		t.Fatalf("asked again: %+v", r)
	}
	f.Enroll(n)
	is("with the same facts", "[{role db}]", 3)
	f.AppliedOverFleet(n, first)
	is("confirmed again", "[{role db}]", 3)

	n.Facts = testbed.Facts(t, map[string]any{"role": "cache"})
	next, second := f.Renew(n, first)
	is("renewed", "[{role cache}]", 4)
	f.AppliedOverFleet(next, second)
	next.Facts = nil
	if r := f.AskRenew(next, second, next); r.Enrolled == nil {
		t.Fatalf("without facts: %+v", r)
	}
	is("without facts", "[]", 6)
	f.Check()
}

// TestFactsOfMixedVersions: a record that a provisioner has written which knows of no
// facts, or keeps others, gets them when its node comes again; and a provisioner that keeps
// none takes them off with the next certificate, and writes nothing for it.
func TestFactsOfMixedVersions(t *testing.T) {
	t.Parallel()
	facts := []string{"role"}
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Fleet.Facts = facts }})
	n := f.Node(web1)
	n.Facts = testbed.Facts(t, map[string]any{"role": "web"})
	e := f.Enroll(n)
	f.PutRecord(web1, func(r *provisioner.Record) { r.Facts = nil })
	f.Apply(n, e)
	if got := f.Record(web1).Facts; got != nil {
		t.Errorf("confirmed with facts %v, want none", got)
	}
	f.Enroll(n)
	if got := f.Record(web1).Facts.Value("role"); got != "web" {
		t.Errorf("role %q, want web", got)
	}
	f.PutRecord(web1, func(r *provisioner.Record) {
		r.Facts = provisioner.Facts{{Name: "other", Value: "x"}, {Name: "role", Value: "web"}}
	})
	f.Enroll(n)
	if got := fmt.Sprint(f.Record(web1).Facts); got != "[{role web}]" {
		t.Errorf("facts %s, want those that are kept here", got)
	}

	f.Stop()
	facts = []string{}
	f.Start()
	before := f.Revisions(web1)
	f.Enroll(n)
	if got := f.Revisions(web1); got != before {
		t.Errorf("%d revisions, want %d", got, before)
	}
	next, second := f.Renew(n, e)
	f.AppliedOverFleet(next, second)
	if got := f.Record(web1).Facts; got != nil {
		t.Errorf("facts %v, and none are kept", got)
	}
	f.Check()
}

// TestFactsWhoseWriteGoesWrong loses the write of other facts, or its
// acknowledgement, or has another provisioner write first: the node gets what it has,
// and nothing is written twice.
func TestFactsWhoseWriteGoesWrong(t *testing.T) {
	t.Parallel()
	changed := func(t *testing.T) (*testbed.Fleet, *simnode.Node, *wire.Enrolled) {
		f := testbed.New(t, testbed.Options{})
		n := f.Node(web1)
		e := f.Enroll(n)
		f.Apply(n, e)
		n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
		return f, n, e
	}
	is := func(t *testing.T, f *testbed.Fleet, n *simnode.Node, e *wire.Enrolled) {
		t.Helper()
		if again := f.Enroll(n); again.Serial != e.Serial || again.Digest != e.Digest {
			t.Errorf("given %s, want what it has, %s", again.Serial, e.Serial)
		}
		if got := f.Record(web1).Facts.Value("role"); got != "web" || f.Revisions(web1) != 3 {
			t.Errorf("role %q at revision %d, want web at 3", got, f.Revisions(web1))
		}
		f.Check()
	}
	for name, fault := range map[string]testbed.Fault{"lost": testbed.Lost, "written but not acknowledged": testbed.LostAnswer, "acknowledged late": testbed.Late} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, n, e := changed(t)
			f.Faults.Inject(fault)
			is(t, f, n, e)
		})
	}
	t.Run("lost to another provisioner", func(t *testing.T) {
		t.Parallel()
		f, n, e := changed(t)
		other := f.Provisioner(nil)
		f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
			if _, err := other.Enroll(ctx, n.Request(), provisioner.Source{}); err != nil {
				t.Errorf("the other provisioner refuses: %v", err)
			}
		})
		is(t, f, n, e)
	})
}

// fullOfRecords is a store in which no record has room.
type fullOfRecords struct{ provisioner.Store }

func (fullOfRecords) Put(context.Context, *provisioner.Record, provisioner.Revision) (provisioner.Revision, error) {
	return 0, provisioner.ErrStoreFull
}

// TestFactsThatHaveNoRoom has nodes ask for what they have while the store takes no record:
// they get it, with the facts of before and with others, and those are on record once there
// is room. What needs a write is refused.
func TestFactsThatHaveNoRoom(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	e := f.Enroll(n)
	f.Apply(n, e)
	full := f.Provisioner(func(s provisioner.Store) provisioner.Store { return fullOfRecords{s} })
	for _, role := range []string{"web", "db"} {
		n.Facts = testbed.Facts(t, map[string]string{"role": role})
		again, err := full.Enroll(f.Context(), n.Request(), provisioner.Source{})
		if err != nil || again.Serial != e.Serial || again.Digest != e.Digest {
			t.Errorf("as %s: given %v, %v, want what it has", role, again, err)
		}
	}
	if got := f.Record(web1).Facts.Value("role"); got != "web" || f.Revisions(web1) != 2 {
		t.Errorf("role %q at revision %d, want what was on record", got, f.Revisions(web1))
	}
	var r *provisioner.Refusal
	if _, err := full.Enroll(f.Context(), f.Node("web2.example.net").Request(), provisioner.Source{}); !errors.As(err, &r) || !errors.Is(err, provisioner.ErrStoreFull) {
		t.Errorf("a new node: %v, want it refused for want of room", err)
	}
	f.Enroll(n)
	if got := f.Record(web1).Facts.Value("role"); got != "db" {
		t.Errorf("role %q once there is room, want db", got)
	}
	f.Check()
}
