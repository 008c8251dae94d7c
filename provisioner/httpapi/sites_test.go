package httpapi_test

import (
	"crypto/tls"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/console"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// classes has every route of the API that needs a role, and every page of the console: whether it is for operators of
// sites. A new one fails TestOperatorsOfAnotherSiteSeeAndChangeNothing until it is here.
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
		POST /v1/tokens/{tid}/release
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
		GET /v1/self
		GET /v1/status
		GET /v1/nodes
		GET /v1/waiting
		GET /v1/certificates
		GET /v1/tokens
		GET /v1/events
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
		GET /events
		GET /events.csv
		GET /events.json`,
	"names nothing, or is for console.TestManyAtOneSite": `
		GET /live
		POST /many
		GET /jobs
		GET /jobs/{id}
		POST /jobs/{id}
		GET /login/command
		POST /login/command`,
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
		POST /v1/webhooks/{name}/test
		POST /policies/try
		GET /configuration
		GET /tokens/new
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

// isPage reports whether a path or pattern is of the console.
func isPage(path string) bool {
	_, path, _ = strings.Cut(path, "/")
	return !strings.HasPrefix(path, "v1/") && path != "metrics" && path != "v2/features"
}

// A fra1 is a fleet whose nodes are at site fra1, but for web2, which has no site.
type fra1 struct {
	*testbed.Fleet

	token, tid string

	key    string // hash of the key of db1, which waits; that of db2 is rejected
	serial string // of web1
}

func atFra1(t *testing.T) *fra1 {
	t.Helper()
	f := &fra1{Fleet: testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Site, c.API.Listen, c.API.Addresses = "fra1", "127.0.0.1:0", []string{"127.0.0.1"}
	}})}
	f.Allow("web*.example.net")
	f.token = f.Token(func(c *jwt.Claims) {
		c.JTI = "order_4711"
		if err := c.SetLimits(jwt.Limits{Site: "fra1"}); err != nil {
			t.Fatal(err)
		}
	})
	web, none := f.Node("web1-fra1.example.net"), f.Node("web2.example.net")
	web.Token, web.Facts = f.token, testbed.Facts(t, map[string]any{"role": "www-fra1"})
	given := f.Enroll(web)
	f.Apply(web, given)
	f.Apply(none, f.Enroll(none))
	f.AskService(web, given, "https", "www.fra1.example.net", nil) // waits
	for _, name := range []string{"db1-fra1.example.net", "db2-fra1.example.net"} {
		n := f.Node(name)
		n.Token = f.token
		f.Refused(n)
	}
	call(t, f.Fleet, http.MethodPost, "/v1/nodes/db2-fra1.example.net/reject", httpapi.Reason{Why: "fra1"}, nil)
	var named httpapi.TokenID
	call(t, f.Fleet, http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(f.token)}, &named)
	f.tid = string(named.ID)
	f.Eventually("the lists have them", func() bool {
		var p httpapi.Pending
		call(t, f.Fleet, http.MethodGet, "/v1/waiting?prefix=db1", nil, &p)
		for _, w := range p.Waiting {
			f.key = w.KeyHash
		}
		return f.key != "" && len(listed[operate.TokenSummary](t, f.Fleet, "/v1/tokens")) == 2
	})
	f.serial = f.Record("web1-fra1.example.net").Current.Serial
	return f
}

// An answer is what an operator got.
type answer struct {
	status int
	header http.Header
	body   string
}

// formSecret is what the console's forms repeat of their cookie.
var formSecret = strings.Repeat("A", 26)

// An asker asks the API or the console as an operator with a certificate. A form has fields: name, value, and so on.
type asker func(method, path string, fields ...string) answer

func (f *fra1) as(t *testing.T, name string, role trust.OperatorRole, sites ...jwt.Site) asker {
	t.Helper()
	key, public := newKey(t)
	var added operate.AddedOperator
	call(t, f.Fleet, http.MethodPost, "/v1/operators", httpapi.AddOperator{NewOperator: operate.NewOperator{
		Name:        name,
		Role:        role,
		Sites:       sites,
		Public:      public,
		Certificate: true,
	}}, &added)
	c := credential(t, key, added.Chain, f.Fleet)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			RootCAs:      c.Roots,
			Certificates: []tls.Certificate{*c.Certificate},
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(client.CloseIdleConnections)
	return func(method, path string, fields ...string) (a answer) {
		t.Helper()
		in, form := `{"why": "a test"}`, "application/json"
		if isPage(path) {
			v := url.Values{"form": {formSecret}}
			for i := 0; i < len(fields); i += 2 {
				v.Add(fields[i], fields[i+1])
			}
			in, form = v.Encode(), "application/x-www-form-urlencoded"
		}
		if method != http.MethodPost {
			in = ""
		}
		f.Eventually("an answer to "+path, func() bool {
			r, err := http.NewRequestWithContext(f.Context(), method, f.Daemon().APIURL()+path, strings.NewReader(in))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", form)
			r.Header.Set("Cookie", "__Host-muster-form="+formSecret)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			a = answer{resp.StatusCode, resp.Header, string(b)}
			return !strings.Contains(a.body, trust.ErrRevocationsUnknown.Error())
		})
		return a
	}
}

// ask calls a route about web1, or about the waiting or rejected key that it is for.
func (f *fra1) ask(as asker, pattern string) (path string, a answer) {
	node := "web1-fra1.example.net"
	for _, verdict := range []string{"/approve", "/reject", "/forget"} {
		if strings.HasSuffix(pattern, "/nodes/{identity}"+verdict) {
			node = map[bool]string{true: "db2-fra1.example.net", false: "db1-fra1.example.net"}[verdict == "/reject"]
		}
	}
	method, path, _ := strings.Cut(strings.NewReplacer("{$}", "", "{identity}", node, "{tid}", f.tid, "{name}", "https",
		"{id}", strings.Repeat("0", 64), "{action}", "revoke").Replace(pattern), " ")
	if path == "/v1/events" {
		path += "?since=1d&once=true"
	}
	return path, as(method, path, "verdict", "reject", "each", "db1-fra1.example.net/"+f.key, "seen", "1-1",
		"why", "a test")
}

// tells returns what of the site or of web2 a text has.
func (f *fra1) tells(text string) string {
	for _, secret := range []string{"fra1", "web2", f.tid[:12], f.key[:12], f.serial[:12]} {
		if strings.Contains(text, secret) {
			return secret
		}
	}
	return ""
}

// allRoutes are the patterns of the API's routes that need a role, and of the console's pages.
func allRoutes() []string {
	all := slices.DeleteFunc(routes().Routes(), func(pattern string) bool {
		role, _ := routes().Access(pattern)
		return role == ""
	})
	return slices.Sorted(slices.Values(append(all, console.Routes()...)))
}

// TestOperatorsOfAnotherSiteSeeAndChangeNothing calls every route and visits every page as an operator of another site,
// and then as one of the nodes' site.
func TestOperatorsOfAnotherSiteSeeAndChangeNothing(t *testing.T) {
	t.Parallel()
	f := atFra1(t)
	another, own := f.as(t, "anna", trust.RoleOperator, "ams1"), f.as(t, "fred", trust.RoleOperator, "fra1")
	record, answers := f.Revisions("web1-fra1.example.net"), waitingNames(t, f.Fleet)
	for _, pattern := range allRoutes() {
		class := classOf(pattern)
		if class == "names nothing, or is for console.TestManyAtOneSite" {
			continue
		}
		path, a := f.ask(another, pattern)
		switch want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[class == "cut to their sites"]; {
		case class == "":
			t.Errorf("%s: say in this test whether it is for operators of sites", pattern)
		case a.status != want:
			t.Errorf("%s (%s): %d %s, want %d", pattern, class, a.status, a.body, want)
		}
		if path, _, _ = strings.Cut(path, "/do/"); isPage(path) && len(path) > 1 {
			a.body = strings.ReplaceAll(a.body, path, "") // the address, in the link to go back
		}
		if secret := f.tells(a.body); secret != "" {
			t.Errorf("%s tells %q: %s", pattern, secret, a.body)
		}
	}
	for _, absent := range []string{"/v1/nodes/web9-fra1.example.net", "/v1/tokens/" + strings.Repeat("0", 32)} {
		if a := another(http.MethodGet, absent); a.status != http.StatusForbidden {
			t.Errorf("%s, which does not exist: %d %s, want the answer of what is not theirs", absent, a.status, a.body)
		}
	}
	if f.Revisions("web1-fra1.example.net") != record || !slices.Equal(waitingNames(t, f.Fleet), answers) {
		t.Error("another site's operator changed something")
	}

	for _, pattern := range allRoutes() {
		class, page := classOf(pattern), isPage(pattern)
		get := strings.HasPrefix(pattern, http.MethodGet)
		if class == "names nothing, or is for console.TestManyAtOneSite" || class == "not for them" || page && !get {
			continue
		}
		if _, a := f.ask(own, pattern); a.status == http.StatusForbidden ||
			get && f.tells(a.body) == "" && !strings.Contains(a.body, `"total":1,`) ||
			strings.Contains(a.body, "web2") {
			t.Errorf("%s of an operator of that site: %d %s", pattern, a.status, a.body)
		}
	}
	if a := own(http.MethodGet, "/v1/nodes/web2.example.net"); a.status != http.StatusForbidden {
		t.Errorf("a node without a site: %d %s", a.status, a.body)
	}
	if got := f.Record("web1-fra1.example.net"); got.Operator == nil || got.Operator.By != "operator:fred" {
		t.Errorf("the operator of the site has revoked and retired: %+v", got.Operator)
	}
}

// TestFiltersTellNothingOfOtherSites compares what another site's operator gets for something that exists with what
// the same request gets for nothing.
func TestFiltersTellNothingOfOtherSites(t *testing.T) {
	t.Parallel()
	f := atFra1(t)
	another := f.as(t, "anna", trust.RoleOperator, "ams1")
	record := f.Record("web1-fra1.example.net")
	other := func(hash string) string {
		return strings.NewReplacer("0", "1", "a", "b").Replace(strings.ReplaceAll(hash, "7", "8"))
	}
	exists := map[string]string{ // with something of the same form that does not
		"web1-fra1.example.net": "web7-fra7.example.net",
		"web2.example.net":      "web7.example.net",
		"db1-fra1.example.net":  "db7-fra7.example.net",
		"db1-":                  "db7-",
		"*fra1*":                "*fra7*",
		"role=www-fra1":         "role=www-fra7",
		"127.0.0.1":             "127.0.0.7",
		"fra1":                  "fra7",
		f.tid:                   other(f.tid),
		"order_4711":            "order_4722",
		f.serial:                other(f.serial),
		f.key:                   other(f.key),
		record.Current.KeyHash:  other(record.Current.KeyHash),
		record.Decision.Policy:  other(record.Decision.Policy),
	}
	for _, route := range []string{"/nodes?q=", "/nodes.csv?q=", "/nodes.json?q=", "/nodes?site=", "/nodes?token=",
		"/nodes?fact=", "/nodes?policy=", "/nodes?match=", "/nodes?prefix=", "/events?node=", "/events?since=1d&node=",
		"/approvals?q=", "/certificates?match=", "/certificates.csv?match=", "/certificates?name=", "/tokens/",
		"/nodes/", "/v1/nodes?site=", "/v1/nodes?token=", "/v1/nodes?fact=", "/v1/nodes?policy=", "/v1/nodes?match=",
		"/v1/nodes?prefix=", "/v1/events?once=true&since=1d&node=", "/v1/waiting?prefix=", "/v1/waiting?site=",
		"/v1/waiting?source=", "/v1/waiting?match=", "/v1/certificates?match=", "/v1/certificates?name=", "/v1/tokens/",
		"/v1/nodes/"} {
		for real, none := range exists {
			ask := func(text string) string {
				a := another(http.MethodGet, route+strings.ReplaceAll(url.PathEscape(text), "=", "%3D"))
				shown := strings.NewReplacer(text, "TEXT", url.QueryEscape(text), "TEXT", url.PathEscape(text), "TEXT",
					text[:min(12, len(text))], "TEXT").Replace(a.body)
				return strconv.Itoa(a.status) + " " + shown
			}
			if got, want := ask(real), ask(none); got != want {
				t.Errorf("%s tells that %q exists: %s\nwant %s", route, real, got, want)
			}
		}
	}
	if a := another(http.MethodGet, "/v1/status"); strings.Contains(a.body, "last_hour") {
		t.Errorf("what is counted for all sites: %s", a.body)
	}
	for _, order := range []string{"name", "-name", "seen", "changed", "expires", "-expires"} {
		if a := another(http.MethodGet, "/nodes?page=1&limit=1&sort="+order); f.tells(a.body) != "" {
			t.Errorf("sorted by %s: %s", order, a.body)
		}
	}
}

var (
	links = regexp.MustCompile(`href="(/[^"]*)"`)
	forms = regexp.MustCompile(`<form[^>]*method="post"[^>]*action="([^"#]*)[^"]*"`)
	asked = regexp.MustCompile(`\.May "([^"]*)"`)
)

// TestPagesOfferOnlyWhatIsAllowed follows every link and sends every form without a reason, which changes nothing, as
// operators of each role.
func TestPagesOfferOnlyWhatIsAllowed(t *testing.T) {
	t.Parallel()
	f := atFra1(t)
	taken, anywhere := f.Node("web2.example.net"), f.Node("db3.example.net") // the second has a token without a site
	taken.Token = f.token
	f.Refused(taken)
	f.Refused(anywhere)
	for _, site := range []jwt.Site{"", "fra1"} {
		call(t, f.Fleet, http.MethodPost, "/v1/settings/pause", httpapi.NewPause{Site: site, Why: "a test"}, nil)
	}
	call(t, f.Fleet, http.MethodPost, "/v1/allow", httpapi.NewAllowance{
		AllowOrder: operate.AllowOrder{Pattern: "lb*.example.net", Expires: time.Hour}}, nil)
	for name, one := range map[string]struct {
		role   trust.OperatorRole
		sites  trust.Sites
		shows  string
		orders bool
	}{
		"viewer":   {trust.RoleViewer, nil, "/operators", false},
		"auditor":  {trust.RoleAuditor, nil, "/configuration", false},
		"operator": {trust.RoleOperator, nil, "/many", true},
		"admin":    {trust.RoleAdmin, nil, "/policies/try", true},
		"vera":     {trust.RoleViewer, trust.Sites{"fra1"}, "/nodes/web1-fra1.example.net", false},
		"fred":     {trust.RoleOperator, trust.Sites{"fra1"}, "/nodes/web1-fra1.example.net/do/revoke", true},
	} {
		as, seen, next, from := f.as(t, name, one.role, one.sites...), map[string]bool{}, []string{"/"}, map[string]string{}
		once := func(path string) bool {
			u, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			kind := u.Path + " " + strings.Join(slices.Sorted(maps.Keys(u.Query())), " ")
			had := seen[kind]
			seen[kind], seen[u.Path] = true, true
			return !had && !strings.HasPrefix(path, "/assets/")
		}
		for len(next) > 0 {
			page := next[0]
			next = next[1:]
			a := as(http.MethodGet, page)
			if a.status == http.StatusForbidden || a.status >= 500 {
				t.Errorf("%s follows a link from %s to %s: %d %s", name, from[page], page, a.status, a.body)
			}
			for _, m := range links.FindAllStringSubmatch(a.body, -1) {
				if to := html.UnescapeString(m[1]); once(to) {
					next, from[to] = append(next, to), page
				}
			}
			for _, m := range forms.FindAllStringSubmatch(a.body, -1) {
				to := html.UnescapeString(m[1])
				if seen[to] = true; !one.orders {
					t.Errorf("%s changes nothing, and %s has a form for %s", name, page, to)
				} else if b := as(http.MethodPost, to); b.status == http.StatusForbidden || b.status >= 500 {
					t.Errorf("%s sends the form of %s to %s: %d %s", name, page, to, b.status, b.body)
				}
			}
		}
		if !seen[one.shows] || len(seen) < 20 {
			t.Errorf("%s is not led to %s, but to %v", name, one.shows, slices.Sorted(maps.Keys(seen)))
		}
	}
	// A mistyped pattern would hide what it guards from everybody.
	pages, err := filepath.Glob("../console/templates/*.html")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(console.Routes(), m[1]) {
				t.Errorf("%s asks for %q, which is no route", page, m[1])
			}
		}
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
