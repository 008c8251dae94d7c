package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
)

// TestAGrantOfATimeToComeIsShownAsOne gives a name away while the provisioner's clock is
// ahead, and once more when it is right.
func TestAGrantOfATimeToComeIsShownAsOne(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	shown := func() string {
		t.Helper()
		return muster(t, f.Dir, "node", "show", "web1.example.net", "--config", filepath.Join(f.Dir, "provisioner.yaml"))
	}
	grant := func() {
		t.Helper()
		if _, err := f.Daemon().Operator().GrantNode(f.Context(), "web1.example.net", provisioner.GrantOrder{}, provisioner.Cause{By: "ann", Why: "reinstalled"}); err != nil {
			t.Fatal(err)
		}
	}
	const ahead, toCome = 20 * 24 * time.Hour, "which is to come, so a clock was ahead: it lets nobody in"
	f.Clock.Advance(ahead)
	grant()
	f.Clock.Advance(-ahead)
	if out := shown(); !strings.Contains(out, ", by ann: reinstalled") || !strings.Contains(out, toCome) {
		t.Errorf("a grant of a time to come:\n%s", out)
	}
	grant()
	if out := shown(); !strings.Contains(out, ", by ann: reinstalled") || strings.Contains(out, toCome) {
		t.Errorf("given again:\n%s", out)
	}
	f.Check()
}
