package demo_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/demo"
)

// The demo of `make demo`, with fewer nodes.
func TestDemoProvisionsAllNodes(t *testing.T) {
	t.Parallel()
	const nodes = 25
	dir := filepath.Join(t.TempDir(), "demo")
	r, err := demo.Run(t.Context(), demo.Config{Nodes: nodes, Dir: dir, Version: "test", Progress: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Missing) > 0 || r.Provisioned != nodes {
		t.Errorf("result = %+v", r)
	}
	for _, name := range []string{"private.pem", "certificate.pem", "ca.pem", "server.conf"} {
		if _, err := os.Stat(filepath.Join(r.Example, name)); err != nil {
			t.Error(err)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "agents.log"))
	if err != nil || len(log) == 0 {
		t.Errorf("agents.log: %d bytes, %v", len(log), err)
	}
}

func TestADirectoryInUseIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.Run(t.Context(), demo.Config{Nodes: 1, Dir: dir, Progress: quiet}); err == nil {
		t.Error("accepted")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestStaysUntilItIsEnded(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var place *demo.Place
	cfg := demo.Config{Nodes: demo.MinStay, Dir: filepath.Join(t.TempDir(), "demo"), Version: "test", Progress: quiet}
	if err := demo.Stay(ctx, cfg, func(p *demo.Place) { place = p; end() }); err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for _, p := range place.Parts {
		nodes += p.Nodes
		if p.Nodes < 1 {
			t.Errorf("no node is %s", p.Name)
		}
	}
	if nodes != demo.MinStay {
		t.Errorf("%d nodes, want %d", nodes, demo.MinStay)
	}
	for _, o := range place.Operators {
		for _, name := range []string{o.Credential, o.TokenFile} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
}

func quiet(string, int) (one, end func()) { return func() {}, func() {} }
