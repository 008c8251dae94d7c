package provisioner_test

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAReplacedMachineDoesNotTakeItsNameBack has the old machine ask with other
// facts after a grant has let a new one in, and before that one has confirmed.
func TestAReplacedMachineDoesNotTakeItsNameBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: "role = {{ .Facts.role }}\n"})
	before := f.Node("web1.example.net")
	before.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	f.Apply(before, f.Enroll(before))
	if err := f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{ID: wire.NewID(), Identity: "web1.example.net", At: f.Clock.Now(), ExpiresAt: f.Clock.Now().Add(time.Hour)}, provisioner.AnyRevision); err != nil {
		t.Fatal(err)
	}
	n := f.Node(before.Identity)
	n.Facts = before.Facts
	e := f.Enroll(n)
	before.Facts = testbed.Facts(t, map[string]string{"role": "db"})
	f.Ask(before)
	if r := f.Record(n.Identity); len(r.Lineage) != 1 || r.Next == nil || r.Next.Serial != e.Serial {
		t.Errorf("lineage %v, next %+v, want the new machine's alone", r.Lineage, r.Next)
	}
	if r := f.Apply(n, e); r.Applied == nil {
		t.Errorf("the new machine's confirmation: %+v", r.Refusal)
	}
	f.Clock.Advance(31 * 24 * time.Hour)
	before.Token = f.Token(nil)
	if r := f.Ask(before); r.Refusal == nil {
		t.Error("the old machine continues")
	}
	f.Check()
}

// TestAGrantStaysSpentAfterARetirement uses a grant, retires the identity, and
// tries the grant again with a third machine.
func TestAGrantStaysSpentAfterARetirement(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	first := f.Node("web1.example.net")
	f.Apply(first, f.Enroll(first))
	if err := f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{ID: wire.NewID(), Identity: "web1.example.net", At: f.Clock.Now(), ExpiresAt: f.Clock.Now().Add(time.Hour)}, provisioner.AnyRevision); err != nil {
		t.Fatal(err)
	}
	second := f.Node(first.Identity)
	f.Apply(second, f.Enroll(second))
	f.PutRecord(first.Identity, func(r *provisioner.Record) { r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil })
	third := f.Node(first.Identity)
	f.Apply(third, f.Enroll(third))
	if got := f.Refused(f.Node(first.Identity)); got != wire.CodeIdentityTaken {
		t.Errorf("a fourth machine is refused as %s", got)
	}
	f.Check()
}

// TestWhoIsNotLetInCostsNoQuota asks for a certificate that cannot be had, and
// writes that are lost, and expects the quota to be there for the next.
func TestWhoIsNotLetInCostsNoQuota(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 2), Policy: `package muster.enroll

default allow := true

certificate := {"ttl": "99999h"} if input.identity == "db1.example.net"
`})
	for range 3 {
		if got := f.Refused(f.Node("db1.example.net")); got != wire.CodeCertificateFailed {
			t.Errorf("refused as %s, want %s", got, wire.CodeCertificateFailed)
		}
	}
	f.Enroll(f.Node("web1.example.net"))
	f.Enroll(f.Node("web2.example.net"))
	f.Check()
}
