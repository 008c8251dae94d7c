package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// kinds returns what happened, in its order.
func kinds(p *fleet.History) (all []fleet.Kind) {
	for _, m := range p.Items {
		all = append(all, m.Kind)
	}
	return all
}

// TestNodesAreListedAndExplained follows nodes from their first refusal to
// retirement, and looks at each point at the list, the history and the explanation.
func TestNodesAreListedAndExplained(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	explained := func(identity, says, do string) {
		t.Helper()
		var e fleet.Explanation
		call(t, f, http.MethodGet, "/v1/nodes/"+identity+"/explain", nil, &e)
		if text := textOf(&e); !strings.Contains(text, says) || !strings.Contains(text, do) {
			t.Errorf("%s: %s\nwant %q, do %q", identity, text, says, do)
		}
	}
	states := func(want map[provisioner.State]int) {
		t.Helper()
		f.Eventually("the list is up to date", func() bool {
			var p fleet.Page
			call(t, f, http.MethodGet, "/v1/nodes", nil, &p)
			return len(p.States) == len(want) &&
				!slices.ContainsFunc(p.Nodes, func(n fleet.Node) bool { return p.States[n.State] != want[n.State] })
		})
	}
	states(nil)
	node := f.Node("web1.example.net")
	e := f.Enroll(node)
	states(map[provisioner.State]int{provisioner.StateEnrolled: 1})
	explained("web1.example.net", "has not confirmed it yet", "wait")
	f.Clock.Advance(time.Hour)
	explained("web1.example.net", "has not confirmed it yet",
		"muster server doctor` on the machine: the agent could not write its files, cannot use its configuration")

	// It cannot use what it was given, and says so.
	complaint, err := node.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	complaint.Digest = wire.Unusable(e.Digest, `alive_interval: is "100ms", want 1s to 24h`)
	if complaint.Signature, err = wire.Sign(node.Key,
		wire.AppliedDigest(complaint.Identity, complaint.Serial, complaint.Digest)); err != nil {
		t.Fatal(err)
	}
	if r := f.Send(node, complaint); r.Refusal == nil || r.Refusal.Code != wire.CodeOfferUnusable {
		t.Errorf("complaint: %+v", r)
	}
	f.Eventually("the complaint is in the history", func() bool {
		var p fleet.History
		call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
		return slices.Contains(kinds(&p), fleet.Refused)
	})
	explained("web1.example.net", "it cannot use what it was offered: alive_interval: is \"…\", want 1s to 24h.",
		"correct the policy, template or helper")
	var said fleet.Explanation
	call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/explain", nil, &said)
	if do := textOf(&said); strings.Contains(do, "doctor") {
		t.Errorf("do %q: it is known what keeps it", do)
	}
	f.Clock.Advance(time.Minute) // moments of one second come in any order
	f.Apply(node, e)

	// It goes on with that, and says so, once it has refused another one.
	f.Send(node, complaint)
	f.Eventually("the complaint is in the history", func() bool {
		var p fleet.History
		call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
		return kinds(&p)[len(kinds(&p))-1] == fleet.Refused
	})
	explained("web1.example.net", "it cannot use what it was offered", "correct the policy, template or helper")
	f.Clock.Advance(time.Minute)
	f.Apply(node, e)
	f.Eventually("it is over", func() bool {
		var e fleet.Explanation
		call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/explain", nil, &e)
		return len(e.Refusals) == 0
	})
	states(map[provisioner.State]int{provisioner.StateProvisioned: 1})
	explained("web1.example.net", "The node is in the fleet (as a new machine)",
		"muster node pending --match web1.example.net")

	// Another machine comes with its name.
	f.Refused(f.Node("web1.example.net"))
	var p fleet.History
	f.Eventually("the refusal is in the history", func() bool {
		call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
		return kinds(&p)[len(kinds(&p))-1] == fleet.Refused
	})
	if want := []fleet.Kind{fleet.Presented, fleet.Decided, fleet.Issued, fleet.Refused, fleet.Applied, fleet.Refused,
		fleet.Confirmed, fleet.Refused}; !slices.Equal(kinds(&p), want) || !p.Complete {
		t.Errorf("history %v, complete %v, want %v", kinds(&p), p.Complete, want)
	}
	if m := p.Items[7]; m.Code != wire.CodeIdentityTaken || m.Cause == "" || m.Remedy == "" {
		t.Errorf("refused: %+v", m)
	}
	if m := p.Items[2]; m.Serial == "" || p.Items[4].Serial != m.Serial || p.Items[0].Token == "" ||
		p.Items[1].Reason != string(provisioner.ReasonNew) || p.Items[1].Policy == "" {
		t.Errorf("issued: %+v", p.Items)
	}
	explained("web1.example.net", "identity_taken", "give it the name, if the machine was reinstalled")

	f.Clock.Advance(time.Minute) // moments of one second come in any order
	call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/revoke", httpapi.Reason{Why: "stolen"}, nil)
	states(map[provisioner.State]int{provisioner.StateRevoked: 1})
	explained("web1.example.net", `("stolen")`, "muster node retire")
	call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/retire", httpapi.Reason{Why: "gone"}, nil)
	explained("web1.example.net", "The name is free", "")
	p = fleet.History{}
	call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
	if n := len(p.Items); p.Items[n-1].Kind != fleet.Retired || p.Items[n-2].Kind != fleet.Revoked ||
		p.Items[n-2].Why != "stolen" || p.Items[n-2].By == "" {
		t.Errorf("history at the end: %+v", p.Items)
	}
	var report fleet.Report
	call(t, f, http.MethodGet, "/v1/nodes/web1.example.net", nil, &report)
	if report.Record.State != provisioner.StateRetired || report.Revision == 0 {
		t.Errorf("report: %+v", report)
	}
	f.Check()
}

// TestUnknownLastSeenRetiresNoNode loses what nodes have said of themselves, as a restore
// does: there is no list of nodes that were not heard of before that, which the answer says, and no
// order for such nodes touches them.
func TestUnknownLastSeenRetiresNoNode(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	conn, err := f.Daemon().Connect("a disk that was lost")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	lost := time.Now().Add(time.Second).Truncate(time.Second) // queries are in whole seconds
	f.Eventually("the second is over", func() bool { return time.Now().After(lost) })
	if err := js.DeleteStream(f.Context(), "MUSTER_ALIVE"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	f.Stop()
	f.Start()
	q := url.Values{"seen_before": {lost.UTC().Format(time.RFC3339)}}
	if p := refused(t, f, http.MethodGet, "/v1/nodes?"+q.Encode(), nil); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "nodes were seen are kept only since") {
		t.Errorf("a list of them: %+v", p)
	}
	for _, verb := range []string{"retire", "revoke"} {
		problem := refused(t, f, http.MethodPost, "/v1/nodes/web1.example.net/"+verb,
			httpapi.Change{Why: "gone", SeenBefore: lost})
		if problem.Status != http.StatusConflict || !problem.LeftAlone ||
			!strings.Contains(problem.Detail, "nodes were seen are kept only since") {
			t.Errorf("%s: %+v", verb, problem)
		}
	}
	if s := f.Record("web1.example.net").State; s != provisioner.StateProvisioned {
		t.Errorf("it is %s", s)
	}
	f.Check()
}

func TestAStoppedAgentIsNotConnected(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	stays, stops := f.Agent("web1.example.net", f.Token(nil)), f.Agent("web2.example.net", f.Token(nil))
	f.WaitProvisioned(stays, stops)
	listed := func(connected string) (names []string) {
		var p fleet.Page
		call(t, f, http.MethodGet, "/v1/nodes?connected="+connected, nil, &p)
		for _, n := range p.Nodes {
			names = append(names, string(n.Identity))
		}
		return names
	}
	connected := func(yes, no []string) {
		t.Helper()
		f.Eventually("connected nodes are listed", func() bool {
			return slices.Equal(listed("yes"), yes) && slices.Equal(listed("no"), no)
		})
	}
	connected([]string{"web1.example.net", "web2.example.net"}, nil)
	stops.Stop()
	connected([]string{"web1.example.net"}, []string{"web2.example.net"})
	var s httpapi.Status
	call(t, f, http.MethodGet, "/v1/status", nil, &s)
	if s.Nodes == nil || s.Nodes.Connected[fleet.Yes] != 1 || s.Nodes.Connected[fleet.No] != 1 {
		t.Errorf("status counts %+v", s.Nodes)
	}
}
