package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMachinesByFact has an operator find machines by what they say of themselves, act
// on them, see that change, and keep another fact, with processes.
func TestMachinesByFact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	for name, facts := range map[string]string{
		"web1": `{"role":"web","os":{"name":"Debian","kernel":"6.12"},"root_password":"hunter2"}`, "db1": `{"role":"db","os":{"name":"Debian","kernel":"5.10"}}`,
	} {
		write(t, filepath.Join(dir, name+".json"), facts)
		agent := start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", name, "--config", name+"/server.conf", "--identity", name+".example.net", "--facts", name+".json")
		agent.waitFor("connected to the fleet")
	}
	ask := func(wantExit int, args string) string {
		t.Helper()
		cmd := command(t, append(strings.Fields(args), "--config", "prov/provisioner.yaml")...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != wantExit {
			t.Errorf("muster %s: exit %d, want %d:\n%s", args, got, wantExit, out)
		}
		return string(out)
	}
	want := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("output lacks %s:\n%s", pattern, out)
		}
	}
	// The list follows the records.
	for !strings.Contains(ask(0, "node list --state provisioned --fact os.name=Deb*"), "2 nodes") {
	}
	want(ask(0, "node list --fact role=web --fact os.name=Debian"), `(?s)web1\.example\.net.*1 node: 1 provisioned`)
	want(ask(0, "node list --fact role=web --fact os.name=Rocky"), `no nodes match`)
	want(ask(0, "node list --fact role=db -o json"), `"facts": \{\s+"os.name": "Debian",\s+"role": "db"\s+\}`)
	shown := ask(0, "node show web1.example.net")
	want(shown, `(?m)^ *Fact: os\.name = Debian$`)
	want(shown, `(?m)^ *Fact: role = web$`)
	want(ask(0, "node show db1.example.net -o json"), `"facts": \{\s+"os.name": "Debian",\s+"role": "db"\s+\}`)
	want(ask(1, "node list --fact os.kernel=6*"), `\A[^\n]*fact "os\.kernel": not kept: the kept facts are datacenter, environment, os\.name, [^\n]*fleet\.facts[^\n]*\n\z`)
	want(ask(1, "node revoke --fact root_password=hunter2 --yes"), `not kept`)
	want(ask(0, "node restart --fact role=db --dry-run"), `\Adb1\.example\.net\nmuster: would restart 1 node \(1 provisioned\)`)

	// A machine has another part to play, and says so when it is asked.
	write(t, filepath.Join(dir, "web1.json"), `{"role":"db","os":{"name":"Debian","kernel":"6.12"}}`)
	want(ask(0, "node reconfigure --fact role=web --wait --yes"), `(?m)^muster: \S+ has confirmed its configuration$`)
	for !strings.Contains(ask(0, "node list --fact role=db"), "2 nodes") {
	}

	// Another fact is kept from now on, of every machine once it is asked.
	config := filepath.Join(dir, "prov/provisioner.yaml")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, config, strings.Replace(string(b), "  # facts: [os.name, os.release.full,", "  facts: [os.kernel, os.release.full,", 1))
	provisioner.stop()
	provisioner = start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	want(ask(0, "node list --fact os.kernel=*"), `no nodes match`)
	want(ask(1, "node list --fact os.name=Debian"), `not kept`)
	for reconfigured := false; !reconfigured; { // they connect again
		cmd := command(t, "node", "reconfigure", "--fact", "os.kernel=", "--wait", "--yes", "--config", "prov/provisioner.yaml")
		cmd.Dir = dir
		reconfigured = cmd.Run() == nil
	}
	for !strings.Contains(ask(0, "node list --fact os.kernel=6.*"), "1 node:") {
	}
	want(ask(0, "node revoke --fact os.kernel=5.* --fact role=db --yes --why old"), `(?m)^muster: \S+ is revoked: `)
	if out := provisioner.output(); strings.Contains(out, "hunter2") {
		t.Errorf("a secret in the log:\n%s", out)
	}
}
