package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestInitIsNotCutOffWithItsTerminal closes the terminal in which a setup is being made: it is
// made, or nothing of it is left, such as keys under a name that nobody gave.
func TestInitIsNotCutOffWithItsTerminal(t *testing.T) {
	t.Parallel()
	// What a process ignores, as under nohup, whom it starts ignores as well; what it listens
	// for is the default there.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	cmd := command(t, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net", "--encrypt-keys", "--passphrase-file", "passphrase")
	write(t, filepath.Join(cmd.Dir, "passphrase"), "correct horse\n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the setup is begun", func() bool { return strings.Contains(list(t, cmd.Dir), ".prov.new-") })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // whether the setup was made is no matter
	if left := list(t, cmd.Dir); strings.Contains(left, ".new-") {
		t.Errorf("it leaves %s, after %v", left, cmd.ProcessState)
	}
}
