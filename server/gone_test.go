package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"muster/server"
)

// All files of an agent are removed while it is in the fleet: its connection works, so it renews, and the files are back.
func TestANodeWhoseFilesAreRemovedRenews(t *testing.T) {
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
	remove()
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enrollments, want only the first", n)
	}
}

// All files of an agent are removed while it waits for approval.
func TestAWaitingNodeWhoseFilesAreRemovedBeginsAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse("approval_pending", 0) })
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventRefused, 1)
	if err := os.Rename(filepath.Dir(cfg.SSLDir), filepath.Dir(cfg.SSLDir)+".old"); err != nil { // all at once
		t.Fatal(err)
	}
	f.set(func() { f.enroll = nil })
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}
