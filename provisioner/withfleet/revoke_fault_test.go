package provisioner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// TestUnknownRevocationsRefuseAllRequests until the log can be read again.
func TestUnknownRevocationsRefuseAllRequests(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, e := inFleet(t, f, web1)
	p := f.Daemon().Operator()
	f.Faults.Stale.Store(true)
	f.Eventually("it is noticed", func() bool {
		err := p.Fresh()
		return errors.Is(err, trust.ErrRevocationsUnknown) && errors.Is(err, testbed.ErrInjected)
	})
	if code := f.Refused(f.Node("web2.example.net")); code != wire.CodeRevocationsUnknown {
		t.Errorf("a new node: %q", code)
	}
	if code := f.Refused(n); code != wire.CodeRevocationsUnknown {
		t.Errorf("a replay: %q", code)
	}
	if err := p.Gate.AdmitNode(f.Context(), web1, e.Serial); provisioner.CodeOf(err) != wire.CodeRevocationsUnknown {
		t.Errorf("to the fleet: %v", err)
	}
	f.Faults.Stale.Store(false)
	f.Eventually("it is known again", func() bool { return p.Fresh() == nil })
	f.Enroll(f.Node("web2.example.net"))
	f.Enroll(n)
	if err := p.Gate.AdmitNode(f.Context(), web1, e.Serial); err != nil {
		t.Errorf("to the fleet: %v", err)
	}
	f.Check()
}

// heldLog is a log of revocations whose entries are held back from one provisioner.
type heldLog struct {
	provisioner.Store
	mu      sync.Mutex
	hold    bool   // guarded by mu
	applied func() // guarded by mu: held back, in order
}

// Logs implements [provisioner.Store].
func (h *heldLog) Logs() *orders.Logs {
	logs := *h.Store.Logs()
	logs.Revocations = heldRevocations{logs.Revocations, h}
	return &logs
}

type heldRevocations struct {
	trust.Log[*trust.Revocation]
	h *heldLog
}

// Watch implements [trust.Log].
func (l heldRevocations) Watch(applied func(string, trust.Entry[*trust.Revocation])) {
	l.Log.Watch(func(key string, e trust.Entry[*trust.Revocation]) {
		l.h.mu.Lock()
		defer l.h.mu.Unlock()
		if !l.h.hold {
			applied(key, e)
			return
		}
		before := l.h.applied
		l.h.applied = func() {
			if before != nil {
				before()
			}
			applied(key, e)
		}
	})
}

func (h *heldLog) wrap(s provisioner.Store) provisioner.Store {
	h.Store = s
	return h
}

// holds starts or ends holding back.
func (h *heldLog) holds(hold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold = hold; !hold && h.applied != nil {
		h.applied()
		h.applied = nil
	}
}

// TestCrashesWhileRevoking ends the process between any two steps. Other processes complete the revocation.
func TestCrashesWhileRevoking(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		crash   func(t *testing.T, f *testbed.Fleet) // revokes web1 and dies on the way
		restart bool
	}{
		"the store does not have it": {func(t *testing.T, f *testbed.Fleet) {
			f.Faults.RevocationWrites.Inject(testbed.Lost)
			if err := f.Daemon().Orders().Nodes.Revoke(f.Context(), web1, testbed.Operator()); !errors.Is(err,
				trust.ErrUnacknowledged) {
				t.Errorf("RevokeNode = %v, want %v", err, trust.ErrUnacknowledged)
			}
			if r := f.Record(web1); r.State != provisioner.StateProvisioned {
				t.Errorf("record is %s already", r.State)
			}
			f.Revoke(web1) // repeated
		}, true},
		"the store has it, and did not say so": {func(t *testing.T, f *testbed.Fleet) {
			f.Faults.RevocationWrites.Inject(testbed.LostAnswer)
			if err := f.Daemon().Orders().Nodes.Revoke(f.Context(), web1, testbed.Operator()); !errors.Is(err,
				trust.ErrUnacknowledged) {
				t.Errorf("RevokeNode = %v, want %v", err, trust.ErrUnacknowledged)
			}
		}, false},
		"the store has it, the record does not": {func(t *testing.T, f *testbed.Fleet) {
			ctx, die := context.WithCancel(f.Context())
			f.Faults.RevocationWrites.After(die)
			if err := f.Daemon().Orders().Nodes.Revoke(ctx, web1, testbed.Operator()); !errors.Is(err,
				context.Canceled) {
				t.Errorf("RevokeNode = %v, want %v", err, context.Canceled)
			}
		}, false},
		"the store has it, the record does not, and all are new": {func(t *testing.T, f *testbed.Fleet) {
			ctx, die := context.WithCancel(f.Context())
			f.Faults.RevocationWrites.After(die)
			if err := f.Daemon().Orders().Nodes.Revoke(ctx, web1, testbed.Operator()); !errors.Is(err,
				context.Canceled) {
				t.Errorf("RevokeNode = %v, want %v", err, context.Canceled)
			}
		}, true},
		"the process is stopped while it writes the record": {func(t *testing.T, f *testbed.Fleet) {
			ctx, die := context.WithCancel(f.Context())
			f.Faults.RevocationWrites.After(die)
			stopped := make(chan struct{})
			f.Faults.RecordWrites.Inject(testbed.LostAnswer)
			f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
				go func() { f.Stop(); close(stopped) }()
				select { // without requests in progress, a stop is immediate
				case <-ctx.Done():
					t.Error("the write ends with its process's serving")
				case <-time.After(100 * time.Millisecond):
				}
			})
			if err := f.Daemon().Orders().Nodes.Revoke(ctx, web1, testbed.Operator()); !errors.Is(err,
				context.Canceled) {
				t.Errorf("RevokeNode = %v, want %v", err, context.Canceled)
			}
			<-stopped
			f.Start()
		}, false},
		"the record has it, and is not acknowledged": {func(_ *testing.T, f *testbed.Fleet) {
			f.Faults.RecordWrites.Inject(testbed.LostAnswer, testbed.Lost)
			f.Revoke(web1)
		}, false},
		"the record has it, and the connection was not dropped": {func(t *testing.T, f *testbed.Fleet) {
			// Another process has a broker of its own.
			if err := testbed.Orders(another(t, f, nil)).Nodes.Revoke(f.Context(), web1,
				testbed.Operator()); err != nil {
				t.Error(err)
			}
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n, e := inFleet(t, f, web1)
			live, err := n.DialFleet(f.URL(), e)
			if err != nil {
				t.Fatal(err)
			}
			defer live.Close()
			tt.crash(t, f)
			if tt.restart {
				f.Stop()
				f.Start()
				// Every other process sees it before requests are served.
				if revocationCount(f) == 0 {
					t.Error("the store has no entry")
				}
			}
			f.Eventually("the record says so", func() bool { return f.Record(web1).State == provisioner.StateRevoked })
			f.Eventually("the connection is dropped", live.IsClosed)
			f.Eventually("the certificate is on the CRL", func() bool { return f.OnCRL(e.Serial) })
			other := another(t, f, nil)
			if code := codeAt(f, other, n); code != wire.CodeIdentityRevoked {
				t.Errorf("elsewhere: %q", code)
			}
			f.Eventually("it is reported", func() bool { return len(emitted(f, events.Revoked)) > 0 })
			if got := len(emitted(f, events.Revoked)); got != 1 {
				t.Errorf("%d events, want 1", got)
			}
			f.Check()
			// Repeated, since the outcome was unknown.
			f.Revoke(web1)
			f.Check()
		})
	}
}

// revocationCount returns the number of revocations.
func revocationCount(f *testbed.Fleet) (n int) {
	for range f.Daemon().Store().Logs().Revocations.All() {
		n++
	}
	return n
}

// TestANodeWithoutAReadableRecordIsRefused revokes by the name alone.
func TestANodeWithoutAReadableRecordIsRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := inFleet(t, f, web1)
	p := another(t, f, func(s provisioner.Store) provisioner.Store { return &illegible{Store: s} })
	if err := testbed.Orders(p).Nodes.Revoke(f.Context(), web1, testbed.Operator()); !errors.Is(err, trust.ErrRecord) {
		t.Errorf("RevokeNode = %v, want %v", err, trust.ErrRecord)
	}
	// A provisioner that can read the record lists it.
	f.Eventually("its certificate is on the CRL", func() bool { return f.OnCRL(e.Serial) })
	f.Check()
}

// illegible is a store whose records this version cannot read.
type illegible struct{ provisioner.Store }

func (illegible) Record(context.Context, wire.Identity) (*provisioner.Record, trust.Revision, error) {
	return nil, 0, trust.ErrRecord
}

// TestRevocationRaces has another write between decision and write of a revocation, and the reverse.
func TestRevocationRaces(t *testing.T) {
	t.Parallel()
	revoke := func(t *testing.T, p *provisioner.Provisioner) func(context.Context, *provisioner.Record) {
		return func(ctx context.Context, _ *provisioner.Record) {
			if err := testbed.Orders(p).Nodes.Revoke(ctx, web1, testbed.Operator()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("a confirmation comes second", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n := f.Node(web1)
		e := f.Enroll(n)
		f.Faults.RecordWrites.Before(revoke(t, another(t, f, nil)))
		if r := f.Apply(n, e); r.Refusal == nil {
			t.Errorf("confirmation: %+v", r)
		}
		f.Check()
	})
	t.Run("a new offer comes second", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n, e := inFleet(t, f, web1)
		f.Clock.Advance(31 * 24 * time.Hour)
		n.Token = f.Token(nil)
		f.Faults.RecordWrites.Before(revoke(t, another(t, f, nil)))
		if code := f.Refused(n); code != wire.CodeIdentityRevoked {
			t.Errorf("refused with %q", code)
		}
		if r := f.Record(web1); r.Next != nil || r.Current.Serial != e.Serial {
			t.Errorf("record = %+v", r)
		}
		f.Check()
	})
	t.Run("another key is let in first: it goes, too", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		_, e := inFleet(t, f, web1)
		second := f.Node(web1)
		if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), web1, operate.GrantOrder{},
			testbed.Operator()); err != nil {
			t.Fatal(err)
		}
		// Another provisioner has written a record with another key. Its reply waits for the entry about the lost
		// name, which meets the revocation: the certificate is never returned.
		var refused error
		late := &heldLog{}
		blind := another(t, f, late.wrap)
		late.holds(true)
		f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
			_, refused = blind.Enroll(ctx, second.Request(), provisioner.Source{})
		})
		f.Revoke(web1)
		late.holds(false)
		if refused == nil {
			t.Fatal("a certificate has left beside a revocation")
		}
		r := f.Record(web1)
		if r.State != provisioner.StateRevoked || r.Next == nil {
			t.Fatalf("record = %+v", r)
		}
		for _, serial := range []string{e.Serial, r.Next.Serial} {
			f.Eventually("both are on the CRL", func() bool { return f.OnCRL(serial) })
		}
		if code := f.Refused(second); code != wire.CodeIdentityRevoked {
			t.Errorf("the other key again: %q", code)
		}
		if f.Daemon().Operator().Revocations().Key(keyHash(t, second)) == nil {
			t.Error("the other key is not revoked")
		}
		f.Check()
	})
	t.Run("two revoke and one retires", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		inFleet(t, f, web1)
		ps := []*provisioner.Provisioner{f.Daemon().Operator(), another(t, f, nil), another(t, f, nil)}
		done := make(chan error)
		for i, p := range ps {
			go func() {
				if i == 2 {
					done <- testbed.Orders(p).Nodes.Retire(f.Context(), web1, testbed.Operator())
					return
				}
				err := testbed.Orders(p).Nodes.Revoke(f.Context(), web1, testbed.Operator())
				if errors.Is(err, trust.ErrState) {
					err = nil // retired already
				}
				done <- err
			}()
		}
		for range ps {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		f.Check()
		// Either way, retiring again frees the name.
		f.Retire(web1)
		f.Enroll(f.Node(web1))
		f.Check()
	})
}

// TestEveryProcessKeepsTheJournal: another process revokes, with or without a journal of its own.
func TestEveryProcessKeepsTheJournal(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := inFleet(t, f, web1)
	entries := []*trust.Revocation{
		{
			Schema: trust.RevocationSchema,
			ID:     "elsewhere-1",
			Kind:   trust.RevokedToken,
			By:     "x",
			Token:  "00112233445566778899aabbccddeeff",
		},
		{Schema: trust.RevocationSchema, ID: "elsewhere-2", Kind: trust.RevokedNode, By: "x", Node: web1},
	}
	for _, r := range entries {
		if _, err := f.Daemon().Store().Logs().Revocations.Put(f.Context(), r.LogKey(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(f.Dir, "data/revocations.journal")
	f.Eventually("both are in the journal", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), `"elsewhere-1"`) &&
			strings.Contains(string(b), `"elsewhere-2"`)
	})
	// The entry named only the identity; its certificates were added.
	f.Eventually("its certificate is on the CRL", func() bool { return f.OnCRL(e.Serial) })
	f.Check()
	// Added entries are in the journal too, and the next start reads them.
	f.Stop()
	f.Start()
	f.Check()
}
