package httpapi_test

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/keyfile"
	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// served returns a fleet whose provisioner serves HTTPS.
func served(t *testing.T) *testbed.Fleet {
	t.Helper()
	return testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
	}})
}

// newKey returns a P-256 key and its public half as a file has it.
func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return key, public
}

// certified adds an operator over the socket and returns their credential.
func certified(t *testing.T, f *testbed.Fleet, name string, role trust.OperatorRole) httpapi.Credential {
	t.Helper()
	key, public := newKey(t)
	var added operate.AddedOperator
	var names []wire.Pattern
	if role == trust.RoleForeman {
		names = append(names, "build-*.example.net")
	}
	call(t, f, http.MethodPost, "/v1/operators",
		httpapi.AddOperator{NewOperator: operate.NewOperator{
			Name:        name,
			Role:        role,
			Names:       names,
			Public:      public,
			Certificate: true,
		}}, &added)
	return credential(t, key, added.Chain, f)
}

func credential(t *testing.T, key crypto.Signer, chain string, f *testbed.Fleet) httpapi.Credential {
	t.Helper()
	private, err := keyfile.Marshal(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := httpapi.ParseCredential([]byte(string(private) + chain + f.Daemon().RootsPEM()))
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// remote returns a client over HTTPS.
func remote(t *testing.T, f *testbed.Fleet, c httpapi.Credential, token string) *httpapi.Client {
	t.Helper()
	client, err := httpapi.NewRemote(f.Daemon().APIURL(), c, token)
	if err != nil {
		t.Fatal(err)
	}
	return observed(client)
}

// status returns the status of the answer. It repeats the request as told if the machine is slow: no request is
// admitted until operators are known again.
func status(t *testing.T, f *testbed.Fleet, c *httpapi.Client, method, path string, in any) (status int) {
	t.Helper()
	f.Eventually("operators seen", func() bool {
		err := c.Do(f.Context(), method, path, in, nil)
		var p *httpapi.Problem
		switch {
		case err == nil:
			status = http.StatusOK
		case errors.As(err, &p):
			status = p.Status
			return !strings.Contains(p.Detail, trust.ErrRevocationsUnknown.Error())
		default:
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return true
	})
	return status
}

// TestOperatorsLogInByCertificate follows one from being added to removal.
func TestOperatorsLogInByCertificate(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	first := certified(t, f, "anna", trust.RoleOperator)
	anna := remote(t, f, first, "")
	var self httpapi.Self
	if err := anna.Do(f.Context(), http.MethodGet, "/v1/self", nil, &self); err != nil || self.By != "operator:anna" ||
		self.Role != trust.RoleOperator {
		t.Fatalf("self: %+v, %v", self, err)
	}
	const revoke = "/v1/nodes/web1.example.net/revoke"
	if got := status(t, f, anna, http.MethodPost, revoke, httpapi.Reason{Why: " "}); got != http.StatusBadRequest {
		t.Errorf("a change without a reason: %d", got)
	}
	if got := status(t, f, anna, http.MethodPost, revoke, httpapi.Reason{Why: "stolen"}); got != http.StatusOK {
		t.Errorf("revoke: %d", got)
	}
	if r := f.Record("web1.example.net"); r.Operator == nil || r.Operator.By != "operator:anna" ||
		r.Operator.Why != "stolen" {
		t.Errorf("record: %+v", r.Operator)
	}
	if got := status(t, f, anna, http.MethodPost, "/v1/operators",
		httpapi.AddOperator{Why: "more"}); got != http.StatusForbidden {
		t.Errorf("an operator who adds operators: %d", got)
	}

	// Added again, the certificate before is worthless, on the connection that is
	// there as well.
	second := certified(t, f, "anna", trust.RoleViewer)
	if got := status(t, f, anna, http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("the certificate before: %d", got)
	}
	again := remote(t, f, second, "")
	if got := status(t, f, again, http.MethodPost, revoke, httpapi.Reason{Why: "stolen"}); got != http.StatusForbidden {
		t.Errorf("a viewer who revokes: %d", got)
	}
	call(t, f, http.MethodPost, "/v1/operators/anna/remove", httpapi.Reason{Why: "has left"}, nil)
	if got := status(t, f, again, http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("after removal: %d", got)
	}
	f.Eventually("all of it is events", func() bool {
		seen := make(map[events.Type]bool)
		for _, e := range f.Events() {
			if e.Operator == "anna" {
				seen[e.Type] = true
			}
		}
		return seen[events.OperatorAdded] && seen[events.OperatorRemoved] && seen[events.LoginRefused]
	})

	// What is removed stays so over a restart.
	f.Stop()
	f.Start()
	if got := status(t, f, remote(t, f, second, ""), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("after a restart: %d", got)
	}
}

// TestEachRouteRequiresItsRole calls each route with each role and without a credential. Permitted calls must only
// differ from 401 and 403.
func TestEachRouteRequiresItsRole(t *testing.T) {
	t.Parallel()
	f := served(t)
	clients := map[trust.OperatorRole]*httpapi.Client{"": remote(t, f, roots(t, f), "")}
	for _, role := range trust.OperatorRoles() {
		clients[role] = remote(t, f, certified(t, f, string(role), role), "")
	}
	fill := strings.NewReplacer("{identity}", "none.example.net", "{tid}", strings.Repeat("0", 32), "{id}",
		strings.Repeat("0", 64), "{name}", "nobody")
	for _, pattern := range routes().Routes() {
		method, path, _ := strings.Cut(fill.Replace(pattern), " ")
		for role, client := range clients {
			needs, _ := routes().Access(pattern)
			need := trust.OperatorRole(needs)
			got := status(t, f, client, method, path, nil)
			denied := got == http.StatusUnauthorized || got == http.StatusForbidden
			foreman := routes().ForForeman(pattern)
			want := need == "" || role.Covers(need) || foreman && role == trust.RoleForeman
			if denied == want || denied && (got == http.StatusUnauthorized) != (role == "" && !foreman) {
				t.Errorf("%s as %q: %d, and it needs %q", pattern, role, got, need)
			}
		}
	}
	if got := status(t, f, clients[trust.RoleAdmin], http.MethodGet, "/v1/none", nil); got != http.StatusNotFound {
		t.Errorf("a route that does not exist: %d", got)
	}
}

// roots returns a credential without certificate and key.
func roots(t *testing.T, f *testbed.Fleet) httpapi.Credential {
	t.Helper()
	c, err := httpapi.ParseCredential([]byte(f.Daemon().RootsPEM()))
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// TestFailuresToReachAProvisionerAreToldApart plays each, and wants what it is, where, and what to do.
func TestFailuresToReachAProvisionerAreToldApart(t *testing.T) {
	t.Parallel()
	f := served(t)
	own, url := roots(t, f), f.Daemon().APIURL()
	over := func(url string, c httpapi.Credential, token string) *httpapi.Client {
		t.Helper()
		client, err := httpapi.NewRemote(url, c, token)
		if err != nil {
			t.Fatal(err)
		}
		return client.Observe(func(rt http.RoundTripper) http.RoundTripper {
			rt.(*http.Transport).ResponseHeaderTimeout = 50 * time.Millisecond
			return rt
		})
	}
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/silent":
			<-r.Context().Done()
		case "/v1/page":
			_, _ = io.WriteString(w, "<html>")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(site.Close)
	page := httpapi.Credential{Roots: x509.NewCertPool()}
	page.Roots.AddCert(site.Certificate())
	viewer := certified(t, f, "vera", trust.RoleViewer)
	for name, tt := range map[string]struct {
		client *httpapi.Client
		path   string
		want   string
	}{
		"refused": {over("https://127.0.0.1:1", own, ""), "/v1/status",
			"no provisioner answers at https://127.0.0.1:1: connection refused: start the provisioner, or check api.listen"},
		"no such host": {over("https://nothing.invalid:1", own, ""), "/v1/status",
			`no provisioner answers at https://nothing.invalid:1: host "nothing.invalid" is not found: `},
		"silent": {over(site.URL, page, ""), "/v1/silent",
			site.URL + ": it accepts connections but does not answer: its process hangs"},
		"unknown authority": {over(url, httpapi.Credential{}, ""), "/v1/status",
			url + `: TLS: its certificate is issued by "fleet.test root CA", which is not trusted here: give --login`},
		"another name": {over(strings.Replace(url, "127.0.0.1", "localhost", 1), own, ""), "/v1/status",
			"is not valid for any names, but wanted to match localhost: use one of these names in --url, or add the host of --url to api.names"},
		"no TLS": {over("https://"+strings.TrimPrefix(f.URL(), "nats://"), own, ""), "/v1/status",
			" is not a muster provisioner: it does not speak TLS; --url must have the host of a provisioner and the port of api.listen"},
		"another server": {over(site.URL, page, ""), "/v1/status",
			site.URL + " is not a muster provisioner: it answers 404 Not Found; --url must have the host of a provisioner and the port of api.listen"},
		"a page": {over(site.URL, page, ""), "/v1/page", site.URL + " is not a muster provisioner: its answer is not JSON; "},
		"no login": {over(url, own, ""), "/v1/status",
			"not an operator's credential; give a credential or a token with --login (MUSTER_LOGIN)"},
		"a wrong login": {over(url, own, "x.y.z"), "/v1/status",
			"not an operator's credential; use an operator's certificate or token, or `muster login`; the provisioner's log says what is wrong"},
		"role too low": {over(url, viewer, ""), "/v1/inputs",
			"operator:vera has the role viewer, but this request needs auditor; ask an admin to change the role with `muster operator add`"},
		"no socket": {httpapi.NewClient(filepath.Join(t.TempDir(), "control.sock")), "/v1/status",
			"no such socket, so no provisioner with this data_dir runs on this machine: start the provisioner with `muster provisioner run`, or name its configuration with --config"},
	} {
		var answer any
		err := tt.client.Do(f.Context(), http.MethodGet, tt.path, nil, &answer)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestForeignCertificatesAreRefused shows what is no operator's certificate.
func TestForeignCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	f, stranger := served(t), served(t)
	node := f.Node("web1.example.net")
	enrolled := f.Enroll(node)
	f.Apply(node, enrolled)
	foreign := certified(t, stranger, "anna", trust.RoleAdmin)
	foreign.Roots = roots(t, f).Roots
	own := certified(t, f, "anna", trust.RoleAdmin)
	self := *own.Certificate
	self.Certificate = [][]byte{selfSigned(t, own.Certificate)}
	for name, c := range map[string]*tls.Certificate{
		"a node's":            credential(t, node.Key, enrolled.Certificate, f).Certificate,
		"another authority's": foreign.Certificate,
		"self-signed":         &self,
	} {
		if got := status(t, f, remote(t, f, httpapi.Credential{Certificate: c, Roots: own.Roots}, ""), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	f.Clock.Advance(91 * 24 * time.Hour)
	if got := status(t, f, remote(t, f, httpapi.Credential{Certificate: own.Certificate, Roots: own.Roots}, ""), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("expired: %d", got)
	}
}

// selfSigned returns a certificate that says what c says, signed by its own key.
func selfSigned(t *testing.T, c *tls.Certificate) []byte {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, leaf.PublicKey, c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestSenderIsNotTakenFromTheRequest sends what proxies and sockets would say.
func TestSenderIsNotTakenFromTheRequest(t *testing.T) {
	t.Parallel()
	f := served(t)
	viewer := certified(t, f, "vera", trust.RoleViewer)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: viewer.Roots, MinVersion: tls.VersionTLS13}}
	ask := func(edit func(*http.Request)) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.Daemon().APIURL()+"/v1/self", nil)
		if err != nil {
			t.Fatal(err)
		}
		edit(r)
		resp, err := observe(transport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp
	}
	for name, edit := range map[string]func(*http.Request){
		"nothing": func(*http.Request) {},
		"a proxy's headers": func(r *http.Request) {
			r.Header.Set("X-Forwarded-User", "root")
			r.Header.Set("X-Remote-User", "root")
			r.Header.Set("X-Client-Cert", "anna")
		},
		"the socket's host": func(r *http.Request) { r.Host = "provisioner" },
		"basic":             func(r *http.Request) { r.SetBasicAuth("root", "") },
		"an empty token":    func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
	} {
		resp := ask(edit)
		if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d, %v", name, resp.StatusCode, resp.Header)
		}
	}
	if resp := ask(func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a", "Bearer b"} }); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("two tokens: %d", resp.StatusCode)
	}

	// A page of another site makes a browser that has the certificate ask.
	transport.TLSClientConfig.Certificates = []tls.Certificate{*viewer.Certificate}
	transport.CloseIdleConnections()
	if resp := ask(func(*http.Request) {}); resp.StatusCode != http.StatusOK {
		t.Errorf("with the certificate: %d", resp.StatusCode)
	}
	if resp := ask(func(r *http.Request) { r.Method = http.MethodPost; r.Header.Set("Sec-Fetch-Site", "cross-site") }); resp.StatusCode != http.StatusForbidden {
		t.Errorf("for another site's page: %d", resp.StatusCode)
	}
}

// TestHugeRequestsAreRefused sends bodies and headers beyond their limits.
func TestHugeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	admin := certified(t, f, "anna", trust.RoleAdmin)
	if got := status(t, f, remote(t, f, admin, ""), http.MethodPost, "/v1/clock/accept", httpapi.Reason{Why: strings.Repeat("x", 1<<20)}); got != http.StatusBadRequest {
		t.Errorf("a body of 1 MiB: %d", got)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.Daemon().APIURL(), "https://"), &tls.Config{RootCAs: admin.Roots, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10)); err != nil {
		t.Logf("cut off while it wrote: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of 64 KiB: %d", resp.StatusCode)
		}
	}
	// TLS 1.2 is not spoken.
	if c, err := tls.Dial("tcp", strings.TrimPrefix(f.Daemon().APIURL(), "https://"), &tls.Config{RootCAs: admin.Roots, MaxVersion: tls.VersionTLS12}); err == nil {
		_ = c.Close()
		t.Error("TLS 1.2 was taken")
	}
}

// TestHealthNeedsNoCredential asks as a load balancer does.
func TestHealthNeedsNoCredential(t *testing.T) {
	t.Parallel()
	f := served(t)
	nobody := remote(t, f, roots(t, f), "")
	var h httpapi.Health
	for _, path := range []string{"/healthz", "/readyz"} {
		if err := nobody.Do(f.Context(), http.MethodGet, path, nil, &h); err != nil || h.Status != "ok" {
			t.Errorf("%s: %+v, %v", path, h, err)
		}
	}
	var ca operate.AuthorityInfo
	if err := nobody.Do(f.Context(), http.MethodGet, "/v1/ca", nil, &ca); err != nil || ca.Roots != f.Daemon().RootsPEM() || ca.Installation != f.Daemon().Store().Installation().ID {
		t.Errorf("CA: %+v, %v", ca, err)
	}
	var p *httpapi.Problem
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/features", "/openapi.json"} {
		if err := nobody.Do(f.Context(), http.MethodDelete, path, nil, nil); !errors.As(err, &p) || p.Status != http.StatusMethodNotAllowed || p.Detail != "there is no DELETE "+path {
			t.Errorf("DELETE %s: %v, want a problem of one line, and no page", path, err)
		}
	}
	f.Clock.Advance(-24 * time.Hour)
	err := nobody.Do(f.Context(), http.MethodGet, "/readyz", nil, nil)
	if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "clock") {
		t.Errorf("with the clock behind: %v", err)
	}
}

// TestLongChainsAreNotKept shows many certificates: their bytes would stay with the connection.
func TestLongChainsAreNotKept(t *testing.T) {
	t.Parallel()
	f := served(t)
	anna := certified(t, f, "anna", trust.RoleViewer)
	for n, good := range map[int]bool{4: true, 100: false} {
		shown := tls.Certificate{PrivateKey: anna.Certificate.PrivateKey}
		for range n {
			shown.Certificate = append(shown.Certificate, anna.Certificate.Certificate[0])
		}
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				RootCAs: anna.Roots,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return &shown, nil
				},
			},
		}}
		answer, err := client.Get(f.Daemon().APIURL() + "/v1/self")
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != good {
			t.Errorf("%d certificates: %v", n, err)
		}
	}
}
