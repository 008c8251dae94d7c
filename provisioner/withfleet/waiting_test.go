package provisioner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// operator is the operator in these tests.
var operator = trust.Cause{By: "ann", Why: "ticket 17"}

// thosePending waits until exactly these machines are pending, in any order.
func thosePending(t *testing.T, f *testbed.Fleet, nodes ...*simnode.Node) []*waiting.Key {
	t.Helper()
	var list []*waiting.Key
	f.Eventually("pending nodes are listed", func() bool {
		var err error
		if list, err = f.Daemon().Orders().Keys.Waiting(f.Context(), ""); err != nil {
			t.Fatal(err)
		}
		return len(list) == len(nodes) && !slices.ContainsFunc(nodes, func(n *simnode.Node) bool {
			return !slices.ContainsFunc(list, func(w *waiting.Key) bool {
				return w.KeyHash == keyHash(t, n) && string(w.Identity) == n.Identity
			})
		})
	})
	return list
}

// eventsOf returns the events of a type.
func eventsOf(f *testbed.Fleet, is events.Type) (list []events.Event) {
	for _, e := range f.Events() {
		if e.Type == is {
			list = append(list, e)
		}
	}
	return list
}

// TestPendingNodesAreListedAndApproved: an unknown machine gets a retry time, is listed without secrets, outlives a
// restart, and gets in once approved.
func TestPendingNodesAreListedAndApproved(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]any{
		"serialnumber": "C0FFEE", "os": map[string]any{"name": "Debian", "kernel": "6.12"},
		"root_password": testbed.Fact, "is_virtual": false,
	})
	reply := f.Ask(n)
	if r := reply.Refusal; r == nil || r.Code != wire.CodeApprovalPending || r.RetryAfter <= 0 {
		t.Fatalf("reply = %+v, want approval_pending and when to come back", reply)
	}
	w := thosePending(t, f, n)[0]
	if w.Code != wire.CodeApprovalPending || w.Asked != 1 || w.Source != "127.0.0.1" ||
		w.Token != f.TokenID(n.Token) || w.SignerName != "signer" || w.KeyType != "P-256" || len(w.Reasons) != 1 {
		t.Errorf("listed as %+v", w)
	}
	if got := w.Facts; len(got) != 3 || got["serialnumber"] != "C0FFEE" || got["os.name"] != "Debian" ||
		got["is_virtual"] != "false" {
		t.Errorf("facts shown are %v, want those that tell machines apart", got)
	}
	f.Stop()
	f.Start()
	thosePending(t, f, n)
	a, err := f.Daemon().Orders().Keys.Approve(f.Context(), operate.Named("web1.example.net", ""), 0, operator)
	if err != nil || a.KeyHash != keyHash(t, n) || a.ExpiresAt.Sub(a.At) != operate.DefaultApprovalTTL {
		t.Fatalf("approval = %+v, %v", a, err)
	}
	// The provisioner stops before the node asks again: the approval is on disk.
	f.Stop()
	f.Start()
	f.Apply(n, f.Enroll(n))
	f.Enroll(n) // its certificate is live, so this costs no approval
	thosePending(t, f)
	if got := f.Record("web1.example.net").Approval; got == nil || got.ID != a.ID || got.By != "ann" {
		t.Errorf("on record: approval %+v, want %s by ann", got, a.ID)
	}
	if e := eventsOf(f, events.Approved); len(e) != 1 || e[0].By != "ann" || e[0].Why != "ticket 17" ||
		e[0].Key != keyHash(t, n) || e[0].Node != "web1.example.net" {
		t.Errorf("events of the approval: %+v", e)
	}
	f.Check()
}

// TestPendingNodesMakeFewEvents: one event per key, until ten minutes have passed or the code changes, while each
// request is counted.
func TestPendingNodesMakeFewEvents(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.Allow("web1.example.net")
	owner := f.Node("web1.example.net")
	f.Apply(owner, f.Enroll(owner))
	waits, thief := f.Node("web2.example.net"), f.Node("web1.example.net")
	said := func(code wire.Code) (list []events.Event) {
		for _, e := range eventsOf(f, events.Refused) {
			if e.Code == code {
				list = append(list, e)
			}
		}
		return list
	}
	ask := func(nodes ...*simnode.Node) {
		t.Helper()
		for range 3 {
			for _, n := range nodes {
				if r := f.Ask(n).Refusal; r == nil || r.Code != wire.CodeApprovalPending {
					t.Fatalf("%s: refusal %+v", n.Identity, r)
				}
			}
		}
	}
	ask(waits, thief)
	if a, b := len(said(wire.CodeApprovalPending)), len(said(wire.CodeIdentityTaken)); a != 1 || b != 1 {
		t.Errorf("of three requests each: %d events of pending nodes, %d of nodes pending for a taken name; want 1 "+
			"of each", a, b)
	}
	f.Clock.Advance(11 * time.Minute)
	ask(waits, thief)
	if a, b := len(said(wire.CodeApprovalPending)), len(said(wire.CodeIdentityTaken)); a != 2 || b != 2 {
		t.Errorf("after eleven minutes %d events, and of another's name %d; want 2 of each", a, b)
	}
	ask(f.Node("web1.example.net"))
	if got := len(said(wire.CodeIdentityTaken)); got != 3 {
		t.Errorf("%d events once another key asks for the name, want 3", got)
	}
	f.Eventually("each ask is counted", func() bool {
		for _, n := range []*simnode.Node{waits, thief} {
			list, err := f.Daemon().Orders().Keys.Waiting(f.Context(), wire.Identity(n.Identity))
			if err != nil || !slices.ContainsFunc(list,
				func(w *waiting.Key) bool { return w.KeyHash == keyHash(t, n) && w.Asked >= 4 }) {
				return false
			}
		}
		return true
	})
}

// TestApprovalIsForOneKey: the other machine with that name is now pending for a taken name.
func TestApprovalIsForOneKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	first, second := f.Node("web1.example.net"), f.Node("web1.example.net")
	f.Refused(first)
	f.Refused(second)
	thosePending(t, f, first, second)
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web1.example.net", ""), 0,
		operator); !errors.Is(err, trust.ErrState) || !strings.Contains(err.Error(), "--fingerprint") {
		t.Errorf("approval that names no key: %v", err)
	}
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(),
		operate.Named("web1.example.net", strings.Repeat("0", 64)), 0, operator); !errors.Is(err,
		operate.ErrNotWaiting) {
		t.Errorf("approval of a key that does not wait: %v", err)
	}
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(),
		operate.Named("web1.example.net", keyHash(t, second)[:12]), 0, operator); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(first); code != wire.CodeApprovalPending {
		t.Errorf("the other machine: %s, want approval_pending", code)
	}
	f.Apply(second, f.Enroll(second))
	f.Refused(first)
	f.Eventually("the other one waits for a name that is taken", func() bool {
		list := thosePending(t, f, first)
		return list[0].Code == wire.CodeIdentityTaken
	})
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web1.example.net", ""), 0,
		operator); !errors.Is(err, trust.ErrState) ||
		!strings.Contains(err.Error(), "muster node grant web1.example.net --fingerprint "+keyHash(t, first)) {
		t.Errorf("approval for a name that is taken: %v", err)
	}
	f.Check()
}

// TestApprovalIsSpentOnce: an approved machine loses its key, its name, or its time.
func TestApprovalIsSpentOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	approve := func(n *simnode.Node) {
		t.Helper()
		f.Refused(n)
		thosePending(t, f, n)
		if _, err := testbed.Orders(p).Keys.Approve(f.Context(),
			operate.Named(wire.Identity(n.Identity), keyHash(t, n)), time.Hour, operator); err != nil {
			t.Fatal(err)
		}
	}
	n := f.Node("web1.example.net")
	approve(n)
	changed := f.Node("web1.example.net") // reinstalled before it came back
	if code := f.Refused(changed); code != wire.CodeApprovalPending {
		t.Errorf("another key than the one that was approved: %s", code)
	}
	thosePending(t, f, n, changed)
	if _, err := testbed.Orders(p).Keys.Forget(f.Context(), operate.Named("web1.example.net", keyHash(t, n)),
		operator); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Errorf("a key that was approved and forgotten: %s", code)
	}
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web1.example.net", keyHash(t, changed)),
		0, operator); err != nil {
		t.Fatal(err)
	}
	f.Apply(changed, f.Enroll(changed))
	if err := testbed.Orders(p).Nodes.Retire(f.Context(), "web1.example.net", operator); err != nil {
		t.Fatal(err)
	}
	again := f.Node("web1.example.net")
	again.Key, again.CSR = changed.Key, changed.CSR
	if e := f.Ask(again); e.Enrolled != nil {
		t.Error("a spent approval let a retired machine in again")
	}

	// An approval that was never spent, since the allow-list admitted its machine, ends as well.
	listed := f.Node("web3.example.net")
	f.Refused(listed)
	f.Eventually("it is listed", func() bool {
		list, err := testbed.Orders(p).Keys.Waiting(f.Context(), "web3.example.net")
		return err == nil && len(list) == 1
	})
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web3.example.net", ""), time.Hour,
		operator); err != nil {
		t.Fatal(err)
	}
	if _, err := testbed.Orders(p).AllowList.Add(f.Context(),
		operate.AllowOrder{Pattern: "web3.*.net"}, operator); err != nil {
		t.Fatal(err)
	}
	f.Apply(listed, f.Enroll(listed))
	if err := testbed.Orders(p).AllowList.Remove(f.Context(), "web3.*.net", operator); err != nil {
		t.Fatal(err)
	}
	if err := testbed.Orders(p).Nodes.Retire(f.Context(), "web3.example.net", operator); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(listed); code != wire.CodeApprovalPending {
		t.Errorf("an approval from before the machine was retired: %q", code)
	}
	f.Eventually("it waits again", func() bool {
		_, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web3.example.net", ""), time.Hour,
			operator)
		return err == nil
	})
	f.Apply(listed, f.Enroll(listed))

	late := f.Node("web2.example.net")
	f.Refused(late)
	f.Eventually("it is listed", func() bool {
		list, err := testbed.Orders(p).Keys.Waiting(f.Context(), "web2.example.net")
		return err == nil && len(list) == 1
	})
	if _, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named("web2.example.net", ""), time.Hour,
		operator); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Hour + time.Second)
	if code := f.Refused(late); code != wire.CodeApprovalPending {
		t.Errorf("an approval that has expired: %s", code)
	}
	f.Check()
}

// TestRejectionIsFinal: a rejected key is refused every name, also after a restart, until it is approved or
// forgotten. The node gets no reason.
func TestRejectionIsFinal(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node("web1.example.net")
	f.Refused(n)
	thosePending(t, f, n)
	if _, err := f.Daemon().Orders().Keys.Reject(f.Context(), operate.Named("web1.example.net", ""),
		operator); err != nil {
		t.Fatal(err)
	}
	thosePending(t, f)
	f.Allow("web1.example.net")
	f.Stop()
	f.Start()
	if r := f.Ask(n).Refusal; r == nil || r.Code != wire.CodeDenied || strings.Contains(r.Message+r.Remedy, "reject") {
		t.Errorf("a rejected key is told %+v, want denied and nothing else", r)
	}
	if !strings.Contains(f.Cause("web1.example.net"), "rejected by ann") {
		t.Errorf("cause: %s", f.Cause("web1.example.net"))
	}
	thosePending(t, f)
	p := f.Daemon().Operator()
	if r := testbed.Orders(p).Keys.Rejected(); len(r) != 1 || r[0].KeyHash != keyHash(t, n) || r[0].Why != "ticket 17" {
		t.Errorf("rejected: %+v", r)
	}
	other := f.Node("web1.example.net")
	if _, err := testbed.Orders(p).Keys.Forget(f.Context(), operate.Named("web1.example.net", keyHash(t, n)),
		operator); err != nil {
		t.Fatal(err)
	}
	f.Apply(n, f.Enroll(n))
	if code := f.Refused(other); code != wire.CodeIdentityTaken {
		t.Errorf("another key: %s", code)
	}
	f.Check()
}
