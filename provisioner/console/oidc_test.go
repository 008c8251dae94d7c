package console_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/login"
	"muster/provisioner/trust"
)

// people are the users of the provider, with their groups.
type people map[string]*storage.User

func (p people) GetUserByID(id string) *storage.User { return p[id] }

func (p people) GetUserByUsername(name string) *storage.User { return p[name] }

func (p people) ExampleClientID() string { return "service" }

var groupsOf = map[string][]string{"anna": {"everybody", "fleet-admins", "fleet-readers"}, "ben": {"everybody"},
	"vera": {"fleet-readers"}}

// store is the example's storage, whose ID tokens have the groups.
type store struct{ *storage.Storage }

func (s store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest,
	scopes []string,
) error {
	info.AppendClaims("groups", groupsOf[token.GetSubject()])
	return s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
}

func (s store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return claiming{c}, err
}

type claiming struct{ op.Client }

func (claiming) IDTokenUserinfoClaimsAssertion() bool { return true }

// signingIn returns a fleet whose operators sign in at the provider of zitadel/oidc.
func signingIn(t testing.TB) (*testbed.Fleet, *httptest.Server) {
	t.Helper()
	users := people{}
	for id, verified := range map[string]bool{"anna": true, "ben": true, "vera": false} {
		users[id] = &storage.User{ID: id, Username: id, Password: "verysecure", Email: id + "@example.net",
			EmailVerified: verified}
	}
	clients := map[string]*storage.Client{}
	idp := httptest.NewUnstartedServer(nil)
	idp.StartTLS()
	t.Cleanup(idp.Close)
	idp.Config.Handler = exampleop.SetupServer(idp.URL, store{storage.NewStorageWithClients(users, clients)}, nil, false)
	f := servedWith(t, idp)
	clients["muster"] = storage.WebClient("muster", "s3cret-of-muster", f.Daemon().APIURL()+"/login/oidc/back")
	return f, idp
}

// servedWith is served, with a provider.
func servedWith(t testing.TB, idp *httptest.Server) *testbed.Fleet {
	t.Helper()
	dir := t.TempDir()
	return testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.OIDC = login.Settings{
			Issuer:           idp.URL,
			ClientID:         "muster",
			ClientSecretFile: written(t, dir, "secret", "s3cret-of-muster\n"),
			CA: written(t, dir, "idp.pem",
				string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: idp.Certificate().Raw}))),
			Roles: map[string]login.GroupRole{"fleet-admins": {Role: trust.RoleAdmin},
				"fleet-readers": {Role: trust.RoleViewer}},
		}
	}})
}

// at is the browser at the provider.
func (v *visitor) at(idp *httptest.Server, method, to string, form url.Values) (string, string) {
	v.t.Helper()
	c := *idp.Client()
	jar, err := cookiejar.New(nil)
	if err != nil {
		v.t.Fatal(err)
	}
	c.Jar = jar
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if !strings.HasPrefix(r.URL.String(), idp.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	r, err := http.NewRequestWithContext(v.f.Context(), method, to, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	return body(v.t, resp), resp.Header.Get("Location")
}

var authRequest = regexp.MustCompile(`name="id" value="([^"]*)"`)

// back signs in at the provider, and returns the path to which it sends the browser back.
func (v *visitor) back(idp *httptest.Server, from, user string) string {
	v.t.Helper()
	a := v.get(from)
	if a.status != http.StatusSeeOther || !strings.HasPrefix(a.header.Get("Location"), idp.URL) {
		v.t.Fatalf("%s: %d to %q: %s", from, a.status, a.header.Get("Location"), a.body)
	}
	page, _ := v.at(idp, http.MethodGet, a.header.Get("Location"), nil)
	m := authRequest.FindStringSubmatch(page)
	if m == nil {
		v.t.Fatalf("the provider's page: %s", page)
	}
	page, to := v.at(idp, http.MethodPost, idp.URL+"/login/username",
		url.Values{"username": {user}, "password": {"verysecure"}, "id": {m[1]}})
	path, ours := strings.CutPrefix(to, v.f.Daemon().APIURL())
	if !ours {
		v.t.Fatalf("the provider sends the browser to %q: %s", to, page)
	}
	return path
}

// TestSigningInByOpenIDConnect follows people from the login page to the provider and back.
func TestSigningInByOpenIDConnect(t *testing.T) {
	t.Parallel()
	f, idp := signingIn(t)
	v := stranger(t, f, nil)
	says(t, v.see("/login?next=%2Fnodes"), `href="/login/oidc?next=%2fnodes"`, "Sign in with "+idp.URL)
	back := v.back(idp, "/login/oidc?next=%2Fnodes", "anna")
	a := v.get(back)
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/nodes" {
		t.Fatalf("back from the provider: %d to %q: %s", a.status, a.header.Get("Location"), a.body)
	}
	session := cookieNamed(a, "session")
	for _, want := range []string{"=muster.", "Path=/", "Secure", "HttpOnly", "SameSite=Lax", "Expires="} {
		if !strings.Contains(session, want) {
			t.Errorf("cookie %q lacks %s", session, want)
		}
	}
	says(t, v.see("/nodes"), "oidc:anna@example.net", "(admin)", "Sign out")
	secret, _, _ := strings.Cut(strings.TrimPrefix(session, "__Host-muster-session="), ";")
	if strings.Contains(f.Log(), secret) {
		t.Error("the session is in the log")
	}

	// Neither the code nor the flow works twice, for this browser and for another.
	again := *v
	if a := v.get(back); a.status != http.StatusUnauthorized {
		t.Errorf("the same answer again: %d", a.status)
	}
	if a := stranger(t, f, nil).get(back); a.status != http.StatusUnauthorized {
		t.Errorf("the answer in another browser: %d", a.status)
	}

	// Signing out ends the session, also for a copy of the cookie.
	copied := stranger(t, f, nil)
	copied.cookie("session", secret)
	says(t, copied.see("/"), "oidc:anna@example.net")
	again.see("/")
	if a := again.post("/logout"); a.status != http.StatusSeeOther {
		t.Errorf("sign out: %d", a.status)
	}
	if a := copied.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("a copy of the session after signing out: %d", a.status)
	}
}

// TestGroupsGiveRoles refuses people without a group of the configuration.
func TestGroupsGiveRoles(t *testing.T) {
	t.Parallel()
	f, idp := signingIn(t)
	v := stranger(t, f, nil)
	a := v.get(v.back(idp, "/login/oidc", "ben"))
	if a.status != http.StatusForbidden || cookieNamed(a, "session") != "" {
		t.Errorf("in no group: %d", a.status)
	}
	says(t, a.body, "None of your groups has a role")
	v = stranger(t, f, nil)
	if a := v.get(v.back(idp, "/login/oidc", "vera")); a.status != http.StatusSeeOther {
		t.Fatalf("a reader: %d: %s", a.status, a.body)
	}
	// The address is not verified, so it is no name.
	says(t, v.see("/"), "oidc:vera ", "(viewer)")
	if a := v.get("/do/pause"); a.status != http.StatusForbidden {
		t.Errorf("a reader who pauses: %d", a.status)
	}
	f.Clock.Advance(11 * time.Hour)
	if a := v.get("/"); a.status != http.StatusOK {
		t.Errorf("within a working day: %d", a.status)
	}
	f.Clock.Advance(2 * time.Hour)
	if a := v.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("after 12 hours: %d", a.status)
	}
}
