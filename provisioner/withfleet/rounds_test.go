package provisioner_test

import (
	"context"
	"errors"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// byReason is a policy whose configuration says on what ground it was given.
const byReason = `package muster.enroll

allow := true

configuration := {"plugin.ground": input.node.reason}
`

// TestAConfirmationByTheWayIsToldByWhoWroteIt renews by a certificate that was never confirmed,
// with two provisioners at once: the one that writes first confirms it by the way. The other one
// finds the renewal on record and offers it with another configuration, and tells of no
// confirmation.
func TestAConfirmationByTheWayIsToldByWhoWroteIt(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: byReason})
	n, first := provisioned(f, web1)
	second, e2 := f.Renew(n, first) // which it does not confirm
	f.Clock.Advance(offerPace)
	other := f.Provisioner(nil)
	third := f.Successor(second)
	request := must(second.Renewal(third))(t)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if _, err := other.Renew(ctx, request, provisioner.Source{Node: web1}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	e3, err := f.Daemon().Operator().Renew(f.Context(), request, provisioner.Source{Node: web1})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Record(web1); f.Revisions(web1) != 5 || r.Current.Serial != e2.Serial || r.Next.Serial != e3.Serial || r.Next.Digest != e3.Digest {
		t.Fatalf("%d revisions, the last of them %+v; want that both have written", f.Revisions(web1), r)
	}
	told := 0
	for _, e := range f.Events() {
		if e.Type == provisioner.EventProvisioned && e.Serial == e2.Serial {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the confirmation is told %d times, want once", told)
	}
	f.Check()
}

// TestARefusalSaysWhatItsRoundFound has a node revoked between a round and its write: it is
// refused for that, on no ground that it had before and by no policy.
func TestARefusalSaysWhatItsRoundFound(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, _ := provisioned(f, web1)
	other := f.Provisioner(nil)
	request := must(n.Renewal(f.Successor(n)))(t)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if err := other.RevokeNode(ctx, web1, operator); err != nil {
			t.Errorf("revoke: %v", err)
		}
	})
	var r *provisioner.Refusal
	if _, err := f.Daemon().Operator().Renew(f.Context(), request, provisioner.Source{Node: web1}); !errors.As(err, &r) || r.Code != wire.CodeIdentityRevoked {
		t.Fatalf("renewal = %v, want it refused as %s", err, wire.CodeIdentityRevoked)
	}
	for _, e := range f.Events() {
		if e.Code == wire.CodeIdentityRevoked && (e.Reason != "" || e.Policy != "") {
			t.Errorf("refused on ground %q by policy %q: %+v", e.Reason, e.Policy, e)
		}
	}
	f.Check()
}
