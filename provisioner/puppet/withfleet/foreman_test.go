package puppet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	authority "muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

const (
	build1 = "build-1.example.net"
	build2 = "build-2.example.net"
)

// A foreman plays Foreman's client of its smart proxy.
type foreman struct {
	t      testing.TB
	f      *testbed.Fleet
	client *http.Client
}

// foremanFleet starts a provisioner with a gateway and the HTTPS API, and returns a client of role foreman.
func foremanFleet(t *testing.T, opts testbed.Options) (*testbed.Fleet, *foreman) {
	t.Helper()
	opts.Edit = func(c *daemon.Config) { c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"} }
	f := newFleet(t, opts)
	return f, newForeman(t, f, operate.NewOperator{
		Name:  "foreman",
		Role:  trust.RoleForeman,
		Names: []wire.Pattern{"build-*.example.net", "build-*"},
	})
}

// newForeman adds an operator with a certificate. Like Foreman, its client sends no chain.
func newForeman(t testing.TB, f *testbed.Fleet, n operate.NewOperator) *foreman {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	n.Public, err = jwt.MarshalPublicKey(key.Public())
	must(t, err)
	n.Certificate = true
	added, err := f.Daemon().Orders().Operators.Add(f.Context(), n, testbed.Operator())
	must(t, err)
	leaf, _ := pem.Decode([]byte(added.Chain))
	return foremanWith(t, f, tls.Certificate{Certificate: [][]byte{leaf.Bytes}, PrivateKey: key})
}

func foremanWith(t testing.TB, f *testbed.Fleet, shown ...tls.Certificate) *foreman {
	t.Helper()
	roots, err := httpapi.ParseCredential([]byte(f.Daemon().RootsPEM()))
	must(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    roots.Roots,
		// As OpenSSL does, whichever authorities the server names.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &append(shown, tls.Certificate{})[0], nil
		},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &foreman{t, f, &http.Client{Transport: transport}}
}

// call sends a request as Foreman does, and returns the status and the body. Every answer below /puppet/ca is JSON by
// its type.
func (m *foreman) call(method, path, body string) (int, string) {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.f.Context(), method, m.f.Daemon().APIURL()+path, strings.NewReader(body))
	must(m.t, err)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := m.client.Do(r)
	must(m.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(m.t, err)
	if got := resp.Header.Get("Content-Type"); strings.HasPrefix(path, "/puppet/ca") && got != "application/json" {
		m.t.Errorf("%s %s: content type %q", method, path, got)
	}
	return resp.StatusCode, string(text)
}

// want calls and compares. An expected body that ends with … is the beginning.
func (m *foreman) want(method, path, body string, status int, want string) {
	m.t.Helper()
	got, text := m.call(method, path, body)
	begins, cut := strings.CutSuffix(want, "…")
	if got != status || text != want && (!cut || !strings.HasPrefix(text, begins)) {
		m.t.Errorf("%s %s: %d %q, want %d %q", method, path, got, text, status, want)
	}
}

// token makes an autosign entry and returns its one-time token.
func (m *foreman) token(name string) string {
	m.t.Helper()
	status, text := m.call(http.MethodPost, "/puppet/ca/autosign/"+name, "")
	var answer map[string]string
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || len(answer) != 1 ||
		len(answer["generated_token"]) != 43 {
		m.t.Fatalf("autosign entry of %s: %d %q", name, status, text)
	}
	return answer["generated_token"]
}

// built enrolls a host with a new key and a token.
func built(t testing.TB, f *testbed.Fleet, name, token string) (*agent, answer) {
	t.Helper()
	a := newAgent(t, f, name)
	a.challenge = token
	return a, a.enroll()
}

// TestHostIsBuiltTwice follows a host from its first build over a rebuild to its deletion, in Foreman's calls.
func TestHostIsBuiltTwice(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	m.want("DELETE", "/puppet/ca/"+build1, "", 200, "")
	first := m.token(build1)
	m.want("GET", "/puppet/ca/autosign", "", 200, `["`+build1+`"]`)
	f.Clock.Advance(2 * time.Second) // records have seconds
	a, got := built(t, f, build1, first)
	if got.status != http.StatusOK {
		t.Fatalf("the first build: %d %q: %s", got.status, got.body, f.Cause(build1))
	}
	m.want("GET", "/puppet/ca/autosign", "", 200, `[]`)
	m.want("DELETE", "/puppet/ca/autosign/"+build1, "", 200, "")
	if _, got := built(t, f, build1, first); got.status != http.StatusNotFound {
		t.Errorf("another machine with a spent token: %d %q", got.status, got.body)
	}

	// The host enters build again: its certificate ends at once, and its name waits.
	f.Clock.Advance(2 * time.Second)
	m.want("DELETE", "/puppet/ca/autosign/"+build1, "", 200, "")
	m.want("DELETE", "/puppet/ca/"+build1, "", 200, "")
	m.want("DELETE", "/puppet/ca/"+build1, "", 200, "")
	if r := f.Record(build1); r.State != provisioner.StateRetired || !r.Awaiting {
		t.Errorf("a cleaned host: %s, awaiting %v", r.State, r.Awaiting)
	}
	if by := f.Daemon().Operator().Revocations().Serial(serialOf(a)); by == nil {
		t.Error("the certificate of a cleaned host is not revoked")
	}
	if _, got := built(t, f, build1, ""); got.status != http.StatusNotFound {
		t.Errorf("a machine without a token took the name of a cleaned host: %d", got.status)
	}
	f.Clock.Advance(2 * time.Second)
	second := m.token(build1)
	if _, got := built(t, f, build1, first); got.status != http.StatusNotFound {
		t.Errorf("the token of the former build: %d", got.status)
	}
	f.Clock.Advance(2 * time.Second)
	if _, got := built(t, f, build1, second); got.status != http.StatusOK {
		t.Fatalf("the second build: %d %q: %s", got.status, got.body, f.Cause(build1))
	}
	var kinds []string
	for _, m := range history(t, f, build1) {
		switch m.Kind {
		case fleet.Granted, fleet.Retired:
			if m.By != "operator:foreman" || !strings.HasPrefix(m.Why, "Foreman: ") {
				t.Errorf("%s by %q because of %q", m.Kind, m.By, m.Why)
			}
			kinds = append(kinds, string(m.Kind))
		case fleet.Decided:
			kinds = append(kinds, string(m.Reason))
			if m.By != "operator:foreman" || m.Why != "Foreman: autosign entry" {
				t.Errorf("enrolled with the token of %q because of %q", m.By, m.Why)
			}
		}
	}
	if want := []string{"granted", "one_time_token", "retired", "granted", "one_time_token"}; !slices.Equal(kinds, want) {
		t.Errorf("history: %v, want %v", kinds, want)
	}
	f.Check()
}

func history(t testing.TB, f *testbed.Fleet, name string) []fleet.HistoryItem {
	t.Helper()
	var h fleet.History
	client := httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName))
	must(t, client.Do(f.Context(), http.MethodGet, "/v1/nodes/"+name+"/history", nil, &h))
	return h.Items
}

func serialOf(a *agent) string { return a.leaf.SerialNumber.Text(16) }

// TestTokensOfParallelRequestsAreKept makes 20 entries at a time. Foreman's smart proxy loses some.
func TestTokensOfParallelRequestsAreKept(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{})
	const hosts = 20
	var tokens [hosts]string
	names := make([]string, hosts)
	var g sync.WaitGroup
	for i := range hosts {
		names[i] = fmt.Sprintf("build-%02d.example.net", i)
		g.Go(func() { tokens[i] = m.token(names[i]) })
	}
	g.Wait()
	want, _ := json.Marshal(names)
	m.want("GET", "/puppet/ca/autosign", "", 200, string(want))
	for i, token := range tokens {
		m.want("POST", "/puppet/ca/validate", request(t, f, names[(i+1)%hosts], token), 404, "…")
		m.want("POST", "/puppet/ca/validate", request(t, f, names[i], token), 200, "")
	}
	// A host has one token: the newest.
	var same [hosts]string
	for i := range hosts {
		g.Go(func() { same[i] = m.token("build-alone") })
	}
	g.Wait()
	valid := 0
	for _, token := range same {
		if status, _ := m.call("POST", "/puppet/ca/validate", request(t, f, "build-alone", token)); status == 200 {
			valid++
		}
	}
	if valid != 1 {
		t.Errorf("%d of %d tokens of one host are valid", valid, hosts)
	}
}

// request returns a certificate request with a new key.
func request(t testing.TB, f *testbed.Fleet, name, token string) string {
	t.Helper()
	a := newAgent(t, f, name)
	a.challenge = token
	return string(a.csr())
}

func TestValidatedTokenIsBoundToOneKey(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	token := m.token(build1)
	a := newAgent(t, f, build1)
	a.challenge = token
	csr := string(a.csr())
	for what, body := range map[string]string{
		"no token":         request(t, f, build1, ""),
		"another token":    request(t, f, build1, strings.Repeat("A", 43)),
		"another's name":   request(t, f, build2, token),
		"a foreign name":   request(t, f, "web1.example.net", token),
		"an improper name": request(t, f, "*", token),
	} {
		if status, text := m.call("POST", "/puppet/ca/validate", body); status != 404 || text == "" {
			t.Errorf("%s: %d %q", what, status, text)
		}
	}
	m.want("POST", "/puppet/ca/validate", "no PEM", 406, "…")
	m.want("POST", "/puppet/ca/validate", strings.Repeat("a", 1<<20), 406, "…")
	var g sync.WaitGroup
	for range 4 { // the caller lost the answer
		g.Go(func() { m.want("POST", "/puppet/ca/validate", csr, 200, "") })
	}
	g.Wait()
	m.want("POST", "/puppet/ca/validate", request(t, f, build1, token), 404, "…")
	m.want("GET", "/puppet/ca/autosign", "", 200, `[]`)
	if _, got := built(t, f, build1, token); got.status == http.StatusOK {
		t.Error("another key enrolled with a validated token")
	}
	if got := a.enroll(); got.status != http.StatusOK {
		t.Errorf("the validated key: %d %q: %s", got.status, got.body, f.Cause(build1))
	}

	// The validated key is good for a short while only.
	token = m.token(build2)
	csr = request(t, f, build2, token)
	m.want("POST", "/puppet/ca/validate", csr, 200, "")
	f.Clock.Advance(11 * time.Minute)
	m.want("POST", "/puppet/ca/validate", csr, 404, "…")
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	for _, wrong := range []string{"0", "-1", "x", "1e3", "100000000", "99999999999999999999"} {
		m.want("POST", "/puppet/ca/autosign/"+build1, "token_ttl="+wrong, 406, "…")
	}
	m.want("POST", "/puppet/ca/autosign/build-a", "token_ttl=5", 200, `{"generated_token":"…`)
	m.want("POST", "/puppet/ca/autosign/build-b?token_ttl=5", "", 200, `{"generated_token":"…`)
	m.want("POST", "/puppet/ca/autosign/build-c", `{"token_ttl":5}`, 200, `{"generated_token":"…`)
	m.want("POST", "/puppet/ca/autosign/build-d", "", 200, `{"generated_token":"…`)
	gone := m.token("build-e")
	m.want("DELETE", "/puppet/ca/autosign/build-e", "", 200, "")
	m.want("POST", "/puppet/ca/validate", request(t, f, "build-e", gone), 404, "…")
	m.want("DELETE", "/puppet/ca/autosign/build-unknown", "", 200, "")
	m.want("GET", "/puppet/ca/autosign", "", 200, `["build-a","build-b","build-c","build-d"]`)
	f.Clock.Advance(6 * time.Minute)
	m.want("GET", "/puppet/ca/autosign", "", 200, `["build-c","build-d"]`)
	f.Clock.Advance(6 * time.Hour)
	m.want("GET", "/puppet/ca/autosign", "", 200, `[]`)
	m.want("POST", "/puppet/ca/validate", request(t, f, "build-e", gone), 404, "…")
}

// TestForemanSignsAndLists has Foreman sign a waiting request, and compares its list.
func TestForemanSignsAndLists(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	m.want("POST", "/puppet/ca/"+build1, "", 406, "Failed to sign certificate(s) for "+build1+": …")
	a := newAgent(t, f, build1)
	a.connect()
	a.put()
	other := newAgent(t, f, web1) // none of Foreman's
	other.connect()
	other.put()
	list := func() map[string]map[string]any {
		t.Helper()
		status, text := m.call("GET", "/puppet/ca", "")
		var all map[string]map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil || status != 200 {
			t.Fatalf("list: %d %q: %v", status, text, err)
		}
		return all
	}
	block, _ := pem.Decode(a.csr())
	all := list()
	pending := all[build1]
	if pending["state"] != "pending" || pending["serial"] != nil || pending["not_before"] != nil ||
		pending["not_after"] != nil || len(fmt.Sprint(pending["fingerprint"])) != 95 || len(pending) != 5 {
		t.Errorf("a waiting request of %d bytes: %v", len(block.Bytes), pending)
	}
	m.want("POST", "/puppet/ca/"+build1, "", 200, "")
	f.Eventually("the agent has its certificate", func() bool { return a.enroll().status == http.StatusOK })
	sum := sha256.Sum256(a.leaf.Raw)
	fingerprint := strings.ToUpper(strings.TrimSuffix(strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":"), ":"))
	all = list()
	valid := all[build1]
	if valid["state"] != "valid" || valid["fingerprint"] != fingerprint || valid["serial"] == nil ||
		valid["not_after"] != a.leaf.NotAfter.UTC().Format("2006-01-02T15:04:05UTC") {
		t.Errorf("a certificate: %v, fingerprint %s", valid, fingerprint)
	}
	if len(all) != 2 { // and the authority
		t.Errorf("list: %v", all)
	}
	for name, c := range all {
		if begins, _ := c["not_before"].(string); name != build1 &&
			(c["state"] != "valid" || begins > valid["not_before"].(string)) {
			t.Errorf("the authority %s, whose end Foreman shows: %v", name, c)
		}
	}
	must(t, f.Daemon().Orders().Nodes.Revoke(f.Context(), build1, testbed.Operator()))
	f.Eventually("the list shows the revocation", func() bool { return list()[build1]["state"] == "revoked" })
	m.want("POST", "/puppet/ca/autosign/"+build1, "", 406, "…") // until it is cleaned
	m.want("DELETE", "/puppet/ca/"+build1, "", 200, "")
	if _, got := built(t, f, build1, m.token(build1)); got.status != http.StatusOK {
		t.Errorf("a host that was revoked, cleaned and built: %d %q: %s", got.status, got.body, f.Cause(build1))
	}
	f.Clock.Advance(2 * 365 * 24 * time.Hour)
}

// TestForemanReachesItsNodesOnly tries names and nodes that Foreman has no business with.
func TestForemanReachesItsNodesOnly(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{})
	n, err := simnode.New("build-native.example.net", f.Token(nil))
	must(t, err)
	f.Apply(n, f.Enroll(n))
	for _, call := range []string{
		"POST /puppet/ca/autosign/", "DELETE /puppet/ca/autosign/", "POST /puppet/ca/", "DELETE /puppet/ca/",
	} {
		method, path, _ := strings.Cut(call, " ")
		m.want(method, path+"web1.example.net", "", 403, "…")
		m.want(method, path+"build-1.evil.example.net", "", 403, "…")
		for _, improper := range []string{"build-*", url.PathEscape("build-1/../x"), "build-1%00", "autosign%20", "puppet"} {
			if status, _ := m.call(method, path+improper, ""); status != 406 {
				t.Errorf("%s%s: %d", call, improper, status)
			}
		}
	}
	for _, call := range []string{"POST /puppet/ca/autosign/", "DELETE /puppet/ca/"} {
		method, path, _ := strings.Cut(call, " ")
		m.want(method, path+n.Identity, "", 406, "…") // enrolled over muster's own protocol
	}
	if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned {
		t.Errorf("muster's own node: %s", r.State)
	}
	for _, call := range []string{
		"GET /puppet/ca/x", "GET /puppet/ca/validate", "PUT /puppet/ca/x", "POST /puppet/ca/autosign/a/b",
		"DELETE /puppet/ca/autosign", "POST /puppet/ca", "GET /puppet/ca/autosign/x",
	} {
		method, path, _ := strings.Cut(call, " ")
		m.want(method, path, "", 404, "Requested url was not found")
	}
}

// TestOnlyForemanIsAdmitted shows each other credential. Names in certificates do not count.
func TestOnlyForemanIsAdmitted(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	agent, got := built(t, f, build1, m.token(build1))
	if got.status != http.StatusOK {
		t.Fatal(got)
	}
	former := m
	m = newForeman(t, f, operate.NewOperator{Name: "foreman", Role: trust.RoleForeman,
		Names: []wire.Pattern{"build-*.example.net"}})
	gone := newForeman(t, f, operate.NewOperator{Name: "gone", Role: trust.RoleForeman,
		Names: []wire.Pattern{"build-*.example.net"}})
	must(t, f.Daemon().Orders().Operators.Remove(f.Context(), "gone", testbed.Operator()))
	for what, other := range map[string]*foreman{
		"no certificate":    foremanWith(t, f),
		"a node":            foremanWith(t, f, tls.Certificate{Certificate: [][]byte{agent.leaf.Raw}, PrivateKey: agent.key}),
		"the former":        former,
		"a removed foreman": gone,
		"an admin":          newForeman(t, f, operate.NewOperator{Name: "anna", Role: trust.RoleAdmin}),
		"an operator":       newForeman(t, f, operate.NewOperator{Name: "ben", Role: trust.RoleOperator}),
		"a viewer":          newForeman(t, f, operate.NewOperator{Name: "vera", Role: trust.RoleViewer}),
	} {
		said := "Untrusted client attempted to access /autosign. …"
		if what == "no certificate" {
			said = "No client SSL certificate supplied"
		}
		t.Run(what, func(t *testing.T) {
			other.t = t
			other.want("GET", "/puppet/ca/autosign", "", 403, said)
			other.want("DELETE", "/puppet/ca/"+build1, "", 403, "…")
			other.want("POST", "/puppet/ca/validate", "x", 403, "…")
		})
	}
	if r := f.Record(build1); r.State == provisioner.StateRetired {
		t.Error("a stranger cleaned a host")
	}
	socket := httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName))
	if err := socket.Do(f.Context(), http.MethodGet, "/puppet/ca", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "403") {
		t.Errorf("over the control socket: %v", err)
	}
	// Foreman has nothing else: no console, no list of nodes.
	for _, path := range []string{"/v1/nodes", "/v1/self", "/", "/nodes", "/metrics"} {
		m.want("GET", path, "", 403, "…")
	}
}

// TestForemanFindsTheFeature registers the provisioner as a smart proxy.
func TestForemanFindsTheFeature(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{})
	port := f.PuppetURL()[strings.LastIndex(f.PuppetURL(), ":"):]
	m.want("GET", "/v2/features", "", 200, `{"puppetca":{"http_enabled":false,"https_enabled":true,"settings":`+
		`{"puppet_url":"https://puppet.fleet.test`+port+`","use_provider":["puppetca_token_whitelisting",`+
		`"puppetca_http_api"]},"state":"running","capabilities":[]}}`+"\n")
	stranger := foremanWith(t, f)
	stranger.want("GET", "/v2/features", "", 403, "…")
	stranger.want("GET", "/version", "", 200, `{"version":"3.11.0","modules":{"puppetca":"3.11.0"}}`+"\n")
	var features []string
	if _, text := stranger.call("GET", "/features", ""); json.Unmarshal([]byte(text), &features) != nil ||
		!slices.Contains(features, "puppetca") || !slices.IsSorted(features) {
		t.Errorf("features: %s", text)
	}
}

func TestRoleForemanNeedsNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	public, err := jwt.MarshalPublicKey(key.Public())
	must(t, err)
	for what, n := range map[string]operate.NewOperator{
		"no names":          {Role: trust.RoleForeman, Certificate: true},
		"every name":        {Role: trust.RoleForeman, Certificate: true, Names: []wire.Pattern{"*"}},
		"every long name":   {Role: trust.RoleForeman, Certificate: true, Names: []wire.Pattern{"build-*", "**.*"}},
		"no pattern":        {Role: trust.RoleForeman, Certificate: true, Names: []wire.Pattern{"UPPER"}},
		"no certificate":    {Role: trust.RoleForeman, Names: []wire.Pattern{"build-*"}},
		"names of a viewer": {Role: trust.RoleViewer, Certificate: true, Names: []wire.Pattern{"build-*"}},
	} {
		n.Name, n.Public = "foreman", public
		if _, err := f.Daemon().Orders().Operators.Add(f.Context(), n, testbed.Operator()); err == nil {
			t.Errorf("%s: added", what)
		}
	}
}

// TestKeptNameGoesToTheKeyThatAnOperatorNames cleans a host, and gives its name away in each way but a token.
func TestKeptNameGoesToTheKeyThatAnOperatorNames(t *testing.T) {
	t.Parallel()
	f, m := foremanFleet(t, testbed.Options{DefaultPolicy: true})
	o := f.Daemon().Orders()
	if _, got := built(t, f, build1, m.token(build1)); got.status != http.StatusOK {
		t.Fatal(got)
	}
	keyOf := func(a *agent) string {
		t.Helper()
		hash, err := authority.KeyHash(a.key.Public())
		must(t, err)
		return hash
	}
	for _, way := range []struct {
		name string
		give func(*agent) error
	}{
		{"sign", func(*agent) error { m.want("POST", "/puppet/ca/"+build1, "", 200, ""); return nil }},
		{"approve", func(a *agent) error {
			_, err := o.Keys.Approve(f.Context(), operate.Named(build1, keyOf(a)), 0, testbed.Operator())
			return err
		}},
		{"grant", func(a *agent) error {
			_, err := o.Nodes.Grant(f.Context(), build1, operate.GrantOrder{KeyHash: keyOf(a)}, testbed.Operator())
			return err
		}},
		{"free", func(a *agent) error {
			if err := o.Nodes.Retire(f.Context(), build1, testbed.Operator()); err != nil {
				return err
			}
			if r := f.Record(build1); r.State != provisioner.StateRetired || r.Awaiting {
				t.Errorf("a freed name: %s, awaiting %v", r.State, r.Awaiting)
			}
			a.enroll() // waits for an approval, as for a new name
			_, err := o.Keys.Approve(f.Context(), operate.Named(build1, keyOf(a)), 0, testbed.Operator())
			return err
		}},
	} {
		f.Clock.Advance(2 * time.Second)
		m.want("DELETE", "/puppet/ca/"+build1, "", 200, "")
		a, got := built(t, f, build1, "")
		if got.status != http.StatusNotFound {
			t.Fatalf("%s: a machine took a kept name: %d", way.name, got.status)
		}
		if err := way.give(a); err != nil {
			t.Errorf("%s: %v", way.name, err)
			continue
		}
		f.Eventually(way.name, func() bool { return a.enroll().status == http.StatusOK })
		if r := f.Record(build1); r.Awaiting || r.Next.KeyHash != keyOf(a) {
			t.Errorf("%s: awaiting %v, key %s", way.name, r.Awaiting, r.Next.KeyHash)
		}
	}
	f.Check()
}
