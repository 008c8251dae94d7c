package testbed_test

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/operate"
)

// A name goes to another key after a backup: the restored record does not give it back to the key that lost it.
func TestAHandOverSurvivesARestore(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const name = "web1.example.net"
	first, second := f.Node(name), f.Node(name)
	enrolled := f.Enroll(first)
	f.Apply(first, enrolled)
	file := backUp(t, f)
	f.Clock.Advance(time.Minute)
	renewed, renewedGot := f.Renew(first, enrolled)
	f.AppliedOverFleet(renewed, renewedGot)
	if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), name, operate.GrantOrder{},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	secondGot := f.Enroll(second)
	f.Apply(second, secondGot)
	loseStore(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Restored()
	if code := f.Refused(first); code != wire.CodeIdentityTaken {
		t.Errorf("the key that lost the name: %q, want %s", code, wire.CodeIdentityTaken)
	}
	if f.Admits(name, enrolled.Serial) {
		t.Error("its certificate is admitted")
	}
	if _, err := comeBack(t, f, renewed, renewedGot); err == nil {
		t.Error("the key that lost the name comes back by a certificate that the backup does not have")
	}
	if r, err := comeBack(t, f, second, secondGot); err != nil || r.Refusal != nil {
		t.Errorf("the key that has the name does not come back: %+v, %v", r, err)
	}
}
