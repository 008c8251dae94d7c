package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPauseAndResume pauses with processes: an agent is told so, and why stands
// where operators look.
func TestPauseAndResume(t *testing.T) {
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
	muster(t, dir, append([]string{"pause", "--why", "helper is down"}, config...)...)
	provisioner.waitFor("alarm raised")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agent := start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("enrollment_paused")
	provisioner.waitFor("code=enrollment_paused")
	for _, tt := range []struct{ says, args string }{
		{"not paused", "resume --site ams1"},
		{"--site", "pause --site a/b"},
	} {
		b, err := command(t, append(strings.Fields(tt.args), "--config", filepath.Join(dir, "prov/provisioner.yaml"))...).CombinedOutput()
		if err == nil || !strings.Contains(string(b), tt.says) {
			t.Errorf("%s: %v: %s, want %q", tt.args, err, b, tt.says)
		}
	}
	b, err := command(t, "status", "--check", "--config", filepath.Join(dir, "prov/provisioner.yaml")).CombinedOutput()
	if err == nil || !strings.Contains(string(b), "helper is down") || !strings.Contains(string(b), "1 enrollment_paused") {
		t.Errorf("status --check: %v: %s", err, b)
	}
	muster(t, dir, append([]string{"status"}, config...)...)
	if out := muster(t, dir, append([]string{"resume", "-o", "json"}, config...)...); !strings.Contains(out, `"pauses": []`) {
		t.Errorf("resumed: %s", out)
	}
	provisioner.waitFor("alarm cleared")
}
