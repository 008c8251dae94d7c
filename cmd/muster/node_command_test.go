package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeCommands has an operator command an agent, both processes.
func TestNodeCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agent := start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("connected to the fleet")
	config := filepath.Join(dir, "prov/provisioner.yaml")
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := command(t, append(args, "--config", config)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("muster %s: %v, %s; want it to fail with %q", strings.Join(args, " "), err, out, want)
		}
	}
	fails("no nodes: give names or patterns", "node", "restart")
	fails("no such node", "node", "restart", "web2.example.net")

	muster(t, dir, "node", "reprovision", "web1.example.net", "--why", "a test", "--config", "prov/provisioner.yaml")
	agent.waitFor("a command asks for it")
	agent.waitFor("(?s)connected to the fleet.*connected to the fleet")

	fails("give --yes", "node", "restart", "web1.example.net", "web2.example.net")
	fails("1 node failed", "node", "restart", "web1.example.net", "web2.example.net", "--yes")
	agent.waitFor("agent stopped for a restart")
}
