package daemon

import (
	"errors"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/metrics"
)

// TestWhoComesBeforeTheStoreIsOpenHearsLate refuses machines that come back to a provisioner that
// has been started again: before its store is open each waits to hear of it, or those that come
// again at once keep it from opening. After that only who comes too often does, and never for
// a fault of ours.
func TestWhoComesBeforeTheStoreIsOpenHearsLate(t *testing.T) {
	t.Parallel()
	now := time.Now() // stands: what is written down in a second is soon used up
	d := &Daemon{opts: Options{Now: func() time.Time { return now }}.complete(), attempts: provisioner.NewAttempts()}
	d.budget = provisioner.NewBudget(0, d.opts.Now)
	d.metrics = metrics.New("", d.state)
	d.activity = newActivity(d.metrics)
	refused := func(code wire.Code) bool {
		return d.connectionRefused(t.Context(), broker.Presented{Address: "192.0.2.1"}, &broker.Denied{Code: code, Err: errors.New("no")})
	}
	for i := range 10 { // however many of them are written down
		if !refused(wire.CodeRevocationsUnknown) {
			t.Errorf("refusal %d, before the store is open, is heard at once", i)
		}
	}
	d.provisioner.Store(&provisioner.Provisioner{})
	for range 100 {
		if refused(wire.CodeRevocationsUnknown) {
			t.Error("a refusal that is our fault is heard late")
		}
	}
	if !refused(wire.CodeTokenInvalid) {
		t.Error("who comes too often with a token that is no good hears at once")
	}
}
