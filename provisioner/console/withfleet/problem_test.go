package console_test

import (
	"net/http"
	"testing"

	"muster/provisioner"
)

// TestProblemsLeadOn goes where something is wrong: each page says so in words, and
// has a way back to what it was about.
func TestProblemsLeadOn(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Revoke("web1.example.net")
	v, viewer := signedIn(t, f, "anna", provisioner.RoleOperator), signedIn(t, f, "vera", provisioner.RoleViewer)
	for path, want := range map[string][]string{
		"/nodes/web1.example.net/do/restart":    {"Not done", "the node is revoked by now", `href="/nodes/web1.example.net"`},
		"/nodes/nobody.example.net":             {"Not found", `href="/nodes"`},
		"/nodes/nobody.example.net/do/revoke":   {"Not found", "<code>muster node explain</code>", `href="/nodes"`},
		"/nodes/NO_NAME":                        {"Not understood", `href="/nodes"`},
		"/tokens/xyz":                           {"Not understood", `href="/tokens"`},
		"/tokens/" + unusedToken + "/do/freeze": {"Not found", `href="/tokens/` + unusedToken + `"`},
		"/nothing":                              {"Not found", `href="/"`},
	} {
		says(t, main(v.get(path).body), want...)
	}
	says(t, main(viewer.get("/nodes/web1.example.net/do/retire").body), "Not allowed", "<code>muster operator add</code>", `href="/nodes/web1.example.net"`)
	for path, want := range map[string]string{"/approvals/confirm": "/approvals", "/approvals/decide": "/approvals", "/policies/replay": "/policies", "/logout": "/"} {
		if a := v.get(path); a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("GET %s: %d to %q, want %s", path, a.status, a.header.Get("Location"), want)
		}
	}
	says(t, v.see("/"), "anna") // nobody was signed out by a link
}

// unusedToken is the id of a token that nobody has shown.
const unusedToken = "abababababababababababababababab"
