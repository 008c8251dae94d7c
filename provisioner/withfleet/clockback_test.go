package provisioner_test

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner"
)

// TestAnApprovalAfterAClockThatWentBackALittle has a machine let in by an approval, and the
// clock set back by less than it may be, or another provisioner's behind by so much; the
// machine is retired and another one approved.
func TestAnApprovalAfterAClockThatWentBackALittle(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node(web1)
	n.Token = f.Token(func(c *jwt.Claims) { c.NotBefore = c.NotBefore.Add(-time.Hour) })
	f.Refused(n)
	waiting(t, f, n)
	if _, err := f.Daemon().Operator().ApproveNode(f.Context(), web1, "", 0, operator); err != nil {
		t.Fatal(err)
	}
	f.Apply(n, f.Enroll(n))
	f.Clock.Advance(-3 * time.Minute)
	f.Retire(web1)
	other := f.Node(web1)
	other.Token = n.Token
	f.Refused(other)
	waiting(t, f, other)
	if _, err := f.Daemon().Operator().ApproveNode(f.Context(), web1, keyHash(t, other), 0, operator); err != nil {
		t.Fatal(err)
	}
	if r := f.Ask(other); r.Enrolled == nil {
		t.Errorf("approved, and refused: %s", f.Cause(web1))
	}
}

// TestAGrantAfterAClockThatWentBackALittle is the same for grants.
func TestAGrantAfterAClockThatWentBackALittle(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	n.Token = f.Token(func(c *jwt.Claims) { c.NotBefore = c.NotBefore.Add(-time.Hour) })
	f.Apply(n, f.Enroll(n))
	f.Clock.Advance(-3 * time.Minute)
	other := f.Node(web1)
	other.Token = n.Token
	if _, err := f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{KeyHash: keyHash(t, other)}, operator); err != nil {
		t.Fatal(err)
	}
	if r := f.Ask(other); r.Enrolled == nil {
		t.Errorf("granted, and refused: %s", f.Cause(web1))
	}
}
