package console_test

import (
	"html"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// carries returns the fields that the form on a page carries, as [visitor.post] takes them,
// but for the secret.
func carries(page string) (fields []string) {
	for _, m := range hidden.FindAllStringSubmatch(main(page), -1) {
		if m[1] != "form" {
			fields = append(fields, m[1], html.UnescapeString(m[2]))
		}
	}
	return fields
}

// TestAFormOutlivesItsSession has the session end while a form is filled in. It is sent, and
// nothing is done; who signs in then has the same form again, and it is done when they send
// that.
func TestAFormOutlivesItsSession(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	waits(t, f, "db1.example.net")
	key, _ := added(t, f, "anna", provisioner.RoleOperator, false)
	v := stranger(t, f, nil)
	v.see("/login")
	v.post("/login", "token", tokenOf(t, f, "anna", key))
	p := f.Daemon().Operator()
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	one := box(t, v.see("/approvals"), "db1.example.net")
	f.Clock.Advance(2 * time.Hour)

	const why = `the rack "4" & the <door>`
	for name, form := range map[string]struct {
		path   string
		fields []string
		shows  []string // besides the reason
		done   func() bool
	}{
		"revoke": {"/nodes/web1.example.net/do/revoke", append(carries(v.signedAgain(key, "/nodes/web1.example.net/do/revoke")), "why", why), []string{"Revoke?", "web1.example.net"},
			func() bool { return f.Record("web1.example.net").State == provisioner.StateRevoked }},
		"approve": {"/approvals/decide", []string{"verdict", "approve", "each", one, "why", why}, []string{"Approve?", "db1.example.net, key "},
			func() bool {
				w, err := p.Waiting(f.Context(), "db1.example.net")
				return err == nil && approvedOne(f, w)
			}},
		"allow": {"/allow", []string{"pattern", "cache*.example.net", "for", "168h", "uses", "7", "why", why}, []string{`value="cache*.example.net"`, `value="168h" selected`, `value="7"`},
			func() bool { a, err := p.Allowances(f.Context()); return err == nil && len(a) == 1 && a[0].Uses == 7 }},
		"pause":  {"/enrollment/pause", []string{"site", "", "why", why}, []string{"Pause enrollment?"}, func() bool { return len(p.Pauses()) == 1 }},
		"reload": {"/policies/reload", []string{"why", why}, []string{"Reload"}, func() bool { return strings.Contains(f.Log(), `"policy reloaded"`) }},
	} {
		f.Clock.Advance(2 * time.Hour)
		a := v.post(form.path, form.fields...)
		if a.status != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, a.status)
		}
		says(t, a.body, "nothing was done", "what you have filled in is there again", `type="password"`)
		carried := carries(a.body)
		wrong := v.post("/login", append(carried, "token", "none")...)
		if got := carries(wrong.body); wrong.status != http.StatusUnauthorized || !slices.Equal(got, carried) {
			t.Errorf("%s: with a wrong token %d, and %q is carried on, want %q", name, wrong.status, got, carried)
		}
		a = v.post("/login", append(carried, "token", tokenOf(t, f, "anna", key))...)
		if a.status != http.StatusOK || cookieNamed(a, "session") == "" {
			t.Fatalf("%s: signed in: %d %s", name, a.status, a.body)
		}
		says(t, a.body, append(form.shows, "nothing was done yet", `value="the rack &#34;4&#34; &amp; the &lt;door&gt;"`, "Sign out")...)
		if form.done() {
			t.Errorf("%s: done by signing in", name)
		}
		fields := append(carries(a.body), "why", why)
		if name == "allow" {
			fields = form.fields // which are shown, and not hidden
		}
		if a := v.post(form.path, fields...); a.status != http.StatusSeeOther {
			t.Errorf("%s: sent again: %d %s", name, a.status, a.body)
		}
		f.Eventually(name+" is done", form.done)
	}
}

// approvedOne reports whether the one that waits is approved.
func approvedOne(f *testbed.Fleet, w []*provisioner.Waiter) bool {
	if len(w) != 1 {
		return false
	}
	a, err := f.Daemon().Operator().Approval(f.Context(), w[0])
	return err == nil && a != nil
}

// TestAFormOfAnotherTabIsShownAgain signs in in another tab while a form is open: its secret
// is not good any more. It does nothing, and is there again, as it was filled in.
func TestAFormOfAnotherTabIsShownAgain(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	key, _ := added(t, f, "anna", provisioner.RoleOperator, false)
	v := stranger(t, f, nil)
	v.see("/login")
	v.post("/login", "token", tokenOf(t, f, "anna", key))
	const revoke = "/nodes/web1.example.net/do/revoke"
	fields, old := append(carries(v.see(revoke)), "why", "stolen from the rack"), v.form
	v.post("/login", "token", tokenOf(t, f, "anna", key))
	v.form = old
	a := v.post(revoke, fields...)
	if a.status != http.StatusForbidden || v.form == old {
		t.Errorf("%d, the same secret: %v", a.status, v.form == old)
	}
	says(t, a.body, "This form is too old", "nothing was done", `value="stolen from the rack"`)
	if got := f.Record("web1.example.net").State; got != provisioner.StateProvisioned {
		t.Fatalf("the node is %s", got)
	}
	if a := v.post(revoke, append(carries(a.body), "why", "stolen from the rack")...); a.status != http.StatusSeeOther {
		t.Errorf("sent again: %d %s", a.status, a.body)
	}
	if got := f.Record("web1.example.net").State; got != provisioner.StateRevoked {
		t.Errorf("the node is %s", got)
	}
}

// TestNoFormOfOthersDoesAnything sends each form that there is with another secret than the
// browser's.
func TestNoFormOfOthersDoesAnything(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	waits(t, f, "db1.example.net")
	v := signedIn(t, f, "anna", provisioner.RoleAdmin)
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	one := box(t, v.see("/approvals"), "db1.example.net")
	v.post("/allow", "pattern", "old*.example.net", "for", "24h", "why", "there before")
	before := world(t, f)
	owned := carries(v.see("/nodes/web1.example.net/do/revoke"))
	secrets := map[string]string{"none": "", "a guess": strings.Repeat("A", len(v.form))}
	for _, path := range []string{
		"/nodes/web1.example.net/do/revoke", "/nodes/web1.example.net/do/retire", "/nodes/web1.example.net/do/grant", "/nodes/web1.example.net/do/restart",
		"/tokens/" + unusedToken + "/do/revoke", "/tokens/" + unusedToken + "/do/thaw", "/tokens/" + unusedToken + "/do/release", "/approvals/confirm", "/approvals/decide",
		"/allow", "/allow/remove", "/enrollment/pause", "/enrollment/resume", "/policies/reload", "/policies/replay", "/logout",
	} {
		for name, secret := range secrets {
			v.form = secret
			a := v.post(path, append(slices.Clone(owned),
				"why", "a trick", "each", one, "verdict", "reject", "pattern", "old*.example.net", "for", "24h", "who", strings.Repeat("a", 64), "since", "1h")...)
			if a.status == http.StatusSeeOther {
				t.Errorf("%s, secret %s: %d to %s", path, name, a.status, a.header.Get("Location"))
			}
		}
	}
	if after := world(t, f); !maps.Equal(before, after) {
		t.Errorf("before: %v\nafter:  %v", before, after)
	}
}

// world is all that an operator could have changed.
func world(t testing.TB, f *testbed.Fleet) map[string]int {
	t.Helper()
	p := f.Daemon().Operator()
	allowed, err := p.Allowances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := p.Waiting(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	w := map[string]int{
		"allowed": len(allowed), "waiting": len(waiting), "rejected": len(p.Rejected()), "paused": len(p.Pauses()), "tokens revoked": len(p.Revocations().Tokens()),
		"commands": strings.Count(f.Log(), `"node commanded"`), "reloads": strings.Count(f.Log(), `"policy reloaded"`),
	}
	_, revision, err := f.Daemon().Store().Record(t.Context(), "web1.example.net")
	if err != nil {
		t.Fatal(err)
	}
	w["revision of the record"] = int(revision)
	if g, _, err := f.Daemon().Store().Grant(t.Context(), "web1.example.net"); err != nil {
		t.Fatal(err)
	} else if g != nil {
		w["granted until"] = int(g.ExpiresAt.Unix())
	}
	return w
}

// TestAReasonThatIsNoTextIsRefused gives a reason that JSON would spell with three times as many
// bytes: written down, no provisioner could read the verdict any more, and one that lets a
// machine in would keep it out.
func TestAReasonThatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("db1.example.net")
	f.Refused(n)
	v := signedIn(t, f, "anna", provisioner.RoleOperator)
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	one := box(t, v.see("/approvals"), "db1.example.net")
	a := v.post("/approvals/decide", "verdict", "approve", "each", one, "why", strings.Repeat("\xff", 100))
	if a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, main(a.body))
	}
	says(t, a.body, "not in UTF-8")
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Errorf("it is refused with %s, want it to wait", code)
	}
	// By whatever edge it comes.
	if _, err := f.Daemon().Operator().ApproveNode(f.Context(), "db1.example.net", "", 0, provisioner.Cause{By: "anna", Why: strings.Repeat("\xff", 100)}); err == nil {
		t.Error("the provisioner takes it")
	}
	if a := v.post("/approvals/decide", "verdict", "approve", "each", one, "why", strings.Repeat("ÿ", 100)); a.status != http.StatusSeeOther {
		t.Errorf("200 bytes of text: %d %s", a.status, main(a.body))
	}
	f.Enroll(n)
}

// TestWhatCannotBeSeenIsShown has a machine say of itself what turns text around, or is not seen.
func TestWhatCannotBeSeenIsShown(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("db1.example.net")
	n.Facts = testbed.Facts(t, map[string]any{"role": "web\u202egnp.exe", "serialnumber": "PX-\u200b4711", "rack": "Größe 4 שלום"})
	f.Refused(n)
	v := signedIn(t, f, "anna", provisioner.RoleViewer)
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	says(t, v.see("/approvals"), `<dd>web\u202egnp.exe</dd>`, `<dd>PX-\u200b4711</dd>`, "<dd>Größe 4 שלום</dd>")
	unsaid(t, v.see("/approvals"), "\u202e", "\u200b")
}

// TestWhatIsAskedForIsReadOrRefused asks for pages in ways of which a part would be left out,
// and for what there is not.
func TestWhatIsAskedForIsReadOrRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "anna", provisioner.RoleViewer)
	for path, status := range map[string]int{
		"/approvals?q=web%zz": http.StatusBadRequest, "/nodes?state=revoked;site=ams1": http.StatusBadRequest, "/events?node=%": http.StatusBadRequest,
		"/nodes?cursor=x": http.StatusBadRequest, "/nodes?fact=private=x": http.StatusBadRequest, "/nodes?state=gone": http.StatusBadRequest,
		"/assets/": http.StatusNotFound, "/assets/nosuch": http.StatusNotFound, "/assets/%2e%2e/templates/frame.html": http.StatusNotFound, "/nodes/%00": http.StatusBadRequest,
		"/assets/style.css": http.StatusOK, "/nodes?fact=": http.StatusOK,
	} {
		a := v.get(path)
		if a.status != status {
			t.Errorf("GET %s: %d, want %d", path, a.status, status)
		}
		if status != http.StatusOK {
			says(t, a.body, "<h1>")
		}
	}
}
