package provisioner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAGrantThatIsSentAgainOpensNothing sends an order for a grant once more after it
// was used, and after another one was given and used.
func TestAGrantThatIsSentAgainOpensNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	grant := func(id string) {
		t.Helper()
		f.Clock.Advance(2 * time.Second)
		_, _ = f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{ID: id}, operator)
	}
	take := func() *simnode.Node {
		t.Helper()
		n := f.Node(web1)
		f.Apply(n, f.Enroll(n))
		return n
	}
	first, second := wire.NewID(), wire.NewID()
	grant(first)
	take()
	grant(second)
	take()
	grant(first) // a form that is sent again, or a client that never heard
	if r := f.Ask(f.Node(web1)); r.Refusal == nil {
		t.Errorf("a grant that was used let a third machine in: %+v", f.Record(web1).Decision)
	}
	f.Check()
}

// lateGrants is a store whose first grant comes late: nobody hears of it, and it is written when
// come is called.
type lateGrants struct {
	provisioner.Store
	come func() error
}

func (l *lateGrants) PutGrant(ctx context.Context, g *provisioner.Grant, after provisioner.Revision) error {
	if l.come != nil {
		return l.Store.PutGrant(ctx, g, after)
	}
	l.come = func() error { return l.Store.PutGrant(context.WithoutCancel(ctx), g, after) }
	return testbed.ErrInjected
}

// TestAGrantThatComesLateLetsNobodyIn gives a name to any key, which the store does not
// answer, and then to one key alone. The first order comes to the store after the second: it
// was taken back, and no other key gets in.
func TestAGrantThatComesLateLetsNobodyIn(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	late := &lateGrants{}
	other := another(t, f, func(s provisioner.Store) provisioner.Store { late.Store = s; return late })
	if _, err := other.GrantNode(f.Context(), web1, provisioner.GrantOrder{}, operator); !errors.Is(err, testbed.ErrInjected) {
		t.Fatalf("the first order: %v, want %v", err, testbed.ErrInjected)
	}
	chosen := f.Node(web1)
	if _, err := f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{KeyHash: keyHash(t, chosen)}, operator); err != nil {
		t.Fatal(err)
	}
	if err := late.come(); !errors.Is(err, provisioner.ErrConflict) {
		t.Errorf("the first order, which comes late: %v, want %v", err, provisioner.ErrConflict)
	}
	if r := f.Ask(f.Node(web1)); r.Refusal == nil {
		t.Errorf("a grant that was taken back lets a machine in: %+v", f.Record(web1).Decision)
	}
	f.Apply(chosen, f.Enroll(chosen))
	f.Check()
}

// TestTwoWhoGrantAtOnce has another operator give a name away between an order's look at
// the grants and its write: who is second is told so, and does not undo the first one's.
func TestTwoWhoGrantAtOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	first := f.Node(web1)
	var between *grantBetween
	other := another(t, f, func(s provisioner.Store) provisioner.Store {
		between = &grantBetween{Store: s, what: func() {
			if _, err := f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{KeyHash: keyHash(t, first)}, operator); err != nil {
				t.Errorf("the first order: %v", err)
			}
		}}
		return between
	})
	second := provisioner.GrantOrder{ID: wire.NewID(), KeyHash: keyHash(t, f.Node(web1))}
	if _, err := other.GrantNode(f.Context(), web1, second, operator); !errors.Is(err, provisioner.ErrState) {
		t.Errorf("the second order: %v, want %v", err, provisioner.ErrState)
	}
	f.Apply(first, f.Enroll(first))
	if _, err := other.GrantNode(f.Context(), web1, second, operator); err != nil {
		t.Errorf("the second order, repeated: %v", err)
	}
	f.Check()
	if n := ordersTold(f, provisioner.EventGranted); n != 2 {
		t.Errorf("told of %d grants, want the 2 that were given", n)
	}
}

// grantBetween is a store with something that happens before a grant is written, once.
type grantBetween struct {
	provisioner.Store
	what func()
}

func (b *grantBetween) PutGrant(ctx context.Context, g *provisioner.Grant, after provisioner.Revision) error {
	if what := b.what; what != nil {
		b.what = nil
		what()
	}
	return b.Store.PutGrant(ctx, g, after)
}
