package server_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/server"
)

// A ledger is what a power cut would leave of the names below a directory: those that
// were there when the directory that has them was last synced.
type ledger struct {
	mu    sync.Mutex
	names map[uint64]map[string]uint64 // by inode of the directory
	fail  func(dir string) error       // nil: nothing fails
}

func (l *ledger) sync(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(dir); err != nil {
			return err
		}
	}
	if err := server.SyncDir(dir); err != nil {
		return err
	}
	names, err := list(dir)
	if err != nil {
		return err
	}
	if l.names == nil {
		l.names = make(map[uint64]map[string]uint64)
	}
	l.names[inode(dir)] = names
	return nil
}

func (l *ledger) failBy(fail func(dir string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = fail
}

func inode(path string) uint64 {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return fi.Sys().(*syscall.Stat_t).Ino
}

// list returns the inodes of a directory by name.
func list(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	names := make(map[string]uint64)
	for _, e := range entries {
		names[e.Name()] = inode(filepath.Join(dir, e.Name()))
	}
	return names, err
}

// lost returns the names below top that a power cut would take, but for those that the
// agent can do without.
func (l *ledger) lost(top string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost []string
	_ = filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		switch base := filepath.Base(path); {
		case strings.HasSuffix(base, ".lock"), strings.HasSuffix(base, ".clock"), strings.HasSuffix(base, ".last"):
		case l.names[inode(filepath.Dir(path))][base] != inode(path):
			lost = append(lost, strings.TrimPrefix(path, top))
		}
		return nil
	})
	return lost
}

// TestWhatANodeSaysItHasOutlivesAPowerCut looks at a node's disk each time that it asks,
// and when it confirms: a set whose directory is not there after a power cut is none.
func TestWhatANodeSaysItHasOutlivesAPowerCut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"together", "server.conf elsewhere", "server.conf elsewhere, by hand"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			top := filepath.Dir(filepath.Dir(cfg.SSLDir))
			cfg.SSLDir = filepath.Join(top, "var", "lib", "muster", "ssl")
			cfg.ConfFile = filepath.Join(filepath.Dir(cfg.SSLDir), "server.conf")
			if name != "together" {
				cfg.ConfFile = filepath.Join(top, "etc", "made", "too", "server.conf")
			}
			if strings.HasSuffix(name, "by hand") {
				writeFile(t, cfg.ConfFile, "provision = true\n")
			}
			var l ledger
			if err := l.sync(top); err != nil { // the token is there
				t.Fatal(err)
			}
			cfg.SetSync(l.sync)
			var looked []string
			cfg.SetSteps(func(step string) {
				switch step {
				case "sent " + wire.SubjectEnroll, "conf linked", "sent " + wire.SubjectApplied:
				default:
					return
				}
				looked = append(looked, step)
				lost := l.lost(top)
				if step == "conf linked" { // of which the directory is synced next
					lost = without(lost, strings.TrimPrefix(cfg.ConfFile, top), ".ssl.next")
				}
				if len(lost) > 0 {
					t.Errorf("%s: a power cut takes %q", step, lost)
				}
			})
			f.run(cfg).await(server.EventConfirmed, 1)
			if len(looked) != 3 {
				t.Errorf("looked at %q", looked)
			}
		})
	}
}

// without returns the paths that are none of those given nor below them.
func without(paths []string, leave ...string) []string {
	var rest []string
	for _, path := range paths {
		keep := true
		for _, l := range leave {
			keep = keep && path != l && !strings.Contains(path, l)
		}
		if keep {
			rest = append(rest, path)
		}
	}
	return rest
}

// TestWhatAKilledAgentMadeIsSyncedByTheNext has an agent that was killed leave its
// directories, and in them a key, or the whole set, without having synced any.
func TestWhatAKilledAgentMadeIsSyncedByTheNext(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]string{"before it asked": "csr written", "after the switch": "switched"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			top := filepath.Dir(filepath.Dir(cfg.SSLDir))
			cmd, stderr := startChild(t, job{TokenFile: cfg.TokenFile, ConfFile: cfg.ConfFile, SSLDir: cfg.SSLDir, Identity: cfg.Identity,
				KillAfter: until, Occurrence: 1})
			if err := cmd.Wait(); err == nil {
				t.Fatalf("child was not killed; it said:\n%s", stderr.String())
			}
			var l ledger
			if err := l.sync(top); err != nil { // the token, and not what the agent made beside it
				t.Fatal(err)
			}
			delete(l.names[inode(top)], filepath.Base(filepath.Dir(cfg.SSLDir)))
			cfg.SetSync(l.sync)
			cfg.SetSteps(func(step string) {
				if step != "sent "+wire.SubjectEnroll && step != "sent "+wire.SubjectApplied {
					return
				}
				lost := l.lost(top)
				if until == "switched" { // what is in it was synced before the switch
					lost = without(lost, "/ssl/")
				}
				if len(lost) > 0 {
					t.Errorf("%s: a power cut takes %q", step, lost)
				}
			})
			f.run(cfg).await(server.EventConfirmed, 1)
		})
	}
}

// TestASwitchThatIsNotOnDiskIsNotConfirmed has the disk fail when the switch is to be
// synced: until it is, the set before stays whole and the provisioner hears of nothing.
func TestASwitchThatIsNotOnDiskIsNotConfirmed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.generation()
	cfg, _ := layout{}.prepare(t, f)
	parent := filepath.Dir(cfg.SSLDir)
	var l ledger
	cfg.SetSync(l.sync)
	switched := false
	cfg.SetSteps(func(step string) {
		if step == "switched" && !switched {
			switched = true
			l.failBy(func(dir string) error {
				if dir == parent {
					return &os.PathError{Op: "sync", Path: dir, Err: syscall.EIO}
				}
				return nil
			})
		}
	})
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.awaitLog("confirmation not accepted", "put the set on disk", "input/output error")
	if n := len(f.confirmations()); n > 0 {
		t.Errorf("%d confirmations of a set that a power cut takes", n)
	}
	if b := readFile(t, filepath.Join(parent, ".ssl.next", "policies", "old.policy")); b != "old" {
		t.Errorf("the set before has %q", b)
	}
	l.failBy(nil)
	a.await(server.EventConfirmed, 1)
}

// TestAConfirmationThatStaysOnDiskIsSentOnce has the disk become read-only between the
// confirmation and its answer: the provisioner knows, and is not told again and again.
func TestAConfirmationThatStaysOnDiskIsSentOnce(t *testing.T) {
	t.Parallel()
	disk := testdisk.New(t, 32<<20)
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.ConfFile, cfg.SSLDir = filepath.Join(disk.Dir, "etc", "server.conf"), filepath.Join(disk.Dir, "etc", "ssl")
	cfg.AliveInterval = 20 * time.Millisecond
	sent := false
	cfg.SetSteps(func(step string) {
		if step == "sent "+wire.SubjectApplied && !sent {
			sent = true
			disk.Fail()
		}
	})
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	f.await("many turns", func() bool { return len(f.lifecycle("alive")) > 10 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(f.confirmations()); n != 1 {
		t.Errorf("%d confirmations, want the one that was accepted", n)
	}
	if n := f.countLog("confirmation is accepted, and stays on disk", "read-only"); n != 1 {
		t.Errorf("said %d times, want once; log:\n%s", n, f.log.String())
	}
	disk.Mend()
	f.run(cfg).await(server.EventConfirmed, 1)
	if exists(filepath.Join(cfg.SSLDir, "applied.json")) {
		t.Error("still to be confirmed")
	}
}
