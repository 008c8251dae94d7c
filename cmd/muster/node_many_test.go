package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agentOf := func(name string) *process {
		return start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", name, "--config", name+"/server.conf", "--identity", name+".example.net")
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
	for !strings.Contains(ask(0, "node", "list", "--state", "provisioned"), "3 nodes") {
	}

	want(ask(0, "node", "reprovision", "--match", "web*.example.net", "--dry-run"),
		`\Aweb1\.example\.net\nweb2\.example\.net\nmuster: would reprovision 2 nodes \(2 provisioned\): web1\.example\.net, web2\.example\.net\n\z`)
	want(ask(0, "node", "reprovision", "--all", "--dry-run", "-o", "json"), `"chosen": 3`)
	want(ask(0, "node", "revoke", "web*.example.net", "web1*.example.net", "db1.example.net", "--dry-run"),
		`\Adb1\.example\.net\nweb1\.example\.net\nweb2\.example\.net\nmuster: would revoke 3 nodes`)
	want(ask(2, "node", "revoke", "web*.example.net", "--all"), `names or patterns, and --all`)
	want(ask(0, "node", "list", "-o", "name", "--prefix", "web"), `\Aweb1\.example\.net\nweb2\.example\.net\n\z`)
	want(ask(0, "node", "list", "-o", "csv"), `\Anode,state,site,expires,connected,last_seen,changed,since,broker,protocol,token_id,policy,fault,facts\ndb1\.example\.net,provisioned,,20\S+Z,`)
	want(ask(0, "node", "list", "--utc"), `(?m)^db1\.example\.net +provisioned +- +20\S+Z +yes +20\S+Z +20\S+Z$`)
	want(ask(2, "node", "reprovision", "--all"), `reprovision 3 nodes \(3 provisioned\): .*No terminal to ask on: give --yes`)
	want(ask(2, "node", "reprovision", "web1.example.net", "--all"), `names or patterns, and --all: give one`)
	want(ask(2, "node", "revoke"), `no nodes: give names or patterns`)
	want(ask(2, "node", "retire", "--unseen", "yesterday"), `--unseen`)

	for _, verb := range []string{"reprovision", "reconfigure"} {
		var r struct {
			Verb         string
			Chosen, Done int
		}
		out := ask(0, "node", verb, "--all", "--wait", "--yes", "-o", "json")
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
		if err := json.Unmarshal([]byte(ask(0, "node", "show", "web1.example.net", "-o", "json")), &shown); err != nil {
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

	// A viewer does not learn the proof of commands.
	key := wire.CommandKey("toomanysecrets", "web1.example.net")
	for _, args := range []string{"node show web1.example.net -o json", "node history web1.example.net -o json", "node explain web1.example.net -o json",
		"node list -o json", "events -o json", "token list -o json"} {
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
	going := []string{"node", "reprovision", "--wait", "--concurrency", "1", "--max-failures", "0", "--yes"}
	out := ask(1, append(going, "--match", "web*.example.net")...)
	want(out, `web1\.example\.net: the node accepted the command, and was refused: denied: policy: no more of you`)
	want(out, `1 node failed\nmuster: 1 node was not tried: run this again\n`)
	want(ask(1, append(going, "--match", "web*.example.net", "-o", "json")...), `"left": \[\s+"web2\.example\.net"`)
	want(ask(1, "node", "retire", "--unseen", "30d"), `nodes were seen are kept only since`)

	want(ask(0, "node", "retire", "web1.example.net", "--why", "scrapped"), `web1\.example\.net is retired`)
	ask(0, "node", "revoke", "web2.example.net", "--why", "sold")
	want(ask(0, "node", "revoke", "web1.example.net", "db1.example.net", "--yes", "--dry-run"), `would revoke 2 nodes: `)
	want(ask(0, "node", "revoke", "--prefix", "web", "--dry-run"), `\Amuster: no nodes match: nothing to do\n\z`)
	want(ask(0, "node", "revoke", "--prefix", "web", "--dry-run", "-o", "json"), `"chosen": 0,\s+"nodes": \[\]`)
	want(ask(0, "node", "retire", "--prefix", "web", "--dry-run"), `\Amuster: no nodes match: nothing to do\n\z`) // a thief's is freed only if the operator names the state
	want(ask(0, "node", "retire", "--state", "revoked", "--yes"), `web2\.example\.net is retired`)
	want(ask(1, "node", "grant", "db1.example.net", "db2.example.net", "--yes"), `db2\.example\.net: .*no such node`)
}
