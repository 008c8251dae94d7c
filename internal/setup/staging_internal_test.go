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
		err = rollOver(dir, reached, nil)
	}
	t.Fatalf("not killed: %v", err)
}

// rollOver replaces the authority of a setup, as `muster ca roll --write` does.
func rollOver(dir string, reached func(string), compiled *policies.Cache) error {
	r, err := (&Roll{Config: filepath.Join(dir, "provisioner.yaml"), Reached: reached}).Make()
	if err == nil {
		_, err = r.Write(daemon.Options{Compiled: compiled})
	}
	return err
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

// hidden returns the names in a directory that nobody gave.
func hidden(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestAnInitIsKilledAtEveryStep kills the making of a setup with SIGKILL behind each of
// its steps. Either there is none, and it is made once more, with nothing left of the keys
// that the first one made; or there is all of it, and it stays.
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
		whole := step == "placed"
		err := Init(dir, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"})
		if whole != (err != nil && strings.Contains(err.Error(), "not empty")) || !whole && err != nil {
			t.Errorf("made again after being killed at %q: %v", step, err)
		}
		if left := hidden(t, above); len(left) > 0 {
			t.Errorf("killed at %q: %v are left", step, left)
		}
		if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{Compiled: &compiled}); err != nil {
			t.Errorf("killed at %q: it does not load: %v", step, err)
		}
	}
}

// TestWhatIsBeingMadeIsNotSwept has two make a setup at the same time: neither takes away
// what the other one is about to give its name.
func TestWhatIsBeingMadeIsNotSwept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "prov")
	first, err := newStaging(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.remove()
	second, err := newStaging(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer second.remove()
	w := &writer{dir: first.dir}
	if w.file("a/b", 0o600, []byte("x")); w.err != nil {
		t.Fatal(w.err)
	}
	if err := errors.Join(first.place(0o755), second.place(0o755)); !errors.Is(err, os.ErrExist) {
		t.Errorf("both have got the name: %v", err)
	}
	second.remove()
	if b, err := os.ReadFile(filepath.Join(dir, "a/b")); err != nil || string(b) != "x" || len(hidden(t, filepath.Dir(dir))) > 0 {
		t.Errorf("%q, %v; left %v", b, err, hidden(t, filepath.Dir(dir)))
	}
}

// TestARollIsKilledAtEveryStep kills the replacement of an authority with SIGKILL behind
// each of its steps. A provisioner starts on what is there, the command is repeated until
// provisioner.yaml is changed, and nothing is left of another authority, for which the old root
// would vouch as well.
func TestARollIsKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	var compiled policies.Cache
	whole := filepath.Join(t.TempDir(), "whole")
	if err := Init(whole, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"staged", "root written", "written", "made", "edited", "kept", "changed"} {
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
		config := filepath.Join(dir, "provisioner.yaml")
		if _, err := daemon.Load(config, daemon.Options{Compiled: &compiled}); err != nil {
			t.Errorf("killed at %q: it does not load: %v", step, err)
		}
		made, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile))
		if early := step == "staged" || step == "root written" || step == "written"; early != os.IsNotExist(err) || !early && err != nil {
			t.Errorf("killed at %q: %v", step, err)
		}
		over := step == "changed"
		if err := rollOver(dir, nil, &compiled); over != (err != nil && strings.Contains(err.Error(), "ca.previous is there")) || !over && err != nil {
			t.Errorf("rolled over again after being killed at %q: %v", step, err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile)); err != nil || len(made) > 0 && string(made) != string(now) {
			t.Errorf("killed at %q: another root was made of the one that was there: %v", step, err)
		}
		if left := hidden(t, dir); len(left) > 0 {
			t.Errorf("killed at %q: %v are left", step, left)
		}
		authorities, err := ReadAuthorities(config)
		if err != nil || len(authorities) != 2 || len(authorities[1].Cross) == 0 {
			t.Errorf("killed at %q: %d authorities, %v", step, len(authorities), err)
		}
		if _, err := daemon.Load(config, daemon.Options{Compiled: &compiled}); err != nil {
			t.Errorf("killed at %q, and repeated: it does not load: %v", step, err)
		}
	}
}
