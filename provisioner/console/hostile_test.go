package console_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/login"
)

// A rogue is a provider whose tokens and answers a test chooses. It checks the client's secret and PKCE as a provider
// does.
type rogue struct {
	t   *testing.T
	key *rsa.PrivateKey
	*httptest.Server

	mu        sync.Mutex
	challenge string // of the sign-in that has begun
	nonce     string
	bend      func(*idToken)
	found     func(map[string]any) // bends what the provider says of itself
}

// bent has the next tokens bent.
func (g *rogue) bent(bend func(*idToken)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bend = bend
}

type idToken struct {
	header, claims map[string]any
	text           string // sent as it is, unless empty
	key            *rsa.PrivateKey
	public         *rsa.PublicKey // the key of HS256
	answer         map[string]any // of the token endpoint
	status         int
	to             string // redirect
}

var b64 = base64.RawURLEncoding.EncodeToString

func (k *idToken) signed(t *testing.T) string {
	if k.text != "" {
		return k.text
	}
	header, err := json.Marshal(k.header)
	if err != nil {
		t.Error(err)
	}
	claims, err := json.Marshal(k.claims)
	if err != nil {
		t.Error(err)
	}
	signed := b64(header) + "." + b64(claims)
	sum := sha256.Sum256([]byte(signed))
	switch k.header["alg"] {
	case "none":
		return signed + "."
	case "HS256": // the public key, which everybody has, as the secret
		mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
			Bytes: x509.MarshalPKCS1PublicKey(k.public)}))
		_, _ = mac.Write([]byte(signed))
		return signed + "." + b64(mac.Sum(nil))
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	return signed + "." + b64(signature)
}

func newRogue(t *testing.T) *rogue {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	g := &rogue{t: t, key: key}
	mux := http.NewServeMux()
	g.Server = httptest.NewTLSServer(mux)
	t.Cleanup(g.Close)
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Log(err) // the provisioner has gone
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		said := map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/auth", "token_endpoint": g.URL + "/token",
			"jwks_uri": g.URL + "/keys", "response_types_supported": []string{"code"},
			// A provider that says so does not make muster accept them.
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		}
		if g.found != nil {
			g.found(said)
		}
		reply(w, http.StatusOK, said)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256",
			"kid": "k", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}}})
	})
	codes := map[string]bool{}
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		id, secret, _ := r.BasicAuth()
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		code := r.PostFormValue("code")
		if id != "muster" || secret != "s3cret-of-muster" || b64(sum[:]) != g.challenge || codes[code] || code == "" {
			reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
			return
		}
		codes[code] = true
		k := g.token()
		if g.bend != nil {
			g.bend(k)
		}
		k.answer["id_token"] = k.signed(t)
		for name, v := range k.answer {
			if v == nil {
				delete(k.answer, name)
			}
		}
		w.Header().Set("Location", k.to)
		reply(w, k.status, k.answer)
	})
	return g
}

// token is good.
func (g *rogue) token() *idToken {
	now := time.Now()
	return &idToken{
		key: g.key, public: &g.key.PublicKey, status: http.StatusOK,
		header: map[string]any{"alg": "RS256", "kid": "k"},
		claims: map[string]any{"iss": g.URL, "sub": "anna", "aud": "muster", "nonce": g.nonce,
			"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "groups": []string{"fleet-admins"},
			"email": "anna@example.net", "email_verified": true},
		answer: map[string]any{"access_token": "a", "token_type": "Bearer"},
	}
}

// A signIn is the query with which the provider sends the browser back, before it is bent.
type signIn struct {
	*visitor
	query url.Values
	path  string
	begun url.Values // what the provider got
}

// begin has the visitor begin to sign in, to see the list of nodes then.
func (g *rogue) begin(v *visitor) *signIn { return g.beginFor(v, "/nodes") }

func (g *rogue) beginFor(v *visitor, next string) *signIn {
	g.t.Helper()
	a := v.get("/login/oidc?next=" + url.QueryEscape(next))
	to, err := url.Parse(a.header.Get("Location"))
	if err != nil || a.status != http.StatusSeeOther {
		g.t.Fatalf("begin: %d, %v: %s", a.status, err, a.body)
	}
	q := to.Query()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.challenge, g.nonce = q.Get("code_challenge"), q.Get("nonce")
	return &signIn{visitor: v, begun: q, path: "/login/oidc/back",
		query: url.Values{"code": {"code-" + rand.Text()}, "state": {q.Get("state")}}}
}

func (s *signIn) end() answer { return s.get(s.path + "?" + s.query.Encode()) }

// TestHostileSignInsAreRefused bends one thing of a good sign-in at a time: the token, the provider's answer, or the
// way through the browser.
func TestHostileSignInsAreRefused(t *testing.T) {
	t.Parallel()
	g := newRogue(t)
	f := servedWith(t, g.Server)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(name string, value any) func(*idToken) {
		return func(k *idToken) { k.claims[name] = value }
	}
	without := func(name string) func(*idToken) { return func(k *idToken) { delete(k.claims, name) } }
	header := func(name string, value any) func(*idToken) { return func(k *idToken) { k.header[name] = value } }
	thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the client's secret goes to %s", r.URL)
	}))
	t.Cleanup(thief.Close)
	var replayed string
	g.bent(func(k *idToken) { replayed = k.signed(t) })
	if a := g.begin(stranger(t, f, nil)).end(); a.status != http.StatusSeeOther {
		t.Fatalf("a good sign-in: %d: %s", a.status, a.body)
	}
	unsigned := func(k *idToken, alg string) string {
		k.header["alg"] = alg
		parts := strings.Split(k.signed(t), ".")
		return parts[0] + "." + parts[1] + "."
	}
	later := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	tokens := map[string]func(*idToken){
		"another issuer":              claim("iss", "https://sso.example.com"),
		"issuer with a slash more":    claim("iss", g.URL+"/"),
		"no issuer":                   without("iss"),
		"another audience":            claim("aud", "grafana"),
		"no audience":                 without("aud"),
		"two audiences, and no party": claim("aud", []string{"muster", "grafana"}),
		"another authorized party":    func(k *idToken) { k.claims["azp"] = "grafana" },
		"another nonce":               claim("nonce", "n-0S6_WzA2Mj"),
		"no nonce":                    without("nonce"),
		"expired":                     claim("exp", later(-time.Minute)),
		"no end":                      without("exp"),
		"not yet valid":               claim("nbf", later(time.Hour)),
		"issued in the future":        claim("iat", later(time.Hour)),
		"audiences with another party": func(k *idToken) {
			k.claims["aud"], k.claims["azp"] = []string{"muster", "grafana"}, "grafana"
		},
		"the code of another client":    func(k *idToken) { k.claims["aud"], k.claims["azp"] = "grafana", "muster" },
		"an end that is no number":      claim("exp", "tomorrow"),
		"a replayed ID token":           func(k *idToken) { k.text = replayed },
		"algorithm none":                header("alg", "none"),
		"algorithm nOnE":                func(k *idToken) { k.text = unsigned(k, "nOnE") },
		"algorithm none, signed":        header("alg", "None"),
		"another algorithm of the key":  header("alg", "PS256"),
		"algorithm of another key":      header("alg", "ES256"),
		"no algorithm":                  header("alg", nil),
		"a part more":                   func(k *idToken) { k.text = k.signed(t) + ".e30" },
		"encrypted":                     func(k *idToken) { k.text = k.signed(t) + ".e30.e30" },
		"another key with a good name":  func(k *idToken) { k.key = other; k.header["kid"] = "k" },
		"HS256 with the public key":     header("alg", "HS256"),
		"signed by another key":         func(k *idToken) { k.key = other },
		"another key with its own name": func(k *idToken) { k.key = other; k.header["kid"] = "mine" },
		"its own key in the header": func(k *idToken) {
			k.key = other
			k.header["jwk"] = map[string]any{"kty": "RSA", "n": b64(other.N.Bytes()), "e": "AQAB"}
		},
		"a key at another address":   func(k *idToken) { k.key = other; k.header["jku"] = "https://example.com/keys" },
		"a header that must be read": header("crit", []string{"https://example.com/mine"}),
		"claims changed after signing": func(k *idToken) {
			parts := strings.Split(k.signed(t), ".")
			changed := maps.Clone(k.claims)
			changed["sub"] = "ben"
			b, err := json.Marshal(changed)
			if err != nil {
				t.Error(err)
			}
			k.text = parts[0] + "." + b64(b) + "." + parts[2]
		},
		"no ID token":               func(k *idToken) { k.text = " " },
		"no token at all":           func(k *idToken) { k.text = "x"; k.answer = map[string]any{} },
		"huge":                      claim("padding", strings.Repeat("x", 80<<10)),
		"the hash of another token": claim("at_hash", b64(make([]byte, 16))),
		"no subject":                without("sub"),
		"a subject that forges a line of the log": claim("sub", "anna\nby=root"),
		"a subject that does not fit":             claim("sub", strings.Repeat("s", 300)),
		"no groups":                               without("groups"),
		"groups without a role":                   claim("groups", []string{"everybody", "fleet-admins2", "Fleet-Admins"}),
		"groups as a number":                      claim("groups", 7),
		"groups as an object":                     claim("groups", map[string]any{"fleet-admins": true}),
		"groups that are elsewhere":               func(k *idToken) { delete(k.claims, "groups"); k.claims["hasgroups"] = true },
		"a redirect to another host":              func(k *idToken) { k.status, k.to = http.StatusTemporaryRedirect, thief.URL },
		"an error with a token":                   func(k *idToken) { k.status = http.StatusForbidden },
	}
	flows := map[string]func(*signIn){
		"no state":        func(s *signIn) { s.query.Del("state") },
		"a guessed state": func(s *signIn) { s.query.Set("state", b64(make([]byte, 32))) },
		"another browser": func(s *signIn) { s.visitor = stranger(t, f, nil) },
		"the state of another browser": func(s *signIn) {
			mine, theirs := s.visitor, stranger(t, f, nil)
			s.query.Set("state", g.begin(theirs).begun.Get("state"))
			s.visitor = mine
		},
		"no code": func(s *signIn) { s.query.Del("code") },
		"the code of another sign-in": func(s *signIn) { // injected: PKCE ties a code to the browser that began
			theirs := g.begin(stranger(t, f, nil)) // the provider has that browser's challenge
			s.query.Set("code", theirs.query.Get("code"))
		},
		"the first of two tabs": func(s *signIn) { // the second has replaced its cookie
			mine := *s
			g.begin(s.visitor)
			*s = mine
		},
		"the code of the other tab": func(s *signIn) {
			first, challenge := s.query.Get("code"), s.begun.Get("code_challenge")
			*s = *g.begin(s.visitor)
			s.query.Set("code", first)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.challenge = challenge
		},
		"another provider's answer": func(s *signIn) { s.query.Set("iss", "https://sso.example.com") },
		"refused by the person":     func(s *signIn) { s.query.Del("code"); s.query.Set("error", "access_denied") },
		"a replayed answer": func(s *signIn) {
			if a := s.end(); a.status != http.StatusSeeOther {
				t.Errorf("before the replay: %d", a.status)
			}
			s.do(s.request(http.MethodGet, "/logout", nil))
		},
		"a replayed code in a new sign-in": func(s *signIn) {
			used := s.query.Get("code")
			s.end()
			*s = *g.begin(stranger(t, f, nil))
			s.query.Set("code", used)
		},
	}
	refused := func(name string, bend func(*idToken), way func(*signIn)) {
		g.bent(bend)
		f.Clock.Advance(time.Second) // the budget of failed logins of this address
		s := g.begin(stranger(t, f, nil))
		if way != nil {
			way(s)
		}
		a := s.end()
		if session := cookieNamed(a, "session"); session != "" || a.status < 400 || a.status >= 500 {
			t.Errorf("%s: %d, session %.20q", name, a.status, session)
		}
		if strings.Contains(a.body, "by=root") || strings.Contains(a.body, g.URL+"/token") {
			t.Errorf("%s: the page tells too much: %s", name, a.body)
		}
	}
	for name, bend := range tokens {
		refused(name, bend, nil)
	}
	for name, way := range flows {
		refused(name, nil, way)
	}
	t.Logf("%d cases", len(tokens)+len(flows))
	if n := sessionsOf(f); n != 3 { // before the replays
		t.Errorf("%d sessions", n)
	}
	s := g.begin(stranger(t, f, nil))
	if a := s.end(); a.status != http.StatusSeeOther || a.header.Get("Location") != "/nodes" {
		t.Errorf("a good sign-in: %d: %s", a.status, a.body)
	}
	if s.begun.Get("code_challenge_method") != "S256" || s.begun.Get("response_type") != "code" ||
		s.begun.Get("scope") != "openid profile email" || len(s.begun.Get("state")) < 40 ||
		s.begun.Get("state") == s.begun.Get("nonce") {
		t.Errorf("what the provider gets: %v", s.begun)
	}
}

// sessionsOf counts the sessions on record.
func sessionsOf(f *testbed.Fleet) (n int) {
	for _, e := range f.Daemon().Store().Logs().Sessions.All() {
		n += len(e.Value.Sessions)
	}
	return n
}

// TestHostileProvidersAreNotDiscovered begins to sign in at providers that say of themselves what they should not.
func TestHostileProvidersAreNotDiscovered(t *testing.T) {
	t.Parallel()
	begin := func(g *rogue) (string, error) {
		s := settings(t, g.Server)
		p, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		return p.Begin(t.Context(), login.Flow{Secret: "s", Redirect: "https://prov1.example.net/login/oidc/back"})
	}
	for name, found := range map[string]func(*rogue, map[string]any){
		"issuer of another host":    func(_ *rogue, said map[string]any) { said["issuer"] = "https://sso.example.com" },
		"issuer with a user":        func(g *rogue, said map[string]any) { said["issuer"] = "https://a@" + g.Listener.Addr().String() },
		"issuer with a slash more":  func(g *rogue, said map[string]any) { said["issuer"] = g.URL + "/" },
		"issuer with a path":        func(g *rogue, said map[string]any) { said["issuer"] = g.URL + "/realms/main" },
		"no issuer":                 func(_ *rogue, said map[string]any) { delete(said, "issuer") },
		"an issuer that is no text": func(g *rogue, said map[string]any) { said["issuer"] = []string{g.URL} },
	} {
		g := newRogue(t)
		g.found = func(said map[string]any) { found(g, said) }
		if to, err := begin(g); !errors.Is(err, login.ErrProvider) {
			t.Errorf("%s: to %q, %v", name, to, err)
		}
	}
	elsewhere := newRogue(t)
	g := newRogue(t)
	g.Config.Handler = http.RedirectHandler(elsewhere.URL+"/.well-known/openid-configuration", http.StatusFound)
	if to, err := begin(g); !errors.Is(err, login.ErrProvider) {
		t.Errorf("a redirect to another provider: to %q, %v", to, err)
	}
	if to, err := begin(elsewhere); err != nil || !strings.HasPrefix(to, elsewhere.URL+"/auth?") {
		t.Errorf("a good provider: to %q, %v", to, err)
	}
}

// A provider that fails between both halves of a sign-in is named as the cause.
func TestAProviderThatIsGoneIsNoWrongCredential(t *testing.T) {
	t.Parallel()
	g := newRogue(t)
	f := servedWith(t, g.Server)
	s := g.begin(stranger(t, f, nil))
	g.Close()
	if a := s.end(); a.status != http.StatusBadGateway || !strings.Contains(a.body, "does not answer") {
		t.Errorf("%d: %s", a.status, main(a.body))
	}
}

// TestSignInsEndAtThisSite tries to have the browser sent elsewhere.
func TestSignInsEndAtThisSite(t *testing.T) {
	t.Parallel()
	g := newRogue(t)
	f := servedWith(t, g.Server)
	for _, next := range []string{"https://example.com/", "//example.com", `/\example.com`, "javascript:alert(1)",
		"/\texample.com", "@example.com", "nodes", "https://anna@example.com/", "//anna@example.com/", "/\\anna@example.com",
		"https:/example.com", "https:example.com", "/%5cexample.com\r\nSet-Cookie: a=b"} {
		s := g.beginFor(stranger(t, f, nil), next)
		if a := s.end(); a.status != http.StatusSeeOther || a.header.Get("Location") != "/" {
			t.Errorf("%q: %d to %q", next, a.status, a.header.Get("Location"))
		}
		// A cookie that another program has changed.
		s = g.begin(stranger(t, f, nil))
		secret, _, _ := strings.Cut(s.kept("flow"), ".")
		s.cookie("flow", secret+"."+b64([]byte(next)))
		if a := s.end(); a.header.Get("Location") != "/" {
			t.Errorf("%q in the cookie: %d to %q", next, a.status, a.header.Get("Location"))
		}
	}
}
