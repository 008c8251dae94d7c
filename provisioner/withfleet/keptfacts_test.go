package provisioner_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/facts"
)

// TestFactsAreKeptOnRecord: configured facts are on record, whole, and change with the node's next request.
func TestFactsAreKeptOnRecord(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.Fleet.Facts = []string{"role", "os.name", "cores", "tags"}
	}})
	is := func(when, want string, revisions int) {
		t.Helper()
		if got := fmt.Sprint(f.Record(web1).Facts); got != want || f.Revisions(web1) != revisions {
			t.Errorf("%s: %s at revision %d, want %s at %d", when, got, f.Revisions(web1), want, revisions)
		}
	}
	n := f.Node(web1)
	n.Facts = testbed.Facts(t, map[string]any{"role": "web", "os": map[string]any{"name": "Debian"}, "cores": 4,
		"tags": []string{"a"}, "private": testbed.Fact})
	first := f.Enroll(n)
	is("enrolled", "[{cores 4} {os.name Debian} {role web}]", 1)
	f.Enroll(n)
	is("the same again", "[{cores 4} {os.name Debian} {role web}]", 1)
	f.Apply(n, first)
	is("confirmed", "[{cores 4} {os.name Debian} {role web}]", 2)

	// On reconfigure the node asks with the same key.
	n.Facts = testbed.Facts(t, map[string]any{"role": "db", "cores": strings.Repeat("x", facts.MaxBytes+1)})
	if r := f.AskRenew(n, first, n); r.Enrolled == nil || r.Enrolled.Serial != first.Serial {
		t.Fatalf("asked again: %+v", r)
	}
	is("reconfigured", "[{role db}]", 3)
	if r := f.Record(web1); r.State != provisioner.StateProvisioned || r.Next != nil ||
		r.Current.Serial != first.Serial {
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
