package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/provisioner"
)

// TestSigningIn follows an operator from the first look to being removed.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	f := served(t)
	key, _ := added(t, f, "anna", trust.RoleOperator, false)
	v := stranger(t, f, nil)
	a := v.get("/nodes?state=revoked")
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/login?next=%2Fnodes%3Fstate%3Drevoked" {
		t.Fatalf("a stranger: %d to %q", a.status, a.header.Get("Location"))
	}
	if a := v.do(v.request(http.MethodHead, "/nodes", nil)); a.status != http.StatusSeeOther {
		t.Errorf("a stranger who asks for the head: %d", a.status)
	}
	v.see(a.header.Get("Location"))
	if a := v.post("/login", "token", f.Token(nil)); a.status != http.StatusUnauthorized ||
		len(cookieNamed(a, "session")) > 0 {
		t.Errorf("a node's token: %d, %v", a.status, a.header["Set-Cookie"])
	}
	token := tokenOf(t, f, "anna", key)
	a = v.post("/login", "token", " "+token+"\n", "next", "/nodes?state=revoked")
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/nodes?state=revoked" {
		t.Fatalf("sign in: %d to %q: %s", a.status, a.header.Get("Location"), a.body)
	}
	session := cookieNamed(a, "session")
	for _, want := range []string{"__Host-muster-session=", "Path=/", "Secure", "HttpOnly", "SameSite=Lax",
		"Expires="} {
		if !strings.Contains(session, want) {
			t.Errorf("cookie %q lacks %s", session, want)
		}
	}
	says(t, v.see("/"), "anna", "Sign out")
	if strings.Contains(f.Log(), token) {
		t.Error("the token is in the log")
	}

	// The form's secret is another one than before.
	if a := v.post("/logout"); a.status != http.StatusSeeOther {
		t.Errorf("sign out: %d", a.status)
	}
	if a := v.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("after signing out: %d", a.status)
	}
	v.see("/login")
	v.post("/login", "token", token)
	v.see("/")
	if err := f.Daemon().Orders().Operators.Remove(f.Context(), "anna", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	if a := v.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("after removal: %d", a.status)
	}
}

// cookieNamed returns the cookie that an answer sets, "" if it does not.
func cookieNamed(a answer, name string) string {
	for _, c := range a.header["Set-Cookie"] {
		if strings.HasPrefix(c, "__Host-muster-"+name+"=") {
			return c
		}
	}
	return ""
}

func TestASessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Clock.Advance(2 * time.Hour)
	says(t, v.post("/approvals/decide", "verdict", "approve").body, "nothing was done",
		`name="next" value="/approvals/decide"`)
	if a := v.get("/nodes"); a.status != http.StatusSeeOther {
		t.Errorf("after the token's end: %d", a.status)
	}
}

func TestACertificateIsEnough(t *testing.T) {
	t.Parallel()
	f := served(t)
	_, certificate := added(t, f, "anna", trust.RoleViewer, true)
	says(t, stranger(t, f, certificate).see("/"), "anna", "viewer")
}

// TestFormsOfOtherSitesAreRefused sends what another site could have a browser send.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", trust.RoleOperator)
	const revoke = "/nodes/web1.example.net/do/revoke"
	mine := v.form
	for name, secret := range map[string]string{"none": "", "a guess": strings.Repeat("A", len(mine))} {
		v.form = secret
		if a := v.post(revoke, "why", "a trick"); a.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	v.form = mine
	r := v.request(http.MethodPost, revoke, strings.NewReader("why=a+trick&form="+mine))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if a := v.do(r); a.status != http.StatusForbidden {
		t.Errorf("of another site: %d", a.status)
	}
	if got := f.Record("web1.example.net").State; got != provisioner.StateProvisioned {
		t.Errorf("the node is %s", got)
	}
}
