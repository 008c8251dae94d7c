package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestBackupAndRestore backs a provisioner up with processes, loses its store
// and restores it, with its journal and without: it is in recovery then.
func TestBackupAndRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	run := func(status int, says string, args ...string) {
		t.Helper()
		cmd := command(t, append(args, config...)...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != status || !regexp.MustCompile(says).Match(out) {
			t.Errorf("muster %s: exit %d: %s, want %d and %s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), out, status, says)
		}
	}
	run(1, "no provisioner answers", "backup", "none")
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "two.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub", "--uses", "2")
	agent := start(t, dir, "server", "run", "--token-file", "two.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")

	run(0, `^store\.backup is complete: 2 revisions of nodes, 1 claims, [0-9]+ entries, of 20\S+Z to 20\S+Z\n$`, "backup", "store.backup")
	info, err := os.Stat(filepath.Join(dir, "store.backup"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want mode 0600", info, err)
	}
	run(1, `^muster: store\.backup: file already exists; a backup never replaces a file`, "backup", "store.backup")
	run(0, "^store.backup is complete: 2 revisions of nodes", "backup", "--verify", "store.backup")
	var said struct {
		ID      string
		Streams []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(muster(t, dir, append([]string{"backup", "--verify", "-o", "json", "store.backup"}, config...)...)), &said); err != nil || said.ID == "" || len(said.Streams) == 0 {
		t.Errorf("as JSON: %+v, %v", said, err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "store.backup"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cut.backup"), string(whole[:len(whole)-7]))
	run(1, `^muster: cut\.backup: not a complete backup: `, "backup", "--verify", "cut.backup")
	run(1, "in use by another broker", "restore", "store.backup")
	agent.stop()
	provisioner.stop()
	run(1, "store is not empty", "restore", "store.backup")

	lose := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(dir, "prov/data", name), filepath.Join(t.TempDir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	lose("broker")
	restoreWithoutPermission(t, dir)
	run(78, `(?m)^muster: store: the store has lost data: it has no installation, but revocations\.journal belongs to \S+: bring back a copy of the disk, restore a backup.*$`, "provisioner", "run")
	run(1, "not a complete backup", "restore", "cut.backup")
	restored := `^\d+ messages of store\.backup restored, and 0 revocations of the journal; the store is in recovery since 20\S+Z\n` +
		`muster: start the provisioner; nodes come back by their certificates\nmuster: limited tokens signed until now are frozen: .*\n` +
		`muster: once all nodes are back, run .muster recovery end.\n$`
	run(0, restored, "restore", "store.backup")
	lose("broker")
	run(78, `(?m)^muster: store: the store has lost data: `, "provisioner", "run")
	lose("revocations.journal")
	run(0, restored, "restore", "store.backup")
	provisioner = start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	agent = start(t, dir, "server", "run", "--token-file", "two.jwt", "--ssl-dir", "web2", "--config", "web2/server.conf", "--identity", "web2.example.net")
	provisioner.waitFor("code=approval_pending")
	run(0, "approved", "node", "approve", "web2.example.net")
	provisioner.waitFor("code=token_frozen")
	run(0, `State: frozen`, "token", "show", "two.jwt")
	run(0, "may be used 1 more time", "token", "unfreeze", "two.jwt", "--left", "1", "--why", "counted them")
	run(0, `State: good`, "token", "show", "two.jwt")
	provisioner.waitFor("node provisioned")
	run(0, "the recovery is over", "recovery", "end", "--why", "all are back")
	run(2, "give --accept-loss", "recovery", "begin")
	run(1, "in use by another broker", "recovery", "begin", "--accept-loss")
	agent.stop()
	provisioner.stop()

	run(0, "nothing is known to be missing", "recovery", "begin", "--accept-loss", "--why", "to be sure")

	// If the output cannot be written, the error says that the order is done.
	lose("broker")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, tt := range []struct{ verb, says string }{
		{"restore store.backup -o json", "the store is restored"}, {"backup --verify store.backup", "store.backup is complete"},
	} {
		cmd := command(t, append(strings.Fields(tt.verb), config...)...)
		var said strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, full, &said
		_ = cmd.Run() // its status is looked at
		if want := "muster: " + tt.says + ", but the answer could not be written: write /dev/stdout: no space left on device\n"; cmd.ProcessState.ExitCode() != 1 || said.String() != want {
			t.Errorf("muster %s: exit %d: %s want %s", tt.verb, cmd.ProcessState.ExitCode(), said.String(), want)
		}
	}
}

// restoreWithoutPermission restores as a user that may not write into the store's directory. The error says to run the
// command as root or as the provisioner's user.
func restoreWithoutPermission(t *testing.T, dir string) {
	t.Helper()
	data := filepath.Join(dir, "prov/data")
	if err := os.Chmod(data, 0o500); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(data, 0o700) }() // other tests write there
	cmd := command(t, "restore", "store.backup", "--config", "prov/provisioner.yaml")
	if os.Geteuid() == 0 { // root may write everywhere
		testproc.Needs(t, "setpriv")
		cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
	}
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	want := "muster: store directory: mkdir prov/data/broker: permission denied: run this as root or as the provisioner's user\n"
	if cmd.ProcessState.ExitCode() != 1 || string(out) != want {
		t.Errorf("exit %d: %s, want %s", cmd.ProcessState.ExitCode(), out, want)
	}
}
