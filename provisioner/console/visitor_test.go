package console_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
)

// served returns a fleet whose provisioner serves the console. Nodes called web have a token for their name; all other
// nodes wait for an operator.
func served(t testing.TB) *testbed.Fleet {
	t.Helper()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.Allow("web*.example.net")
	return f
}

// A visitor is a browser without a script.
type visitor struct {
	t    testing.TB
	f    *testbed.Fleet
	http *http.Client
	form string // the secret of the last page
}

// stranger returns a visitor without a session. certificate may be nil.
func stranger(t testing.TB, f *testbed.Fleet, certificate *tls.Certificate) *visitor {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.Daemon().RootsPEM()))
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	if certificate != nil {
		cfg.Certificates = []tls.Certificate{*certificate}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{
		t: t,
		f: f,
		http: &http.Client{
			Transport:     transport,
			Jar:           jar,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

var formSecret = regexp.MustCompile(`name="form" value="([^"]*)"`)

func (v *visitor) do(r *http.Request) answer {
	v.t.Helper()
	resp, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	b := body(v.t, resp)
	if m := formSecret.FindStringSubmatch(b); m != nil {
		v.form = m[1]
	}
	return answer{resp.StatusCode, resp.Header, b}
}

func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cookie gives the browser a cookie of the console.
func (v *visitor) cookie(name, value string) {
	v.t.Helper()
	v.http.Jar.SetCookies(v.request(http.MethodGet, "/", nil).URL, []*http.Cookie{{Name: "__Host-muster-" + name, Value: value, Path: "/", Secure: true}})
}

// kept returns a cookie that the browser has.
func (v *visitor) kept(name string) string {
	v.t.Helper()
	for _, c := range v.http.Jar.Cookies(v.request(http.MethodGet, "/", nil).URL) {
		if c.Name == "__Host-muster-"+name {
			return c.Value
		}
	}
	return ""
}

// written writes a private file, and returns its path.
func written(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (v *visitor) request(method, path string, body io.Reader) *http.Request {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.f.Context(), method, v.f.Daemon().APIURL()+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	return r
}

func (v *visitor) get(path string) answer {
	v.t.Helper()
	return v.do(v.request(http.MethodGet, path, nil))
}

// see gets a page that must be there.
func (v *visitor) see(path string) string {
	v.t.Helper()
	a := v.get(path)
	if a.status != http.StatusOK {
		v.t.Fatalf("GET %s: %d %s", path, a.status, a.body)
	}
	return a.body
}

// post sends a form with the secret of the last page, as name, value, and so on.
func (v *visitor) post(path string, fields ...string) answer {
	v.t.Helper()
	form := url.Values{"form": {v.form}}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	r := v.request(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return v.do(r)
}

// added adds an operator and returns their key, and a certificate if it is wanted.
func added(t testing.TB, f *testbed.Fleet, name string, role trust.OperatorRole,
	certified bool, sites ...jwt.Site) (crypto.Signer, *tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.Daemon().Orders().Operators.Add(f.Context(),
		operate.NewOperator{Name: name, Role: role, Public: public, Certificate: certified, Sites: sites}, testbed.Operator())
	if err != nil {
		t.Fatal(err)
	}
	if !certified {
		return key, nil
	}
	chain := tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode([]byte(a.Chain)); block != nil; block, rest = pem.Decode(rest) {
		chain.Certificate = append(chain.Certificate, block.Bytes)
	}
	return key, &chain
}

// tokenOf returns a token that an operator signs for an hour.
func tokenOf(t testing.TB, f *testbed.Fleet, name string, key crypto.Signer) string {
	t.Helper()
	now := f.Clock.Now()
	text, err := jwt.SignOperator(key,
		jwt.OperatorClaims{
			Operator:  name,
			Audience:  f.Daemon().Store().Installation().ID,
			ID:        wire.NewID(),
			IssuedAt:  now,
			ExpiresAt: now.Add(time.Hour),
		})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signedIn returns a visitor that has signed in with a token.
func signedIn(t testing.TB, f *testbed.Fleet, name string, role trust.OperatorRole, sites ...jwt.Site) *visitor {
	t.Helper()
	key, _ := added(t, f, name, role, false, sites...)
	v := stranger(t, f, nil)
	v.see("/login")
	if a := v.post("/login", "token", tokenOf(t, f, name, key)); a.status != http.StatusSeeOther {
		t.Fatalf("sign in: %d %s", a.status, a.body)
	}
	v.see("/nodes")
	if sites == nil {
		v.see("/policies") // has a form
	}
	return v
}

// says fails the test if a page lacks a text.
func says(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q:\n%s", text, main(page))
		}
	}
}

// main returns what of a page is not its frame.
func main(page string) string {
	if _, after, ok := strings.Cut(page, "<main"); ok {
		return string(bytes.TrimSpace([]byte(after)))
	}
	return page
}
