package console_test

import (
	"net/http"
	"testing"

	"muster/provisioner/trust"
)

// TestAllowList lets a machine in that waits by its name, and takes the name off
// the list again.
func TestAllowList(t *testing.T) {
	t.Parallel()
	f := served(t)
	waits(t, f, "db1.example.net")
	v, viewer := signedIn(t, f, "anna", trust.RoleOperator), signedIn(t, f, "vera", trust.RoleViewer)
	says(t, v.see("/allow?pattern=db1.example.net"), "web*.example.net", `value="db1.example.net"`,
		`href="/installation" aria-current="page"`)
	unsaid(t, viewer.see("/allow"), `name="pattern"`)
	if a := viewer.post("/allow", "pattern", "x*", "for", "24h", "why", "because"); a.status != http.StatusForbidden {
		t.Errorf("a viewer who adds: %d", a.status)
	}
	a := v.post("/allow", "pattern", "*", "for", "1y", "why", " ")
	if a.status != http.StatusBadRequest {
		t.Errorf("all wrong: %d", a.status)
	}
	says(t, a.body, "admits every node", "one of the list", "Give a reason")
	if a := v.post("/allow", "pattern", " DB*.example.net", "for", "24h", "why",
		"rack 4"); a.status != http.StatusSeeOther {
		t.Fatalf("add: %d %s", a.status, a.body)
	}
	says(t, v.see("/allow?done=add"), "Added", "db*.example.net", "rack 4", "anna", ">good<",
		"/allow/do/remove?pattern=db%2a.example.net")
	n := f.Node("db2.example.net")
	f.Apply(n, f.Enroll(n))
	says(t, v.see("/allow/do/remove?pattern=db*.example.net"), "Remove from the allow-list?", "db*.example.net", "stay")
	if a := v.post("/allow/do/remove", "pattern", "db*.example.net", "why", ""); a.status != http.StatusBadRequest {
		t.Errorf("without a reason: %d", a.status)
	}
	if a := v.post("/allow/do/remove", "pattern", "db*.example.net", "why", "done"); a.status != http.StatusSeeOther {
		t.Fatalf("remove: %d %s", a.status, a.body)
	}
	unsaid(t, v.see("/allow"), "db*.example.net")
	a = v.post("/allow/do/remove", "pattern", "db*.example.net", "why", "again")
	if a.status != http.StatusNotFound {
		t.Errorf("remove what is not there: %d", a.status)
	}
	says(t, main(a.body), `href="/allow"`)
}
