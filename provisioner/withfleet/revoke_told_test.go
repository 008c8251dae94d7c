package provisioner_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// toldOnce waits for an event that want picks, and expects it to be the only one, also when the order
// is repeated.
func toldOnce(t *testing.T, f *testbed.Fleet, repeat func() error, want func(provisioner.Event) bool) {
	t.Helper()
	told := func() int {
		n := 0
		for _, e := range f.Events() {
			if want(e) && e.By == testbed.Operator().By {
				n++
			}
		}
		return n
	}
	f.Eventually("it is told", func() bool { return told() > 0 })
	if err := repeat(); err != nil {
		t.Errorf("the order is repeated: %v", err)
	}
	f.Check()
	if n := told(); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

// TestARecordOfUnknownOutcomeIsTold revokes a node while the store writes the record, does
// not say so, and answers nothing more until everybody has given up. Who looks again finds
// the node revoked: it is told all the same.
func TestARecordOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	inFleet(t, f, web1)
	f.Faults.Inject(testbed.LostAnswer)
	f.Faults.Before(func(context.Context, *provisioner.Record) { f.Faults.Unreadable(true) })
	revoke := func(ctx context.Context) error {
		return f.Daemon().Operator().RevokeNode(ctx, web1, testbed.Operator())
	}
	ctx, cancel := context.WithTimeout(f.Context(), time.Second)
	defer cancel()
	if err := revoke(ctx); err == nil {
		t.Error("RevokeNode says that it is done")
	}
	f.Eventually("whoever follows the log has given up as well", func() bool { return strings.Contains(f.Log(), "revocations not yet on record") })
	f.Faults.Unreadable(false)
	toldOnce(t, f, func() error { return revoke(f.Context()) }, func(e provisioner.Event) bool { return e.Type == provisioner.EventRevoked && e.Node == web1 })
}

// TestAnEntryOfUnknownOutcomeIsTold revokes a token, and retires a name without a record,
// while the store does not say that it has written the entry, or does not have it until it
// is written again. Who asks again finds it done: it is told all the same.
func TestAnEntryOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	const token jwt.TokenID = "0123456789abcdef0123456789abcdef"
	const ghost wire.Identity = "ghost.example.net"
	for name, fault := range map[string]testbed.Fault{"the answer is lost": testbed.LostAnswer, "the entry is lost": testbed.Lost} {
		t.Run(name+", of a token", func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			revoke := func() error {
				return f.Daemon().Operator().RevokeToken(f.Context(), token, testbed.Operator())
			}
			f.Faults.Appends(fault)
			if err := revoke(); !errors.Is(err, provisioner.ErrPending) {
				t.Errorf("RevokeToken = %v, want %v", err, provisioner.ErrPending)
			}
			toldOnce(t, f, revoke, func(e provisioner.Event) bool { return e.Type == provisioner.EventTokenRevoked && e.Token == token })
		})
		t.Run(name+", of a name without a record", func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			operator := f.Daemon().Operator()
			f.Faults.Unreadable(true)
			if err := operator.RevokeNode(f.Context(), ghost, testbed.Operator()); !errors.Is(err, provisioner.ErrPending) {
				t.Errorf("RevokeNode = %v, want %v", err, provisioner.ErrPending)
			}
			f.Faults.Unreadable(false)
			f.Faults.Appends(fault)
			retire := func() error { return operator.RetireNode(f.Context(), ghost, testbed.Operator()) }
			if err := retire(); !errors.Is(err, provisioner.ErrPending) {
				t.Errorf("RetireNode = %v, want %v", err, provisioner.ErrPending)
			}
			again := func() error {
				if err := retire(); !errors.Is(err, provisioner.ErrNoRecord) {
					return errors.Join(errors.New("want that there is no such node"), err)
				}
				return nil
			}
			toldOnce(t, f, again, func(e provisioner.Event) bool { return e.Type == provisioner.EventRetired && e.Node == string(ghost) })
		})
	}
}
