package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestARootKeyFromAPipeIsFollowedByItsLike has the old root's key, and the passphrase, come from
// another program: the new root's key is encrypted as the old one is, although nobody can look at
// that twice.
func TestARootKeyFromAPipeIsFollowedByItsLike(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net")
	root := filepath.Join(dir, "prov", "ca", "root-key.pem")
	write(t, filepath.Join(dir, "passphrase"), "hunter2\n")
	roll := func(args string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `exec muster ca roll --config prov/provisioner.yaml `+args)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ca roll %s: %v: %s", args, err, out)
		}
	}
	opens := func(key string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "prov", key))
		if err != nil || !bytes.HasPrefix(b, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")) {
			t.Errorf("%s: %v, begins with %.40q, want it encrypted", key, err, b)
		}
		openssl(t, filepath.Join(dir, "prov"), "pkey", "-in", key, "-passin", "pass:hunter2", "-noout")
	}
	// New keys that are encrypted at last: they are read again, the passphrase is not.
	roll("--encrypt-keys --passphrase-file <(cat passphrase) --dir prov/first")
	opens("first/root-key.pem")
	opens("first/issuing-key.pem")

	encrypt(t, root, "hunter2")
	if err := os.Rename(root, filepath.Join(dir, "stick.pem")); err != nil {
		t.Fatal(err)
	}
	roll("--passphrase-file <(cat passphrase) --root-key <(cat stick.pem) --dir prov/second")
	opens("second/root-key.pem")
}

// TestWhoMayNotReadIsToldWhoMay has somebody check a configuration who may not read a key that it
// names, nor the directory with all of it, and do what needs no key.
func TestWhoMayNotReadIsToldWhoMay(t *testing.T) {
	t.Parallel()
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ closed, args string }{
		{"prov/seal-key.pem", "provisioner run --check"},
		{"prov", "provisioner run --check"},
		{"prov", "ca show"},
		{"prov/ca", "ca show"},
		{"prov", "broker config --name n1.example.net"},
		{"prov", "broker certificate n1 --name n1.example.net"},
	} {
		t.Run(tt.args+" "+tt.closed, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net")
			path := filepath.Join(dir, tt.closed)
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) // it is to be removed
			cmd := command(t, append(strings.Fields(tt.args), "--config", "prov/provisioner.yaml")...)
			if os.Geteuid() == 0 { // who may read everything, but for one without that right
				testproc.Needs(t, "setpriv")
				cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
			}
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput()
			want := ": permission denied\nmuster: " + tt.closed + " belongs to " + self.Username + ": run this as root or as the provisioner's user\n"
			if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(string(out), want) {
				t.Errorf("exit %d: %s want %s", cmd.ProcessState.ExitCode(), out, want)
			}
		})
	}
}

// TestADoctorWhoMayNotReadTheKey has somebody else than the agent's user look after a node: it is not
// to be enrolled again for that.
func TestADoctorWhoMayNotReadTheKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ssl"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"certificate.pem": 0o644, "private.pem": 0} {
		if err := os.WriteFile(filepath.Join(dir, "ssl", name), []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t, "server", "doctor", "--token", "none.jwt", "--ssl-dir", "ssl", "--config", "server.conf", "--identity", "web1.example.net")
	if os.Geteuid() == 0 { // who may read everything, but for one without that right
		testproc.Needs(t, "setpriv")
		cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
	}
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	want := regexp.MustCompile(`(?s)fail +certificate .*/private\.pem: permission denied.*let the agent's user read it: check its owner and mode, or run this check as that user`)
	if cmd.ProcessState.ExitCode() != 1 || !want.Match(out) {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

// TestWhoMayNotReadIsToRemoveNothing has somebody begin a roll-over again who may not read what
// it has made, its keys among it.
func TestWhoMayNotReadIsToRemoveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net")
	muster(t, dir, "ca", "roll", "--config", "prov/provisioner.yaml")
	key := filepath.Join(dir, "prov", "ca-2", "issuing-key.pem")
	if err := os.Chmod(key, 0); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "ca", "roll", "--config", "prov/provisioner.yaml")
	if f, err := os.Open(key); err == nil { // root may read everything, but for one without that right
		_ = f.Close()
		testproc.Needs(t, "setpriv")
		cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
	}
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	want := regexp.MustCompile(`\Amuster: open .*/issuing-key\.pem: permission denied\nmuster: .*/issuing-key\.pem belongs to \S+: run this as root or as the provisioner's user\n\z`)
	if cmd.ProcessState.ExitCode() != 1 || !want.Match(out) {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}
