package setup

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/inputfile"
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
	return &Restore{Config: config, File: os.Getenv(envBackup), Step: func(string, int) {}, Each: func() {}}
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
	for i, step := range []string{"locked", "journal read", "cleared", "broker started", "streams made", "written",
		"finished", "journal written", "complete", "copied", "filled", "place cleared", "renamed", "placed"} {
		if err := os.RemoveAll(filepath.Join(dir, "data", "broker")); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 { // as a broker leaves it that has never kept anything
			if err := os.MkdirAll(daemon.StreamsDir(filepath.Join(dir, "data", "broker")), 0o700); err != nil {
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
		if !whole {
			d, err := daemon.Load(config, daemon.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Run(t.Context(),
				func() { t.Errorf("killed at %q: a provisioner serves", step) }); !daemon.NeedsOperator(err) {
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
		if left, err := filepath.Glob(filepath.Join(dir, "data", "broker", "restoring", "*")); err != nil ||
			step != "renamed" && step != "placed" && len(left) > 0 {
			t.Errorf("killed at %q: %v, %v are left", step, left, err)
		}
	}
}

// TestARestoreThatFailsCanBeRepeated has restores fail from the first check to the last write: no provisioner serves after
// them, the journal stays, and nothing that they have left is in the way of the next one.
func TestARestoreThatFailsCanBeRepeated(t *testing.T) {
	t.Parallel()
	whole, installation := backedUp(t, "example.net")
	other, _ := backedUp(t, "example.org")
	damaged, writable := filepath.Join(t.TempDir(), "damaged"), filepath.Join(t.TempDir(), "writable")
	if err := errors.Join(os.WriteFile(damaged, []byte("muster backup 1\nx"), 0o600),
		os.WriteFile(writable, nil, 0o600), os.Chmod(writable, 0o666)); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	data := filepath.Join(whole.dir, "data")
	journal, err := os.ReadFile(filepath.Join(data, "revocations.journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(data, "broker")); err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		file string
		ctx  context.Context //nolint:containedctx // of one case
		want error
	}{
		"damaged":                {damaged, t.Context(), backup.ErrDamaged},
		"writable by all":        {writable, t.Context(), inputfile.ErrUnsafe},
		"another installation's": {other.backup, t.Context(), store.ErrInstallation},
		"ended":                  {whole.backup, canceled, context.Canceled},
	} {
		r := childRestore(filepath.Join(whole.dir, "provisioner.yaml"))
		r.File = tt.file
		if _, err := r.Run(tt.ctx); !errors.Is(err, tt.want) {
			t.Errorf("%s: failed with %v, want %v", what, err, tt.want)
		}
		if after, err := os.ReadFile(filepath.Join(data, "revocations.journal")); err != nil ||
			!bytes.Equal(after, journal) {
			t.Errorf("%s: the journal is another one: %v", what, err)
		}
		d, err := daemon.Load(r.Config, daemon.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(t.Context(),
			func() { t.Errorf("%s: a provisioner serves", what) }); !daemon.NeedsOperator(err) {
			t.Errorf("%s: Run = %v, want that there is no store", what, err)
		}
	}
	r := childRestore(filepath.Join(whole.dir, "provisioner.yaml"))
	r.File = whole.backup
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := serveOnce(t, r.Config, nil); got != installation {
		t.Errorf("installation %s, want %s", got, installation)
	}
}

// A backupOf is a backup, and the directory of the provisioner that made it.
type backupOf struct{ dir, backup string }

// backedUp makes an installation and a backup of it, and returns its id.
func backedUp(t *testing.T, domain string) (of backupOf, installation string) {
	t.Helper()
	of.dir = filepath.Join(t.TempDir(), "p")
	if err := Init(of.dir, Installation{
		Name:        "broker.example.net",
		TrustDomain: domain,
		Listen:      "127.0.0.1:0",
	}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	installation = serveOnce(t, filepath.Join(of.dir, "provisioner.yaml"), func(d *daemon.Daemon) {
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

// serveOnce runs a provisioner until do has returned, and returns its
// installation.
func serveOnce(t *testing.T, config string, do func(*daemon.Daemon)) (installation string) {
	t.Helper()
	d, err := daemon.Load(config, daemon.Options{})
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
