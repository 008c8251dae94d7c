package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// TestStoreFollowsARolledAuthority opens a store with a new authority, by many provisioners at once: it is bound once,
// keeps id and history, and provisioners of the former authority get an error.
func TestStoreFollowsARolledAuthority(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	first := s.open(t, ours).Installation()
	open := func(fingerprint string, former ...string) (*store.Store, error) {
		return store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: fingerprint, Former: former})
	}
	for name, former := range map[string][]string{"no authority": nil, "another one": {"beef"}, "itself": {"next"}} {
		if st, err := open("next", former...); st != nil || !errors.Is(err, store.ErrInstallation) {
			t.Errorf("vouched for by %s: Open = %v, %v, want %v", name, st, err, store.ErrInstallation)
		}
	}
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			st, err := open("next", "beef", ours)
			if err != nil {
				t.Error(err)
				return
			}
			if i := st.Installation(); i.ID != first.ID || !i.CreatedAt.Equal(first.CreatedAt) ||
				i.CAFingerprint != "next" {
				t.Errorf("installation %+v became %+v", first, i)
			}
		})
	}
	opening.Wait()
	if _, err := open(ours); !errors.Is(err, store.ErrInstallation) ||
		!strings.Contains(err.Error(), "it is bound to the CA certificate next") {
		t.Errorf("the authority before: Open = %v", err)
	}
	if _, err := open("third", "next", ours); err != nil {
		t.Fatal(err)
	}
	if _, err := open("next", ours); !errors.Is(err, store.ErrInstallation) {
		t.Errorf("back to one that the bound one does not vouch for: %v", err)
	}
}

// TestRecords reads the newest record of each identity, once, while another provisioner writes.
func TestRecords(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	newest := func() map[wire.Identity]string {
		t.Helper()
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
		defer cancel()
		seen := map[wire.Identity]string{}
		err := st.Records(ctx,
			func(r *provisioner.Record, _ trust.Revision) error { seen[r.Identity] = r.Attempt; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if got := newest(); len(got) != 0 {
		t.Errorf("of an empty store: %v", got)
	}
	a := put(t, s, st, record(web1, "a1"), 0)
	put(t, s, st, record(web2, "b1"), 0)
	a = put(t, s, st, record(web1, "a2"), a)
	a = put(t, s, st, record(web1, "a3"), a)
	if diff := cmp.Diff(map[wire.Identity]string{web1: "a3", web2: "b1"}, newest()); diff != "" {
		t.Errorf("Records (-want +got):\n%s", diff)
	}
	errEnough := errors.New("enough")
	calls := 0
	if err := st.Records(s.ctx,
		func(*provisioner.Record, trust.Revision) error { calls++; return errEnough }); !errors.Is(err, errEnough) ||
		calls != 1 {
		t.Errorf("Records = %v after %d calls, want the error of the first", err, calls)
	}
	// Each reader writes meanwhile, so the last record moves away from the expected end.
	for range 20 {
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
		first := true
		err := st.Records(ctx, func(*provisioner.Record, trust.Revision) error {
			if first {
				first = false
				a = put(t, s, st, record(web1, wire.NewID()), a)
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestIncompleteStoreIsNotOpened deletes a stream of records: it is not made anew.
func TestIncompleteStoreIsNotOpened(t *testing.T) {
	t.Parallel()
	for _, name := range store.DurableStreams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := newStore(t)
			put(t, s, st, record(web1, "a"), 0)
			if err := s.js.DeleteStream(s.ctx, name); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours}); !errors.Is(err,
					store.ErrDamaged) || !strings.Contains(err.Error(), name) {
					t.Errorf("Open without %s = %v, want %v", name, err, store.ErrDamaged)
				}
			}
			if _, err := s.js.Stream(s.ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("stream %s: %v, want that it is not made", name, err)
			}
		})
	}
}
