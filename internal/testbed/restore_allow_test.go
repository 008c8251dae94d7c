package testbed_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// allow puts a pattern on the allow-list, without a limit if uses is 0.
func allow(t *testing.T, f *testbed.Fleet, pattern string, uses int) {
	t.Helper()
	if _, err := f.Daemon().Operator().AllowNames(f.Context(), pattern, 0, uses, false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
}

func disallow(t *testing.T, f *testbed.Fleet, pattern wire.Pattern) {
	t.Helper()
	if err := f.Daemon().Operator().DisallowNames(f.Context(), pattern, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
}

// allowed returns the patterns of the allow-list, in their order.
func allowed(t *testing.T, f *testbed.Fleet) (patterns []string) {
	t.Helper()
	list, err := f.Daemon().Operator().Allowances(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		patterns = append(patterns, string(a.Pattern))
	}
	return patterns
}

// TestTheAllowListAfterARestore restores a backup, after which entries of the
// allow-list were removed, limited and added: no name is let in that was not when
// the store was lost.
func TestTheAllowListAfterARestore(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	for _, pattern := range []string{"kept*.net", "removed*.net", "limited*.net", "narrow*.net", "out*.net", "back*.net"} {
		allow(t, f, pattern, 0)
	}
	allow(t, f, "narrow*.net", 3) // in place of the one without a limit, and it is newer in the backup
	allow(t, f, "out*.net", 3)
	disallow(t, f, "out*.net")
	disallow(t, f, "back*.net")
	file := backUp(t, f)
	disallow(t, f, "removed*.net")
	allow(t, f, "limited*.net", 2)
	allow(t, f, "added*.net", 0)
	allow(t, f, "few*.net", 2)
	allow(t, f, "back*.net", 0)
	allow(t, f, "brief*.net", 0)
	disallow(t, f, "brief*.net")
	loseStore(t, f)
	out, err := restoring(f, file).Run(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"few*.net", "limited*.net", "narrow*.net"}, out.AllowancesGone); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	if want := 7; out.Allowances != want || out.Operators != 0 {
		t.Errorf("%d of the allow-list and %d of operators from the journal, want %d and 0", out.Allowances, out.Operators, want)
	}
	f.Start()
	if diff := cmp.Diff([]string{"added*.net", "back*.net", "kept*.net"}, allowed(t, f)); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	allow(t, f, "removed*.net", 0)
	f.Stop()
	f.Start()
	if diff := cmp.Diff([]string{"added*.net", "back*.net", "kept*.net", "removed*.net"}, allowed(t, f)); diff != "" {
		t.Errorf("allowed once one was added again (-want +got):\n%s", diff)
	}
	f.Check()
}

// TestTheAllowListAfterARestoreWithoutAJournal restores a backup in which an entry
// without a limit has another one after it, and no journal is there: the first is
// not good again because the second is left out.
func TestTheAllowListAfterARestoreWithoutAJournal(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	for _, pattern := range []string{"kept*.net", "narrow*.net", "out*.net"} {
		allow(t, f, pattern, 0)
	}
	allow(t, f, "narrow*.net", 3)
	allow(t, f, "out*.net", 3)
	disallow(t, f, "out*.net")
	file := backUp(t, f)
	loseStore(t, f)
	if err := os.Remove(filepath.Join(f.Dir, "data/revocations.journal")); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	r.AcceptLostSince = f.Clock.Now().Add(-time.Hour)
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	if diff := cmp.Diff([]string{"kept*.net"}, allowed(t, f)); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	f.Check()
}

// TestAStoreThatWasPutBackForgetsNoRemoval puts the files of an older store in
// place of those of today: the journal knows what of the allow-list was removed
// or limited since, and what is on the list is not there by the journal alone.
func TestAStoreThatWasPutBackForgetsNoRemoval(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	for _, pattern := range []string{"kept*.net", "removed*.net", "limited*.net", "shorter*.net"} {
		allow(t, f, pattern, 0)
	}
	files := filepath.Join(f.Dir, "data/broker")
	f.Stop()
	before := filepath.Join(t.TempDir(), "broker")
	if err := os.CopyFS(before, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	f.Start()
	disallow(t, f, "removed*.net")
	allow(t, f, "limited*.net", 2)
	allow(t, f, "added*.net", 0)
	if _, err := f.Daemon().Operator().AllowNames(f.Context(), "shorter*.net", time.Hour, 0, false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(before))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds what the first has written
		f.Start()
		if diff := cmp.Diff([]string{"kept*.net", "shorter*.net"}, allowed(t, f)); diff != "" {
			t.Errorf("allowed (-want +got):\n%s", diff)
		}
		list, err := f.Daemon().Operator().Allowances(f.Context())
		if err != nil || len(list) != 2 || list[1].ExpiresAt.IsZero() {
			t.Errorf("the entry that was given an end has none: %+v, %v", list, err)
		}
		f.Stop()
	}
	f.Start()
	f.Check()
}
