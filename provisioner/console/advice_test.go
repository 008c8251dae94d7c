package console_test

import (
	"regexp"
	"strings"
	"testing"

	"muster/internal/wire"
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
	f.Eventually("the refusal is in its history",
		func() bool { return strings.Contains(v.see(waiting), "if its log shows this key") })
	page := v.see(waiting)
	says(t, page, ">pending<", `href="/approvals?q=db1.example.net"`, "It has asked 1 time")
	unsaid(t, page, "add an allow-list entry", "was refused")
	page = v.see("/events?code=approval_pending")
	says(t, page, `<a href="/approvals">Pending</a>: compare the waiting key with the machine&#39;s log, then approve or reject it`)
	unsaid(t, page, "add an allow-list entry")
	says(t, v.see("/events?code=token_used_up"), "<code>muster token list</code>: find the token, and then the nodes that used it")
	page = v.see("/nodes/web1.example.net")
	says(t, page, `<a href="/nodes/web1.example.net/do/revoke?seen=`, `">Revoke</a>: if the machine is stolen or broken into: bar it for good`)
	unsaid(t, page, "muster node")
	page = viewer.see("/nodes/web1.example.net")
	says(t, page, "What an operator can do", "Revoke: if the machine is stolen or broken into: bar it for good")
	unsaid(t, page, "/do/")

	w, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "db1.example.net")
	if err != nil || len(w) != 1 {
		t.Fatalf("%v, %v", w, err)
	}
	v.see("/policies")
	v.post("/approvals/decide", "verdict", "reject", "why", "unknown", "each", "db1.example.net/"+w[0].KeyHash)
	f.Eventually("it is rejected", func() bool { return strings.Contains(v.see(waiting), ">rejected<") })
	f.Eventually("that is in its history", func() bool { return strings.Contains(v.see(waiting), "after all") })
	page = v.see(waiting)
	says(t, page, `<a href="/approvals?q=db1.example.net">Approve</a>: approve the rejected key after all`)
	unsaid(t, page, "if its log shows this key", "add an allow-list entry", "muster node approve")
}

// What was granted is not advised again.
func TestNoAdviceAfterAGrant(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Refused(f.Node("web1.example.net"))
	v := signedIn(t, f, "anna", trust.RoleOperator)
	const advised, granted = "give it the name, if the machine was reinstalled", "can take the name over, once"
	f.Eventually("it is advised", func() bool { return strings.Contains(v.see("/nodes/web1.example.net"), advised) })
	w, err := f.Daemon().Orders().Keys.Waiting(t.Context(), "web1.example.net")
	if err != nil || len(w) != 1 {
		t.Fatalf("%v, %v", w, err)
	}
	page := v.see("/nodes/web1.example.net/do/grant?key=" + w[0].KeyHash)
	v.post("/nodes/web1.example.net/do/grant", "key", w[0].KeyHash, "why", "new board", "command", wire.NewID(),
		"seen", regexp.MustCompile(`name="seen" value="([^"]*)"`).FindStringSubmatch(page)[1])
	f.Eventually("it is granted", func() bool { return strings.Contains(v.see("/nodes/web1.example.net"), granted) })
	page = v.see("/nodes/web1.example.net")
	says(t, page, "The key that waits takes the name at its next request.", "granted by anna")
	unsaid(t, page, advised, "compare the key that asks for the name", ">Decide<")
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
