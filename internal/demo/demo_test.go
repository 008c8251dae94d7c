package demo_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"muster/internal/demo"
)

// TestDemo runs the demo as `make demo` does, with fewer nodes.
func TestDemo(t *testing.T) {
	t.Parallel()
	const nodes = 25
	dir := filepath.Join(t.TempDir(), "demo")
	r, err := demo.Run(t.Context(), demo.Config{Nodes: nodes, Dir: dir, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Missing) > 0 || r.Provisioned != nodes || r.Verified != nodes || r.Connected != nodes {
		t.Errorf("result = %+v", r)
	}
	if r.Refused != len(r.Refusals) || r.Refused < 5 {
		t.Errorf("refusals = %+v", r.Refusals)
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
	entries, err := os.ReadDir(filepath.Join(dir, "nodes"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if i := slices.IndexFunc(names, func(n string) bool { return n[0] == '.' && !slices.Contains(names, n[1:len(n)-len(filepath.Ext(n))]) }); i >= 0 {
		t.Errorf("nodes has %s", names[i])
	}
}

// TestADirectoryInUseIsLeftAlone gives a directory with something in it.
func TestADirectoryInUseIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.Run(t.Context(), demo.Config{Nodes: 1, Dir: dir}); err == nil {
		t.Error("accepted")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

// BenchmarkDemo is for profiles: go test -bench Demo -cpuprofile cpu.out
func BenchmarkDemo(b *testing.B) {
	for i := range b.N {
		r, err := demo.Run(b.Context(), demo.Config{Nodes: 500, Dir: filepath.Join(b.TempDir(), strconv.Itoa(i)), Version: "test"})
		if err != nil || len(r.Missing) > 0 {
			b.Fatal(err, r)
		}
		b.ReportMetric(r.NodesPerMinute, "nodes/min")
	}
}
