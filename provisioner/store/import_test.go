package store_test

import (
	"errors"
	"strings"
	"testing"

	"muster/provisioner/store"
)

// TestStoreOpensOnlyAfterTheRestore tries to open a store between any two steps of a restore.
func TestStoreOpensOnlyAfterTheRestore(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	into, stop := start(t, t.TempDir())
	defer stop()
	refused := func(step string) {
		t.Helper()
		if _, err := store.Open(into.ctx, store.Config{Conn: into.conn, CAFingerprint: ours}); !errors.Is(err,
			store.ErrHalfRestored) {
			t.Fatalf("opened when %s: %v, want ErrHalfRestored", step, err)
		}
	}
	i := begin(t, into)
	refused("begun")
	write(t, into, i, out.messages)
	refused("written")
	if err := i.Finish(into.ctx, recovery()); err != nil {
		t.Fatal(err)
	}
	refused("finished")
	if _, err := i.Done(into.ctx); err != nil {
		t.Fatal(err)
	}
	into.open(t, ours)
}

// TestRestoreDetectsAnotherWriter fails if another process has written to the store.
func TestRestoreDetectsAnotherWriter(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	for _, subject := range []string{"muster.node.stranger", "muster.claims.stranger", "muster.entry.stranger",
		"muster.revocation.node.stranger"} {
		into, stop := start(t, t.TempDir())
		i := begin(t, into)
		write(t, into, i, out.messages)
		if err := i.Finish(into.ctx, recovery()); err != nil {
			t.Fatal(err)
		}
		if _, err := into.js.Publish(into.ctx, subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if _, err := i.Done(into.ctx); err == nil || !strings.Contains(err.Error(), "another process writes") {
			t.Errorf("%s: %v", subject, err)
		}
		write(t, into, begin(t, into), out.messages) // and it can be begun again
		stop()
	}
}
