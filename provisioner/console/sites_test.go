package console_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner/console"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// classes has every page: whether it is for operators of sites. A new page fails
// TestOperatorsOfAnotherSiteSeeNoPage until it is here.
var classes = map[string]string{
	"about a node of theirs": `
		GET /nodes/{identity}
		GET /nodes/{identity}/do/{action}
		POST /nodes/{identity}/do/{action}
		GET /certificates/{identity}/{name}
		GET /certificates/{identity}/{name}/do/{action}
		POST /certificates/{identity}/{name}/do/{action}
		GET /tokens/{tid}
		GET /tokens/{tid}/do/{action}
		POST /tokens/{tid}/do/{action}
		POST /approvals/decide`,
	"cut to their sites": `
		GET /{$}
		GET /nodes
		GET /nodes.csv
		GET /nodes.json
		GET /certificates.csv
		GET /certificates.json
		GET /tokens.csv
		GET /tokens.json
		GET /approvals
		GET /certificates
		GET /tokens
		GET /events`,
	"names nothing": `
		GET /live
		GET /login/command
		POST /login/command`,
	"not for them": `
		POST /policies/try
		GET /configuration
		GET /tokens/new
		POST /many
		GET /jobs
		GET /jobs/{id}
		POST /jobs/{id}
		GET /authority
		GET /backups
		GET /components
		GET /operators
		GET /signers
		GET /webhooks
		GET /installation
		GET /allow
		POST /allow
		GET /allow/do/{action}
		POST /allow/do/{action}
		GET /do/{action}
		POST /do/{action}
		GET /policies
		GET /policies/do/{action}
		POST /policies/do/{action}
		GET /sessions
		GET /sessions/{id}/do/{action}
		POST /sessions/{id}/do/{action}`,
}

func classOf(pattern string) string {
	for class, patterns := range classes {
		for line := range strings.Lines(patterns) {
			if strings.TrimSpace(line) == pattern {
				return class
			}
		}
	}
	return ""
}

// ofSite returns a visitor that is signed in as an operator of a site.
func ofSite(t *testing.T, f *testbed.Fleet, name string, site jwt.Site) *visitor {
	t.Helper()
	key, _ := added(t, f, name, trust.RoleOperator, false)
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Daemon().Orders().Operators.Add(f.Context(), operate.NewOperator{
		Name:   name,
		Role:   trust.RoleOperator,
		Sites:  trust.Sites{site},
		Public: public,
	}, testbed.Operator())
	if err != nil {
		t.Fatal(err)
	}
	v := stranger(t, f, nil)
	v.see("/login")
	if a := v.post("/login", "token", tokenOf(t, f, name, key)); a.status != http.StatusSeeOther {
		t.Fatalf("sign in: %d %s", a.status, a.body)
	}
	return v
}

// TestOperatorsOfAnotherSiteSeeNoPage visits every page as an operator of another site, and then of the nodes' site.
func TestOperatorsOfAnotherSiteSeeNoPage(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Site, c.API.Listen, c.API.Addresses = "fra1", "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.Allow("web*.example.net")
	token := f.Token(func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Site: "fra1"}); err != nil {
			t.Fatal(err)
		}
	})
	web, none, db := f.Node("web1-fra1.example.net"), f.Node("web2.example.net"), f.Node("db1-fra1.example.net")
	web.Token, db.Token = token, token
	given := f.Enroll(web)
	f.Apply(web, given)
	f.Apply(none, f.Enroll(none)) // has no site
	f.AskService(web, given, "https", "www.fra1.example.net", nil)
	f.Refused(db)
	tid := string(f.Record("web1-fra1.example.net").Token)
	waiting, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "db1-fra1.example.net")
	if err != nil || len(waiting) != 1 {
		t.Fatalf("pending: %v, %v", waiting, err)
	}
	key := waiting[0].KeyHash
	another, own := ofSite(t, f, "anna", "ams1"), ofSite(t, f, "fred", "fra1")
	fill := strings.NewReplacer("{$}", "", "{identity}", "web1-fra1.example.net", "{name}", "https", "{tid}", tid,
		"{id}", "0", "{action}", "revoke")
	visit := func(v *visitor, pattern string) answer {
		t.Helper()
		method, path, _ := strings.Cut(fill.Replace(pattern), " ")
		if method == http.MethodPost {
			return v.post(path, "verdict", "reject", "each", "db1-fra1.example.net/"+key, "seen", "1-1", "why", "a test")
		}
		return v.get(path)
	}
	for _, pattern := range console.Routes() {
		class := classOf(pattern)
		if class == "names nothing" {
			continue
		}
		another.see("/nodes")
		a := visit(another, pattern)
		switch want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[class == "cut to their sites"]; {
		case class == "":
			t.Errorf("%s: say in this test whether it is for operators of sites", pattern)
		case a.status != want:
			t.Errorf("%s (%s): %d %s, want %d", pattern, class, a.status, main(a.body), want)
		}
		_, path, _ := strings.Cut(fill.Replace(pattern), " ")
		path, _, _ = strings.Cut(path, "/do/")
		if len(path) > 1 {
			a.body = strings.ReplaceAll(a.body, path, "") // the address, in the link to go back
		}
		for _, secret := range []string{"fra1", "web2", tid, key} {
			if strings.Contains(a.body, secret) {
				t.Errorf("%s tells %q: %s", pattern, secret, a.body)
			}
		}
	}
	if r := f.Record("web1-fra1.example.net"); r.Operator != nil {
		t.Errorf("another site's operator changed the node: %+v", r.Operator)
	}
	for _, path := range []string{"/", "/nodes", "/nodes.csv", "/certificates.csv", "/tokens.csv", "/nodes?q=db1-fra1", "/approvals", "/certificates", "/tokens", "/events",
		"/nodes/web1-fra1.example.net", "/nodes/db1-fra1.example.net", "/certificates/web1-fra1.example.net/https",
		"/tokens/" + tid, "/nodes/web1-fra1.example.net/do/revoke"} {
		page := own.see(path)
		says(t, page, "fra1")
		if strings.Contains(page, "web2") || strings.Contains(page, `href="/policies"`) {
			t.Errorf("%s shows what is not of the site: %s", path, page)
		}
	}
}
