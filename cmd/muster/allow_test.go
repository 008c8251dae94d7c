package main

import (
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testbed"
)

// TestOfAnEntryThatIsRemovedIsNotSaidThatNamesAreKeptOut removes an entry of the store that a
// provisioner's file has as well: its names get in all the same, and nothing else is said.
func TestOfAnEntryThatIsRemovedIsNotSaidThatNamesAreKeptOut(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, AllowList: "allow:\n  - pattern: web*.example.net\n"})
	config := filepath.Join(f.Dir, "provisioner.yaml")
	muster(t, f.Dir, "allow", "add", "web*.example.net", "--config", config)
	out, err := command(t, "allow", "remove", "web*.example.net", "--config", config).CombinedOutput()
	if err != nil || string(out) != "muster: web*.example.net is off the store's allow-list\n" {
		t.Errorf("removed: %v: %s", err, out)
	}
	f.Enroll(f.Node("web1.example.net"))
	if out := muster(t, f.Dir, "allow", "list", "--config", config); strings.Contains(out, "web*") {
		t.Errorf("listed after that:\n%s", out)
	}
	f.Check()
}
