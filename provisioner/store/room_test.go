package store_test

import (
	"errors"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
)

// TestReserveIsForRevocations refuses what grants access and accepts what takes it away.
func TestReserveIsForRevocations(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	revision := put(t, s, st, record(web1, "a"), 0)
	st.SetRoom(1)
	g := &orders.Grant{ID: wire.NewID(), Identity: web2, ExpiresAt: time.Now()}
	for range 2 { // refusals give nothing back
		if _, err := st.Put(s.ctx, record(web2, "b"), 0); !errors.Is(err, trust.ErrStoreFull) {
			t.Errorf("Put = %v, want %v", err, trust.ErrStoreFull)
		}
		if _, err := st.Logs().Grants.Put(s.ctx, g.LogKey(), g, 0); !errors.Is(err, trust.ErrStoreFull) {
			t.Errorf("PutGrant = %v, want %v", err, trust.ErrStoreFull)
		}
	}
	revoked := record(web1, "c")
	revoked.State = provisioner.StateRevoked
	if _, err := st.Put(s.ctx, revoked, revision); err != nil {
		t.Errorf("Put of a revoked node = %v", err)
	}
	if err := st.Probe(s.ctx); err != nil {
		t.Errorf("Probe = %v", err)
	}
	st.SetRoom(1 << 20)
	if _, err := st.Put(s.ctx, record(web2, "b"), 0); err != nil {
		t.Errorf("Put with room = %v", err)
	}
	if _, err := st.Logs().Grants.Put(s.ctx, g.LogKey(), g, 0); err != nil {
		t.Errorf("PutGrant with room = %v", err)
	}
}
