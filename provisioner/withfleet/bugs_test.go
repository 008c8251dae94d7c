package provisioner_test

import (
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestAReplacedMachineDoesNotTakeItsNameBack: the old machine asks with other facts after a grant, before the new
// machine has confirmed.
func TestAReplacedMachineDoesNotTakeItsNameBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: "role = {{ .Facts.role }}\n"})
	before := f.Node("web1.example.net")
	before.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	f.Apply(before, f.Enroll(before))
	if err := putGrant(f, &orders.Grant{
		ID:        wire.NewID(),
		Identity:  "web1.example.net",
		At:        f.Clock.Now(),
		ExpiresAt: f.Clock.Now().Add(time.Hour),
	}); err != nil {
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
