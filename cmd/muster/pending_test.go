package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestPendingVerbs is what an operator does about machines that nobody knows,
// with processes: sees one wait, approves it, allows names for the next, and
// signs a token for the one after.
func TestPendingVerbs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	ask := func(args ...string) string { t.Helper(); return muster(t, dir, append(args, config...)...) }
	want := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)` + pattern).MatchString(out) {
			t.Errorf("output lacks %s:\n%s", pattern, out)
		}
	}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "any.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agent := start(t, dir, "server", "run", "--token", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("code=approval_pending")
	var pending struct {
		Waiting []struct {
			Key string `json:"key_hash"`
		} `json:"waiting"`
	}
	for len(pending.Waiting) == 0 { // written off the request's way
		if err := json.Unmarshal([]byte(ask("node", "pending", "--json")), &pending); err != nil {
			t.Fatal(err)
		}
	}
	want(ask("node", "pending"), `^web1\.example\.net  `+pending.Waiting[0].Key[:16]+`  approval_pending  20\S+Z  1 +127\.0\.0\.1 `)
	want(ask("node", "pending", "--details"), `Policy says: never seen before`)
	want(ask("node", "pending", "--prefix", "db"), `\A\z`)
	ask("node", "reject", "web1.example.net", "--why", "who is that")
	want(ask("node", "pending", "--rejected"), `^web1\.example\.net  [0-9a-f]{16}  20\S+Z  \S+ +who is that$`)
	ask("node", "forget", "web1.example.net", "--key", pending.Waiting[0].Key)
	agent.stop()
	agent = start(t, dir, "server", "run", "--token", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("code=approval_pending")
	for strings.TrimSpace(ask("node", "pending")) == "" {
	}
	ask("node", "approve", "--all", "--prefix", "web", "--yes", "--why", "rack 4")
	agent.stop()
	agent = start(t, dir, "server", "run", "--token", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")

	ask("allow", "add", "db*.example.net", "--expires", "2h", "--uses", "5", "--why", "rack 5")
	want(ask("allow", "list"), `^db\*\.example\.net  good +5 of 5 left  20\S+Z +20\S+Z +\S+ +rack 5$`)
	ask("allow", "remove", "db*.example.net")
	want(ask("allow", "list"), `\A\z`)

	token := ask("token", "issue", "web3.example.net", "--key", "prov/signer-key.pem", "--urls", "localhost:"+port, "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	want(token, `\AeyJ[\w.-]+\n\z`)
	want(ask("token", "list"), `^[0-9a-f]{32}  good +1 of 1 left  signer  web3\.example\.net  `)
	write(t, dir+"/web3.jwt", strings.TrimSpace(token))
	other := start(t, dir, "server", "run", "--token", "web3.jwt", "--ssl-dir", "web3", "--config", "web3/server.conf", "--identity", "web3.example.net")
	other.waitFor("node provisioned")
	want(ask("token", "list"), `^[0-9a-f]{32}  used up +0 of 1 left  signer  web3\.example\.net  `)

	for _, tt := range []struct{ args, status, says string }{
		{"node approve", "2", "no name"},
		{"node approve web9.example.net", "1", "nobody waits under this name"},
		{"node approve web9.example.net --all --ttl x", "2", "--all goes with neither"},
		{"allow add *", "2", "--i-know"},
		{"allow remove nosuch", "1", "no such entry"},
		{"token issue web* --key prov/signer-key.pem --ttl x", "2", "--ttl"},
	} {
		cmd := command(t, append(strings.Fields(tt.args), config...)...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.says) || cmd.ProcessState.ExitCode() != int(tt.status[0]-'0') {
			t.Errorf("muster %s: exit %d: %s, want %s and %q", tt.args, cmd.ProcessState.ExitCode(), out, tt.status, tt.says)
		}
	}
	agent.stop()
	other.stop()
	provisioner.stop()
	if out := provisioner.output() + agent.output() + other.output(); strings.Contains(out, "toomanysecrets") || strings.Contains(out, "eyJ") {
		t.Errorf("a secret in the log:\n%s", out)
	}
}
