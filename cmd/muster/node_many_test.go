package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/wire"
)

// TestVerbsOnManyMachines has an operator choose machines by filters, look at what
// would happen, and have it happen, with processes.
func TestVerbsOnManyMachines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agentOf := func(name string) *process {
		return start(t, dir, "server", "run", "--token", "t.jwt", "--ssl-dir", name, "--config", name+"/server.conf", "--identity", name+".example.net")
	}
	var agents []*process
	for _, name := range []string{"web1", "web2", "db1"} {
		agents = append(agents, agentOf(name))
	}
	for _, agent := range agents {
		agent.waitFor("connected to the fleet")
	}
	ask := func(wantExit int, args ...string) string {
		t.Helper()
		cmd := command(t, append(args, "--config", "prov/provisioner.yaml")...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != wantExit {
			t.Errorf("muster %s: exit %d, want %d:\n%s", strings.Join(args, " "), got, wantExit, out)
		}
		return string(out)
	}
	want := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("output lacks %s:\n%s", pattern, out)
		}
	}
	// The list follows the records, and those what is logged.
	for _, name := range []string{"web1", "web2", "db1"} {
		provisioner.waitFor("node provisioned.* node=" + name)
	}
	for !strings.Contains(ask(0, "node", "list", "--state", "provisioned"), "3 machines") {
	}

	want(ask(0, "node", "reprovision", "--match", "web*.example.net", "--dry-run"),
		`\Aweb1\.example\.net\nweb2\.example\.net\nmuster: would reprovision 2 machines \(2 provisioned\): web1\.example\.net, web2\.example\.net\n\z`)
	want(ask(0, "node", "reprovision", "--all", "--dry-run", "--json"), `"chosen": 3`)
	want(ask(2, "node", "reprovision", "--all"), `reprovision 3 machines \(3 provisioned\): .*No terminal to ask on: say --yes`)
	want(ask(2, "node", "reprovision", "web1.example.net", "--all"), `only one of them`)
	want(ask(2, "node", "revoke"), `name machines`)
	want(ask(2, "node", "retire", "--unseen", "yesterday"), `--unseen`)

	for _, verb := range []string{"reprovision", "reconfigure"} {
		var r struct {
			Verb         string
			Chosen, Done int
		}
		out := ask(0, "node", verb, "--all", "--wait", "--yes", "--json")
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Done != 3 || r.Chosen != 3 || r.Verb != verb {
			t.Errorf("%s: %s, %v; want 3 done", verb, out, err)
		}
	}
	for _, agent := range agents {
		agent.waitFor("a command asks for it")
	}
	// Another configuration is on record, confirmed, and in the history; what the
	// operator ordered, too.
	digest := func() string {
		t.Helper()
		var shown struct {
			Record struct{ Current struct{ Digest string } }
		}
		if err := json.Unmarshal([]byte(ask(0, "node", "show", "web1.example.net", "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		return shown.Record.Current.Digest
	}
	policy := func(text string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "prov/policy")), os.Mkdir(filepath.Join(dir, "prov/policy"), 0o755)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "prov/policy/enroll.rego"), "package muster.enroll\n\n"+text)
		ask(0, "policy", "reload")
	}
	before := digest()
	policy("default allow := true\n\nconfiguration := {\"generation\": \"two\"}\n")
	want(ask(0, "node", "reconfigure", "web1.example.net", "--wait", "--why", "the second generation"), `web1\.example\.net has confirmed its configuration`)
	after := digest()
	if after == before {
		t.Errorf("the record still has the configuration %s", before)
	}
	past := ask(0, "node", "history", "web1.example.net")
	want(past, `commanded +reconfigure, by \S+, why: the second generation\n`)
	want(past, `applied +certificate [0-9a-f]+, until \S+, configuration `+after[:16]+`\n`)
	want(past, `commanded +reprovision, by `)

	// Who may look does not learn what proves commands.
	key := wire.CommandKey("toomanysecrets", "web1.example.net")
	for _, args := range []string{"node show web1.example.net --json", "node history web1.example.net --json", "node explain web1.example.net --json",
		"node list --json", "events --json", "token list --json"} {
		out := ask(0, strings.Fields(args)...)
		for _, text := range []string{base64.StdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key), hex.EncodeToString(key), "toomanysecrets"} {
			if strings.Contains(out, text) || strings.Contains(provisioner.output(), text) {
				t.Errorf("muster %s, or the log, has the key of commands", args)
			}
		}
	}

	ask(0, "node", "restart", "--prefix", "db", "--yes")
	<-agents[2].done // with status 1, at which its unit starts it again
	agents[2] = agentOf("db1")
	agents[2].waitFor("connected to the fleet")
	// A bad change stops at the first machine: of that the operator hears, and no
	// other is begun.
	policy("default allow := false\n\ndeny contains \"no more of you\"\n")
	going := []string{"node", "reprovision", "--wait", "--batch", "1", "--max-failures", "0", "--yes"}
	out := ask(1, append(going, "--match", "web*.example.net", "--progress", "kept")...)
	want(out, `web1\.example\.net: it has taken the command, and was refused: denied: policy: no more of you`)
	want(out, `1 machine failed and 1 was not tried: go on with --resume kept`)
	want(ask(1, append(going, "--resume", "kept")...), `1 machine failed and 1 was not tried`)

	want(ask(0, "node", "retire", "--unseen", "30d"), `no machine fits`)
	// Who was heard of since they were chosen is left alone by who goes on, too.
	write(t, filepath.Join(dir, "unseen"), `{"id":"x","verb":"retire","nodes":["db1.example.net"],"seen_before":"2026-01-01T00:00:00Z"}`+"\n")
	want(ask(1, "node", "retire", "--resume", "unseen", "--yes"), `db1\.example\.net: not known to be away: it was heard of at .*\nmuster: 1 machine left alone\n`)
	if _, err := os.Stat(filepath.Join(dir, "unseen")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of what is left, where nothing is: %v", err)
	}
	want(ask(1, "node", "retire", "--resume", "unseen", "--yes"), `unseen: no such file: give the one that an order named when it ended; there is none of an order of which nothing is left\n`)
	// So is who has got the name since. A filter keeps who had it.
	write(t, filepath.Join(dir, "owned"), `{"id":"z","verb":"retire","nodes":["db1.example.net","never.example.net"],"seen":{"db1.example.net":{"owned_since":"2026-01-01T00:00:00Z"}}}`+"\n")
	out = ask(1, "node", "retire", "--resume", "owned", "--yes", "--max-failures", "0")
	want(out, `db1\.example\.net: .* changed since it was shown: another machine has the name since `)
	want(out, `never\.example\.net: .*no such node`)
	if out = ask(1, "node", "retire", "--resume", "owned", "--yes", "--json"); strings.Contains(out, "db1") { // for good
		t.Errorf("who was left alone is tried again:\n%s", out)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	want(string(kept), `"seen":\{"web1\.example\.net":\{"revision":\d+,"owned_since":"\d+-[^"]+Z"\},"web2`)
	want(ask(0, "node", "revoke", "--prefix", "web", "--yes", "--why", "sold"), `2 of 2 machines: each is revoked`)
	// Who was revoked since they were chosen is not freed by who goes on.
	write(t, filepath.Join(dir, "chosen"), `{"id":"y","verb":"retire","nodes":["web1.example.net"],"seen":{"web1.example.net":{"revision":1}}}`+"\n")
	want(ask(1, "node", "retire", "--resume", "chosen", "--yes", "--json"), `"left_alone": \[\s+{\s+"node": "web1\.example\.net",\s+"cause": ".*changed since it was shown`)
	for !strings.Contains(ask(0, "node", "list", "--state", "revoked"), "2 machines") {
	}
	want(ask(0, "node", "revoke", "--prefix", "web", "--dry-run"), `\Amuster: no machine fits: nothing to do\n\z`)
	want(ask(0, "node", "revoke", "--prefix", "web", "--dry-run", "--json"), `"chosen": 0,\s+"nodes": \[\]`)
	want(ask(0, "node", "retire", "--prefix", "web", "--dry-run"), `\Amuster: no machine fits: nothing to do\n\z`) // a thief's is free only for who means it
	want(ask(0, "node", "retire", "--state", "revoked", "--yes"), `2 of 2 machines: each is retired`)
	write(t, filepath.Join(dir, "names"), "db1.example.net\n# those of tomorrow\ndb2.example.net\n")
	want(ask(1, "node", "grant", "--from", "names", "--yes"), `db2\.example\.net: .*no such node`)
}
