package daemon

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
	dir := filepath.Join(t.TempDir(), "p")
	if err := Init(dir, Setup{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "provisioner.yaml")
	var file bytes.Buffer
	installation := serveOnce(t, config, func(d *Daemon) {
		_, write, err := d.Backup(t.Context(), "tester")
		if err == nil {
			err = write(&file)
		}
		if err != nil {
			t.Error(err)
		}
	})
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(backup, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// Half of the time the journal is lost, too.
	for i, step := range []string{"locked", "journal read", "cleared", "broker started", "streams made", "copied", "filled", "journal told", "place cleared", "renamed", "placed"} {
		if err := os.RemoveAll(filepath.Join(dir, "data", "broker")); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := os.Remove(filepath.Join(dir, "data", "revocations.journal")); err != nil {
				t.Fatal(err)
			}
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRestoreChild$")
		child.Env = append(os.Environ(), envRestore+"="+config, envBackup+"="+backup, envLast+"="+step)
		out, err := child.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		r := childRestore(config)
		r.File = backup
		_, err = r.Run(t.Context())
		if whole := step == "renamed" || step == "placed"; whole != errors.Is(err, store.ErrNotEmpty) || !whole && err != nil {
			t.Errorf("restored again after being killed at %q: %v", step, err)
		}
		if got := serveOnce(t, config, nil); got != installation {
			t.Errorf("killed at %q: installation %s, want %s", step, got, installation)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "data", "broker.restoring", "*")); err != nil || step != "renamed" && step != "placed" && len(left) > 0 {
			t.Errorf("killed at %q: %v, %v are left", step, left, err)
		}
	}
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
