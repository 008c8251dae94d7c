package httpapi_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// classes has every route that needs a role: whether it is for operators of sites. A new route fails
// TestOperatorsOfAnotherSiteSeeAndChangeNothing until it is here.
var classes = map[string]string{
	"about a node of theirs": `
		GET /v1/nodes/{identity}
		GET /v1/nodes/{identity}/history
		GET /v1/nodes/{identity}/explain
		POST /v1/nodes/{identity}/approve
		POST /v1/nodes/{identity}/reject
		POST /v1/nodes/{identity}/forget
		POST /v1/nodes/{identity}/grant
		POST /v1/nodes/{identity}/reconfigure
		POST /v1/nodes/{identity}/restart
		POST /v1/nodes/{identity}/reprovision
		POST /v1/nodes/{identity}/shutdown
		POST /v1/nodes/{identity}/revoke
		POST /v1/nodes/{identity}/retire
		GET /v1/certificates/{identity}/{name}
		POST /v1/certificates/{identity}/{name}/approve
		POST /v1/certificates/{identity}/{name}/reject
		POST /v1/certificates/{identity}/{name}/revoke
		GET /v1/tokens/{tid}
		POST /v1/tokens/{tid}/revoke
		POST /v1/tokens/{tid}/release`,
	"cut to their sites": `
		GET /v1/self
		GET /v1/status
		GET /v1/nodes
		GET /v1/waiting
		GET /v1/certificates
		GET /v1/tokens
		GET /v1/events`,
	"not for them": `
		GET /metrics
		GET /v2/features
		GET /v1/allow
		GET /v1/components
		GET /v1/inputs
		GET /v1/operators
		GET /v1/policy
		GET /v1/sessions
		GET /v1/settings
		GET /v1/signers
		GET /v1/webhooks
		POST /v1/allow
		POST /v1/allow/import
		POST /v1/allow/remove
		POST /v1/backup
		POST /v1/clock/accept
		POST /v1/operators
		POST /v1/operators/{name}/remove
		POST /v1/policy/reload
		POST /v1/recovery/end
		POST /v1/sessions/{id}/end
		POST /v1/settings/pause
		POST /v1/settings/resume
		POST /v1/signers
		POST /v1/signers/{id}/remove
		POST /v1/tokens/identify
		POST /v1/tokens/{tid}/unfreeze
		POST /v1/webhooks/{name}/test`,
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

// atFra1 is a fleet whose nodes are at site fra1, with the id of their token.
func atFra1(t *testing.T) (*testbed.Fleet, string) {
	t.Helper()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Site, c.API.Listen, c.API.Addresses = "fra1", "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.Allow("web*.example.net")
	token := f.Token(func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Site: "fra1"}); err != nil {
			t.Fatal(err)
		}
	})
	web, none := f.Node("web1-fra1.example.net"), f.Node("web2.example.net") // the second has no site
	web.Token = token
	given := f.Enroll(web)
	f.Apply(web, given)
	f.Apply(none, f.Enroll(none))
	f.AskService(web, given, "https", "www.fra1.example.net", nil) // waits
	for _, name := range []string{"db1-fra1.example.net", "db2-fra1.example.net"} {
		n := f.Node(name)
		n.Token = token
		f.Refused(n)
	}
	call(t, f, http.MethodPost, "/v1/nodes/db2-fra1.example.net/reject", httpapi.Reason{Why: "fra1"}, nil)
	var named httpapi.TokenID
	call(t, f, http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(token)}, &named)
	f.Eventually("the lists have them", func() bool {
		return len(listed[operate.TokenSummary](t, f, "/v1/tokens")) == 2
	})
	return f, string(named.ID)
}

// limited returns a way to ask as an operator of a site.
func limited(t *testing.T, f *testbed.Fleet, name string, role trust.OperatorRole, site jwt.Site,
) func(method, path string) (int, string) {
	t.Helper()
	key, public := newKey(t)
	var added operate.AddedOperator
	call(t, f, http.MethodPost, "/v1/operators", httpapi.AddOperator{NewOperator: operate.NewOperator{
		Name:        name,
		Role:        role,
		Sites:       trust.Sites{site},
		Public:      public,
		Certificate: true,
	}}, &added)
	c := credential(t, key, added.Chain, f)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      c.Roots,
		Certificates: []tls.Certificate{*c.Certificate},
	}}}
	t.Cleanup(client.CloseIdleConnections)
	return func(method, path string) (status int, body string) {
		t.Helper()
		f.Eventually("an answer to "+path, func() bool {
			var in io.Reader
			if method == http.MethodPost {
				in = strings.NewReader(`{"why": "a test"}`)
			}
			r, err := http.NewRequestWithContext(f.Context(), method, f.Daemon().APIURL()+path, in)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			status, body = resp.StatusCode, string(b)
			return !strings.Contains(body, trust.ErrRevocationsUnknown.Error())
		})
		return status, body
	}
}

// TestOperatorsOfAnotherSiteSeeAndChangeNothing calls every route as an operator of another site.
func TestOperatorsOfAnotherSiteSeeAndChangeNothing(t *testing.T) {
	t.Parallel()
	f, tid := atFra1(t)
	another := limited(t, f, "anna", trust.RoleOperator, "ams1")
	own := limited(t, f, "fred", trust.RoleOperator, "fra1")
	patterns := slices.Sorted(slices.Values(routes().Routes()))
	record, answers := f.Revisions("web1-fra1.example.net"), waitingNames(t, f)
	pathOf := func(pattern string) (method, path string) {
		node := "web1-fra1.example.net"
		for _, verdict := range []string{"/approve", "/reject", "/forget"} {
			if strings.HasSuffix(pattern, "/nodes/{identity}"+verdict) {
				node = map[bool]string{true: "db2-fra1.example.net", false: "db1-fra1.example.net"}[verdict == "/reject"]
			}
		}
		method, path, _ = strings.Cut(strings.NewReplacer("{identity}", node, "{tid}", tid, "{name}", "https", "{id}",
			strings.Repeat("0", 64)).Replace(pattern), " ")
		if path == "/v1/events" {
			path += "?since=1d&once=true"
		}
		return method, path
	}
	for _, pattern := range patterns {
		if role, _ := routes().Access(pattern); role == "" {
			continue
		}
		method, path := pathOf(pattern)
		status, body := another(method, path)
		class := classOf(pattern)
		switch want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[class == "cut to their sites"]; {
		case class == "":
			t.Errorf("%s: say in this test whether it is for operators of sites", pattern)
		case status != want:
			t.Errorf("%s (%s): %d %s, want %d", pattern, class, status, body, want)
		}
		for _, secret := range []string{"fra1", "web2", tid} {
			if strings.Contains(body, secret) {
				t.Errorf("%s tells %q: %s", pattern, secret, body)
			}
		}
		if method == http.MethodPost && !strings.Contains(body, `"title":"Forbidden"`) {
			t.Errorf("%s: %s", pattern, body)
		}
	}
	for _, absent := range []string{"/v1/nodes/web9-fra1.example.net", "/v1/tokens/" + strings.Repeat("0", 32)} {
		if status, body := another(http.MethodGet, absent); status != http.StatusForbidden {
			t.Errorf("%s, which does not exist: %d %s, want the answer of what is not theirs", absent, status, body)
		}
	}
	if f.Revisions("web1-fra1.example.net") != record || !slices.Equal(waitingNames(t, f), answers) {
		t.Error("another site's operator changed something")
	}

	for _, pattern := range patterns {
		class := classOf(pattern)
		if class == "" || class == "not for them" {
			continue
		}
		method, path := pathOf(pattern)
		status, body := own(method, path)
		if status == http.StatusForbidden || method == http.MethodGet &&
			!strings.Contains(body, "fra1") && !strings.Contains(body, `"total":1,`) ||
			strings.Contains(body, "web2") {
			t.Errorf("%s of an operator of that site: %d %s", pattern, status, body)
		}
	}
	if status, body := own(http.MethodGet, "/v1/nodes/web2.example.net"); status != http.StatusForbidden {
		t.Errorf("a node without a site: %d %s", status, body)
	}
	if got := f.Record("web1-fra1.example.net"); got.Operator == nil || got.Operator.By != "operator:fred" {
		t.Errorf("the operator of the site has revoked and retired: %+v", got.Operator)
	}
}

// waitingNames are those of the pending list, and of the rejected keys.
func waitingNames(t *testing.T, f *testbed.Fleet) (names []string) {
	t.Helper()
	var p httpapi.Pending
	call(t, f, http.MethodGet, "/v1/waiting", nil, &p)
	for _, w := range p.Waiting {
		names = append(names, string(w.Identity))
	}
	for _, a := range p.Rejected {
		names = append(names, "rejected "+string(a.Identity))
	}
	return names
}

// TestSitesAreForViewersAndOperators adds operators whose sites cannot be a limit.
func TestSitesAreForViewersAndOperators(t *testing.T) {
	t.Parallel()
	f := served(t)
	_, public := newKey(t)
	for _, n := range []operate.NewOperator{
		{Role: trust.RoleAdmin, Sites: trust.Sites{"ams1"}},
		{Role: trust.RoleViewer, Sites: trust.Sites{"no site"}},
		{Role: trust.RoleOperator, Sites: make(trust.Sites, 65)},
	} {
		n.Name, n.Public = "anna", public
		if p := refused(t, f, http.MethodPost, "/v1/operators",
			httpapi.AddOperator{NewOperator: n}); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "site") {
			t.Errorf("%s with sites %q: %+v", n.Role, n.Sites, p)
		}
	}
}
