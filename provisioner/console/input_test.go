package console_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/provisioner/operate"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestAReasonThatIsNoTextIsRefused gives a reason that JSON would spell with three times as many
// bytes: written down, no provisioner could read the verdict any more, and one that lets a
// machine in would keep it out.
func TestAReasonThatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("db1.example.net")
	f.Refused(n)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	one := box(t, v.see("/approvals"), "db1.example.net")
	a := v.post("/approvals/decide", "verdict", "approve", "each", one, "why", strings.Repeat("\xff", 100))
	if a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, main(a.body))
	}
	says(t, a.body, "in UTF-8")
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Errorf("it is refused with %s, want it to wait", code)
	}
	// By whatever edge it comes.
	if _, err := f.Daemon().Orders().Keys.Approve(f.Context(), operate.Named("db1.example.net", ""), 0,
		trust.Cause{By: "anna", Why: strings.Repeat("\xff", 100)}); err == nil {
		t.Error("the provisioner takes it")
	}
	if a := v.post("/approvals/decide", "verdict", "approve", "each", one, "why",
		strings.Repeat("ÿ", 100)); a.status != http.StatusSeeOther {
		t.Errorf("200 bytes of text: %d %s", a.status, main(a.body))
	}
	f.Enroll(n)
}

// TestInvisibleCharactersAreShown has a machine say of itself what turns text around, or is not seen.
func TestInvisibleCharactersAreShown(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("db1.example.net")
	n.Facts = testbed.Facts(t,
		map[string]any{"role": "web\u202egnp.exe", "serialnumber": "PX-\u200b4711", "rack": "Größe 4 שלום"})
	f.Refused(n)
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("it waits", func() bool { return strings.Contains(v.see("/approvals"), "1 waiting") })
	says(t, v.see("/approvals"), `<dd>web\u202egnp.exe</dd>`, `<dd>PX-\u200b4711</dd>`, "<dd>Größe 4 שלום</dd>")
	unsaid(t, v.see("/approvals"), "\u202e", "\u200b")
}
