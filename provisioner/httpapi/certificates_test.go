package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/services"
)

// TestServiceCertificatesAreListedApprovedAndRevoked follows service certificates of two nodes through lists, reports,
// orders and explanations.
func TestServiceCertificatesAreListedApprovedAndRevoked(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const web1, web2 = "web1.example.net", "web2.example.net"
	list := func(query string) *services.Page {
		t.Helper()
		var p services.Page
		call(t, f, http.MethodGet, "/v1/certificates"+query, nil, &p)
		return &p
	}
	report := func(node, name string) (*fleet.CertificateReport, string) {
		t.Helper()
		var r fleet.CertificateReport
		call(t, f, http.MethodGet, "/v1/certificates/"+node+"/"+name, nil, &r)
		return &r, textOf(&fleet.Explanation{Findings: r.Findings})
	}
	one, two := f.Node(web1), f.Node(web2)
	e1, e2 := f.Enroll(one), f.Enroll(two)
	f.Apply(one, e1)
	f.Apply(two, e2)
	if p := list(""); p.Total != 0 || p.Certificates == nil {
		t.Errorf("before any request: %+v", p)
	}
	if r := f.AskService(one, e1, "https", "svc."+web1, nil); r.Certificate == nil {
		t.Fatalf("a name below the node's own is refused: %+v", r.Refusal)
	}
	if r := f.AskService(two, e2, "https", "www.example.net", nil); r.Refusal.Code != wire.CodeApprovalPending {
		t.Fatalf("a name of its own network: %+v, want it to wait", r)
	}
	f.AskService(two, e2, "vpn", web1, nil)
	f.AskService(one, e1, "https", "", &wire.CertificateState{
		State: "saved",
		Stuck: true,
		Error: "the action has failed: exit status 1",
		Since: f.Clock.Now().UTC(),
	})

	for query, want := range map[string]string{
		"?sort=name":                            "web1/https web2/https web2/vpn",
		"?match=web1.example.net":               "web1/https",
		"?match=web*.example.net&name=vpn":      "web2/vpn",
		"?waiting=true":                         "web2/https",
		"?state=waiting&state=refused":          "web2/https web2/vpn",
		"?stuck=true":                           "web1/https",
		"?expires_before=1d":                    "",
		"?expires_before=60d":                   "web1/https",
		"?expires_before=2000-01-01T00:00:00Z":  "",
		"?sort=expires&limit=1":                 "web1/https",
		"?stuck=false&waiting=false&name=https": "web1/https web2/https",
	} {
		var got []string
		for _, l := range list(query).Certificates {
			got = append(got, strings.TrimSuffix(string(l.Node), ".example.net")+"/"+l.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %q, want %q", query, got, want)
		}
	}
	first := list("?limit=2")
	if next := list("?limit=2&cursor=" + first.Next); first.Total != 3 || first.Stuck != 1 ||
		first.States[services.StateWaiting] != 1 || len(next.Certificates) != 1 || next.Next != "" {
		t.Errorf("pages: %+v and %+v", first, next)
	}
	for _, query := range []string{
		"?match=WEB..", "?state=good", "?stuck=perhaps", "?expires_before=soon", "?limit=0", "?sort=size", "?cursor=x",
		"?node=web1",
	} {
		if p := refused(t, f, http.MethodGet, "/v1/certificates"+query, nil); p.Status != http.StatusBadRequest {
			t.Errorf("%s: %+v", query, p)
		}
	}

	// Why it has none, and what to do.
	waits, text := report(web2, "https")
	if !strings.Contains(text, "certificate approve "+web2+" https: ") || !strings.Contains(text, "www.example.net") {
		t.Errorf("a waiting one: %s", text)
	}
	if r, text := report(web2, "vpn"); r.State != services.StateRefused || r.Code != wire.CodeNameTaken ||
		!strings.Contains(text, "was refused") || !strings.Contains(text, string(wire.CodeNameTaken)) {
		t.Errorf("a refused one: %+v: %s", r.Listed, text)
	}
	if _, text := report(web1, "https"); !strings.Contains(text, "stuck: the action has failed: exit status 1") ||
		!strings.Contains(text, "muster-server certificate show https") {
		t.Errorf("a stuck one: %s", text)
	}
	var explained fleet.Explanation
	call(t, f, http.MethodGet, "/v1/nodes/"+web2+"/explain", nil, &explained)
	if text := textOf(&explained); !strings.Contains(text, "certificate_waiting: ") ||
		!strings.Contains(text, "certificate_refused: ") {
		t.Errorf("explanation of the node: %s", text)
	}

	// Orders.
	order := func(name, verb string, q httpapi.CertificateOrder, status int) {
		t.Helper()
		path := "/v1/certificates/" + web2 + "/" + name + "/" + verb
		if status == http.StatusOK {
			call(t, f, http.MethodPost, path, q, nil)
		} else if p := refused(t, f, http.MethodPost, path, q); p.Status != status {
			t.Errorf("%s %s: %+v, want %d", verb, name, p, status)
		}
	}
	order("https", "approve", httpapi.CertificateOrder{Request: "another"}, http.StatusConflict)
	order("vpn", "approve", httpapi.CertificateOrder{}, http.StatusConflict)
	order("smtp", "approve", httpapi.CertificateOrder{}, http.StatusNotFound)
	order("smtp", "revoke", httpapi.CertificateOrder{}, http.StatusNotFound)
	order("https", "revoke", httpapi.CertificateOrder{Request: waits.Request}, http.StatusBadRequest)
	order("https", "reject", httpapi.CertificateOrder{Request: waits.Request, Why: "not ours"}, http.StatusOK)
	if _, text := report(web2, "https"); !strings.Contains(text, `("not ours")`) {
		t.Errorf("a rejected one: %s", text)
	}
	order("https", "approve", httpapi.CertificateOrder{Request: waits.Request}, http.StatusOK)
	if p := refused(t, f, http.MethodGet, "/v1/certificates/"+web2+"/smtp", nil); p.Status != http.StatusNotFound {
		t.Errorf("one that is not there: %+v", p)
	}
	if r := f.AskService(two, e2, "ftp", "ftp."+web2, nil); r.Certificate == nil {
		t.Fatalf("refused: %+v", r.Refusal)
	}
	order("ftp", "revoke", httpapi.CertificateOrder{Why: "unused"}, http.StatusOK)
	if r, text := report(web2, "ftp"); r.State != services.StateRevoked || !strings.Contains(text, "are revoked") {
		t.Errorf("a revoked one: %+v: %s", r.Listed, text)
	}
	f.Clock.Advance(40 * 24 * time.Hour)
	if r, text := report(web1, "https"); r.State != services.StateExpired || !strings.Contains(text, "without a renewal") {
		t.Errorf("an expired one: %+v: %s", r.Listed, text)
	}
	f.Eventually("the history has them", func() bool {
		var h fleet.History
		call(t, f, http.MethodGet, "/v1/nodes/"+web2+"/history", nil, &h)
		had := make(map[fleet.Kind]string)
		for _, m := range h.Items {
			had[m.Kind] = m.Name
		}
		return had[fleet.Served] == "ftp" && had[fleet.Unserved] != "" && had[fleet.Ended] == "ftp" &&
			had[fleet.Named] == "https" && had[fleet.Unnamed] == "https"
	})
	f.Check()
}
