package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// followed runs an allow-list that has web1.example.net, until stop is called, which the
// test must do: it is in a bubble of synctest. write puts another text in its file.
func followed(t *testing.T) (l *allowList, write func(text string), stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allow-list.yaml")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("allow: [{pattern: web1.example.net}]\n")
	l, err := loadAllowList(path, Options{Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	return l, write, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run = %v", err)
		}
	}
}

// TestAnAllowListThatIsGoneStaysInForce takes the file away for longer than it
// takes to look at it again, as when a disk is not mounted, and puts it back.
func TestAnAllowListThatIsGoneStaysInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, write, stop := followed(t)
		check := func(when string, web1, web2 bool) {
			t.Helper()
			<-time.After(3 * allowCheck)
			synctest.Wait()
			if got := l.match("web1.example.net") != nil; got != web1 {
				t.Errorf("%s: web1 is covered %v", when, got)
			}
			if got := l.match("web2.example.net") != nil; got != web2 {
				t.Errorf("%s: web2 is covered %v", when, got)
			}
		}
		check("at first", true, false)
		if err := os.Remove(l.path); err != nil {
			t.Fatal(err)
		}
		check("while the file is gone", true, false)
		write("allow: [")
		check("with a mistake in it", true, false)
		write("allow: [{pattern: web2.example.net}]\n")
		check("once it is back", false, true)
		stop()
	})
}

// TestAnAllowListThatIsBeingWrittenIsNotInForce has an editor empty the file and write it
// anew, bit by bit: what is there meanwhile is a list as well, of nobody, or of names that
// nobody meant.
func TestAnAllowListThatIsBeingWrittenIsNotInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, write, stop := followed(t)
		const list = "allow:\n- pattern: web1.example.net\n- pattern: '**.lab.example.net'\n- pattern: web2.example.net\n"
		for n := range list {
			write(list[:n])
			<-time.After(allowCheck - time.Millisecond)
			synctest.Wait()
			if l.match("web1.example.net") == nil || l.match("a.lab.example.net") != nil || l.unread.Load() != nil {
				t.Fatalf("in force, or said to be wrong, while it is written: %q", list[:n])
			}
		}
		write(list)
		<-time.After(2 * allowCheck)
		synctest.Wait()
		if l.match("a.lab.example.net") == nil || l.match("web2.example.net") == nil {
			t.Error("the list that was written is not in force")
		}
		stop()
	})
}

// TestAnAllowListThatCouldNotBeReadIsReadOnceItCan puts a list in place that only root may
// read, as mv of a file of root's does, and then lets the provisioner read it: nothing that
// stat(2) looks at has changed.
func TestAnAllowListThatCouldNotBeReadIsReadOnceItCan(t *testing.T) { // not parallel: it is somebody else meanwhile
	if os.Geteuid() != 0 {
		t.Skip("being somebody else takes root")
	}
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, next := filepath.Join(dir, "allow-list.yaml"), filepath.Join(dir, "next")
	if err := errors.Join(os.WriteFile(path, []byte("allow: [{pattern: web1.example.net}]\n"), 0o644),
		os.WriteFile(next, []byte("allow: [{pattern: web2.example.net}]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := loadAllowList(path, Options{Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	as := func(user int) {
		t.Helper()
		if err := unix.Setresuid(-1, user, -1); err != nil {
			t.Fatal(err)
		}
	}
	as(65534) // nobody
	t.Cleanup(func() { as(0) })
	go func() { _ = l.run(t.Context()) }()
	until := func(what string, is func() bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for tick := time.NewTicker(10 * time.Millisecond); !is(); {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("not within 30s: %s", what)
			}
		}
	}
	until("it cannot be read", func() bool { return l.unread.Load() != nil })
	as(0)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	as(65534)
	until("it is read", func() bool { return l.unread.Load() == nil })
	if l.match("web2.example.net") == nil || l.match("web1.example.net") != nil {
		t.Error("the list before stays in force")
	}
}
