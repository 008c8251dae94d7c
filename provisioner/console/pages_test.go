package console_test

import (
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

// markup is a name or fact of a hostile node.
const markup = `"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7}}`

// waits has a machine ask that waits for an operator, with hostile facts and names.
func waits(t testing.TB, f *testbed.Fleet, identity string) {
	t.Helper()
	n := f.Node(identity)
	n.Facts = testbed.Facts(t, map[string]any{"role": markup, "serialnumber": markup})
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Fatalf("%s: %s", identity, code)
	}
	f.Eventually(identity+" waits", func() bool {
		w, err := f.Daemon().Orders().Keys.Waiting(f.Context(), wire.Identity(identity))
		return err == nil && len(w) == 1
	})
}

// pagesOf returns the addresses of every kind of page.
func pagesOf(f *testbed.Fleet) []string {
	tid := string(f.Record("web1.example.net").Token)
	return []string{
		"/", "/nodes", "/nodes?q=nobody", "/nodes?q=web*&state=provisioned&expires_before=30d&sort=expires", "/nodes?state=" +
			tid, "/nodes?fact=role%3Dweb&fact=os.name%3D", "/nodes?fact=%22%3E%3Cscript%3E", "/nodes/web1.example.net",
		"/nodes/db1.example.net",
		"/nodes/web1.example.net/do/revoke", "/approvals", "/installation",
		"/operators", "/signers", "/authority", "/webhooks", "/components", "/backups", "/configuration", "/tokens/new",
		"/tokens/new?urls=%22%3E%3Cscript%3E&names=%27%3B+reboot&uses=7", "/allow", "/allow?pattern=%22%3E%3Cscript%3E", "/tokens",
		"/tokens/" + tid, "/tokens/" + tid + "/do/revoke", "/policies", "/events", "/events?since=1h",
		"/certificates", "/certificates?match=web*.example.net&state=waiting&expires_before=7d&stuck=true",
		"/certificates?state=%22%3E%3Cscript%3E&match=%22%3E", "/certificates/web1.example.net/https",
		"/certificates/web1.example.net/https/do/revoke", "/certificates/web1.example.net/none",
		"/events?node=not+a+name", "/login", "/nothing", "/nodes/nobody.example.net",
	}
}

// TestPagesAreHarmless looks for elements that the content security policy forbids, and for markup from nodes.
func TestPagesAreHarmless(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]string{"role": markup})
	e := f.Enroll(n)
	f.Apply(n, e)
	stuck := &wire.CertificateState{State: "saved", Stuck: true, Error: markup, Since: f.Clock.Now().UTC()}
	f.AskService(n, e, "https", "", stuck)
	waits(t, f, "db1.example.net")
	f.Refused(f.Node("<script>alert(3)</script>"))
	if err := f.Daemon().Orders().Tokens.Revoke(f.Context(), jwt.TokenID(strings.Repeat("ab", 16)),
		trust.Cause{By: "x", Why: markup}); err != nil {
		t.Fatal(err)
	}
	v := signedIn(t, f, "anna", trust.RoleAdmin)
	f.Eventually("events are there", func() bool { return strings.Contains(v.see("/events"), "alert(3)") })
	forbidden := map[string]*regexp.Regexp{
		"an inline script":     regexp.MustCompile(`(?i)<script(>| [^>]*[^r]>)[^<]|<script>`),
		"a handler":            regexp.MustCompile(`(?i)<[^>]*\son[a-z]+\s*=`),
		"a style":              regexp.MustCompile(`(?i)<style|<[^>]*\sstyle\s*=`),
		"a foreign address":    regexp.MustCompile(`(?i)(src|href|action)="(https?:|//|javascript:|data:)`),
		"a foreign image":      regexp.MustCompile(`(?i)<img src=x`),
		"what was not escaped": regexp.MustCompile(`ZgotmplZ|%!|<no value>`),
	}
	for _, path := range pagesOf(f) {
		a := v.get(path)
		for what, pattern := range forbidden {
			if found := pattern.FindString(a.body); found != "" {
				t.Errorf("%s has %s: %s", path, what, found)
			}
		}
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q lacks %s", path, csp, want)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", path, name, got, want)
			}
		}
	}
	says(t, v.see("/approvals"), "&lt;script&gt;alert(1)", "serialnumber", "db1.example.net")
}

// TestTheOverviewCounts has strangers fail and wait, which the overview tells in
// numbers.
func TestTheOverviewCounts(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	for range 3 {
		f.Refused(f.Node("web1.example.net")) // another key
	}
	waits(t, f, "db1.example.net")
	if nc, err := nats.Connect(f.URL(), nats.Token("forged")); err == nil {
		nc.Close()
		t.Fatal("a forged token is taken")
	}
	f.Enroll(f.Node("web2.example.net")) // and never confirms
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("four keys wait", func() bool { return strings.Contains(v.see("/"), `<span class="figure">4</span> <span>pending</span>`) })
	f.Eventually("the address of the refusal is named", func() bool { return strings.Contains(v.see("/"), `<th scope="row">127.0.0.1</th>`) })
	f.Eventually("both machines are counted", func() bool {
		page := v.see("/")
		return strings.Contains(page, `<span class="figure">1</span> <span>enrolled</span>`) && strings.Contains(page, `<span class="figure">1</span> <span>provisioned</span>`)
	})
	var ends []string
	for _, end := range regexp.MustCompile(`(?s)<a href="(/nodes\?sort=expires[^"]*)">.*?<td class="count">(\d+)</td>`).FindAllStringSubmatch(v.see("/"), -1) {
		if ends = append(ends, end[2]); end[2] == "1" && strings.Contains(v.see(html.UnescapeString(end[1])), "web2.example.net") {
			t.Errorf("%s lists a certificate that nobody has confirmed", end[1])
		}
	}
	if all := strings.Join(ends, ""); strings.Count(all, "1") != 1 || strings.Trim(all, "01") != "" {
		t.Errorf("certificates end: %v, want that of web1 alone", ends)
	}
}

// TestRoles has a viewer try all that changes something.
func TestRoles(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	f.AskService(n, e, "https", "www.example.net", nil)
	waits(t, f, "db1.example.net")
	tid, service := string(f.Record("web1.example.net").Token), "/certificates/web1.example.net/https"
	v := stranger(t, f, nil)
	key, _ := added(t, f, "vera", trust.RoleViewer, false)
	v.see("/login")
	v.post("/login", "token", tokenOf(t, f, "vera", key))
	for _, path := range []string{"/nodes/web1.example.net", "/approvals", "/tokens/" + tid, "/policies", service} {
		page := main(v.see(path))
		for _, hidden := range []string{"<button class=\"primary\"", "<button class=\"danger\"", "/do/", `type="checkbox"`} {
			if strings.Contains(page, hidden) {
				t.Errorf("%s shows a viewer %s", path, hidden)
			}
		}
	}
	v.see("/approvals")
	for _, path := range []string{
		"/nodes/web1.example.net/do/revoke", "/approvals/decide", "/tokens/" + tid + "/do/revoke", "/policies/do/reload",
		service + "/do/approve", service + "/do/reject", service + "/do/revoke",
	} {
		if a := v.post(path, "why", "because", "verdict", "approve", "each", "db1.example.net/00"); a.status != http.StatusForbidden {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
}

// TestNodeActions revokes a node, from the list to its past.
func TestNodeActions(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("it is listed", func() bool { return strings.Contains(v.see("/nodes?q=web"), `href="/nodes/web1.example.net"`) })
	says(t, v.see("/nodes/web1.example.net"), "/nodes/web1.example.net/do/revoke", "The node is in the fleet")
	form := meant(t, v.see("/nodes/web1.example.net/do/revoke"))
	says(t, v.see("/nodes/web1.example.net/do/revoke"), "This cannot be undone", "revocation list")
	a := v.confirmed("/nodes/web1.example.net/do/revoke", "  ")
	if a.status != http.StatusBadRequest {
		t.Errorf("without a reason: %d", a.status)
	}
	says(t, a.body, "Give a reason")
	scaledDown := meant(t, v.see("/nodes/web1.example.net/do/retire"))
	a = v.confirmed("/nodes/web1.example.net/do/revoke", "stolen from the rack")
	if a.status != http.StatusSeeOther {
		t.Fatalf("revoke: %d %s", a.status, a.body)
	}
	says(t, v.see(a.header.Get("Location")), "is revoked", "stolen from the rack", "anna")
	if r := f.Record("web1.example.net"); r.State != provisioner.StateRevoked || r.Operator.By != "operator:anna" || r.Operator.Why != "stolen from the rack" {
		t.Errorf("record: %s %+v", r.State, r.Operator)
	}
	// What was agreed to before it was revoked frees no thief's name.
	if a := v.post("/nodes/web1.example.net/do/retire", append(scaledDown, "why", "scaled down")...); a.status != http.StatusConflict {
		t.Errorf("retire, of a page from before it was revoked: %d", a.status)
	}
	if a := v.confirmed("/nodes/web1.example.net/do/retire", "sold"); a.status != http.StatusSeeOther {
		t.Errorf("retire: %d %s", a.status, a.body)
	}
	if a := v.post("/nodes/web1.example.net/do/revoke", append(form, "why", "late")...); a.status != http.StatusConflict {
		t.Errorf("revoke what is retired: %d", a.status)
	}
	if a := v.post("/nodes/web1.example.net/do/explode", "why", "late"); a.status != http.StatusNotFound {
		t.Errorf("an action that is none: %d", a.status)
	}
}

// The page of a node shows the last run of its Puppet agent.
func TestTheLastRunIsShown(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", trust.RoleOperator)
	if page := v.see("/nodes/web1.example.net"); strings.Contains(page, "Last run") {
		t.Errorf("a run of an agent that reports none: %s", page)
	}
	run := &fleet.Run{
		Schema:    fleet.RunSchema,
		Identity:  "web1.example.net",
		At:        f.Clock.Now().UTC(),
		Status:    fleet.RunFailed,
		Resources: fleet.RunCounts{Total: 9, Failed: 1},
		Errors:    []string{"no <space> left"},
		LeftOut:   7,
		Since:     f.Clock.Now().UTC(),
	}
	shown := func(want ...string) {
		t.Helper()
		if err := f.Daemon().Store().PutRun(run); err != nil {
			t.Fatal(err)
		}
		f.Eventually("the last run is shown", func() bool {
			page := v.see("/nodes/web1.example.net")
			return !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(page, text) })
		})
	}
	shown("Last run", "failed", "9 resources: 0 out of sync, 0 changed, 1 failed, 0 skipped", "failing since",
		"no &lt;space&gt; left", "and 7 more")
	run.At = f.Record("web1.example.net").OwnedSince.Add(-time.Second)
	if err := f.Daemon().Store().PutRun(run); err != nil {
		t.Fatal(err)
	}
	f.Eventually("a run of a former owner is not shown", func() bool {
		return !strings.Contains(v.see("/nodes/web1.example.net"), "Last run")
	})
}

// TestApprovals decides about two of three that wait.
func TestApprovals(t *testing.T) {
	t.Parallel()
	f := served(t)
	for _, id := range []string{"db1.example.net", "db2.example.net", "db3.example.net"} {
		waits(t, f, id)
	}
	v := signedIn(t, f, "anna", trust.RoleOperator)
	ticked := regexp.MustCompile(`name="each" value="(db[12]\.example\.net/[0-9a-f]{64})"`).FindAllStringSubmatch(v.see("/approvals"), -1)
	if len(ticked) != 2 {
		t.Fatalf("%d boxes", len(ticked))
	}
	if a := v.post("/approvals/decide", "verdict", "approve"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/approvals?none" {
		t.Errorf("nothing ticked: %d to %q", a.status, a.header.Get("Location"))
	}
	says(t, v.see("/approvals?none"), "Nothing is ticked")
	a := v.post("/approvals/decide", "verdict", "approve", "each", ticked[0][1], "each", ticked[1][1])
	says(t, a.body, "db1.example.net, key", "db2.example.net, key", "can enroll under its name, once")
	if a := v.post("/approvals/decide", "verdict", "approve", "why", "racked today", "each", ticked[0][1], "each", ticked[1][1]); a.status != http.StatusSeeOther {
		t.Fatalf("approve: %d %s", a.status, a.body)
	}
	f.Eventually("both verdicts are events", func() bool {
		n := 0
		for _, e := range f.Events() {
			if e.Type == events.Approved && e.By == "operator:anna" && e.Why == "racked today" {
				n++
			}
		}
		return n == 2
	})
}

// TestATakenName has a machine wait whose name another key has: approving does
// not give it the name, a grant for its key does.
func TestATakenName(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	another := f.Node("web1.example.net")
	if code := f.Refused(another); code != wire.CodeIdentityTaken {
		t.Fatal(code)
	}
	v := signedIn(t, f, "anna", trust.RoleOperator)
	grant := regexp.MustCompile(`/nodes/web1\.example\.net/do/grant\?key=([0-9a-f]{64})`)
	var link []string
	f.Eventually("it waits", func() bool { link = grant.FindStringSubmatch(v.see("/approvals")); return link != nil })
	waits(t, f, "db1.example.net")
	db := regexp.MustCompile(`value="(db1\.example\.net/[0-9a-f]{64})"`).FindStringSubmatch(v.see("/approvals"))
	a := v.post("/approvals/decide", "verdict", "approve", "why", "all of them", "each", "web1.example.net/"+link[1], "each", db[1])
	if a.status != http.StatusConflict {
		t.Errorf("approve both: %d", a.status)
	}
	says(t, a.body, "1 of 2 are done", "belongs to another key")
	const form = "/nodes/web1.example.net/do/grant"
	unnamed := v.see(form)
	says(t, unnamed, "A key that waits may be a thief's", "Grant to this key", "key="+link[1])
	unsaid(t, unnamed, "<form method=\"post\" action=\""+form)
	says(t, v.see("/nodes/web1.example.net"), `class="button danger" href="`+form)
	seen := regexp.MustCompile(`seen=([0-9]+-[0-9]+)`).FindStringSubmatch(unnamed)[1]
	if a := v.post(form, "seen", seen, "command", "x", "why", "reinstalled"); a.status != http.StatusConflict {
		t.Errorf("a grant without a key while one waits: %d", a.status)
	}
	says(t, v.see(link[0]), link[1], "from <code>127.0.0.1</code>", `<button class="danger">`)
	if a := v.confirmed(link[0], "reinstalled"); a.status != http.StatusSeeOther {
		t.Fatalf("grant: %d %s", a.status, a.body)
	}
	f.Enroll(another)
}

// TestCommandsToADisconnectedNode shows what is said of a node that is not there.
func TestCommandsToADisconnectedNode(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", trust.RoleOperator)
	says(t, v.see("/nodes/web1.example.net/do/restart"), `name="command" value="`)
	a := v.confirmed("/nodes/web1.example.net/do/restart", "stuck")
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("a node that is off: %d", a.status)
	}
	says(t, a.body, "not connected")
}

// TestAgentsObey has a real agent reconfigured by an order of the console's.
func TestAgentsObey(t *testing.T) {
	t.Parallel()
	f := served(t)
	agent := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(agent)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	command := ""
	f.Eventually("the agent takes the order", func() bool {
		page := v.see("/nodes/web1.example.net/do/reconfigure")
		command = regexp.MustCompile(`name="command" value="([^"]+)"`).FindStringSubmatch(page)[1]
		return v.post("/nodes/web1.example.net/do/reconfigure", append(meant(t, page), "why", "new policy")...).status == http.StatusSeeOther
	})
	f.Eventually("it is an event with who and why", func() bool {
		for _, e := range f.Events() {
			if e.Type == events.Commanded && e.Command == command && e.By == "operator:anna" && e.Why == "new policy" {
				return true
			}
		}
		return false
	})
}

// TestTokensAndPolicies revokes a token, and reloads the policy, once in vain.
func TestTokensAndPolicies(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	tid := string(f.Record("web1.example.net").Token)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	says(t, v.see("/tokens"), tid[:12])
	says(t, v.see("/tokens/"+strings.Repeat("cd", 16)), "not used", "do/revoke")
	says(t, v.see("/tokens/"+tid), "web1.example.net", "unlimited")
	v.see("/tokens/" + tid + "/do/revoke")
	if a := v.post("/tokens/"+tid+"/do/revoke", "why", "on a public server"); a.status != http.StatusSeeOther {
		t.Fatalf("revoke: %d %s", a.status, a.body)
	}
	says(t, v.see("/tokens/"+tid), "revoked", "on a public server")
	says(t, v.see("/policies"), f.Daemon().Orders().Process.Policy().Digest, "No shadow policy")
	if a := v.post("/policies/do/reload", "why", "look"); a.status != http.StatusSeeOther {
		t.Errorf("reload: %d %s", a.status, a.body)
	}
	f.Eventually("it is an event", func() bool { return strings.Contains(v.see("/policies"), "policy.reloaded") })
	f.Write("policy/policy.rego", "package muster.enroll\nallow := nonsense")
	if a := v.post("/policies/do/reload", "why", "look again"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("reload of nonsense: %d %s", a.status, a.body)
	}
	says(t, v.see("/policies"), "refused", "nonsense")
}
