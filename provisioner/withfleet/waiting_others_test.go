package provisioner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestForgottenElsewhereIsListedAgain takes a machine off the list at another
// provisioner than the one that it asks: that one lists it again, though it did so
// just now.
func TestForgottenElsewhereIsListedAgain(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node("web1.example.net")
	other := provisioners(t, f, 1)[0]
	for _, approved := range []bool{false, true} {
		f.Refused(n)
		waiting(t, f, n)
		if approved {
			if _, err := other.ApproveNode(f.Context(), "web1.example.net", "", 0, operator); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.ForgetNode(f.Context(), "web1.example.net", "", operator); err != nil {
			t.Fatal(err)
		}
		if list, err := other.Waiting(f.Context(), ""); err != nil || len(list) != 0 {
			t.Fatalf("on the list after it was forgotten: %+v, %v", list, err)
		}
		// Which the daemon hears of by itself within a second, and at once when it is
		// asked to forget somebody.
		if _, err := f.Daemon().Operator().ForgetNode(f.Context(), "web1.example.net", "", operator); !errors.Is(err, provisioner.ErrNotWaiting) {
			t.Fatalf("forgotten once more: %v", err)
		}
		if code := f.Refused(n); code != wire.CodeApprovalPending {
			t.Fatalf("asks again, once: %s", code)
		}
		waiting(t, f, n)
	}
	f.Check()
}

// TestARejectionIsForgottenByItsName has an operator take back a rejection that
// another provisioner has just taken: with a name alone, where that says which.
func TestARejectionIsForgottenByItsName(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p, other := f.Daemon().Operator(), provisioners(t, f, 1)[0]
	n := f.Node("web1.example.net")
	f.Refused(n)
	waiting(t, f, n)
	if _, err := p.RejectNode(f.Context(), "web1.example.net", "", operator); err != nil {
		t.Fatal(err)
	}
	a, err := other.ForgetNode(f.Context(), "web1.example.net", "", operator)
	if err != nil || a.KeyHash != keyHash(t, n) {
		t.Fatalf("forgotten: %+v, %v", a, err)
	}
	if _, err := other.ForgetNode(f.Context(), "web1.example.net", "", operator); !errors.Is(err, provisioner.ErrNotWaiting) {
		t.Errorf("forgotten once more: %v", err)
	}
	f.Eventually("it may wait again", func() bool { return f.Refused(n) == wire.CodeApprovalPending })
	waiting(t, f, n)

	// Of two that were rejected nobody can tell which one is meant.
	second := f.Node("web1.example.net")
	f.Refused(second)
	list := waiting(t, f, n, second)
	for _, w := range list {
		if _, err := p.RejectNode(f.Context(), w.Identity, w.KeyHash, operator); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.ForgetNode(f.Context(), "web1.example.net", "", operator); !errors.Is(err, provisioner.ErrNotWaiting) ||
		!strings.Contains(err.Error(), keyHash(t, n)[:16]) || !strings.Contains(err.Error(), keyHash(t, second)[:16]) {
		t.Errorf("of two one is forgotten: %v, want both keys named", err)
	}
	f.Check()
}

// TestWhoGotInElsewhereIsOffTheList has a machine wait at one provisioner and get in by the
// allow-list at another one, which has not seen it wait: who lists who waits sees that it is
// in.
func TestWhoGotInElsewhereIsOffTheList(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p, other := f.Daemon().Operator(), f.Provisioner(nil)
	n, second := f.Node("web1.example.net"), f.Node("web2.example.net")
	for _, n := range []*simnode.Node{n, second} {
		f.Refused(n)
	}
	waiting(t, f, n, second)
	if _, err := p.ApproveNode(f.Context(), "web1.example.net", "", 0, operator); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AllowNames(f.Context(), "web1.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(2 * time.Second)
	f.Eventually("the other one knows the entry", func() bool {
		list, err := other.Allowances(f.Context())
		return err == nil && len(list) == 1
	})
	if _, err := patiently(f, other, n, provisioner.Source{Address: "192.0.2.1"}); err != nil {
		t.Fatalf("asked once, of the other one: %v", err)
	}
	for _, asked := range []*provisioner.Provisioner{p, other} {
		list, err := asked.Waiting(f.Context(), "")
		if err != nil || len(list) != 1 || list[0].Identity != "web2.example.net" {
			t.Errorf("listed after web1 got in: %+v, %v", list, err)
		}
	}
	if _, err := p.ApproveNode(f.Context(), "web1.example.net", keyHash(t, n), 0, operator); !errors.Is(err, provisioner.ErrNotWaiting) {
		t.Errorf("approved though it is in: %v", err)
	}
	f.Check()
}

// TestOfARevokedNameIsSaidWhyNobodyWaits has a machine ask for a revoked name, and be told to
// wait as for a free one: nobody is listed, and whoever is asked to approve it hears why.
func TestOfARevokedNameIsSaidWhyNobodyWaits(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	if _, err := p.AllowNames(f.Context(), "web1.example.net", 0, 1, false, operator); err != nil {
		t.Fatal(err)
	}
	provisioned(f, web1)
	f.Revoke(web1)
	n := f.Node(web1)
	if r := f.Ask(n); r.Refusal == nil || r.Refusal.Code != wire.CodeApprovalPending {
		t.Fatalf("another machine: %+v", r.Refusal)
	}
	if _, err := p.ApproveNode(f.Context(), web1, "", 0, operator); !errors.Is(err, provisioner.ErrNotWaiting) || !strings.Contains(err.Error(), "`muster node retire web1.example.net` first") {
		t.Errorf("approved while the name is revoked: %v", err)
	}
	f.Retire(web1)
	f.Refused(n)
	waiting(t, f, n)
	if _, err := p.ApproveNode(f.Context(), web1, "", 0, operator); err != nil {
		t.Errorf("approved once the name is free: %v", err)
	}
	f.Check()
}
