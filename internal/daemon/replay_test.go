package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/policies"
)

// recorded returns what the fleet's decisions saw, once there are n of them.
func recorded(t *testing.T, f *testbed.Fleet, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	f.Eventually("all decisions are recorded", func() bool {
		b.Reset()
		if err := f.Daemon().Inputs(f.Context(), time.Hour, func(uint64) {}, &b); err != nil {
			t.Fatal(err)
		}
		return strings.Count(b.String(), `"verdict":`) >= n
	})
	return b.Bytes()
}

// replayed returns what comes of a policy and a template over the recorded lines; ""
// is the fleet's own.
func replayed(t *testing.T, f *testbed.Fleet, lines []byte, policy, template string) *policies.ReplayReport {
	t.Helper()
	live, err := policies.Load(policies.Config{Paths: []string{filepath.Join(f.Dir, "policy")}, Cache: &compiled})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	next := live
	if policy != "" {
		if next, err = policies.Load(policies.Config{Paths: []string{put("next.rego", policy)}, Cache: &compiled}); err != nil {
			t.Fatal(err)
		}
	}
	was, err := daemon.FallbackOf(filepath.Join(f.Dir, "provisioner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	is := was
	if template != "" {
		if is, err = daemon.TemplateFallback(put("server.conf", template)); err != nil {
			t.Fatal(err)
		}
	}
	r := policies.NewReplay(policies.ReplayConfig{Next: next, Live: live, Was: was, Is: is})
	if _, err := r.Lines(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	return r.Report(true)
}

// nodeReplay leaves out of what is compared when it was, and how reasons are put.
var nodeReplay = cmpopts.IgnoreFields(policies.NodeReplay{}, "At", "Times", "Was", "Reasons")

// TestReplayFillsTemplates has a real provisioner fill a template, and tries another
// one, and a policy that configures some of the nodes itself, on what was recorded.
func TestReplayFillsTemplates(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: "identity = {{ .Identity }}\nrole = {{ .Facts.role }}\nbroker = {{ join .URLs \",\" }}\n"})
	got := map[string]map[string]string{}
	for name, facts := range map[string]map[string]any{
		"web1.example.net": {"role": "web"}, "db1.example.net": {"role": "db", "root_password": testbed.Fact}, "mail1.example.net": {"role": "mail"},
	} {
		n := f.Node(name)
		n.Facts = testbed.Facts(t, facts)
		got[name] = f.Enroll(n).Configuration
	}
	lines := recorded(t, f, 3)
	if r := replayed(t, f, lines, "", ""); r.Nodes != 3 || len(r.Differences) != 0 || r.Partial != 0 || len(r.Helped) != 0 {
		t.Errorf("what is in use comes to something else than it did: %+v", r)
	}
	// It is what they got: a policy that gives one of them just that changes nothing.
	same, err := json.Marshal(got["web1.example.net"])
	if err != nil {
		t.Fatal(err)
	}
	const allow = "package muster.enroll\n\nallow := true\n\ncertificate := {\"ttl\": \"720h\"}\n\n"
	if r := replayed(t, f, lines, allow+fmt.Sprintf("configuration := %s if input.facts.role == \"web\"\n", same), ""); len(r.Differences) != 0 {
		t.Errorf("a configuration as the template's: %+v", r.Differences[0])
	}

	r := replayed(t, f, lines, allow+`configuration := {"identity": input.identity, "role": "front"} if input.facts.role == "web"`+"\n", "")
	want := []*policies.NodeReplay{{
		Node: "web1.example.net", From: "allow", To: "allow", Configuration: true, WasBy: policies.ByTemplate, IsBy: policies.ByPolicy,
		Keys: []policies.KeyChange{
			{Key: "broker", What: "removed", Was: got["web1.example.net"]["broker"]}, {Key: "role", What: "changed", Was: "web", Is: "front"},
		},
	}}
	if diff := cmp.Diff(want, r.Differences, nodeReplay); diff != "" {
		t.Errorf("a policy in place of the template: -want +got\n%s", diff)
	}

	r = replayed(t, f, lines, "", `identity = {{ .Identity }}
role = {{ .Facts.role }}
broker = {{ join .URLs "," }}
{{ if eq .Facts.role "db" }}login = {{ .Facts.root_password }}{{ end }}
{{ if eq .Facts.role "mail" }}spool = {{ .Facts.spool }}{{ end }}
`)
	want = []*policies.NodeReplay{
		{
			Node: "db1.example.net", From: "allow", To: "allow", Configuration: true, WasBy: policies.ByTemplate, IsBy: policies.ByTemplate, Partial: true,
			Keys: []policies.KeyChange{{Key: "login", What: "added", Is: policies.Redacted}},
		},
		{Node: "mail1.example.net", From: "allow", To: policies.VerdictFailed, Flips: true},
	}
	if diff := cmp.Diff(want, r.Differences, nodeReplay); diff != "" {
		t.Errorf("another template: -want +got\n%s", diff)
	}
	if r.Partial != 1 || r.Flipped != 1 || r.Changed != 1 || !strings.Contains(strings.Join(r.Differences[1].Reasons, ""), `no entry for key "spool"`) {
		t.Errorf("another template: %+v, %q", r, r.Differences[1].Reasons)
	}
	f.Check()
}

// TestReplayRunsNoHelper has a real helper configure nodes, and counts how often it
// runs: a replay says of which nodes it did, and leaves it alone.
func TestReplayRunsNoHelper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran, script := filepath.Join(dir, "ran"), filepath.Join(dir, "helper.sh")
	if err := os.WriteFile(script, []byte("cat >/dev/null\necho x >>"+ran+"\n"+`echo '{"configuration":{"role":"web"}}'`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{})
	config, err := os.ReadFile(filepath.Join(f.Dir, "provisioner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	helped := strings.Replace(string(config), "  template: server.conf\n", "  helper: /bin/sh "+script+"\n", 1)
	if helped == string(config) {
		t.Fatal("provisioner.yaml has no template to replace")
	}
	f.Stop()
	f.Write("provisioner.yaml", helped)
	f.Start()
	for _, name := range []string{"web1.example.net", "web2.example.net"} {
		if got := f.Enroll(f.Node(name)).Configuration["role"]; got != "web" {
			t.Fatalf("role = %q, and the helper gives web", got)
		}
	}
	lines := recorded(t, f, 2)
	both := []string{"web1.example.net", "web2.example.net"}
	if r := replayed(t, f, lines, "", ""); len(r.Differences) != 0 || !cmp.Equal(r.Helped, both) {
		t.Errorf("helped %q, and %+v differ, want both helped and no difference known", r.Helped, r.Differences)
	}
	r := replayed(t, f, lines, `package muster.enroll

allow := true

certificate := {"ttl": "720h"}

configuration := {"role": "web"} if input.identity == "web1.example.net"
`, "")
	want := []*policies.NodeReplay{{Node: "web1.example.net", From: "allow", To: "allow", Configuration: true, WasBy: policies.ByHelper, IsBy: policies.ByPolicy}}
	if diff := cmp.Diff(want, r.Differences, nodeReplay); diff != "" || !cmp.Equal(r.Helped, both) {
		t.Errorf("a policy in place of the helper: helped %q, -want +got\n%s", r.Helped, diff)
	}
	b, err := os.ReadFile(ran)
	if err != nil || strings.Count(string(b), "x") != 2 {
		t.Errorf("the helper ran %d times (%v), want once for each node that enrolled", strings.Count(string(b), "x"), err)
	}
	f.Check()
}

// BenchmarkReplayTemplates replays recordings with 2 KB of facts under another
// template than the one in use, so that two are filled for each decision.
func BenchmarkReplayTemplates(b *testing.B) {
	live, err := policies.Load(policies.Config{Builtin: true})
	if err != nil {
		b.Fatal(err)
	}
	facts := map[string]string{"role": "web"}
	for i := range 50 {
		facts[fmt.Sprintf("fact_number_%d", i)] = strings.Repeat("v", 20)
	}
	text, err := json.Marshal(facts)
	if err != nil {
		b.Fatal(err)
	}
	in := &policies.Input{Identity: "web1.example.net", Facts: text, Time: time.Unix(1_700_000_000, 0), Allow: &policies.AllowEntry{Pattern: "web1.example.net"}}
	in.Node.Reason, in.Node.State = "new", "none"
	d, err := live.Decide(b.Context(), in)
	if err != nil || d.Verdict() != policies.VerdictAllow {
		b.Fatal(d, err)
	}
	line, err := policies.NewRecording(in, d, nil, live.Digest()).AppendLine(nil)
	if err != nil {
		b.Fatal(err)
	}
	lines := bytes.Repeat(line, 100)
	dir := b.TempDir()
	template := func(text string) *policies.Fallback {
		path := filepath.Join(dir, "server.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		f, err := daemon.TemplateFallback(path)
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	one, other := template("identity = {{ .Identity }}\nrole = {{ .Facts.role }}\nlevel = info\n"), template("identity = {{ .Identity }}\nrole = {{ .Facts.role }}\nlevel = debug\n")
	for name, is := range map[string]*policies.Fallback{"the same": one, "another": other} {
		b.Run(name, func(b *testing.B) {
			r := policies.NewReplay(policies.ReplayConfig{Next: live, Live: live, Was: one, Is: is})
			start := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := r.Lines(b.Context(), lines); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(cpu(b)-start)/float64(100*b.N)/1e3, "cpu-µs/decision")
		})
	}
}

// cpu returns the time that this process has spent on processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
