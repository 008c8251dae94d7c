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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchOf runs `muster bench` in a process of its own, with few nodes, and
// returns what it says for programs.
func benchOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
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
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
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
		"records before":       {"--stored", "50", "--applied"},
		"external broker":      {"--provisioners", "2", "--connections", "per-node"},
		"a fleet beside":       {"--idle", "20", "--applied"},
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
				"driver_cpu_us_per_node", "peak_memory_bytes", "fsync_p50_us", "machine_verify_us", "machine_read_ns", "machine_page_us", "machine_syscall_ns"} {
				if got, ok := r[key].(float64); !ok || got <= 0 {
					t.Errorf("%s is %v, want more than 0", key, r[key])
				}
			}
			shares, _ := r["provisioned_share_percent"].([]any)
			if stored := slices.Contains(args, "--stored"); stored != (len(shares) > 0) || slices.Contains(shares, any(0.0)) {
				t.Errorf("shares of the rate when empty are %v", shares)
			}
		})
	}
}

// TestBenchKicks sends a small fleet, played by two drivers, back to be provisioned
// again by one command.
func TestBenchKicks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	for name, tt := range map[string]struct {
		nodes int
		args  []string
	}{
		"shared": {300, nil}, "per node, sealed": {300, []string{"--connections", "per-node", "--sealed"}},
		"there before it is listed": {20, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := command(t, append([]string{"bench", "--json", "--kick", strconv.Itoa(tt.nodes), "--drivers", "2", "--token-key", "ed25519", "--dir", dir}, tt.args...)...).Output()
			if err != nil {
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					err = fmt.Errorf("%w: %s", err, exit.Stderr)
				}
				t.Fatal(err)
			}
			var r struct {
				Kick struct {
					Nodes, Provisioned int
					Seconds            float64
					InFleet            float64 `json:"in_fleet_seconds"`
				}
				Failed, Refused int
			}
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if r.Kick.Nodes != tt.nodes || r.Kick.Provisioned != tt.nodes || r.Kick.Seconds <= 0 || r.Kick.InFleet <= 0 || r.Failed+r.Refused != 0 {
				t.Errorf("%s, want %d provisioned again and in the fleet", out, tt.nodes)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestBenchKeys holds the names of what programs read.
func TestBenchKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	r := benchOf(t, "--dir", dir, "--no-applied")
	want := []string{"broken", "crossed", "driver_cpu_us_per_node", "drivers", "durable_writes_per_node", "enrolled", "enrolled_share_percent", "failed", "fsync_p50_us", "idle", "idle_memory_bytes",
		"listed_ms", "machine_page_us", "machine_read_ns", "machine_syscall_ns", "machine_verify_us", "nodes", "nodes_per_minute", "p50_ms", "p999_ms", "p99_ms", "peak_memory_bytes", "provisioned", "provisioned_per_minute", "provisioned_share_percent", "refusals", "refused",
		"seconds", "serving_cpu_us_per_node", "start_memory_bytes", "start_ms", "stored", "unanswered", "why", "written_bytes_per_node"}
	if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	if r["provisioned"] != 0.0 || r["enrolled"] != 40.0 {
		t.Errorf("%v provisioned and %v enrolled of a wave that confirms nothing, want 0 and 40", r["provisioned"], r["enrolled"])
	}
	if writes, _ := r["durable_writes_per_node"].(float64); writes < 1 || writes > 2 {
		t.Errorf("%v synced writes for a node that enrolled, want one and a few of the installation's own", writes)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBenchInterrupted ends a bench in the middle of it, as Ctrl-C does, or a
// terminal that is closed: it leaves neither files nor processes.
func TestBenchInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	for _, by := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			// What a process ignores, as under nohup, whom it starts ignores as well; what it
			// listens for is the default there.
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
	cmd := command(t, "bench", "--nodes", "1000000", "--token-key", "ed25519", "--dir", dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var started []string
	for deadline := time.Now().Add(time.Minute); len(started) < 2 && time.Now().Before(deadline); {
		var all []string
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, task := range tasks { // a child belongs to the thread that started it
			b, _ := os.ReadFile(task)
			all = append(all, strings.Fields(string(b))...)
		}
		started = all
		runtime.Gosched()
	}
	if len(started) < 2 {
		t.Fatalf("children %q, want a provisioner and a driver: %s", started, stderr.String())
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

// TestBenchFails has a policy that nobody gets past: the exit status says so,
// and the first cause is named.
func TestBenchFails(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
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

// TestBenchTable runs every row that needs no other build, small and in one round, and
// writes the page.
func TestBenchTable(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	doc := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(doc, []byte("# page\n<!-- make bench -->\n<!-- end of make bench -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "bench-table", "--rounds", "1", "--nodes", "30", "--stored", "20", "--idle", "10", "--doc", doc)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"shared connections, plain", "new TCP connection per node, plain", "new TCP connection per node, sealed", "new TLS connection per node",
		"new TCP connection, limited token", "external broker with auth callout, two provisioners, new TCP connections", "shared connections, 20 KB of facts", "shared connections, 20 records stored",
		"shared connections, 10 nodes connected over mutual TLS", "shared connections, open loop at 80 % of the peak"} {
		if !strings.Contains(string(b), "\n| "+row+" | ") {
			t.Errorf("no row %q in\n%s", row, b)
		}
	}
	// Of two turns.
	if share := regexp.MustCompile(`\n\| rate with them, of that when empty: enrolled \| \d+ % \(\d+, \d+\) \|`); !share.Match(b) {
		t.Errorf("no line %v in\n%s", share, b)
	}
}

// TestBenchElsewhere drives a provisioner that runs already.
func TestBenchElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "bench.muster", "--listen", "127.0.0.1:"+port, "--trust-first-use")
	muster(t, dir, "jwt", "provisioning.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port)
	p := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	p.waitFor("provisioner is serving")
	cmd := command(t, "bench", "--json", "--nodes", "20", "--url", "nats://localhost:"+port, "--token", filepath.Join(dir, "provisioning.jwt"),
		"--pid", strconv.Itoa(p.cmd.Process.Pid))
	out, err := cmd.Output()
	var r struct {
		Provisioned int
		CPU         float64 `json:"serving_cpu_us_per_node"`
		Peak        int64   `json:"peak_memory_bytes"`
	}
	if jerr := json.Unmarshal(out, &r); err != nil || jerr != nil || r.Provisioned != 20 || r.CPU <= 0 || r.Peak <= 0 {
		t.Errorf("result %s, %v, %v", out, err, jerr)
	}
	p.stop()
	gone := command(t, "bench", "--nodes", "20", "--url", "nats://localhost:"+port, "--token", filepath.Join(dir, "provisioning.jwt"), "--pid", strconv.Itoa(os.Getpid()))
	if out, err := gone.CombinedOutput(); err == nil || gone.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "--url: no broker is there") {
		t.Errorf("a broker that is gone: %v: %s", err, out)
	}
}
