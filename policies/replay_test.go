package policies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
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

// replayAll replays recordings, one a line.
func replayAll(t testing.TB, r *policies.Replay, lines []byte) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		recorded, err := policies.ParseRecording(line)
		if err != nil {
			t.Fatal(err)
		}
		r.Add(t.Context(), recorded)
	}
}

// TestReplayListsNodesThatFlip tries a policy on what another one decided.
func TestReplayListsNodesThatFlip(t *testing.T) {
	t.Parallel()
	live := load(t, livePolicy)
	next := load(t, `default allow := false
allow if input.facts.role in {"web", "mail"}
deny contains "rack 4 is closed" if { input.facts.rack == 4; input.facts.role == "db" }
configuration := {"role": upper(input.facts.role), "db_password": "hunter3", "new": "y"}
certificate := {"ttl": "1h"}`)
	var lines []byte
	lines = append(lines, record(t, live, "web1.example.net", "web", noon)...)
	lines = append(lines, record(t, live, "web1.example.net", "web", noon.Add(time.Hour))...)
	lines = append(lines, record(t, live, "db1.example.net", "db", noon)...)
	lines = append(lines, record(t, live, "mail1.example.net", "mail", noon)...)
	lines = append(lines, record(t, live, "x.example.net", "x", noon)...)
	r := policies.NewReplay(next)
	replayAll(t, r, lines)
	want := &policies.ReplayReport{
		Policy: next.Digest(), Decisions: 5, Nodes: 4, Flipped: 2,
		Differences: []*policies.NodeReplay{
			{
				Node:    "db1.example.net",
				At:      noon,
				Times:   1,
				From:    "allow",
				To:      "deny",
				Reasons: []string{"rack 4 is closed"},
			},
			{
				Node:  "mail1.example.net",
				At:    noon,
				Times: 1,
				From:  "deny",
				To:    "allow",
				Was:   []string{"no rule allows it"},
			},
		},
	}
	if diff := cmp.Diff(want, r.Report()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	same := policies.NewReplay(live)
	replayAll(t, same, lines)
	if got := same.Report(); got.Flipped != 0 || len(got.Differences) != 0 || got.Nodes != 4 {
		t.Errorf("the same policy: %+v", got)
	}
	if _, err := policies.ParseRecording([]byte("{}\n")); err == nil {
		t.Error("a line without an input is taken")
	}
}

// TestReplayOfAFailingPolicy: a policy that gives no decision is one more way to
// refuse, and says why.
func TestReplayOfAFailingPolicy(t *testing.T) {
	t.Parallel()
	live, next := load(t, livePolicy), load(t, `allow := to_number(input.facts.role) == 1`)
	r := policies.NewReplay(next)
	replayAll(t, r, record(t, live, "web1.example.net", "web", noon))
	got := r.Report()
	if got.Failed != 1 || got.Flipped != 1 || got.Differences[0].To != policies.VerdictFailed ||
		!strings.Contains(got.Differences[0].Reasons[0], "to_number") {
		t.Errorf("report = %+v", got)
	}
}
