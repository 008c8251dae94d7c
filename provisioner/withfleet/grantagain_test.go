package provisioner_test

import (
	"context"
	"errors"
	"testing"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// TestConcurrentGrants: another operator grants between an order's read and its write. The second order fails and
// undoes nothing.
func TestConcurrentGrants(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	first := f.Node(web1)
	var between *grantBetween
	other := another(t, f, func(s provisioner.Store) provisioner.Store {
		between = &grantBetween{Store: s, what: func() {
			if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), web1,
				operate.GrantOrder{KeyHash: keyHash(t, first)}, operator); err != nil {
				t.Errorf("the first order: %v", err)
			}
		}}
		return between
	})
	second := operate.GrantOrder{ID: wire.NewID(), KeyHash: keyHash(t, f.Node(web1))}
	if _, err := testbed.Orders(other).Nodes.Grant(f.Context(), web1, second, operator); !errors.Is(err,
		trust.ErrState) {
		t.Errorf("the second order: %v, want %v", err, trust.ErrState)
	}
	f.Apply(first, f.Enroll(first))
	if _, err := testbed.Orders(other).Nodes.Grant(f.Context(), web1, second, operator); err != nil {
		t.Errorf("the second order, repeated: %v", err)
	}
	f.Check()
}

// grantBetween is a store with a call before its first write of a grant.
type grantBetween struct {
	provisioner.Store
	what func()
}

func (b *grantBetween) Logs() *orders.Logs {
	return testbed.WrapLogs(b.Store.Logs(), func(_ context.Context, _ string, put testbed.Put) (trust.Revision, error) {
		if what := b.what; what != nil {
			b.what = nil
			what()
		}
		return put()
	})
}
