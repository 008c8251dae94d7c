package provisioner_test

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestANodeThatSaysTheSameWithoutEnd has a node ask again for what it has, confirm it again, and say each time that it
// cannot use it for another reason: all of it is answered, and few of it are events, or the node
// would push those of all others out.
func TestANodeThatSaysTheSameWithoutEnd(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, other := f.Node("web1.example.net"), f.Node("web2.example.net")
	of := func(node string, is func(*provisioner.Event) bool) (n int, leftOut int64) {
		for _, e := range f.Events() {
			if e.Node == node && is(&e) {
				n++
				leftOut += e.LeftOut
			}
		}
		return n, leftOut
	}
	answered := func(e *provisioner.Event) bool { return e.Type == provisioner.EventEnrolled && e.Repeated }
	words := func(e *provisioner.Event) bool {
		return e.Type == provisioner.EventProvisioned && e.Repeated || e.Code == wire.CodeOfferUnusable
	}
	say := func(round int) {
		t.Helper()
		e := f.Enroll(n)
		a, err := n.Confirm(e)
		if err != nil {
			t.Fatal(err)
		}
		if r := f.Send(n, a); r.Applied == nil {
			t.Fatalf("confirmed again: %+v", r)
		}
		a.Digest = wire.Unusable(e.Digest, fmt.Sprintf("reason %d", round))
		if a.Signature, err = wire.Sign(n.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest)); err != nil {
			t.Fatal(err)
		}
		if r := f.Send(n, a); r.Refusal == nil || r.Refusal.Code != wire.CodeOfferUnusable {
			t.Fatalf("complained: %+v, want %s", r, wire.CodeOfferUnusable)
		}
	}
	f.Apply(n, f.Enroll(n))
	const rounds = 30
	for i := range rounds {
		say(i)
	}
	if n, _ := of(n.Identity, answered); n != 5 {
		t.Errorf("%d events of answers that were given again, want 5", n)
	}
	if n, _ := of(n.Identity, words); n != 20 {
		t.Errorf("%d events of what a node says, want 20", n)
	}
	f.Apply(other, f.Enroll(other))
	f.Apply(other, f.Enroll(other))
	if n, _ := of(other.Identity, func(e *provisioner.Event) bool { return answered(e) || words(e) }); n != 2 {
		t.Errorf("%d events of another node, want 2", n)
	}
	f.Clock.Advance(10 * time.Minute)
	say(rounds)
	if n, leftOut := of(n.Identity, answered); n != 6 || leftOut != rounds-5 {
		t.Errorf("later there are %d events of answers, which say of %d more, want 6 and %d", n, leftOut, rounds-5)
	}
	if n, leftOut := of(n.Identity, words); n != 22 || leftOut != 2*rounds-20 {
		t.Errorf("later there are %d events of what a node says, which say of %d more, want 22 and %d", n, leftOut, 2*rounds-20)
	}
	f.Check()
}

// TestRenewalsThatAreRefusedWithoutEnd has a node of the fleet ask for what it does not get. Nobody else
// can have what is said of it left out.
func TestRenewalsThatAreRefusedWithoutEnd(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	staged, _ := f.Renew(n, first)
	next := f.Successor(n)
	refused := func(code wire.Code) (n int) {
		for _, e := range f.Events() {
			if e.Type == provisioner.EventRefused && e.Node == web1 && e.Code == code {
				n++
			}
		}
		return n
	}
	request := must(n.Renewal(next))(t)
	for range 30 {
		if _, err := f.Daemon().Operator().Renew(f.Context(), request, provisioner.Source{Node: "other.example.net"}); err == nil {
			t.Fatal("renewed for another node")
		}
	}
	for range 30 {
		if _, r := renewOver(t, f, n, next); r == nil || r.Code != wire.CodeBusy {
			t.Fatalf("a third key: %+v, want %s", r, wire.CodeBusy)
		}
	}
	if n := refused(wire.CodeBusy); n != 20 {
		t.Errorf("%d events of renewals that were refused, want 20", n)
	}
	if e, r := renewOver(t, f, n, staged); r != nil || e == nil {
		t.Errorf("the staged key: %+v", r)
	}
	f.Check()
}
