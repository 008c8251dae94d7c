package console_test

import (
	"strings"
	"testing"

	"muster/provisioner/trust"
)

// TestAdvice looks at what the page of a node tells an operator to do: links to
// where it is done, and nothing that is written for the machine's owner.
func TestAdvice(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	waits(t, f, "db1.example.net")
	v, viewer := signedIn(t, f, "anna", trust.RoleOperator), signedIn(t, f, "vera", trust.RoleViewer)
	const waiting = "/nodes/db1.example.net"
	f.Eventually("the refusal is in its past", func() bool { return strings.Contains(v.see(waiting), "approve or reject the key that waits") })
	page := v.see(waiting)
	says(t, page, ">waits<", `href="/approvals?q=db1.example.net"`, "It has asked 1 time")
	unsaid(t, page, "ask an operator", "was refused")
	page = v.see("/events?code=approval_pending")
	says(t, page, `<a href="/approvals">Approvals</a>: approve or reject the key that waits`)
	unsaid(t, page, "ask an operator")
	says(t, v.see("/events?code=token_used_up"), "<code>muster token show</code>: see which machines used it")
	page = v.see("/nodes/web1.example.net")
	says(t, page, `<a href="/nodes/web1.example.net/do/revoke?seen=`, `">Revoke</a>: keep it out`)
	unsaid(t, page, "muster node")
	page = viewer.see("/nodes/web1.example.net")
	says(t, page, "What an operator can do", "Revoke: keep it out")
	unsaid(t, page, "/do/")

	w, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "db1.example.net")
	if err != nil || len(w) != 1 {
		t.Fatalf("%v, %v", w, err)
	}
	v.see("/policies")
	v.post("/approvals/decide", "verdict", "reject", "why", "unknown", "each", "db1.example.net/"+w[0].KeyHash)
	f.Eventually("it is rejected", func() bool { return strings.Contains(v.see(waiting), ">rejected<") })
	f.Eventually("that is in its past", func() bool { return strings.Contains(v.see(waiting), "in after all") })
	page = v.see(waiting)
	says(t, page, `<a href="/approvals?q=db1.example.net">Approve</a>: let the rejected key in after all`)
	unsaid(t, page, "approve or reject the key that waits", "ask an operator", "muster node approve")
}

// unsaid fails the test if a page has a text.
func unsaid(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page says %q:\n%s", text, main(page))
		}
	}
}
