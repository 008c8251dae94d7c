package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/wire"
)

// TestNodeCommands has an operator command an agent, both processes, by name and
// by a file of names.
func TestNodeCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "t.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agent := start(t, dir, "server", "run", "--token", "t.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("connected to the fleet")
	config := filepath.Join(dir, "prov/provisioner.yaml")
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := command(t, append(args, "--config", config)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("muster %s: %v, %s; want it to fail with %q", strings.Join(args, " "), err, out, want)
		}
	}
	fails("name machines", "node", "restart")
	fails("no such node", "node", "restart", "web2.example.net")

	muster(t, dir, "node", "reprovision", "web1.example.net", "--why", "a test", "--config", "prov/provisioner.yaml")
	agent.waitFor("a command asks for it")
	agent.waitFor("(?s)connected to the fleet.*connected to the fleet")

	write(t, filepath.Join(dir, "names"), "# the web\nweb1.example.net\nweb2.example.net\n")
	file := filepath.Join(dir, "kept")
	fails("say --yes", "node", "restart", "--from", filepath.Join(dir, "names"), "--progress", file)
	fails("1 machine failed", "node", "restart", "--from", filepath.Join(dir, "names"), "--progress", file, "--yes")
	agent.waitFor("agent ends, to be started again")
	fails("1 machine failed", "node", "restart", "--resume", file, "--yes")
	b, err := os.ReadFile(file)
	if err != nil || strings.Count(string(b), "web1.example.net\n") != 1 {
		t.Errorf("progress = %s, %v; want web1 done once", b, err)
	}
	fails("is of `muster node restart`", "node", "shutdown", "--resume", file, "--yes")
}

// TestABatchGoesOnWhereItStopped stops at the limit on failures, and resumes.
func TestABatchGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	var nodes []target
	for _, name := range strings.Fields("a b c d e f") {
		nodes = append(nodes, target{Node: wire.Identity(name + ".example.net")})
	}
	b := batch{size: 2, pause: 1, maxFailures: 1, file: filepath.Join(t.TempDir(), "kept")}
	var mu sync.Mutex
	told := map[wire.Identity]int{}
	broken := map[wire.Identity]bool{"c.example.net": true, "d.example.net": true}
	one := func(_ context.Context, t target) error {
		mu.Lock()
		defer mu.Unlock()
		told[t.Node]++
		if broken[t.Node] {
			return errors.New("away")
		}
		return nil
	}
	r, err := b.run(t.Context(), &campaign{ID: wire.NewID(), Verb: "restart", Nodes: nodes}, one)
	if err == nil || r.Done != 2 || len(r.Failed) != 2 || r.Left != 2 {
		t.Fatalf("stopped with %+v, %v; want 2 done, 2 failed, 2 left", r, err)
	}
	broken = nil
	rest, err := readProgress(b.file, "restart")
	if err != nil {
		t.Fatal(err)
	}
	if rest.ID != r.ID {
		t.Error("resumed under another id: what was lost would be done twice")
	}
	if r, err = b.run(t.Context(), rest, one); err != nil || r.Done != 4 {
		t.Fatalf("resumed: %+v, %v", r, err)
	}
	if told["a.example.net"] != 1 || told["c.example.net"] != 2 || told["f.example.net"] != 1 {
		t.Errorf("told %v", told)
	}
	if _, err := os.Stat(b.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
