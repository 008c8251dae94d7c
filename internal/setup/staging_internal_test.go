package setup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/daemon"
	"muster/policies"
)

// Environment of a child that makes or changes a setup and kills itself; see envLast.
const (
	envSetup = "MUSTER_TEST_SETUP" // its directory
	envRoll  = "MUSTER_TEST_ROLL"  // not empty: replace its authority
)

// TestSetupChild is the child of the two tests below.
func TestSetupChild(t *testing.T) { //nolint:paralleltest // it kills its process
	dir := os.Getenv(envSetup)
	if dir == "" {
		t.Skip("only as a child")
	}
	reached := func(step string) {
		if step == os.Getenv(envLast) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	var err error
	if os.Getenv(envRoll) == "" {
		err = Init(dir, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0", Reached: reached})
	} else {
		_, err = rollOver(dir, reached)
	}
	t.Fatalf("not killed: %v", err)
}

// rollOver makes the next authority of a setup.
func rollOver(dir string, reached func(string)) (*Rolled, error) {
	return (&Roll{Config: filepath.Join(dir, "provisioner.yaml"), Reached: reached}).Make()
}

// killedAt runs a child that kills itself behind a step.
func killedAt(t *testing.T, step string, env ...string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSetupChild$")
	child.Env = append(append(os.Environ(), envLast+"="+step), env...)
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("%s: %v: %s", step, err, out)
	}
}

// again repeats what was killed at a step before the directory got its name: what is left is named, and
// in the way until it is removed.
func again(t *testing.T, step, left string, repeat func() error) {
	t.Helper()
	if err := repeat(); err == nil || !strings.Contains(err.Error(), left+" is left by a run that was killed") {
		t.Errorf("made again after being killed at %q: %v", step, err)
	}
	if err := errors.Join(os.RemoveAll(left), repeat()); err != nil {
		t.Errorf("made again after being killed at %q: %v", step, err)
	}
}

// TestAnInitIsKilledAtEveryStep kills the making of a setup with SIGKILL behind each of
// its steps. Either there is none, and it is made once more; or there is all of it, and it stays.
func TestAnInitIsKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	var compiled policies.Cache
	for _, step := range []string{"staged", "keys written", "written", "cleared", "placed"} {
		above := t.TempDir()
		dir := filepath.Join(above, "prov[1]") // no pattern
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		killedAt(t, step, envSetup+"="+dir)
		repeat := func() error {
			return Init(dir, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"})
		}
		if step != "placed" {
			again(t, step, filepath.Join(above, ".prov[1].new"), repeat)
		}
		if err := repeat(); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("made over what is there after being killed at %q: %v", step, err)
		}
		if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{Compiled: &compiled}); err != nil {
			t.Errorf("killed at %q: it does not load: %v", step, err)
		}
	}
}

// TestARollIsKilledAtEveryStep kills the making of the next authority with SIGKILL behind
// each of its steps. A provisioner starts on what is there, and repeated, it makes no second one.
func TestARollIsKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	var compiled policies.Cache
	whole := filepath.Join(t.TempDir(), "whole")
	if err := Init(whole, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"staged", "root written", "written", "made"} {
		dir := filepath.Join(t.TempDir(), "p")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"ca/issuing-key.pem", "ca/root-key.pem", "seal-key.pem", "signer-key.pem"} {
			if err := os.Chmod(filepath.Join(dir, key), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		killedAt(t, step, envSetup+"="+dir, envRoll+"=1")
		if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{Compiled: &compiled}); err != nil {
			t.Errorf("killed at %q: it does not load: %v", step, err)
		}
		if step != "made" {
			again(t, step, filepath.Join(dir, ".ca-2.new"), func() error { _, err := rollOver(dir, nil); return err })
		}
		made, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile))
		if err != nil {
			t.Errorf("killed at %q: %v", step, err)
		}
		if r, err := rollOver(dir, nil); err != nil || !r.Found {
			t.Errorf("rolled over again after being killed at %q: %+v, %v", step, r, err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile)); err != nil || string(made) != string(now) {
			t.Errorf("killed at %q: another root was made beside the one that was there: %v", step, err)
		}
	}
}
