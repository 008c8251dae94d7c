package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// provisionedNodes enrolls nodes web1 to webN, whose agents are not connected.
func provisionedNodes(t *testing.T, f *testbed.Fleet, n int) {
	t.Helper()
	for i := range n {
		node := f.Node(fmt.Sprintf("web%d.example.net", i+1))
		f.Apply(node, f.Enroll(node))
	}
}

var (
	eachNode  = regexp.MustCompile(`name="each" value="([^"]*)"`)
	chosenJob = regexp.MustCompile(`name="job" value="([^"]*)"`)
)

// boxes returns the values of the boxes of nodes.
func boxes(t *testing.T, page string, names ...string) (fields []string) {
	t.Helper()
	for _, m := range eachNode.FindAllStringSubmatch(page, -1) {
		if name, _, _ := strings.Cut(m[1], "/"); slices.Contains(names, name) {
			fields = append(fields, "each", html.UnescapeString(m[1]))
		}
	}
	if len(fields) != 2*len(names) {
		t.Fatalf("boxes of %v: %v", names, fields)
	}
	return fields
}

// ordered has the visitor confirm an order for many, and returns the page of its job.
func (v *visitor) ordered(path, failures string, fields ...string) string {
	v.t.Helper()
	a := v.post(path, fields...)
	m := chosenJob.FindStringSubmatch(a.body)
	if a.status != http.StatusOK || m == nil {
		v.t.Fatalf("%v: %d %s", fields, a.status, main(a.body))
	}
	a = v.post(path, "job", m[1], "verdict", fields[slices.Index(fields, "verdict")+1], "failures", failures,
		"why", "ticket 17")
	if to := a.header.Get("Location"); a.status == http.StatusSeeOther && to == "/jobs/"+m[1] {
		return to
	}
	v.t.Fatalf("confirmed: %d %s", a.status, main(a.body))
	return ""
}

// Ticked nodes are revoked, but for one that has changed since the list was shown.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := served(t)
	provisionedNodes(t, f, 5)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	page := ""
	f.Eventually("all are listed", func() bool {
		page = v.see("/nodes?state=provisioned")
		return strings.Contains(page, "5 nodes")
	})
	if a := v.post("/many", "verdict", "revoke", "query", "state=provisioned"); a.header.Get("Location") != "/nodes?none&state=provisioned" {
		t.Errorf("nothing ticked: %d to %q", a.status, a.header.Get("Location"))
	}
	says(t, v.see("/nodes?none&state=provisioned"), "Nothing is ticked")
	f.Clock.Advance(time.Minute)
	f.Retire("web2.example.net")
	again := f.Node("web2.example.net") // another machine gets the name
	f.Apply(again, f.Enroll(again))
	f.Eventually("the list has the new machine", func() bool {
		return strings.Contains(v.see("/nodes?state=provisioned"), "5 nodes")
	})
	ticked := boxes(t, page, "web1.example.net", "web2.example.net", "web3.example.net")
	order := append([]string{"verdict", "revoke", "query", "state=provisioned"}, ticked...)
	says(t, v.post("/many", order...).body, "3 nodes</strong> (3 provisioned): ", "web1.example.net", "This cannot be undone",
		"Stop if more than this number fail")
	job := v.ordered("/many", "0", order...)
	f.Eventually("the job has ended", func() bool { return strings.Contains(v.see(job), "finished") })
	says(t, v.see(job), "Revoke: 3 nodes", "2 done · 0 failed · 1 left alone · 0 not tried", "web2.example.net", "ticket 17", "anna",
		`href="/nodes?state=provisioned"`)
	says(t, v.see("/jobs"), job, "ticket 17")
	for name, want := range map[wire.Identity]provisioner.State{
		"web1.example.net": provisioner.StateRevoked, "web2.example.net": provisioner.StateProvisioned,
		"web3.example.net": provisioner.StateRevoked, "web4.example.net": provisioner.StateProvisioned,
	} {
		if r := f.Record(string(name)); r.State != want {
			t.Errorf("%s is %s, want %s", name, r.State, want)
		}
	}
	if r := f.Record("web1.example.net"); r.Operator.By != "operator:anna" || r.Operator.Why != "ticket 17" {
		t.Errorf("revoked by %+v", r.Operator)
	}
	// All that match, of which two are revoked already.
	retired := v.ordered("/many", "10", "verdict", "reconfigure", "query", "q=web", "all", "yes")
	says(t, v.see(retired), "Reconfigure: 3 nodes")
	a := v.post("/many", "verdict", "revoke", "query", "state=retired", "all", "yes")
	if a.status != http.StatusConflict {
		t.Errorf("an order for none: %d", a.status)
	}
	one := v.post("/many", append([]string{"verdict", "grant"}, boxes(t, v.see("/nodes"), "web4.example.net")...)...)
	if to := one.header.Get("Location"); !strings.HasPrefix(to, "/nodes/web4.example.net/do/grant?seen=") {
		t.Errorf("a grant for one node: to %q", to)
	}
	viewer := signedIn(t, f, "vera", trust.RoleViewer)
	unsaid(t, viewer.see("/nodes"), `name="each"`, "/many")
	if a := viewer.post(job, "stop", "yes"); a.status != http.StatusForbidden {
		t.Errorf("a viewer stops a job: %d", a.status)
	}
}

// A job stops after too many failures, and goes on with the nodes that were not tried. Commands to agents that are not
// connected fail.
func TestAJobStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	const nodes = 70 // more than are tried at a time
	f := served(t)
	provisionedNodes(t, f, nodes)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("all are listed", func() bool { return strings.Contains(v.see("/nodes"), fmt.Sprint(nodes, " nodes")) })
	job := v.ordered("/many", "2", "verdict", "restart", "query", "", "all", "yes")
	state := regexp.MustCompile(`(\d+) done · (\d+) failed · 0 left alone · (\d+) not tried`)
	var m []string
	f.Eventually("the job has stopped", func() bool {
		page := v.see(job)
		m = state.FindStringSubmatch(page)
		return strings.Contains(page, ">stopped</span>")
	})
	if m[1] != "0" || m[3] == "0" {
		t.Errorf("stopped with %v", m[0])
	}
	says(t, v.see(job), "not connected", "Go on with the "+m[3]+" left")
	if a := v.post(job, "continue", "yes", "failures", "100"); a.status != http.StatusSeeOther {
		t.Fatalf("go on: %d %s", a.status, main(a.body))
	}
	f.Eventually("all are tried", func() bool {
		return strings.Contains(v.see(job), fmt.Sprintf("0 done · %d failed · 0 left alone · 0 not tried", nodes))
	})
	f.Eventually("the job has ended", func() bool { return strings.Contains(v.see(job), ">finished</span>") })
	if a := v.post(job, "continue", "yes"); a.status != http.StatusConflict {
		t.Errorf("go on with nothing: %d", a.status)
	}
	if a := v.post("/many", "job", "lost", "verdict", "restart", "why", "x"); a.status != http.StatusNotFound {
		t.Errorf("a job of before a restart: %d", a.status)
	}
}

// All keys that wait are approved at once, without a tick for each.
func TestApprovingAllThatMatch(t *testing.T) {
	t.Parallel()
	f := served(t)
	for _, id := range []string{"db1.example.net", "db2.example.net", "lb1.example.net"} {
		waits(t, f, id)
	}
	v := signedIn(t, f, "anna", trust.RoleOperator)
	says(t, v.see("/approvals?q=db"), "all 2 that match")
	job := v.ordered("/approvals/decide", "10", "verdict", "approve", "all", "yes", "q", "db")
	f.Eventually("both are approved", func() bool {
		return strings.Contains(v.see(job), "2 done · 0 failed · 0 left alone · 0 not tried")
	})
	says(t, v.see(job), "Approve: 2 keys", `href="/approvals?q=db"`)
	says(t, v.see("/approvals"), "3 waiting, 2 of them approved")
}

// An operator stops a job while its first orders are under way: these are finished, and no other one begins. Another
// operator goes on with the rest, and nothing is done twice.
func TestAnOperatorStopsAJobAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	const nodes, atOnce = 60, 50
	f := served(t)
	provisionedNodes(t, f, nodes)
	anna, ben := signedIn(t, f, "anna", trust.RoleOperator), signedIn(t, f, "ben", trust.RoleOperator)
	f.Eventually("all are listed", func() bool {
		return strings.Contains(anna.see("/nodes"), fmt.Sprint(nodes, " nodes"))
	})
	writes, release := &f.Faults.RevocationWrites, make(chan struct{})
	before := writes.Writes()
	writes.Before(func(context.Context, any) { <-release })
	job := anna.ordered("/many", "10", "verdict", "revoke", "query", "q=web", "all", "yes")
	f.Eventually("as many orders as may be are under way", func() bool { return writes.Writes() == before+atOnce })
	if a := anna.post(job, "stop", "yes"); a.status != http.StatusSeeOther {
		t.Fatalf("stop: %d %s", a.status, main(a.body))
	}
	if a := ben.post(job, "continue", "yes"); a.status != http.StatusConflict {
		t.Errorf("go on with a job whose orders are under way: %d %s", a.status, main(a.body))
	}
	close(release)
	f.Eventually("the job has stopped", func() bool { return strings.Contains(anna.see(job), ">stopped</span>") })
	says(t, anna.see(job), fmt.Sprintf("%d done · 0 failed · 0 left alone · %d not tried", atOnce, nodes-atOnce))
	if n := writes.Writes() - before; n != atOnce {
		t.Errorf("%d orders after the stop, want %d", n, atOnce)
	}
	if a := ben.post(job, "continue", "yes", "failures", "10"); a.status != http.StatusSeeOther {
		t.Fatalf("go on: %d %s", a.status, main(a.body))
	}
	f.Eventually("the job has ended", func() bool { return strings.Contains(anna.see(job), ">finished</span>") })
	says(t, anna.see(job), fmt.Sprintf("%d done · 0 failed · 0 left alone · 0 not tried", nodes))
	by := map[string]int{}
	for i := range nodes {
		r := f.Record(fmt.Sprintf("web%d.example.net", i+1))
		if r.State != provisioner.StateRevoked || r.Operator == nil {
			t.Fatalf("%s is %s", r.Identity, r.State)
		}
		by[r.Operator.By]++
	}
	if by["operator:anna"] != atOnce || by["operator:ben"] != nodes-atOnce || writes.Writes()-before != nodes {
		t.Errorf("ordered by %v in %d writes", by, writes.Writes()-before)
	}
}

// Operators with a limit to sites give orders for many nodes and keys there, and see no job of another operator.
func TestManyAtOneSite(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Site, c.API.Listen, c.API.Addresses = "fra1", "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.Allow("web*.example.net")
	provisionedNodes(t, f, 2)
	for _, name := range []string{"web3.example.net", "web4.example.net", "web5.example.net"} {
		n := f.Node(name)
		n.Token = f.Token(func(c *jwt.Claims) {
			if err := c.SetLimits(jwt.Limits{Site: "fra1"}); err != nil {
				t.Fatal(err)
			}
		})
		f.Apply(n, f.Enroll(n))
	}
	waits(t, f, "db1.example.net")
	anna := signedIn(t, f, "anna", trust.RoleOperator)
	fred := signedIn(t, f, "fred", trust.RoleOperator, "fra1")
	otto := signedIn(t, f, "otto", trust.RoleOperator, "ams1")
	f.Eventually("all are listed", func() bool { return strings.Contains(anna.see("/nodes"), "5 nodes") })
	shown := boxes(t, anna.see("/nodes"), "web1.example.net", "web3.example.net")

	of := anna.ordered("/many", "10", append([]string{"verdict", "restart"}, shown...)...)
	done := func(v *visitor, job, text string) {
		t.Helper()
		f.Eventually("the job has ended", func() bool { return strings.Contains(v.see(job), ">finished</span>") })
		says(t, v.see(job), text)
	}
	done(anna, of, "2 failed") // they are not connected
	if a := fred.get(of); a.status != http.StatusNotFound {
		t.Errorf("a job of another operator: %d %s", a.status, main(a.body))
	}
	unsaid(t, fred.see("/jobs"), of)
	if a := signedIn(t, f, "anna", trust.RoleOperator, "ams1").get(of); a.status != http.StatusNotFound {
		t.Errorf("the job of an operator that is limited since: %d %s", a.status, main(a.body))
	}
	anna = signedIn(t, f, "anna", trust.RoleOperator)
	done(fred, fred.ordered("/many", "10", append([]string{"verdict", "retire"}, shown...)...), "1 done")
	done(fred, fred.ordered("/many", "10", "verdict", "retire", "query", "q=web", "all", "yes"), "2 done")
	own := fred.ordered("/approvals/decide", "10", "verdict", "approve", "all", "yes")
	done(anna, own, "1 done")

	for _, order := range [][]string{
		{"/many", "verdict", "revoke", "query", "", "all", "yes"},
		append([]string{"/many", "verdict", "revoke"}, shown...),
		{"/approvals/decide", "verdict", "reject", "all", "yes"},
	} {
		if a := otto.post(order[0], order[1:]...); a.status != http.StatusConflict || strings.Contains(a.body, "web3") {
			t.Errorf("%v at another site: %d %s", order, a.status, main(a.body))
		}
	}
	if a := otto.post(own, "continue", "yes"); a.status != http.StatusNotFound {
		t.Errorf("a job of another site goes on: %d %s", a.status, main(a.body))
	}
	for i, want := range []provisioner.State{"provisioned", "provisioned", "retired", "retired", "retired"} {
		if r := f.Record(fmt.Sprintf("web%d.example.net", i+1)); r.State != want {
			t.Errorf("%s is %s, want %s", r.Identity, r.State, want)
		}
	}
}
