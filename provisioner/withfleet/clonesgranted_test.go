package provisioner_test

import (
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestClonesThatAreRefusedStayOutWhenTheNameIsGranted refuses two machines with
// one key and grants their name to a third, which never confirms.
func TestClonesThatAreRefusedStayOutWhenTheNameIsGranted(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: refusesClones(t)})
	one := f.SealedNode(web1)
	two := *one
	two.Boot = wire.NewID()
	e := f.Enroll(one)
	f.Apply(one, e)
	f.Enroll(&two)
	f.Clock.Advance(grace)
	f.Enroll(one)
	if r := f.Record(web1); r.Cloned == nil || !r.Cloned.Refused || f.Admits(web1, e.Serial) {
		t.Fatalf("record = %+v, admitted %v: want clones that are refused", r.Cloned, f.Admits(web1, e.Serial))
	}
	if _, err := f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{}, provisioner.Cause{By: "anna", Why: "reinstalled"}); err != nil {
		t.Fatal(err)
	}
	f.Enroll(f.SealedNode(web1))
	if f.Admits(web1, e.Serial) {
		t.Error("the clones' certificate is admitted to the fleet again")
	}
}
