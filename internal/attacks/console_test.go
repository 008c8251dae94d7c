package attacks_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// A browser keeps cookies and the secret of the last form.
type browser struct {
	tg     *target
	client *http.Client
	form   string
}

// browser returns a browser with a client certificate, nil for none.
func (tg *target) browser(certificate *tls.Certificate) *browser {
	tg.t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AppendCertsFromPEM([]byte(tg.read("ca/root.pem")))
	if certificate != nil {
		cfg.Certificates = []tls.Certificate{*certificate}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		tg.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	tg.t.Cleanup(transport.CloseIdleConnections)
	return &browser{tg: tg, client: &http.Client{
		Transport:     transport,
		Jar:           jar,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var formSecret = regexp.MustCompile(`name="form" value="([^"]*)"`)

// do sends a request, and returns its status, header and body.
func (b *browser) do(method, path, body string, header ...string) (*http.Response, string) {
	b.tg.t.Helper()
	r, err := http.NewRequestWithContext(within(b.tg.t), method, "https://"+b.tg.api+path, strings.NewReader(body))
	if err != nil {
		b.tg.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for h := range slices.Chunk(header, 2) {
		if h[0] == "Host" {
			r.Host = h[1]
		}
		r.Header.Set(h[0], h[1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.tg.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.tg.t.Fatal(err)
	}
	if m := formSecret.FindSubmatch(text); m != nil {
		b.form = string(m[1])
	}
	return resp, string(text)
}

// signIn makes an operator and signs in with a token of theirs.
func (b *browser) signIn(name, role string) {
	t := b.tg.t
	t.Helper()
	b.tg.must("operator", "add", name, "--role", role, "--certificate", "--out", name+".pem", "--why", "test")
	b.tg.t.Cleanup(func() { _ = os.Remove(filepath.Join(b.tg.dir, name+".pem")) })
	var status struct {
		Installation string `json:"installation"`
	}
	b.tg.list(&status, "status")
	token := b.tg.must("operator", "token", name, "--key", name+".pem", "--installation", status.Installation)
	b.do(http.MethodGet, "/login", "")
	resp, page := b.do(http.MethodPost, "/login",
		url.Values{"token": {strings.TrimSpace(token)}, "form": {b.form}}.Encode())
	if resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("sign in: %d: %s", resp.StatusCode, page)
	}
	b.do(http.MethodGet, "/nodes", "")
}

// TestForeignForms has the browsers of a viewer, of an operator on another site's page, and of strangers send forms.
// Each is refused, and the node stays.
func TestForeignForms(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	n, e := tg.provision("web1.example.net")
	anna, vera := tg.browser(nil), tg.browser(nil)
	anna.signIn("anna", "operator")
	vera.signIn("vera", "viewer")
	leaf, err := tls.X509KeyPair([]byte(e.Certificate), keyPEM(t, n.Key))
	if err != nil {
		t.Fatal(err)
	}
	stranger, node := tg.browser(nil), tg.browser(&leaf)
	const revoke, why = "/nodes/web1.example.net/do/revoke", "why=a+trick"
	form := func(b *browser) string { return why + "&form=" + url.QueryEscape(b.form) }
	const forbidden, toLogin, missing = http.StatusForbidden, http.StatusSeeOther, http.StatusNotFound
	for name, tt := range map[string]struct {
		by                 *browser
		method, path, body string
		header             []string
		want               []int
	}{
		"no secret of the form":     {anna, "POST", revoke, why, nil, []int{forbidden}},
		"a guessed secret":          {anna, "POST", revoke, why + "&form=" + strings.Repeat("A", 22), nil, []int{forbidden}},
		"another operator's secret": {anna, "POST", revoke, form(vera), nil, []int{forbidden}},
		"a page of another site": {anna, "POST", revoke, form(anna), []string{"Sec-Fetch-Site", "cross-site"},
			[]int{forbidden}},
		"another origin": {anna, "POST", revoke, form(anna), []string{"Origin", "https://evil.example.net"},
			[]int{forbidden}},
		"an origin of null": {anna, "POST", revoke, form(anna), []string{"Origin", "null"}, []int{forbidden}},
		"the secret in the address": {anna, "POST", revoke + "?" + form(anna), "", nil,
			[]int{forbidden, http.StatusBadRequest}},
		"a viewer":          {vera, "POST", revoke, form(vera), nil, []int{forbidden}},
		"a stranger":        {stranger, "POST", revoke, form(anna), nil, []int{forbidden, toLogin, http.StatusUnauthorized}},
		"a node":            {node, "POST", revoke, form(anna), nil, []int{forbidden, toLogin, http.StatusUnauthorized}},
		"a node at the API": {node, "GET", "/v1/nodes", "", nil, []int{forbidden, http.StatusUnauthorized}},
		"a token of a node": {stranger, "GET", "/v1/nodes", "", []string{"Authorization", "Bearer " + n.Token}, []int{401}},
		"a session of no one": {stranger, "GET", "/nodes", "", []string{"Cookie", "__Host-muster-session=AAAA"},
			[]int{toLogin}},
		"a name from a proxy": {stranger, "GET", "/v1/nodes", "",
			[]string{"X-Forwarded-User", "anna", "X-Remote-User", "anna", "X-SSL-Client-DN", "CN=anna"}, []int{401}},
		"another method by header": {vera, "POST", "/nodes/web1.example.net", form(vera),
			[]string{"X-HTTP-Method-Override", "DELETE"}, []int{http.StatusMethodNotAllowed, forbidden, missing}},
		"a path out of the assets": {anna, "GET", "/assets/..%2f..%2fprovisioner.yaml", "", nil, []int{missing}},
		"a name that climbs":       {anna, "GET", "/nodes/..%2f..%2fetc%2fpasswd", "", nil, []int{400, missing}},
		"a login to elsewhere": {anna, "POST", "/login", "token=x&next=https://evil.example.net&form=" + anna.form, nil,
			[]int{401}},
		"a megabyte of form": {anna, "POST", revoke, form(anna) + "&x=" + strings.Repeat("x", 1<<20), nil,
			[]int{400, http.StatusRequestEntityTooLarge}},
		"a verdict on a key that nobody has": {vera, "POST", "/approvals/decide", form(vera) + "&verdict=approve", nil,
			[]int{forbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, page := tt.by.do(tt.method, tt.path, tt.body, tt.header...)
			if !slices.Contains(tt.want, resp.StatusCode) {
				t.Errorf("%d, want one of %v: %.300s", resp.StatusCode, tt.want, page)
			}
			if to := resp.Header.Get("Location"); to != "" && !strings.HasPrefix(to, "/login?") {
				t.Errorf("it leads to %q", to)
			}
		})
	}
	if left := tg.must("node", "list", "--state", "provisioned", "-o", "name"); left != "web1.example.net\n" {
		t.Errorf("the provisioned nodes are %q", left)
	}
}

// TestHostileTextOnPages has a node send markup as facts and names. No page shows it as markup, and no page allows
// inline scripts or foreign addresses.
func TestHostileTextOnPages(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	const markup = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	token := tg.token(nil)
	nc := tg.dial(token)
	n := tg.node("web1.example.net", token)
	n.Facts = []byte(`{"role":"\"><script>alert(1)</script><img src=x onerror=alert(2)>"}`)
	tg.ask(nc, n.Request())
	bad := tg.node(markup, token)
	if r, err := simnode.Enroll(within(t), nc, bad.Request()); err != nil || r.Refusal == nil ||
		r.Refusal.Code != wire.CodeIdentityInvalid {
		t.Fatalf("%+v, %v", r, err)
	}
	anna := tg.browser(nil)
	anna.signIn("anna", "admin")
	for _, path := range []string{
		"/", "/nodes", "/nodes?q=%22%3E%3Cscript%3E", "/nodes?fact=role%3D%3Cscript%3E", "/nodes/web1.example.net",
		"/approvals", "/allow?pattern=%22%3E%3Cscript%3E", "/tokens", "/policies", "/events", "/login", "/nothing%3Cscript%3E",
	} {
		resp, page := anna.do(http.MethodGet, path, "")
		if strings.Contains(page, "<script>") || strings.Contains(page, "<img src=x") {
			t.Errorf("%s shows markup", path)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
			strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
}
