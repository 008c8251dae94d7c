package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"muster/server"
)

// All files of an agent are removed while it is in the fleet, and while it waits for approval.
func TestANodeWhoseFilesAreRemovedBeginsAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	remove := func() {
		t.Helper()
		dir := filepath.Dir(cfg.SSLDir)
		if err := os.Rename(dir, dir+".old"); err != nil { // all at once
			t.Fatal(err)
		}
	}
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.set(func() { f.enroll = refuse("approval_pending", 0) })
	remove()
	a.await(server.EventRefused, 1)
	if err := os.RemoveAll(filepath.Dir(cfg.SSLDir) + ".old"); err != nil {
		t.Fatal(err)
	}
	remove()
	f.set(func() { f.enroll = nil })
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
}
