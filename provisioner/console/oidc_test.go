package console_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/login"
	"muster/provisioner/trust"
)

// settings are those of a provider, with a role for each of some groups.
func settings(t testing.TB, idp *httptest.Server) login.Settings {
	t.Helper()
	dir := t.TempDir()
	return login.Settings{
		Issuer:           idp.URL,
		ClientID:         "muster",
		ClientSecretFile: written(t, dir, "secret", "s3cret-of-muster\n"),
		CA: written(t, dir, "idp.pem",
			string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: idp.Certificate().Raw}))),
		Roles: map[string]login.GroupRole{
			"fleet-admins":  {Role: trust.RoleAdmin},
			"fleet-readers": {Role: trust.RoleViewer},
			"ams1-team":     {Role: trust.RoleOperator, Sites: trust.Sites{"ams1"}},
			"fra1-team":     {Role: trust.RoleOperator, Sites: trust.Sites{"fra1", "ams1"}},
			"night-shift":   {Role: trust.RoleOperator},
			"ber1-readers":  {Role: trust.RoleViewer, Sites: trust.Sites{"ber1"}},
		},
	}
}

// servedWith is served, with a provider.
func servedWith(t testing.TB, idp *httptest.Server) *testbed.Fleet {
	t.Helper()
	return testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses, c.OIDC = "127.0.0.1:0", []string{"127.0.0.1"}, settings(t, idp)
	}})
}

// TestSigningInByOpenIDConnect follows a person from the login page to the provider and back. The browser's tests do so
// with the provider of zitadel/oidc.
func TestSigningInByOpenIDConnect(t *testing.T) {
	t.Parallel()
	g := newRogue(t)
	f := servedWith(t, g.Server)
	v := stranger(t, f, nil)
	says(t, v.see("/login?next=%2Fnodes"), `href="/login/oidc?next=%2fnodes"`, "Sign in with "+g.URL)
	back := g.begin(v)
	a := back.end()
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

	// A link cannot have an admin end another session than the page says.
	id := regexp.MustCompile(`/sessions/([^/"]+)/do/end`).FindStringSubmatch(v.see("/sessions"))
	confirm := v.see("/sessions/" + id[1] + "/do/end?name=oidc:mallory")
	says(t, confirm, "oidc:anna@example.net")
	lacks(t, main(confirm), "mallory")
	if a := v.get("/sessions/AAAAAAAAAAAAAAAAAAAAAA/do/end"); a.status != http.StatusNotFound {
		t.Errorf("a session that has ended: %d", a.status)
	}

	// Signing out ends the session, also for a copy of the cookie.
	copied := stranger(t, f, nil)
	copied.cookie("session", secret)
	says(t, copied.see("/"), "oidc:anna@example.net")
	v.see("/")
	if a := v.post("/logout"); a.status != http.StatusSeeOther {
		t.Errorf("sign out: %d", a.status)
	}
	if a := copied.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("a copy of the session after signing out: %d", a.status)
	}
}

// TestGroupsGiveRoles gives people the strongest role of their groups, at the sites of all groups that have it.
func TestGroupsGiveRoles(t *testing.T) {
	t.Parallel()
	g := newRogue(t)
	f := servedWith(t, g.Server)
	for groups, want := range map[string]struct {
		role  trust.OperatorRole
		sites trust.Sites
	}{
		"fleet-readers":                        {trust.RoleViewer, nil},
		"fleet-readers everybody fleet-admins": {trust.RoleAdmin, nil},
		"ams1-team":                            {trust.RoleOperator, trust.Sites{"ams1"}},
		"fra1-team ams1-team":                  {trust.RoleOperator, trust.Sites{"ams1", "fra1"}},
		"ams1-team night-shift fra1-team":      {trust.RoleOperator, nil},
		"night-shift ams1-team":                {trust.RoleOperator, nil},
		"fleet-readers ams1-team":              {trust.RoleOperator, trust.Sites{"ams1"}},
		"ams1-team ber1-readers":               {trust.RoleOperator, trust.Sites{"ams1"}},
		"ber1-readers fleet-readers":           {trust.RoleViewer, nil},
		"ams1-team fleet-admins":               {trust.RoleAdmin, nil},
	} {
		g.bent(func(k *idToken) {
			k.claims["sub"], k.claims["groups"] = strings.ReplaceAll(groups, " ", "+"), strings.Fields(groups)
			k.claims["email_verified"] = false // so the address is no name
		})
		v := stranger(t, f, nil)
		if a := g.begin(v).end(); a.status != http.StatusSeeOther {
			t.Errorf("%s: %d %s", groups, a.status, a.body)
			continue
		}
		given := 0
		for _, e := range f.Daemon().Store().Logs().Sessions.All() {
			for _, s := range e.Value.Sessions {
				if s.Name != "oidc:"+strings.ReplaceAll(groups, " ", "+") {
					continue
				}
				if given++; s.Role != want.role || !slices.Equal(s.Sites, want.sites) ||
					(s.Sites == nil) != (want.sites == nil) {
					t.Errorf("%s: %s at %q, want %s at %q", groups, s.Role, s.Sites, want.role, want.sites)
				}
			}
		}
		if given != 1 {
			t.Errorf("%s: %d sessions", groups, given)
		}
		says(t, v.see("/"), "oidc:"+strings.ReplaceAll(groups, " ", "&#43;"), "("+string(want.role)+")")
		if a := v.get("/policies"); (a.status == http.StatusForbidden) != (want.sites != nil) {
			t.Errorf("%s: the page of all sites is %d", groups, a.status)
		}
	}
	g.bent(func(k *idToken) { k.claims["groups"] = []string{"everybody"} })
	v := stranger(t, f, nil)
	a := g.begin(v).end()
	if a.status != http.StatusForbidden || cookieNamed(a, "session") != "" {
		t.Errorf("in no group: %d", a.status)
	}
	says(t, a.body, "None of your groups has a role")

	g.bent(func(k *idToken) { k.claims["groups"] = "fleet-readers" }) // as some providers have one group
	if a := g.begin(v).end(); a.status != http.StatusSeeOther {
		t.Fatalf("a reader: %d: %s", a.status, a.body)
	}
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
