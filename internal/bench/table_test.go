package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteTable puts a page where the last one was, and nowhere else.
func TestWriteTable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	before := "# a\n\n" + tableBegins + "old\n" + tableEnds + "\nrest\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"new\n", "newer\n"} {
		if err := WriteTable(file, page); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if want := strings.Replace(before, "old\n", page, 1); err != nil || string(b) != want {
			t.Errorf("page is %q, %v, want %q", b, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(file, "x"); err == nil {
		t.Error("written into a page without a place for it")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "no place" {
		t.Errorf("page without a place is now %q, %v", b, err)
	}
}

// TestTheDocumentHasAPlace keeps `make bench` from measuring for forty minutes
// in vain.
func TestTheDocumentHasAPlace(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if i, j := strings.Index(string(b), tableBegins), strings.Index(string(b), tableEnds); i < 0 || j < i {
		t.Errorf("docs/performance.md has the table at %d to %d", i, j)
	}
}

func TestTableText(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 220_000: "220,000", 1_234_567.4: "1,234,567"} {
		if got := thousands(x); got != want {
			t.Errorf("thousands(%v) = %q, want %q", x, got, want)
		}
	}
	table := &Table{Stored: 2000, rounds: []map[string]*Result{
		{
			"shared": {NodesPerMinute: 1000, ProvisionedPerMinute: 500, ServingCPU: 600, PeakMemory: 3e6, Speed: Speed{Verify: 50, Read: 17, Page: 1.5, Syscall: 90}},
			"stored": {NodesPerMinute: 950, Stored: 2000, StartMS: 1500, EnrolledShare: []float64{95, 94.6}, ProvisionedShare: []float64{90, 91}},
			"open":   {P99: 80},
		},
		{
			"shared": {NodesPerMinute: 2000, ProvisionedPerMinute: 400, ServingCPU: 700, PeakMemory: 7e6},
			"stored": {NodesPerMinute: 1800, Stored: 2000, StartMS: 1000, EnrolledShare: []float64{90, 99}, ProvisionedShare: []float64{100, 92}},
			"open":   {P99: 120},
		},
		{
			"shared": {NodesPerMinute: 500, ProvisionedPerMinute: 800, ServingCPU: 500, PeakMemory: 5e6},
			"stored": {NodesPerMinute: 400, Stored: 2000, StartMS: 900, EnrolledShare: []float64{80, 70}, ProvisionedShare: []float64{50, 93}},
			"open":   {P99: 90},
		},
	}}
	cases := table.cases()
	for _, want := range []string{
		"| shared connections, plain | 1,000 (220,000) | 500 (140,000) | 600 µs (550 µs) |", "| 7 MB |", "| shared connections, 2,000 records stored | 950 |",
	} {
		if !strings.Contains(cases, want) {
			t.Errorf("no %q in\n%s", want, cases)
		}
	}
	if speeds, want := table.speeds(), "signature 0 (0 to 50) µs, a read in 8 MB 0 (0 to 17) ns, a new page 0.0 (0.0 to 1.5) µs, a system call 0 (0 to 90) ns."; !strings.Contains(speeds, want) {
		t.Errorf("no %q in %q", want, speeds)
	}
	if speeds := (&Table{rounds: []map[string]*Result{{}}}).speeds(); speeds != "" {
		t.Errorf("without a row: %q", speeds)
	}
	goals := table.goals()
	for _, want := range []string{
		"p99 | 90 ms (80, 120, 90) |", "| start with 2,000 records | 1.5 s |", "enrolled | 90 % (95, 95, 90, 99, 80, 70) |", "| provisioned | 91 % (90, 91, 100, 92, 50, 93) |",
	} {
		if !strings.Contains(goals, want) {
			t.Errorf("no %q in\n%s", want, goals)
		}
	}
	table.rounds = table.rounds[:1]
	if goals := table.goals(); !strings.Contains(goals, "p99 | 80 ms |") {
		t.Errorf("one round\n%s", goals)
	}
	if err := table.Check(); err == nil || !strings.Contains(err.Error(), "--rounds is 0") {
		t.Errorf("no rounds at all: %v", err)
	}
}

// TestQuantiles takes the nearest rank.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	all := make([]uint32, 1000)
	for i := range all {
		all[len(all)-1-i] = uint32(i+1) * 1000
	}
	if p50, p99, p999 := milliseconds(decodeLatencies(encodeLatencies(all))); p50 != 500 || p99 != 990 || p999 != 999 {
		t.Errorf("p50 %v, p99 %v, p99.9 %v, want 500, 990, 999", p50, p99, p999)
	}
	if p50, _, _ := milliseconds(nil); p50 != 0 {
		t.Errorf("p50 of nothing is %v", p50)
	}
}
