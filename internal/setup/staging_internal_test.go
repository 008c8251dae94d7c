package setup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
)

// leftovers makes what a killed process leaves of a directory before that gets its name.
func leftovers(t *testing.T, final string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+".new")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, rootFile), []byte("half"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// again repeats what was killed before the directory got its name: what is left is in the way only while a run has it
// locked.
func again(t *testing.T, left string, repeat func() error) {
	t.Helper()
	active, err := os.Open(left)
	if err == nil {
		err = lockDir(active, left)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := repeat(); err == nil || !strings.Contains(err.Error(), left+" was left by a killed run, or another") {
		t.Errorf("made beside an active run: %v", err)
	}
	if err := errors.Join(active.Close(), repeat()); err != nil {
		t.Errorf("made again after being killed: %v", err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

// TestAKilledInitIsRepeated makes a setup where a killed process has left a part of one.
func TestAKilledInitIsRepeated(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	dir := filepath.Join(above, "prov[1]") // no pattern
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	leftovers(t, dir)
	repeat := func() error {
		return Init(dir, Installation{Name: "broker.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"})
	}
	again(t, filepath.Join(above, ".prov[1].new"), repeat)
	if err := repeat(); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("made over what is there: %v", err)
	}
	if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{}); err != nil {
		t.Errorf("it does not load: %v", err)
	}
}

// TestAKilledRollIsRepeated makes the next authority where a killed process has left a part of one, and makes no second
// one where there is one.
func TestAKilledRollIsRepeated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "p")
	if err := Init(dir, Installation{
		Name:        "broker.example.net",
		TrustDomain: "example.net",
		Listen:      "127.0.0.1:0",
	}); err != nil {
		t.Fatal(err)
	}
	leftovers(t, filepath.Join(dir, "ca-2"))
	if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{}); err != nil {
		t.Errorf("it does not load: %v", err)
	}
	roll := func() (*Rolled, error) { return (&Maker{Config: filepath.Join(dir, "provisioner.yaml")}).Roll() }
	again(t, filepath.Join(dir, ".ca-2.new"), func() error { _, err := roll(); return err })
	made, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile))
	if err != nil {
		t.Error(err)
	}
	if r, err := roll(); err != nil || !r.Found {
		t.Errorf("rolled over again: %+v, %v", r, err)
	}
	if now, err := os.ReadFile(filepath.Join(dir, "ca-2", rootFile)); err != nil || string(made) != string(now) {
		t.Errorf("another root was made beside the one that was there: %v", err)
	}
}

// TestAKilledPuppetAuthorityIsMadeAgain makes the authority of Puppet agents where a killed process has left a part of
// one.
func TestAKilledPuppetAuthorityIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "p")
	if err := Init(dir, Installation{
		Name:        "broker.example.net",
		TrustDomain: "example.net",
		Listen:      "127.0.0.1:0",
	}); err != nil {
		t.Fatal(err)
	}
	leftovers(t, filepath.Join(dir, puppetDir))
	made := func() (*MadePuppet, error) {
		return (&Maker{Config: filepath.Join(dir, "provisioner.yaml")}).Puppet()
	}
	again(t, filepath.Join(dir, "."+puppetDir+".new"), func() error { _, err := made(); return err })
	bundle, err := os.ReadFile(filepath.Join(dir, puppetDir, bundleFile))
	if err != nil {
		t.Error(err)
	}
	if m, err := made(); err != nil || !m.Found {
		t.Errorf("made again: %+v, %v", m, err)
	}
	if now, err := os.ReadFile(filepath.Join(dir, puppetDir, bundleFile)); err != nil || string(bundle) != string(now) {
		t.Errorf("another bundle was made in place of the one that was there: %v", err)
	}
}
