package console_test

import (
	"regexp"
	"strings"
	"testing"

	"muster/provisioner"
)

// TestAnApprovedMachineIsToldApart looks at the queue between an approval and the
// machine's coming back, and at what is ticked at once.
func TestAnApprovedMachineIsToldApart(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Refused(f.Node("web1.example.net")) // another key
	waits(t, f, "db1.example.net")
	waits(t, f, "db2.example.net")
	v := signedIn(t, f, "anna", provisioner.RoleOperator)
	f.Eventually("all wait", func() bool { return strings.Contains(v.see("/approvals"), "3 waiting") })
	page := v.see("/approvals?tick=all")
	says(t, page, "Tick none")
	if n := strings.Count(page, " checked"); n != 2 {
		t.Errorf("%d are ticked, want the 2 that an approval helps", n)
	}
	one := regexp.MustCompile(`value="(db1\.example\.net/[0-9a-f]{64})"`).FindStringSubmatch(page)[1]
	says(t, v.post("/approvals/confirm", "verdict", "approve", "each", one).body, "This key may have its name")
	unsaid(t, v.post("/approvals/confirm", "verdict", "reject", "each", one).body, "cannot be taken back")
	v.post("/approvals/decide", "verdict", "approve", "why", "racked", "each", one)
	f.Eventually("it is told apart", func() bool { return strings.Contains(v.see("/approvals"), "3 waiting, 1 of them approved") })
	page = v.see("/approvals?tick=all")
	says(t, page, "by anna: the machine gets its certificate when it asks again")
	if n := strings.Count(page, " checked"); n != 1 {
		t.Errorf("%d are ticked, want the one that is left", n)
	}
	v.post("/approvals/decide", "verdict", "forget", "why", "no", "each", one)
	f.Eventually("it is off the list", func() bool {
		page := v.see("/approvals")
		return strings.Contains(page, "2 waiting") && !strings.Contains(page, "of them approved")
	})
}
