package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"muster/provisioner/operate"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestAnApprovedKeyIsShownAsApproved looks at the queue between an approval and the
// machine's coming back, and at what is ticked at once.
func TestAnApprovedKeyIsShownAsApproved(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Refused(f.Node("web1.example.net")) // another key
	waits(t, f, "db1.example.net")
	waits(t, f, "db2.example.net")
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("all wait", func() bool { return strings.Contains(v.see("/approvals"), "3 waiting") })
	page := v.see("/approvals?tick=all")
	says(t, page, "Tick none")
	if n := strings.Count(page, " checked"); n != 2 {
		t.Errorf("%d are ticked, want the 2 that an approval helps", n)
	}
	one := regexp.MustCompile(`value="(db1\.example\.net/[0-9a-f]{64})"`).FindStringSubmatch(page)[1]
	says(t, v.post("/approvals/decide", "verdict", "approve", "each", one).body, "can enroll under its name")
	unsaid(t, v.post("/approvals/decide", "verdict", "reject", "each", one).body, "cannot be undone")
	v.post("/approvals/decide", "verdict", "approve", "why", "racked", "each", one)
	f.Eventually("it is told apart",
		func() bool { return strings.Contains(v.see("/approvals"), "3 waiting, 1 of them approved") })
	page = v.see("/approvals?tick=all")
	says(t, page, "by anna: the node gets its certificate at its next request")
	if n := strings.Count(page, " checked"); n != 1 {
		t.Errorf("%d are ticked, want the one that is left", n)
	}
	v.post("/approvals/decide", "verdict", "forget", "why", "no", "each", one)
	f.Eventually("it is off the list", func() bool {
		page := v.see("/approvals")
		return strings.Contains(page, "2 waiting") && !strings.Contains(page, "of them approved")
	})
}

// box returns what the box of a machine on the page has, waiting or rejected.
func box(t testing.TB, page, identity string) string {
	t.Helper()
	m := regexp.MustCompile(`name="each" value="(`+regexp.QuoteMeta(identity)+`/[^"]*)"`).FindAllStringSubmatch(page,
		-1)
	if len(m) != 1 {
		t.Fatalf("%d boxes of %s:\n%s", len(m), identity, main(page))
	}
	return m[0][1]
}

// TestAVerdictLiftsNoRejectionThatThePageDoesNotShow has another operator reject nodes between page and button: they
// stay rejected until an operator that was shown the rejection decides.
func TestAVerdictLiftsNoRejectionThatThePageDoesNotShow(t *testing.T) {
	t.Parallel()
	f := served(t)
	for _, id := range []string{"db1.example.net", "db2.example.net"} {
		waits(t, f, id)
	}
	n := f.Node("db3.example.net")
	f.Refused(n)
	v, other := signedIn(t, f, "anna", trust.RoleOperator), f.Daemon().Operator()
	f.Eventually("all wait", func() bool { return strings.Contains(v.see("/approvals"), "3 waiting") })
	page := v.see("/approvals")
	db1, db2, db3 := box(t, page, "db1.example.net"), box(t, page, "db2.example.net"), box(t, page, "db3.example.net")
	reject := func(id wire.Identity, why string) {
		t.Helper()
		if _, err := testbed.Orders(other).Keys.Reject(f.Context(), operate.Named(id, ""),
			trust.Cause{By: "operator:ben", Why: why}); err != nil {
			t.Fatal(err)
		}
	}
	reject("db2.example.net", "never bought")
	reject("db3.example.net", "not ours")
	says(t, v.post("/approvals/decide", "verdict", "approve", "each", db1, "each", db3).body, "2 keys")
	for verdict, boxes := range map[string][]string{"approve": {"each", db1, "each", db3}, "forget": {"each", db2}} {
		a := v.post("/approvals/decide", append(boxes, "verdict", verdict, "why", "racked today")...)
		if a.status != http.StatusConflict {
			t.Errorf("%s: %d", verdict, a.status)
		}
		says(t, a.body, "was rejected after the list was shown, by ben at ")
		if verdict == "approve" {
			says(t, a.body, "1 of 2 are done", "not ours")
		}
	}
	if code := f.Refused(n); code != wire.CodeRejected {
		t.Errorf("a rejection that was not shown is lifted: %s", code)
	}
	if len(testbed.Orders(other).Keys.Rejected()) != 2 {
		t.Errorf("%d are rejected, want 2", len(testbed.Orders(other).Keys.Rejected()))
	}

	// An operator that was shown a rejection lifts that one only.
	shown := box(t, v.see("/approvals"), "db3.example.net")
	says(t, v.post("/approvals/decide", "verdict", "approve", "each", shown).body, "db3.example.net, key ",
		", which is rejected")
	if a := v.post("/approvals/decide", "verdict", "forget", "why", "a mistake", "each",
		shown); a.status != http.StatusSeeOther {
		t.Fatalf("forget: %d %s", a.status, a.body)
	}
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Fatalf("it does not wait again: %s", code)
	}
	f.Eventually("it is listed", func() bool {
		w, err := testbed.Orders(other).Keys.Waiting(f.Context(), "db3.example.net")
		return err == nil && len(w) == 1
	})
	reject("db3.example.net", "stolen")
	a := v.post("/approvals/decide", "verdict", "approve", "why", "a mistake", "each", shown)
	if a.status != http.StatusConflict {
		t.Errorf("approve what was rejected anew: %d", a.status)
	}
	says(t, a.body, "stolen")
	if a := v.post("/approvals/decide", "verdict", "approve", "why", "found again", "each",
		box(t, v.see("/approvals"), "db3.example.net")); a.status != http.StatusSeeOther {
		t.Errorf("approve after all: %d %s", a.status, a.body)
	}
	f.Enroll(n)
	f.Check()
}
