package metrics_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/testdoc"
	"muster/internal/testproc"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
	"muster/provisioner/services"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

const monitoring = "../../examples/monitoring"

// read returns a file of the monitoring example.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(monitoring, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// everything is a state that exports every metric.
func everything() metrics.State {
	return metrics.State{
		Stored:        &metrics.Stored{},
		Nodes:         &fleet.Summary{},
		Services:      &services.Counts{},
		AuthorityEnds: time.Now(),
		Webhooks:      []events.Webhook{{Name: "pager"}},
	}
}

// TestExamplesNameWhatIsExported compares the metrics of dashboard and rules with the exported ones.
func TestExamplesNameWhatIsExported(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1", everything)
	exported := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (muster_\w+) (\w+)$`).FindAllStringSubmatch(scrape(t, m), -1) {
		exported[line[1]] = true
		if line[2] == "histogram" {
			exported[line[1]+"_bucket"], exported[line[1]+"_count"] = true, true
		}
	}
	if len(exported) < 20 {
		t.Fatalf("exported %v", exported)
	}
	shown := map[string]bool{}
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		for _, name := range regexp.MustCompile(`\bmuster_\w+`).FindAllString(read(t, file), -1) {
			shown[name] = true
			if !exported[name] {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
	}
	for name := range exported {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if !shown[name] && !shown[base] && !shown[base+"_bucket"] {
			t.Errorf("%s is exported, and neither shown nor watched", name)
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d shows nothing", p.ID)
		}
	}
}

// TestRunbookHasEveryAlertAndAlarm finds a row for each in docs/runbook.md.
func TestRunbookHasEveryAlertAndAlarm(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1)
	if len(alerts) == 0 {
		t.Fatal("no alert")
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a[1])
	}
	for _, code := range events.AlarmCodes {
		names = append(names, string(code))
	}
	for _, name := range names {
		if !strings.Contains(string(doc), "\n| `"+name+"` |") {
			t.Errorf("docs/runbook.md does not say what to do about %s", name)
		}
	}
}

// TestMetricsAreDocumented compares docs/reference/metrics.md with the exported metrics.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text := scrape(t, metrics.New("v1", everything))
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	metric := regexp.MustCompile(`(?m)^# HELP (muster_\w+) (.*)\n# TYPE \w+ (\w+)\n\w+(?:{(.*)})?`)
	for _, m := range metric.FindAllStringSubmatch(text, -1) {
		labels := regexp.MustCompile(`(\w+)="[^"]*",?`).ReplaceAllString(m[4], "`$1` ")
		labels = strings.ReplaceAll(strings.TrimSpace(labels), " `le`", "")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m[1], m[3], labels, m[2])
	}
	testdoc.Generated(t, "../../docs/reference/metrics.md", *update, strings.ReplaceAll(b.String(), "|  |", "| |"))
}

// TestRulesPassPromtool has Prometheus' own tool check the rules, and every expression of the dashboard as a rule.
func TestRulesPassPromtool(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "promtool")
	promtool := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	promtool("check", "rules", "alerts.yml")
	var rules []any
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			rules = append(rules,
				map[string]any{"record": "panel:" + string(rune('a'+len(rules)%26)) +
					strings.Repeat("x", len(rules)/26),
					"expr": strings.NewReplacer("$__rate_interval", "5m").Replace(target.Expr)})
		}
	}
	// JSON is YAML.
	b, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool("check", "rules", path)
}
