package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEventsCommand runs a provisioner and a node. `muster events` prints past events as lines and as CloudEvents,
// --follow prints new events at once, and an error names each wrong flag.
func TestEventsCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	follow := start(t, dir, append([]string{"events", "--follow", "--type", "token"}, config...)...)
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")
	muster(t, dir, append([]string{"token", "revoke", "t.jwt", "--why", "leaked it"}, config...)...)
	follow.waitFor(`why="leaked it"`)

	out := muster(t, dir, append([]string{"events", "--node", "web1.example.net", "--type", "node."}, config...)...)
	if !regexp.MustCompile(`(?m)\A20\S+Z  node\.enrolled +web1\.example\.net  reason=new  serial=[0-9a-f]+ .*\n20\S+Z  node\.provisioned .*\n\z`).MatchString(out) {
		t.Errorf("events:\n%s", out)
	}
	out = muster(t, dir, append([]string{"events", "-o", "jsonl", "--since", "1d", "--type", "io.muster.token.revoked"}, config...)...)
	var e struct {
		SpecVersion string
		Data        struct{ Why string }
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.SpecVersion != "1.0" || e.Data.Why != "leaked it" {
		t.Errorf("one event in JSON: %v: %s", err, out)
	}
	if out := muster(t, dir, append([]string{"events", "--by", "operator:"}, config...)...); out != "" {
		t.Errorf("orders of operators with a name of their own: %s", out)
	}
	for flag, wrong := range map[string]string{"--since": "soon", "--type": "nonsense", "--node": "web_1"} {
		cmd := command(t, "events", flag, wrong, "--config", filepath.Join(dir, "prov/provisioner.yaml"))
		if b, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(b), flag[2:]+": ") {
			t.Errorf("mistake in %s: %v: %s", flag, err, b)
		}
	}
	provisioner.stop()
	select {
	case <-follow.done:
	case <-time.After(patience):
		t.Fatal("muster events --follow does not end after the provisioner stopped")
	}
	if code := follow.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(follow.output(), "the provisioner has ended the stream") {
		t.Errorf("muster events --follow exits with %d after the provisioner stopped, want 1:\n%s", code, follow.output())
	}
}
