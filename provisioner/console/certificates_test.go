package console_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

// TestServiceCertificatesAreDecidedOnPages finds a waiting service certificate, approves and rejects it, and revokes
// another one.
func TestServiceCertificatesAreDecidedOnPages(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	f.AskService(n, e, "https", "www.example.net", nil)
	if r := f.AskService(n, e, "sql", "sql.web1.example.net", nil); r.Certificate == nil {
		t.Fatalf("refused: %+v", r.Refusal)
	}
	const https, sql = "/certificates/web1.example.net/https", "/certificates/web1.example.net/sql"
	v := signedIn(t, f, "anna", trust.RoleOperator)
	says(t, v.see("/certificates"), "2 certificates · 1 current · 1 waiting", `href="`+https+`"`, "www.example.net")
	if page := main(v.see("/certificates?match=web*.example.net&name=sql&sort=expires")); strings.Contains(page, https) {
		t.Errorf("the filter has no effect: %s", page)
	}
	says(t, v.see("/certificates?limit=1&page=2"), `aria-current="page">2</a>`, sql)
	if a := v.get("/certificates?state=good"); a.status != http.StatusBadRequest {
		t.Errorf("a state that is none: %d", a.status)
	}
	says(t, v.see("/nodes/web1.example.net"), "Service certificates", "waits for an approval", `href="`+https+`"`)
	says(t, v.see(https), "waits for an approval", https+"/do/approve?request=", https+"/do/reject?request=")

	order := func(path, verb, request string) answer {
		t.Helper()
		says(t, v.see(path+"/do/"+verb+"?request="+request), `name="request" value="`+request+`"`)
		return v.post(path+"/do/"+verb, "request", request, "why", "ticket 17")
	}
	state := func(name string) services.Listed {
		l, _, _ := f.Daemon().Services().Index().Get(wire.Identity(n.Identity), name)
		return l
	}
	if a := order(https, "approve", "another"); a.status != http.StatusConflict {
		t.Errorf("a request that is no longer asked: %d", a.status)
	}
	if a := order(https, "reject", state("https").Request); a.status != http.StatusSeeOther {
		t.Fatalf("reject: %d %s", a.status, a.body)
	}
	says(t, v.see(https), "ticket 17", "was rejected", https+"/do/approve")
	a := order(https, "approve", state("https").Request)
	if a.status != http.StatusSeeOther {
		t.Fatalf("approve: %d %s", a.status, a.body)
	}
	says(t, v.see(a.header.Get("Location")), "Approved: the node gets the certificate", "was approved")
	if a := order(sql, "revoke", ""); a.status != http.StatusSeeOther {
		t.Fatalf("revoke: %d %s", a.status, a.body)
	}
	if l := state("sql"); l.State != services.StateRevoked || l.Note != "ticket 17" {
		t.Errorf("after the revocation: %+v", l)
	}
	f.Check()
}
