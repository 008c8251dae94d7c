package provisioner_test

import (
	"context"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// duringClaim is a store with one call between decision and record.
type duringClaim struct {
	provisioner.Store
	meanwhile func()
}

func (s *duringClaim) AppendClaims(ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry,
	after trust.Revision) (trust.Revision, error) {
	if f := s.meanwhile; f != nil {
		s.meanwhile = nil
		f()
	}
	return s.Store.AppendClaims(ctx, tid, e, after)
}

// TestWithdrawnEntriesAdmitNoNode withdraws an entry during the request. The token's use is returned.
func TestWithdrawnEntriesAdmitNoNode(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.Allow("owned*.example.net")
	store := &duringClaim{}
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store { store.Store = s; return store })
	token := f.Token(testbed.Limited(5))
	ctx := f.Context()
	ask := func(n *simnode.Node, meanwhile func() error) wire.Code {
		t.Helper()
		store.meanwhile = func() {
			if err := meanwhile(); err != nil {
				t.Error(err)
			}
		}
		_, err := p.Enroll(ctx, n.Request(), provisioner.Source{Address: "192.0.2.1"})
		if store.meanwhile != nil {
			t.Errorf("%s: no use of its token was claimed: %v", n.Identity, err)
		}
		return provisioner.CodeOf(err)
	}
	node := func(identity string) *simnode.Node {
		n := f.Node(identity)
		n.Token = token
		return n
	}

	listed := node("listed.example.net")
	if _, err := testbed.Orders(p).AllowList.Add(ctx, operate.AllowOrder{Pattern: "listed.example.net"}, operator); err != nil {
		t.Fatal(err)
	}
	if code := ask(listed, func() error {
		return testbed.Orders(p).AllowList.Remove(ctx, "listed.example.net", operator)
	}); code != wire.CodeApprovalPending {
		t.Errorf("its entry of the allow-list was removed: %q", code)
	}

	approved := node("approved.example.net")
	f.Refused(approved)
	key := keyHash(t, approved)
	f.Eventually("it can be approved", func() bool {
		_, err := testbed.Orders(p).Keys.Approve(ctx, operate.Named("approved.example.net", key), 0, operator)
		return err == nil
	})
	forget := func() error {
		_, err := testbed.Orders(p).Keys.Forget(ctx, operate.Named("approved.example.net", key), operator)
		return err
	}
	if code := ask(approved, forget); code != wire.CodeApprovalPending {
		t.Errorf("its approval was forgotten: %q", code)
	}

	provisioned(f, "owned.example.net")
	thief := node("owned.example.net")
	grant := func(o operate.GrantOrder) error {
		_, err := testbed.Orders(p).Nodes.Grant(ctx, "owned.example.net", o, operator)
		return err
	}
	if err := grant(operate.GrantOrder{}); err != nil {
		t.Fatal(err)
	}
	if code := ask(thief, func() error {
		return grant(operate.GrantOrder{KeyHash: strings.Repeat("0", 64)})
	}); code != wire.CodeIdentityTaken {
		t.Errorf("its grant was replaced by one for another key: %q", code)
	}

	report, err := testbed.Orders(p).Tokens.Get(ctx, f.TokenID(token), 100)
	if err != nil || report.Used != 0 {
		t.Errorf("token = %+v, %v, want no use of it held", report, err)
	}
	f.Check()
}
