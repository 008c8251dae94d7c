package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/wire"
)

// benchOf runs `muster bench` in a process of its own, with few nodes, and
// returns what it says for programs.
func benchOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	cmd := command(t, append([]string{"bench", "-o", "json", "--nodes", "10", "--key-type", "ed25519"}, args...)...)
	temporary := t.TempDir()
	cmd.Env = append(cmd.Environ(), "TMPDIR="+temporary)
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
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	return r
}

// benchGotThrough checks that all nodes got through in what a bench says for programs, and what it has measured.
func benchGotThrough(t *testing.T, r map[string]any) {
	t.Helper()
	nodes, ok := r["nodes"].(float64)
	if !ok || nodes < 10 {
		t.Errorf("%v nodes, want 10 or more", r["nodes"])
	}
	for key, want := range map[string]float64{"enrolled": nodes, "provisioned": nodes, "refused": 0, "failed": 0, "broken": 0} {
		if got, ok := r[key].(float64); !ok || got != want {
			t.Errorf("%s is %v, want %v in %v", key, r[key], want, r)
		}
	}
	for _, key := range []string{"nodes_per_minute", "provisioned_per_minute", "p50_ms", "p99_ms", "p999_ms", "serving_cpu_us_per_node",
		"driver_cpu_us_per_node", "peak_memory_bytes"} {
		if got, ok := r[key].(float64); !ok || got <= 0 {
			t.Errorf("%s is %v, want more than 0", key, r[key])
		}
	}
}

// TestBench plays a few nodes in ways that no standard case has: all of them get through.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	for name, args := range map[string][]string{
		"shared, sealed, TLS": {"--sealed", "--tls"},
		"everything, sealed":  {"--connections", "per-node", "--tls", "--sealed"},
		"Choria, server JWTs": {"--choria", "--protocol-v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			benchGotThrough(t, benchOf(t, args...))
		})
	}
}

// TestBenchPuppet plays a few Puppet agents: each gets a certificate, does two runs and is in the list.
func TestBenchPuppet(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	for _, connections := range []string{"shared", "per-node"} {
		t.Run(connections, func(t *testing.T) {
			t.Parallel()
			r := benchOf(t, "--puppet", "--connections", connections)
			for key, want := range map[string]float64{"nodes": 10, "enrolled": 10, "provisioned": 10, "refused": 0, "failed": 0, "broken": 0} {
				if got, ok := r[key].(float64); !ok || got != want {
					t.Errorf("%s is %v, want %v in %v", key, r[key], want, r)
				}
			}
			figures, ok := r["puppet"].(map[string]any)
			if !ok || figures["runs"] != 10.0 || figures["statuses"] != 10.0 {
				t.Fatalf("figures %v, want 10 runs and 10 statuses", r["puppet"])
			}
			for key, got := range figures {
				if n, ok := got.(float64); !ok || n <= 0 {
					t.Errorf("%s is %v, want more than 0", key, got)
				}
			}
		})
	}
}

// TestBenchServices has a few connected nodes ask for service certificates: each gets all of them.
func TestBenchServices(t *testing.T) {
	t.Parallel()
	r := benchOf(t, "--service-certificates")
	for key, want := range map[string]float64{"nodes": 10, "enrolled": 10, "service_nodes": 10, "refused": 0, "failed": 0} {
		if got, ok := r[key].(float64); !ok || got != want {
			t.Errorf("%s is %v, want %v in %v", key, r[key], want, r)
		}
	}
}

// TestBenchKeys holds the names of what programs read.
func TestBenchKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	r := benchOf(t, "--no-applied")
	want := []string{
		"broken", "driver_cpu_us_per_node", "enrolled", "failed",
		"idle", "idle_memory_bytes", "nodes", "nodes_per_minute", "p50_ms", "p999_ms", "p99_ms", "peak_memory_bytes",
		"provisioned", "provisioned_per_minute", "refusals", "refused", "seconds", "serving_cpu_us_per_node",
		"start_memory_bytes", "start_ms", "stored", "unanswered", "why", "written_bytes_per_node",
	}
	if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	if r["provisioned"] != 0.0 || r["enrolled"] != 10.0 {
		t.Errorf("%v provisioned and %v enrolled of a wave that confirms nothing, want 0 and 10", r["provisioned"], r["enrolled"])
	}
}

// TestBenchInterrupted interrupts a bench with SIGINT and SIGHUP. It leaves neither files nor processes.
func TestBenchInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	for _, by := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			// A child process inherits ignored signals (nohup); handled signals are reset to their default.
			heard := make(chan os.Signal, 1)
			signal.Notify(heard, by)
			defer signal.Stop(heard)
			interruptBench(t, by)
		})
	}
}

// interruptBench ends a bench by a signal.
func interruptBench(t *testing.T, by syscall.Signal) {
	t.Helper()
	dir := t.TempDir()
	cmd := command(t, "bench", "--nodes", "1000000", "--key-type", "ed25519")
	cmd.Env = append(cmd.Environ(), "TMPDIR="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var started []string
	for deadline := time.Now().Add(time.Minute); len(started) < 1 && time.Now().Before(deadline); {
		var all []string
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, task := range tasks { // a child belongs to the thread that started it
			b, _ := os.ReadFile(task)
			all = append(all, strings.Fields(string(b))...)
		}
		started = all
		runtime.Gosched()
	}
	if len(started) < 1 {
		t.Fatalf("children %q, want a provisioner: %s", started, stderr.String())
	}
	if err := cmd.Process.Signal(by); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if says := "muster: interrupted\n"; !errors.As(err, &exit) || exit.ExitCode() != 1 || stderr.String() != says {
		t.Errorf("error %v, says %q, want status 1 and %q", err, stderr.String(), says)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, pid := range started {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s goes on", pid)
		}
	}
}

// TestBenchFails has a token for one node: the exit status says that the rest failed, and the first cause is named.
func TestBenchFails(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	cmd := command(t, "bench", "--nodes", "5", "--uses", "1", "--applied", "--key-type", "ed25519", "-o", "json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("error %v, want exit status 1: %s", err, stderr.String())
	}
	code := string(wire.CodeTokenUsedUp)
	if !strings.Contains(stderr.String(), "4 nodes failed, the first: ") || !strings.Contains(stderr.String(), code) {
		t.Errorf("says %q", stderr.String())
	}
	var r struct {
		Refused  int
		Refusals map[string]int
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Refused != 4 || r.Refusals[code] != 4 {
		t.Errorf("result %s, %v", out, err)
	}
}

// TestBenchCases runs all standard cases, small.
func TestBenchCases(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	self := filepath.Join(t.TempDir(), program)
	if err := os.Symlink(command(t).Path, self); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../../tools/bench.sh", "--key-type", "ed25519")
	cmd.Env = append(os.Environ(), "MUSTER="+self, "NODES=10", "STORED=20", "IDLE=10")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr.String())
	}
	var names []string
	for _, result := range strings.Split(strings.TrimSpace(string(out)), "\n\n") {
		name, figures, _ := strings.Cut(result, "\n")
		if names = append(names, name); !strings.Contains(figures, "every certificate checked") {
			t.Errorf("%s: %s", name, figures)
		}
	}
	want := []string{
		"shared connections", "open loop at 80 % of that rate", "20 records stored", "10 nodes connected", "20 KB of facts", "new TCP connections",
		"new TCP connections, sealed", "new TLS connections", "new TCP connections, limited token", "the same, two provisioners at a broker",
		"Choria servers",
	}
	if !slices.Equal(names, want) {
		t.Errorf("cases %q, want %q", names, want)
	}
}
