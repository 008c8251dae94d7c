package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/wire"
	"muster/server"
)

// mountSilent puts a file system that answers nothing, as of a server on the network that
// is gone, over what is in dir. The function it returns takes it away.
func mountSilent(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	silent, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	// What is asked here is never read: whoever asks waits until it is closed.
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", silent.Fd())); err != nil {
		_ = silent.Close()
		t.Skip(err)
	}
	unmount = func() {
		_ = silent.Close()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	t.Cleanup(unmount)
	return unmount
}

// TestFactsOnAFileSystemThatDoesNotAnswer has a token name facts on a network file system whose
// server is gone. The agent says so, ends when it is told to, and enrolls with the facts once they can be read.
func TestFactsOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	facts := filepath.Join(t.TempDir(), "facts.json")
	writeFile(t, facts, `{"rack":4}`)
	unmount := mountSilent(t, filepath.Dir(facts))
	f := newFleet(t)
	start := func(name string) (*agent, server.Config) {
		cfg := f.node(name)
		cfg.SetLookTimeout(50 * time.Millisecond)
		c := f.claims()
		c.Facts = facts
		writeToken(t, cfg.TokenFile, c)
		a := f.run(cfg)
		f.awaitLog("enrollment failed", name, facts, "its file system does not answer", "mount it anew")
		return a, cfg
	}
	a, cfg := start("web1.example.net")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	findings, err := server.Doctor(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if found := finding(findings, "facts"); found.Status != server.StatusFail || !strings.Contains(found.Detail, "does not answer") {
		t.Errorf("doctor says %+v", found)
	}

	a, _ = start("web2.example.net")
	if n := len(f.requests()); n > 0 {
		t.Errorf("%d requests without the facts", n)
	}
	unmount()
	a.await(server.EventConfirmed, 1)
	if r := f.requests(); string(r[len(r)-1].Facts) != `{"rack":4}` {
		t.Errorf("enrolled with facts %s", r[len(r)-1].Facts)
	}
}

// TestOrdersOfANodeWhoseFilesHang has a node that is in the fleet lose the file system which
// its facts and its registration data are on: it goes on, and says what it cannot do.
func TestOrdersOfANodeWhoseFilesHang(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.SetLookTimeout(50 * time.Millisecond)
	c := f.claims()
	c.Facts, c.Registration = filepath.Join(t.TempDir(), "facts.json"), filepath.Join(dir, "registration.json")
	writeFile(t, c.Facts, `{}`)
	writeFile(t, c.Registration, `{"rack":4}`)
	unmount := mountSilent(t, dir)
	writeToken(t, cfg.TokenFile, c)
	cfg.RegistrationInterval = time.Second
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	f.awaitLog("registration data not published", c.Registration, "does not answer")

	if err := os.Remove(c.Facts); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "facts.json"), c.Facts); err != nil {
		t.Fatal(err)
	}
	_, r := f.order(t, f.client(t, "provisioner"), "again", wire.VerbReprovision)
	wantRefused(t, r, wire.CodeCommandImpossible)
	unmount()
	a.await(server.EventRegistered, 1)
}
