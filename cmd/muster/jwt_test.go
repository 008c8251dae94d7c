package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a new terminal: what a person holds, and
// what a program has as its standard streams.
func openTerminal(t *testing.T) (person, stream *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil { // unlock the other end
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	stream, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	return person, stream
}

// echoes reports whether the terminal shows what is typed.
func echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// await polls until the condition holds, for 30 seconds at most.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within 30s: %s", what)
		case <-tick.C:
		}
	}
}

// encryptedKey makes a key with the passphrase hunter2 in the directory of cmd.
func encryptedKey(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	gen := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:hunter2", "-out", "key.pem")
	gen.Dir = cmd.Dir
	if out, err := gen.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestSecretsAreAskedOnTheTerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "jwt", "provisioning.jwt", "key.pem", "--srv", "example.net")
	encryptedKey(t, cmd)
	person, stream := openTerminal(t)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stream, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The passphrase, then the token's secret twice. The terminal holds what is typed
	// ahead.
	await(t, "the prompt", func() bool { return !echoes(t, stream) })
	if _, err := io.WriteString(person, "hunter2\ntoomanysecrets\ntoomanysecrets\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	got := stderr.String()
	if n := strings.Count(got, "Passphrase for key.pem: "); n != 1 || !strings.Contains(got, "Secret for the token: ") {
		t.Errorf("asked for the passphrase %d times, want once:\n%s", n, got)
	}
	if strings.Contains(got, "hunter") || strings.Contains(got, "toomanysecrets") {
		t.Errorf("a secret was shown:\n%s", got)
	}
	view := command(t, "jwt", "view", "-o", "json", "--show-secret", "provisioning.jwt")
	view.Dir = cmd.Dir
	if out, err := view.Output(); err != nil || !bytes.Contains(out, []byte(`"cht": "toomanysecrets"`)) {
		t.Errorf("the token: %v\n%s", err, out)
	}
}

func TestInterruptAtThePromptRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "jwt", "provisioning.jwt", "key.pem", "--srv", "example.net", "--token", "x")
	encryptedKey(t, cmd)
	_, stream := openTerminal(t)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stream, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the prompt", func() bool { return !echoes(t, stream) })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit status %d (%v), want 1", cmd.ProcessState.ExitCode(), err)
	}
	if got, want := stderr.String(), "Passphrase for key.pem: \nmuster: interrupted\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if !echoes(t, stream) {
		t.Error("the terminal stays silent afterwards")
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, "provisioning.jwt")); !os.IsNotExist(err) {
		t.Errorf("an interrupted signing leaves a file: %v", err)
	}
}
