package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testdisk"
)

// TestNoSpace has verbs write to a disk that is full: each says which file it could not
// write, by the name that it was given, and once; and leaves nothing behind.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	prov := t.TempDir() + "/prov"
	if out, err := command(t, "provisioner", "init", prov, "--host", "localhost", "--trust-domain", "example.net", "--broker-urls", "tls://localhost:4222").CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	disk := testdisk.New(t, 8<<20)
	disk.Fill(0)
	before := list(t, disk.Dir)
	at := func(name string) string { return filepath.Join(disk.Dir, name) }
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"jwt", "sign", at("x.jwt"), prov + "/signer-key.pem", "--token", "a", "--srv", "example.net"}, at("x.jwt") + ": directory " + disk.Dir + ": no space left on device"},
		{[]string{"jwt", "sign", at("x.jwt"), prov + "/signer-key.pem", "--token", "a", "--srv", "example.net", "--force"}, at("x.jwt") + ": directory " + disk.Dir + ": no space left on device"},
		{[]string{"provisioner", "init", at("prov"), "--host", "localhost", "--trust-domain", "example.net"}, at("prov") + ": cannot be made: no space left on device"},
		{[]string{"broker", "config", "--config", prov + "/provisioner.yaml", "--host", "localhost", "--write", "--dir", at("n1")}, at("n1") + ": cannot be made: no space left on device"},
	} {
		cmd := command(t, tt.args...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix("\n"+string(out), "\nmuster: "+tt.says+"\n") {
			t.Errorf("muster %q: exit %d, want 1:\n%s want %s", tt.args, cmd.ProcessState.ExitCode(), out, tt.says)
		}
		if after := list(t, disk.Dir); after != before {
			t.Errorf("muster %q leaves %s, before were %s", tt.args, after, before)
		}
	}
}

// TestLostOutputIsReportedAfterTheWork writes the output of commands to a full disk. They do their work, say so on
// standard error, and exit with 1.
func TestLostOutputIsReportedAfterTheWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, tt := range []struct{ args, says string }{
		{"provisioner init prov --host localhost --trust-domain example.net --broker-urls tls://localhost:4222", "prov is ready"},
		{"ca roll --config prov/provisioner.yaml", dir + "/prov/ca-2 is ready"},
		{"broker config --config prov/provisioner.yaml --host localhost --write --dir " + dir + "/n1", dir + "/n1 is ready"},
	} {
		cmd := command(t, strings.Fields(tt.args)...)
		var said strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, full, &said
		_ = cmd.Run() // its status is looked at
		want := "muster: " + tt.says + ", but the answer could not be written: write /dev/stdout: no space left on device\n"
		if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(said.String(), want) {
			t.Errorf("muster %s: exit %d: %s want %s", tt.args, cmd.ProcessState.ExitCode(), said.String(), want)
		}
	}
	for _, made := range []string{"prov/ca-2/cross.pem", "n1/nats-server.conf"} {
		if _, err := os.Stat(filepath.Join(dir, made)); err != nil {
			t.Error(err)
		}
	}
}

// list returns the names in a directory.
func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
