package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestPendingVerbs is what an operator does about unknown nodes,
// with processes: sees one wait, approves it, allows names for the next, and
// signs a token for the one after.
func TestPendingVerbs(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port)
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
	agent := start(t, dir, "server", "run", "--token-file", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("code=approval_pending")
	var pending struct {
		Waiting []struct {
			Key string `json:"key_hash"`
		} `json:"waiting"`
	}
	for len(pending.Waiting) == 0 { // written off the request's way
		if err := json.Unmarshal([]byte(ask("node", "pending", "-o", "json")), &pending); err != nil {
			t.Fatal(err)
		}
	}
	want(ask("node", "pending"), `^web1\.example\.net  `+pending.Waiting[0].Key[:16]+`  approval_pending  waiting  \d+s ago  \d+ +\d+s ago +127\.0\.0\.1 `)
	want(ask("node", "pending", "-o", "wide"), ` never seen before`)
	want(ask("node", "pending", "--prefix", "db"), `\A\z`)
	ask("node", "reject", "web1.example.net", "--why", "who is that")
	want(ask("node", "pending", "--rejected"), `^web1\.example\.net  [0-9a-f]{16}  \d+s ago +\S+ +who is that$`)
	for _, order := range [][]string{{"node", "approve", "web1.example.net"}, {"node", "forget", "web1.example.net", "--fingerprint", "0123456789abcdef"}} {
		refuses := command(t, append(order, config...)...)
		refuses.Dir = dir
		if out, _ := refuses.CombinedOutput(); refuses.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "was rejected: to choose it, add --fingerprint "+pending.Waiting[0].Key[:16]) {
			t.Errorf("%v, of a name of which a key was rejected: exit %d: %s", order, refuses.ProcessState.ExitCode(), out)
		}
	}
	ask("node", "forget", "web1.example.net") // the only key of it that was rejected
	agent.stop()
	agent = start(t, dir, "server", "run", "--token-file", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("code=approval_pending")
	for strings.TrimSpace(ask("node", "pending")) == "" {
	}
	for filter, meant := range map[string]bool{
		"--match web*.example.net --address 127.0.0.0/8": true, "--match db*.example.net": false, "--address 192.0.2.0/24": false, "--fact nosuch=*": false,
	} {
		if out := ask(append([]string{"node", "pending"}, strings.Fields(filter)...)...); strings.Contains(out, "web1.example.net") != meant {
			t.Errorf("node pending %s:\n%s", filter, out)
		}
	}
	cmd := command(t, append([]string{"node", "approve", "--match", "web*.example.net"}, config...)...)
	cmd.Dir = dir
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !regexp.MustCompile(`(?ms)^web1\.example\.net .*^muster: approve 1 node: web1\.example\.net\? No terminal to ask on: give --yes$`).Match(out) {
		t.Errorf("approve by filter without --yes: exit %d:\n%s", cmd.ProcessState.ExitCode(), out)
	}
	var approved struct {
		Verb string
		Done int
	}
	if err := json.Unmarshal([]byte(ask("node", "approve", "--match", "web*.example.net", "--address", "127.0.0.1", "--yes", "-o", "json", "--why", "rack 4")), &approved); err != nil ||
		approved.Verb != "approve" || approved.Done != 1 {
		t.Errorf("approved %+v, %v", approved, err)
	}
	agent.stop()
	agent = start(t, dir, "server", "run", "--token-file", "any.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")

	ask("allow", "add", "db*.example.net", "--expires", "2h", "--why", "rack 5")
	want(ask("allow", "list"), `^db\*\.example\.net  good +in \d+m +needed +- +\d+s ago +\S+ +rack 5$`)
	ask("allow", "remove", "db*.example.net")
	want(ask("allow", "list"), `\A\z`)

	muster(t, dir, "jwt", "web3.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub", "--uses", "1", "--identity", "web3.example.net")
	other := start(t, dir, "server", "run", "--token-file", "web3.jwt", "--ssl-dir", "web3", "--config", "web3/server.conf", "--identity", "web3.example.net")
	other.waitFor("node provisioned")
	want(ask("token", "list"), `^[0-9a-f]{32}  used up +0 of 1 left  signer  web3\.example\.net  `)

	for _, tt := range []struct{ args, status, says string }{
		{"node approve", "2", "no nodes: give names"},
		{"node approve web9.example.net", "1", "no key waits for this name"},
		{"node approve web9.example.net --all", "2", "and --all: give one or the other"},
		{"node approve web9.example.net --prefix web", "2", "give one or the other"},
		{"node approve web9.example.net --expires 0s", "2", `--expires is "0s", want 1m to 7d`},
		{"node approve web9.example.net --expires 8d", "2", `--expires is "8d", want 1m to 7d`},
		{"node approve web_9.example.net", "2", "not a valid identity"},
		{"node approve web9.example.net --fingerprint abc", "2", "want 8 to 64 lower-case hex digits"},
		{"node approve --address rack4 --fact x", "2", "NAME=VALUE"},
		{"node approve --match nobody*.example.net --yes", "0", "no nodes match: nothing to do"},
		{"node reject web9.example.net", "1", "no key waits for this name"},
		{"node pending --prefix nobody", "0", "no pending nodes match"},
		{"node grant web9.example.net --fingerprint zz --why x", "2", "want 8 to 64 lower-case hex digits"},
		{"node reconfigure web1.example.net --token-file /dev/null", "1", "--token-file: /dev/null: empty"},
		{"node reconfigure web1.example.net --token-file prov/ca/root.pem", "1", "--token-file: prov/ca/root.pem: PEM, not a token\n"},
		{"node reconfigure web1.example.net --token-file prov/seal.pub", "1", "muster: --token-file: prov/seal.pub: malformed token: "},
		{"node reconfigure web1.example.net --token-file /dev/zero", "1", "more than 1048576 bytes, the limit"},
		{"operator add anna --role admin --public-key /dev/zero", "1", "--public-key: /dev/zero: more than 1048576 bytes, the limit"},
		{"backup - --why x", "2", "is -, which is no file here"},
		{"restore -", "2", "is -, which is no file here"},
		{"broker config --host n1 --leaf-listen 0.0.0.0:7422", "2", "--leaf-listen without --leaf"},
		{"node pending --token-id eyJh", "2", "--token-id: "},
		{"allow add db*.example.net --expires 0s", "2", "want 1s to 100y"},
		{"allow add db*.example.net --expires -1h", "2", "--expires"},
		{"allow add db_*.example.net", "2", "not a valid identity pattern"},
		{"allow add **.*", "2", "--any-name"},
		{"allow add *", "2", "--any-name"},
		{"allow remove nosuch", "1", "no such entry"},
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
	noSecrets(t, provisioner, agent, other)
}
