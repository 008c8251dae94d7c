package chaos_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// line is a row for the terminal.
func (r result) line() string {
	verdict := "ok  "
	switch {
	case r.failed:
		verdict = "FAIL"
	case r.late():
		verdict = "late"
	}
	return fmt.Sprintf("%s %-60s %6d nodes, first after %s, full rate after %s; %s", verdict, r.fault, r.nodes,
		rounded(r.first), r.rate(), r.seen)
}

// late reports whether a run at full size missed its goal for the full rate. A wave that ended before has missed it
// too.
func (r result) late() bool { return *full && r.within > 0 && (r.full == 0 || r.full > r.within) }

// rate returns the time until the full rate was back, and the goal.
func (r result) rate() string {
	switch {
	case !*full || r.within == 0:
		return rounded(r.full)
	case r.late():
		return fmt.Sprintf("**%s** (%.0f s)", rounded(r.full), r.within.Seconds())
	default:
		return fmt.Sprintf("%s (%.0f s)", rounded(r.full), r.within.Seconds())
	}
}

// rounded returns a duration for people; 0 is a dash.
func rounded(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// table returns the results in Markdown.
func table(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | nodes | provisioned | first node after | full rate after | the checker read "+
		"|\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		seen := r.seen
		if r.failed {
			seen = "**failed** " + seen
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s |\n", r.fault, r.nodes, r.provisioned, rounded(r.first),
			r.rate(), seen)
	}
	return b.String()
}

// Marks around the table in the documentation.
const (
	begins = "<!-- make chaos -->\n"
	ends   = "<!-- end of make chaos -->\n"
)

// report prints the table, and writes it to the documentation. A missed goal is written too, and fails the test.
func report(t *testing.T, results []result) {
	t.Helper()
	text := fmt.Sprintf("Seed %d, %d cores, %s.\n\n%s", *seed, runtime.NumCPU(),
		time.Now().UTC().Format(time.DateOnly), table(results))
	_, _ = fmt.Fprintf(os.Stderr, "\n%s\n", text)
	defer func() {
		for _, r := range results {
			if r.late() {
				t.Errorf("%s: the full rate was back after %s, to reach: %v", r.fault, rounded(r.full), r.within)
			}
		}
	}()
	if *doc == "" || t.Failed() {
		return
	}
	b, err := os.ReadFile(*doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatalf("%s: no place for the table, between %q and %q", *doc, begins, ends)
	}
	if err := os.WriteFile(*doc, []byte(before+begins+text+ends+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
