package testbed_test

import (
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestARestoredFleetIsPausedAsItWas restores a backup of a paused installation:
// nobody enrolls until an operator says so.
func TestARestoredFleetIsPausedAsItWas(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	by := provisioner.Cause{By: "ann", Why: "ticket 17"}
	if _, err := f.Daemon().Operator().Pause(f.Context(), "", false, by); err != nil {
		t.Fatal(err)
	}
	file := backUp(t, f)
	if err := f.Daemon().Operator().Resume(f.Context(), "", by); err != nil {
		t.Fatal(err)
	}
	loseStore(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	if code := f.Refused(f.Node("web1.example.net")); code != wire.CodePaused {
		t.Errorf("after the restore: %s, want %s", code, wire.CodePaused)
	}
	f.Check()
}
