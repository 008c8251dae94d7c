package policies_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/policies"
)

const livePolicy = `default allow := false
allow if input.facts.role in {"web", "db"}
configuration := {"role": input.facts.role, "db_password": "hunter2", "old": "x"}`

// record has a policy decide about a node with a role, and returns the line that
// is kept of it.
func record(t testing.TB, e *policies.Engine, node, role string, at time.Time) []byte {
	t.Helper()
	in := stranger()
	in.Identity, in.Time = node, at
	in.Facts = fmt.Appendf(nil, `{"role":%q,"rack":4}`, role)
	d, err := e.Decide(t.Context(), in)
	b, merr := json.Marshal(policies.NewRecording(in, d, err, e.Digest()))
	if merr != nil {
		t.Fatal(merr)
	}
	return append(b, '\n')
}

// TestReplaySaysWhoFlips tries a policy on what another one decided.
func TestReplaySaysWhoFlips(t *testing.T) {
	t.Parallel()
	live := load(t, livePolicy)
	next := load(t, `default allow := false
allow if input.facts.role in {"web", "mail"}
deny contains "rack 4 is closed" if { input.facts.rack == 4; input.facts.role == "db" }
configuration := {"role": upper(input.facts.role), "db_password": "hunter3", "new": "y"}
certificate := {"ttl": "1h"}`)
	var lines []byte
	lines = append(lines, record(t, live, "web1.example.net", "web", noon)...)
	lines = append(lines, '\n')
	lines = append(lines, record(t, live, "web1.example.net", "web", noon.Add(time.Hour))...)
	lines = append(lines, record(t, live, "db1.example.net", "db", noon)...)
	lines = append(lines, record(t, live, "mail1.example.net", "mail", noon)...)
	lines = append(lines, record(t, live, "x.example.net", "x", noon)...)
	r := policies.NewReplay(policies.ReplayConfig{Next: next, Live: live})
	if n, err := r.Lines(t.Context(), lines); n != 5 || err != nil {
		t.Fatalf("Lines = %d, %v", n, err)
	}
	want := &policies.ReplayReport{
		Policy: next.Digest(), Decisions: 5, Nodes: 4, Flipped: 2, Changed: 1, Helped: []string{},
		Differences: []*policies.NodeReplay{
			{Node: "db1.example.net", At: noon, Times: 1, Flips: true, From: "allow", To: "deny", Reasons: []string{"rack 4 is closed"}},
			{Node: "mail1.example.net", At: noon, Times: 1, Flips: true, From: "deny", To: "allow", Was: []string{"no rule allows it"}},
			{
				Node: "web1.example.net", At: noon.Add(time.Hour), Times: 2, From: "allow", To: "allow", Configuration: true, Certificate: []string{"ttl"},
				Keys: []policies.KeyChange{
					{Key: "db_password", What: "changed", Was: policies.Redacted, Is: policies.Redacted},
					{Key: "new", What: "added", Is: "y"}, {Key: "old", What: "removed", Was: "x"}, {Key: "role", What: "changed", Was: "web", Is: "WEB"},
				},
			},
		},
	}
	if diff := cmp.Diff(want, r.Report(true)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	b, err := json.Marshal(r.Report(false))
	if err != nil || bytes.Contains(b, []byte("WEB")) || bytes.Contains(b, []byte("hunter")) || !bytes.Contains(b, []byte(`"key":"role"`)) {
		t.Errorf("without values: %s, %v", b, err)
	}

	same := policies.NewReplay(policies.ReplayConfig{Next: live, Live: live})
	if _, err := same.Lines(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	if got := same.Report(true); got.Flipped != 0 || got.Changed != 0 || len(got.Differences) != 0 || got.Nodes != 4 {
		t.Errorf("the same policy: %+v", got)
	}
	if _, err := same.Lines(t.Context(), []byte("{}\n")); err == nil {
		t.Error("a line without an input is taken")
	}

	// Whose keys were is known only of the policy that decided.
	other := policies.NewReplay(policies.ReplayConfig{Next: next, Live: next})
	if _, err := other.Lines(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	if d := other.Report(true).Differences; len(d) != 3 || d[2].Keys != nil || !d[2].Configuration {
		t.Errorf("without the policy that decided: %+v", d)
	}
}

// TestReplayOfAFailingPolicy: a policy that gives no decision is one more way to
// refuse, and says why.
func TestReplayOfAFailingPolicy(t *testing.T) {
	t.Parallel()
	live, next := load(t, livePolicy), load(t, `allow := to_number(input.facts.role) == 1`)
	r := policies.NewReplay(policies.ReplayConfig{Next: next, Live: live})
	if _, err := r.Lines(t.Context(), record(t, live, "web1.example.net", "web", noon)); err != nil {
		t.Fatal(err)
	}
	got := r.Report(false)
	if got.Failed != 1 || got.Flipped != 1 || got.Differences[0].To != policies.VerdictFailed || !strings.Contains(got.Differences[0].Reasons[0], "to_number") {
		t.Errorf("report = %+v", got)
	}
}

// BenchmarkReplay replays recordings with 2 KB of facts, all of the machine's
// cores at it: what counts is decisions a second.
func BenchmarkReplay(b *testing.B) {
	live, err := policies.Load(policies.Config{Builtin: true})
	if err != nil {
		b.Fatal(err)
	}
	in := stranger()
	in.Facts = factsOf(2 << 10)
	d, err := live.Decide(b.Context(), in)
	line, merr := json.Marshal(policies.NewRecording(in, d, err, live.Digest()))
	if merr != nil {
		b.Fatal(merr)
	}
	batch := bytes.Repeat(append(line, '\n'), 100)
	r := policies.NewReplay(policies.ReplayConfig{Next: live, Live: live})
	start := cpu(b)
	b.ResetTimer()
	batches := make(chan struct{})
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for range batches {
				if _, err := r.Lines(b.Context(), batch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		batches <- struct{}{}
	}
	close(batches)
	workers.Wait()
	b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(cpu(b)-start)/float64(100*b.N)/1e3, "cpu-µs/decision")
}

// TestReplayOfWhatPoliciesLeaveToOthers tries a policy that gives configurations where
// the one before gave none, and the other way round, over each thing that makes them then.
func TestReplayOfWhatPoliciesLeaveToOthers(t *testing.T) {
	t.Parallel()
	own, none := load(t, livePolicy), load(t, `allow := input.facts.role in {"web", "db"}`)
	all := load(t, `allow := true`)
	template := &policies.Fallback{Render: func(in *policies.Input) (map[string]string, error) {
		if in.Identity == "x.example.net" {
			return nil, errors.New("no rack")
		}
		return map[string]string{"role": "web"}, nil
	}}
	helper, nothing := &policies.Fallback{Helper: true}, &policies.Fallback{}
	web := func(e *policies.Engine) []byte { return record(t, e, "web1.example.net", "web", noon) }
	removed := []policies.KeyChange{{Key: "db_password", What: "removed", Was: policies.Redacted}, {Key: "old", What: "removed", Was: "x"}}
	added := []policies.KeyChange{{Key: "db_password", What: "added", Is: policies.Redacted}, {Key: "old", What: "added", Is: "x"}}
	changed := policies.NodeReplay{Node: "web1.example.net", At: noon, Times: 1, From: "allow", To: "allow", Configuration: true}
	says := func(edit func(*policies.NodeReplay)) *policies.NodeReplay {
		n := changed
		edit(&n)
		return &n
	}
	refused := []string{"configuration: the policy gives no configuration, and neither a template nor a helper is set"}
	for name, tt := range map[string]struct {
		cfg    policies.ReplayConfig
		lines  []byte
		want   *policies.NodeReplay // nil: nothing differs
		helped int
	}{
		"the policy's own, then the template's": {
			cfg: policies.ReplayConfig{Next: none, Live: own, Was: template, Is: template}, lines: web(own),
			want: says(func(n *policies.NodeReplay) {
				n.WasBy, n.IsBy, n.Keys = policies.ByPolicy, policies.ByTemplate, removed
			}),
		},
		"the template's, then the policy's own": {
			cfg: policies.ReplayConfig{Next: own, Live: none, Was: template, Is: template}, lines: web(none),
			want: says(func(n *policies.NodeReplay) { n.WasBy, n.IsBy, n.Keys = policies.ByTemplate, policies.ByPolicy, added }),
		},
		"of a policy that is not there any more, then the template's": {
			cfg: policies.ReplayConfig{Next: none, Live: none, Was: template, Is: template}, lines: web(own),
			want: says(func(n *policies.NodeReplay) { n.WasBy, n.IsBy = policies.ByPolicy, policies.ByTemplate }),
		},
		"the helper's both times": {cfg: policies.ReplayConfig{Next: none, Live: none, Was: helper, Is: helper}, lines: web(none), helped: 1},
		"the helper's, then a template's": {
			cfg: policies.ReplayConfig{Next: none, Live: none, Was: helper, Is: template}, lines: web(none), helped: 1,
			want: says(func(n *policies.NodeReplay) { n.WasBy, n.IsBy = policies.ByHelper, policies.ByTemplate }),
		},
		"the policy's own, then nobody's": {
			cfg: policies.ReplayConfig{Next: none, Live: own, Was: nothing, Is: nothing}, lines: web(own),
			want: &policies.NodeReplay{Node: "web1.example.net", At: noon, Times: 1, Flips: true, From: "allow", To: policies.VerdictFailed, Reasons: refused},
		},
		"nobody's, then the policy's own": {
			cfg: policies.ReplayConfig{Next: own, Live: none, Was: nothing, Is: nothing}, lines: web(none),
			want: &policies.NodeReplay{Node: "web1.example.net", At: noon, Times: 1, Flips: true, From: policies.VerdictFailed, To: "allow", Was: refused},
		},
		"not known, then the policy's own": {
			cfg: policies.ReplayConfig{Next: own, Live: none}, lines: web(none),
			want: says(func(n *policies.NodeReplay) { n.IsBy = policies.ByPolicy }),
		},
		"not known": {cfg: policies.ReplayConfig{Next: none, Live: none}, lines: web(none)},
		"let in, and the template cannot be filled": {
			cfg: policies.ReplayConfig{Next: all, Live: none, Was: template, Is: template}, lines: record(t, none, "x.example.net", "x", noon),
			want: &policies.NodeReplay{
				Node: "x.example.net", At: noon, Times: 1, Flips: true, From: "deny", To: policies.VerdictFailed,
				Was: []string{"no rule allows it"}, Reasons: []string{"configuration: no rack"},
			},
		},
	} {
		r := policies.NewReplay(tt.cfg)
		if _, err := r.Lines(t.Context(), tt.lines); err != nil {
			t.Fatal(err)
		}
		report := r.Report(true)
		want := []*policies.NodeReplay{}
		if tt.want != nil {
			want = append(want, tt.want)
		}
		if diff := cmp.Diff(want, report.Differences); diff != "" || len(report.Helped) != tt.helped {
			t.Errorf("%s: helped %q, want %d; -want +got\n%s", name, report.Helped, tt.helped, diff)
		}
	}
}
