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

// TestRoomIsHeldBackForRevocations: what lets somebody in is refused, what keeps
// somebody out is not.
func TestRoomIsHeldBackForRevocations(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	revision := put(t, s, st, record(web1, "a"), 0)
	st.SetRoom(1)
	g := &orders.Grant{ID: wire.NewID(), Identity: web2, ExpiresAt: time.Now()}
	for range 2 { // being refused gives nothing back
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

// TestWroteIsAboutNow has a store say that it has acknowledged a write, for a moment: neither
// a write of before counts, nor one that was refused.
func TestWroteIsAboutNow(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	notAnyMore := func() {
		t.Helper()
		for st.Wrote() {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-s.ctx.Done():
				t.Fatal("a write of long ago counts")
			}
		}
	}
	notAnyMore() // what it wrote when it was opened
	if _, err := st.Put(s.ctx, record(web1, "a"), 7); !errors.Is(err, trust.ErrConflict) {
		t.Errorf("Put = %v, want %v", err, trust.ErrConflict)
	}
	if st.Wrote() {
		t.Error("a write that was refused counts")
	}
	revision := put(t, s, st, record(web1, "a"), 0)
	for !st.Wrote() { // a second later already, on a machine with much else to do
		if s.ctx.Err() != nil {
			t.Fatal("a store that acknowledges writes says it does not")
		}
		revision = put(t, s, st, record(web1, "a"), revision)
	}
	notAnyMore()
}
