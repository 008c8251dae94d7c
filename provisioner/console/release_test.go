package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAUseIsGivenBack has an operator give back the use of a machine that died
// between its claim and its certificate, and not that of a node.
func TestAUseIsGivenBack(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	n.Token = f.Token(testbed.Limited(2))
	f.Apply(n, f.Enroll(n))
	tid := f.Record("web1.example.net").Token
	store := f.Daemon().Store()
	var last provisioner.Revision
	if err := store.Claims(f.Context(), tid, 0, func(_ *provisioner.ClaimEntry, at provisioner.Revision) error { last = at; return nil }); err != nil {
		t.Fatal(err)
	}
	dead := strings.Repeat("ab", 32)
	claim := provisioner.TokenClaim{Key: dead, Identity: "web2.example.net", Attempt: wire.NewID(), At: f.Clock.Now().UTC()}
	if _, err := store.AppendClaims(f.Context(), tid, &provisioner.ClaimEntry{Schema: provisioner.ClaimSchema, Claims: []provisioner.TokenClaim{claim}}, last); err != nil {
		t.Fatal(err)
	}
	path := "/tokens/" + string(tid)
	release := path + "/do/release"
	v, viewer := signedIn(t, f, "anna", provisioner.RoleOperator), signedIn(t, f, "vera", provisioner.RoleViewer)
	page := v.see(path)
	says(t, page, "2 of 2, 0 left", `href="`+release+`?who=`+dead+`"`)
	if strings.Count(page, "?who=") != 1 {
		t.Error("the use of a node can be given back")
	}
	unsaid(t, viewer.see(path), "?who=")
	says(t, v.see(release+"?who="+dead), "Give the use back?", "by key "+dead, `name="who" value="`+dead+`"`)
	a := v.post(release, "who", dead, "why", "its disk died")
	if a.status != http.StatusConflict {
		t.Errorf("at once: %d", a.status)
	}
	says(t, main(a.body), "too young", `href="`+path+`"`)
	f.Clock.Advance(provisioner.ReleaseAge + time.Minute)
	if a := v.post(release, "who", dead, "why", "its disk died"); a.status != http.StatusSeeOther {
		t.Fatalf("later: %d %s", a.status, a.body)
	}
	says(t, v.see(path+"?done=release"), "given back", "1 of 2, 1 left", "released by anna: its disk died")
	if a := v.post(release, "who", "web1.example.net", "why", "a mistake"); a.status != http.StatusConflict {
		t.Errorf("of a node: %d", a.status)
	}
}
