package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// Environment of a child that restores and kills itself.
const (
	envRestore = "MUSTER_TEST_RESTORE" // path of provisioner.yaml
	envBackup  = "MUSTER_TEST_BACKUP"
	envLast    = "MUSTER_TEST_LAST_STEP"
)

// TestRestoreChild is the child of TestARestoreIsKilledAtEveryStep.
func TestRestoreChild(t *testing.T) { //nolint:paralleltest // it kills its process
	config := os.Getenv(envRestore)
	if config == "" {
		t.Skip("only as a child")
	}
	r := childRestore(config)
	r.Reached = func(step string) {
		if step == os.Getenv(envLast) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	_, err := r.Run(t.Context())
	t.Fatalf("not killed: %v", err)
}

func childRestore(config string) *Restore {
	return &Restore{Config: config, File: os.Getenv(envBackup), AcceptLostSince: time.Unix(1, 0)}
}

// TestARestoreIsKilledAtEveryStep kills a restore with SIGKILL behind each of its
// steps. What it leaves either is no store, and the restore is made once more, or
// is all of it.
func TestARestoreIsKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	of, installation := backedUp(t, "example.net")
	dir := of.dir
	config := filepath.Join(dir, "provisioner.yaml")
	// Half of the time the journal is lost, too.
	for i, step := range []string{"locked", "journal read", "cleared", "broker started", "streams made", "written", "finished", "copied", "filled", "journal told", "place cleared", "renamed", "placed"} {
		if err := os.RemoveAll(filepath.Join(dir, "data", "broker")); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 { // as a broker leaves it that has never kept anything
			if err := os.MkdirAll(filepath.Join(dir, "data", "broker", jetStreamDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			if err := os.Remove(filepath.Join(dir, "data", "revocations.journal")); err != nil {
				t.Fatal(err)
			}
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRestoreChild$")
		child.Env = append(os.Environ(), envRestore+"="+config, envBackup+"="+of.backup, envLast+"="+step)
		out, err := child.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		whole := step == "renamed" || step == "placed"
		// Nothing is known where not even a journal is left.
		if nothing := i == 0; !whole && !nothing {
			d, err := Load(config, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Run(t.Context(), func() { t.Errorf("killed at %q: a provisioner serves", step) }); !errors.Is(err, store.ErrLost) && !errors.Is(err, store.ErrHalfRestored) {
				t.Errorf("killed at %q: Run = %v, want that there is no store", step, err)
			}
		}
		r := childRestore(config)
		r.File = of.backup
		_, err = r.Run(t.Context())
		if whole != errors.Is(err, store.ErrNotEmpty) || !whole && err != nil {
			t.Errorf("restored again after being killed at %q: %v", step, err)
		}
		if got := serveOnce(t, config, nil); got != installation {
			t.Errorf("killed at %q: installation %s, want %s", step, got, installation)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "data", "broker", "restoring", "*")); err != nil || step != "renamed" && step != "placed" && len(left) > 0 {
			t.Errorf("killed at %q: %v, %v are left", step, left, err)
		}
	}
}

// TestARestoreThatFailsLeavesNothing has restores fail from the first check to the
// last write: what was there stays, byte for byte, and nothing else is there.
func TestARestoreThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	whole, installation := backedUp(t, "example.net")
	other, _ := backedUp(t, "example.org")
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte("muster backup 1\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, tt := range map[string]struct {
		file  string
		lost  bool            // and that is known
		ctx   context.Context //nolint:containedctx // of one case
		want  error
		keeps bool // the journal and an empty directory are there
	}{
		"damaged":                 {file: damaged, want: backup.ErrDamaged},
		"another installation's":  {file: other.backup, want: store.ErrInstallation},
		"no journal":              {file: whole.backup, want: errLost},
		"ended":                   {file: whole.backup, lost: true, ctx: canceled, want: context.Canceled},
		"damaged, a journal":      {file: damaged, want: backup.ErrDamaged, keeps: true},
		"ended, a journal":        {file: whole.backup, ctx: canceled, want: context.Canceled, keeps: true},
		"an empty journal, stays": {file: whole.backup, want: errLost, keeps: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "p")
			if err := os.CopyFS(dir, os.DirFS(whole.dir)); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"ca/issuing-key.pem", "ca/root-key.pem", "seal-key.pem", "signer-key.pem"} {
				if err := os.Chmod(filepath.Join(dir, key), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			data := filepath.Join(dir, "data")
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
			if tt.keeps {
				journal := []byte{}
				if tt.want != errLost { //nolint:errorlint // of the table
					var err error
					if journal, err = os.ReadFile(filepath.Join(whole.dir, "data", "revocations.journal")); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.MkdirAll(filepath.Join(data, "broker"), 0o700), os.WriteFile(filepath.Join(data, "revocations.journal"), journal, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			r := childRestore(filepath.Join(dir, "provisioner.yaml"))
			r.File = tt.file
			if !tt.lost {
				r.AcceptLostSince = time.Time{}
			}
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			if _, err := r.Run(ctx); !errors.Is(err, tt.want) {
				t.Errorf("failed with %v, want %v", err, tt.want)
			}
			if after := tree(t, dir); !maps.Equal(before, after) {
				t.Errorf("left %v, want %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
			}
			// And nothing of it is in the way.
			r = childRestore(r.Config)
			r.File = whole.backup
			if _, err := r.Run(t.Context()); err != nil {
				t.Fatalf("then restored: %v", err)
			}
			if got := serveOnce(t, r.Config, nil); got != installation {
				t.Errorf("installation %s, want %s", got, installation)
			}
		})
	}
}

// A backupOf is a backup, and the directory of the provisioner that made it.
type backupOf struct{ dir, backup string }

// backedUp makes an installation and a backup of it, and returns its id.
func backedUp(t *testing.T, domain string) (of backupOf, installation string) {
	t.Helper()
	of.dir = filepath.Join(t.TempDir(), "p")
	if err := Init(of.dir, Setup{Name: "broker.example.net", TrustDomain: domain, Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	installation = serveOnce(t, filepath.Join(of.dir, "provisioner.yaml"), func(d *Daemon) {
		if err := d.Backup(t.Context(), "tester", func(uint64) {}, &file); err != nil {
			t.Error(err)
		}
	})
	of.backup = filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(of.backup, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return of, installation
}

// tree returns what is in a directory: of files the text, too.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			all[path] = ""
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// serveOnce runs a provisioner until do has returned, and returns its
// installation.
func serveOnce(t *testing.T, config string, do func(*Daemon)) (installation string) {
	t.Helper()
	d, err := Load(config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err = d.Run(ctx, func() {
		defer stop()
		installation = d.Store().Installation().ID
		if do != nil {
			do(d)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return installation
}
