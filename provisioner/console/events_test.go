package console_test

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

// Activity is cut to the orders of operators, on the page and as a file.
func TestOrdersOfOperators(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	if err := f.Daemon().Orders().Nodes.Revoke(t.Context(), "web1.example.net",
		trust.Cause{By: "operator:ben", Why: "=stolen"}); err != nil {
		t.Fatal(err)
	}
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("it is on the page", func() bool { return strings.Contains(v.see("/events?by=operator:"), "by ben · “=stolen”") })
	unsaid(t, v.see("/events?by=operator:"), `>node.enrolled</span>`)
	says(t, v.see("/events"), `>node.enrolled</span>`, `href="/events?by=operator:"`, `href="/events.csv?"`)
	for _, since := range []string{"", "&since=1d"} {
		rows, err := csv.NewReader(strings.NewReader(v.see("/events.csv?by=operator:ben" + since))).ReadAll()
		if err != nil || len(rows) != 2 || rows[1][1] != "io.muster.node.revoked" || rows[1][2] != "web1.example.net" {
			t.Fatalf("%v %v", rows, err)
		}
		if got := strings.Join(rows[1], " "); !strings.Contains(got, "operator:ben '=stolen") {
			t.Error(got)
		}
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(v.see("/events.json?node=web1.example.net")), &all); err != nil || len(all) < 3 {
		t.Errorf("%v %v", all, err)
	}
	says(t, v.get("/events.json?code=none").body, "unknown code")
}

// Pending keys are found by a fact and by address, and an order for all that match is for those alone.
func TestPendingByFact(t *testing.T) {
	t.Parallel()
	f := served(t)
	for name, rack := range map[string]string{"db1": "r4", "db2": "r5", "db3": "r4"} {
		n := f.Node(name + ".example.net")
		n.Facts = testbed.Facts(t, map[string]string{"rack": rack})
		f.Refused(n)
	}
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("all wait", func() bool { return strings.Contains(v.see("/approvals"), "3 waiting") })
	says(t, v.see("/approvals?from=127.0.0.0/8"), "3 waiting")
	says(t, v.see("/approvals?from=10.0.0.0/8"), "No matches")
	page := v.see("/approvals?fact=rack%3Dr4")
	says(t, page, "2 waiting", `href="/approvals?fact=rack%3Dr4&amp;tick=all"`, `<input type="hidden" name="fact" value="rack=r4">`)
	a := v.post("/approvals/decide", "verdict", "approve", "all", "yes", "fact", "rack=r4")
	says(t, a.body, "2 keys", "db1.example.net", "db3.example.net")
	unsaid(t, a.body, "db2.example.net")
}

// A search for a node that was always refused finds the refusal.
func TestARefusedNodeIsFound(t *testing.T) {
	t.Parallel()
	f := served(t)
	if code := f.Refused(f.Node("broker.fleet.test")); code != wire.CodeIdentityReserved {
		t.Fatal(code)
	}
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("it is found", func() bool {
		return strings.Contains(v.see("/nodes?q=Broker"), `<a href="/nodes/broker.fleet.test">`)
	})
	unsaid(t, v.see("/nodes?q=brother"), "broker.fleet.test")
}

// Where agents have no connection of muster's, the list shows their last run, or their version.
func TestRunsInTheList(t *testing.T) {
	t.Parallel()
	f := served(t)
	for _, p := range []provisioner.Protocol{provisioner.ProtocolPuppet, provisioner.ProtocolChoria} {
		n := f.Node("web-" + p.String() + ".example.net")
		f.Apply(n, f.Enroll(n))
		f.PutRecord(n.Identity, func(r *provisioner.Record) { r.Protocol, r.Agent = p, "0.29.4" })
	}
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("a node without a run", func() bool { return strings.Contains(v.see("/nodes?protocol=puppet"), "no report yet") })
	run := &fleet.Run{Schema: fleet.RunSchema, Identity: "web-puppet.example.net", Status: fleet.RunFailed}
	for _, at := range []time.Duration{-time.Hour, time.Second} { // the former owner's, and its own
		want := map[bool]string{true: "no report yet", false: `<span class="chip bad">failed</span>`}[at < 0]
		run.At = f.Record("web-puppet.example.net").OwnedSince.Add(at)
		if err := f.Daemon().Store().PutRun(run); err != nil {
			t.Fatal(err)
		}
		f.Eventually(want, func() bool { return strings.Contains(v.see("/nodes?protocol=puppet"), want) })
	}
	says(t, v.see("/nodes?protocol=puppet"), `<th scope="col">Last run</th>`)
	says(t, v.see("/nodes?protocol=choria"), `<th scope="col">Agent</th>`, "<td>0.29.4</td>")
}
