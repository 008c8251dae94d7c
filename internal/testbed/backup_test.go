package testbed_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/setup"
	"muster/internal/testbed"
	"muster/provisioner/store"
)

// backUp backs up a fleet's running provisioner to a new file.
func backUp(t *testing.T, f *testbed.Fleet) string {
	t.Helper()
	var b bytes.Buffer
	if err := f.Daemon().Backup(f.Context(), "tester", func(uint64) {}, &b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func journalOf(f *testbed.Fleet) string { return filepath.Join(f.Dir, "data", "revocations.journal") }

// loseStore stops the provisioner and deletes its store.
func loseStore(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	if f.Daemon() != nil {
		f.Stop()
	}
	if err := os.RemoveAll(filepath.Join(f.Dir, "data", "broker")); err != nil {
		t.Fatal(err)
	}
}

// restoring returns a restore of a fleet's store from a backup.
func restoring(f *testbed.Fleet, file string) *setup.Restore {
	return &setup.Restore{
		Config: filepath.Join(f.Dir, "provisioner.yaml"), File: file, Now: f.Clock.Now,
		Step: func(string, int) {}, Each: func() {},
	}
}

func TestARestoredFleetGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	nodes := f.Nodes(3)
	for _, n := range nodes {
		f.Apply(n, f.Enroll(n))
	}
	file := backUp(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err == nil {
		t.Error("restored under a running provisioner")
	}
	before := f.Record(nodes[0].Identity)
	f.Stop()
	if _, err := restoring(f, file).Run(f.Context()); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("restore over a store: %v, want ErrNotEmpty", err)
	}
	loseStore(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	if after := f.Record(nodes[0].Identity); after == nil || after.Attempt != before.Attempt {
		t.Fatalf("record %+v, want %+v", after, before)
	}
	for _, n := range nodes {
		if e := f.Enroll(n); e.Serial != f.Record(n.Identity).Current.Serial {
			t.Errorf("%s got another certificate", n.Identity)
		}
	}
	f.Check()
}
