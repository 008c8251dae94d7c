package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNodeQuestions asks about a machine that is let in, one that is refused, and
// an unknown node, with processes.
func TestNodeQuestions(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := command(t, append(args, config...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	want := func(args, pattern string, status int) {
		t.Helper()
		out, got := run(strings.Fields(args)...)
		if !regexp.MustCompile(`(?m)`+pattern).MatchString(out) || got != status {
			t.Errorf("muster %s: exit %d, want %d and %s:\n%s", args, got, status, pattern, out)
		}
	}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "web.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub", "--identity", "web*.example.net")
	want("node list", "no nodes match", 0)
	good := start(t, dir, "server", "run", "--token-file", "web.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")
	bad := start(t, dir, "server", "run", "--token-file", "web.jwt", "--ssl-dir", "db1", "--config", "db1/server.conf", "--identity", "db1.example.net")
	provisioner.waitFor("token_identity")

	// Lists follow the records within a second.
	for out := ""; !strings.Contains(out, " provisioned"); {
		out, _ = run("node", "list")
	}
	want("node list", `^NODE +STATE +SITE +EXPIRES `, 0)
	want("node list", `^web1\.example\.net  provisioned  -     in 29d   yes +\d+s ago +\d+s ago$`, 0)
	want("node list", `^muster: 1 node: 1 provisioned$`, 0)
	want("node list --prefix db", "no nodes match", 0)
	want("node list --expires-before 1y --match web*.example.net", `^web1`, 0)
	want("node list --expires-before 1d", "no nodes match", 0)
	want("node list --cursor x", `not a cursor of this list`, 1)
	var page struct {
		Nodes []struct{ Identity string }
		Total int
	}
	if out, _ := run("node", "list", "-o", "json", "--limit", "0"); json.Unmarshal([]byte(out), &page) != nil || page.Total != 1 || page.Nodes[0].Identity != "web1.example.net" {
		t.Errorf("JSON: %s", out)
	}
	want("node show web1.example.net", `^ +Admitted: new$`, 0)
	want("node show db1.example.net", `no such node.*node explain`, 1)
	want("node history web1.example.net", `^20\S+Z  issued +certificate [0-9a-f]+, until 20`, 0)
	want("node history web1.example.net", `^20\S+Z  applied +certificate [0-9a-f]+`, 0)
	want("node history db1.example.net", `^20\S+Z  refused +token_identity, `, 0)
	want("node explain web1.example.net", `^web1\.example\.net is provisioned\.$`, 0)
	want("node explain web1.example.net", `muster node pending --match web1\.example\.net --config \S+: if the machine was reinstalled`, 0)
	want("node explain db1.example.net", `^db1\.example\.net is not enrolled\.$`, 0)
	want("node explain db1.example.net", `sign a token whose --identity patterns cover`, 0)
	want("node explain web9.example.net", `no such node`, 1)
	want("node grant web1.example.net --expires 15m --fingerprint 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", `may be taken over by the node with the key 9f86d081884c7d65, until 20`, 0)
	want("node grant web1.example.net", `may be taken over by the next node that requests the name with a key of its own, until 20`, 0)
	want("pause --why "+strings.Repeat("a", 201), `\Amuster: the reason has 201 bytes, limit 200\n\z`, 1)

	// An order that was carried out stays so, even if its answer cannot be printed; the error says it.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{"pause -o json", "resume -o json", "allow add x.example.net -o json", "signer remove signer -o json", "signer add prov/signer.pem -o json", "operator add anna --role viewer --certificate -o json"} {
		cmd := command(t, append(strings.Fields(args), config...)...)
		var said strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, full, &said
		_ = cmd.Run() // its status is looked at
		if says := "muster: it is done, but the answer could not be written: write /dev/stdout: no space left on device\n"; cmd.ProcessState.ExitCode() != 1 || said.String() != says {
			t.Errorf("muster %s: exit %d: %s", args, cmd.ProcessState.ExitCode(), said.String())
		}
	}
	want("node revoke web9.example.net", `\Amuster: web9\.example\.net: revoke "web9\.example\.net": no such node has enrolled\n\z`, 1)
	good.stop()
	bad.stop()
	provisioner.stop()
	if out, _ := run("node", "list"); !strings.Contains(out, "no provisioner answers") {
		t.Errorf("%s: %s", filepath.Join(dir, "prov"), out)
	}
}
