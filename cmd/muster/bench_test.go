package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// bench runs `muster bench` in a process of its own, with few nodes, and
// returns what it says for programs.
func benchOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	cmd := command(t, append([]string{"bench", "--json", "--nodes", "40", "--concurrency", "8", "--token-key", "ed25519"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("bench %q: %v: %s", args, err, exit.Stderr)
		}
		t.Fatalf("bench %q: %v", args, err)
	}
	var r map[string]any
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}

// TestBench plays a few nodes in every way that there is: all of them get
// through, and everything that was started or made is gone.
func TestBench(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"as it is":             {},
		"shared, sealed":       {"--sealed"},
		"shared, TLS":          {"--tls"},
		"per node":             {"--connections", "per-node"},
		"per node, sealed":     {"--connections", "per-node", "--sealed"},
		"per node, TLS":        {"--connections", "per-node", "--tls"},
		"everything, sealed":   {"--connections", "per-node", "--tls", "--sealed", "--drivers", "2"},
		"limited token":        {"--uses", "40"},
		"large facts":          {"--facts-bytes", "20480"},
		"two drivers":          {"--drivers", "2"},
		"more drivers than is": {"--drivers", "9"},
		"open loop":            {"--rate", "40", "--duration", "1s", "--applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := benchOf(t, args...)
			for key, want := range map[string]float64{"nodes": 40, "enrolled": 40, "provisioned": 40, "refused": 0, "failed": 0, "broken": 0} {
				if got, ok := r[key].(float64); !ok || got != want {
					t.Errorf("%s is %v, want %v in %v", key, r[key], want, r)
				}
			}
			for _, key := range []string{"nodes_per_minute", "provisioned_per_minute", "p50_ms", "p99_ms", "p999_ms", "serving_cpu_us_per_node",
				"driver_cpu_us_per_node", "peak_memory_bytes", "fsync_p50_us"} {
				if got, ok := r[key].(float64); !ok || got <= 0 {
					t.Errorf("%s is %v, want more than 0", key, r[key])
				}
			}
		})
	}
}

// TestBenchLeavesNothing looks at the directory that it works in.
func TestBenchLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	benchOf(t, "--dir", dir)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBenchFails has a policy that nobody gets past: the exit status says so,
// and the first cause is named.
func TestBenchFails(t *testing.T) {
	t.Parallel()
	policy := t.TempDir() + "/deny.rego"
	text := "package muster.enroll\n\ndefault allow := false\n\ndeny contains \"nobody gets in\"\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "bench", "--nodes", "5", "--applied", "--token-key", "ed25519", "--policy", policy, "--json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("error %v, want exit status 1: %s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "5 nodes did not get through") || !strings.Contains(stderr.String(), "denied") {
		t.Errorf("says %q", stderr.String())
	}
	var r struct {
		Refused  int
		Refusals map[string]int
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Refused != 5 || r.Refusals["denied"] != 5 {
		t.Errorf("result %s, %v", out, err)
	}
}
