package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner"
)

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// meant returns what the form of a confirmation carries, as name, value, and so on.
func meant(t testing.TB, page string) []string {
	t.Helper()
	var fields []string
	for _, f := range hidden.FindAllStringSubmatch(main(page), -1) {
		if f[1] != "form" { // the visitor's
			fields = append(fields, f[1], html.UnescapeString(f[2]))
		}
	}
	if len(fields) == 0 {
		t.Fatalf("no form:\n%s", main(page))
	}
	return fields
}

// confirmed sends the form of a confirmation, filled in with a reason.
func (v *visitor) confirmed(path, why string) answer {
	v.t.Helper()
	to, _, _ := strings.Cut(path, "?")
	return v.post(to, append(meant(v.t, v.see(path)), "why", why)...)
}

// TestOrdersSpareALaterHolderOfTheName opens pages about machines, and has their names
// change hands before anything is pressed.
func TestOrdersSpareALaterHolderOfTheName(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	const retired, granted, renewed = "web1.example.net", "web2.example.net", "web3.example.net"
	for _, name := range []string{retired, granted} {
		n := f.Node(name)
		f.Apply(n, f.Enroll(n))
	}
	same := f.Node(renewed)
	first := f.Enroll(same)
	f.Apply(same, first)
	f.Clock.Advance(time.Minute)
	button := regexp.MustCompile(`href="(/nodes/web[123]\.example\.net/do/([a-z]+)[^"]*)"`)
	buttons, forms := make(map[string]string), make(map[string][]string)
	for _, name := range []string{retired, granted, renewed} {
		for _, link := range button.FindAllStringSubmatch(v.see("/nodes/"+name), -1) {
			at := "/nodes/" + name + "/do/" + link[2]
			buttons[at] = html.UnescapeString(link[1])
			forms[at] = append(meant(t, v.see(buttons[at])), "why", "chosen")
		}
	}
	if len(forms) != 3*7 {
		t.Fatalf("%d forms: %v", len(forms), forms)
	}
	f.Retire(retired)
	if a := v.post("/nodes/"+granted+"/do/grant",
		forms["/nodes/"+granted+"/do/grant"]...); a.status != http.StatusSeeOther {
		t.Fatalf("grant: %d %s", a.status, a.body)
	}
	for _, name := range []string{retired, granted} {
		n := f.Node(name)
		f.Apply(n, f.Enroll(n))
	}
	next, e := f.Renew(same, first)
	f.AppliedOverFleet(next, e)
	for at, form := range forms {
		// which was carried out, and is not again
		if strings.Contains(at, renewed) || at == "/nodes/"+granted+"/do/grant" {
			continue
		}
		again := v.post(at, append(form[:len(form)-1:len(form)-1], "")...) // without a reason, and then with one
		for how, a := range map[string]answer{"form": v.post(at, form...),
			"form that was asked for its reason": v.post(at, append(meant(t, again.body), "why", "chosen")...)} {
			if a.status != http.StatusConflict {
				t.Errorf("the %s of %s: %d", how, at, a.status)
			}
			says(t, a.body, "hanged since it was shown")
		}
	}
	for _, name := range []string{retired, granted} {
		if s := f.Record(name).State; s != provisioner.StateProvisioned {
			t.Errorf("another machine has the name %s, and is %s", name, s)
		}
	}
	if a := v.post("/nodes/"+granted+"/do/retire", "why", "whoever has the name"); a.status != http.StatusBadRequest {
		t.Errorf("a form that says nothing of the owner: %d", a.status)
	}
	// A renewed node is the same node, and so is the owner of a name when the page is opened.
	if a := v.post("/nodes/"+renewed+"/do/revoke",
		forms["/nodes/"+renewed+"/do/revoke"]...); a.status != http.StatusSeeOther {
		t.Errorf("revoke: %d %s", a.status, a.body)
	}
	if a := v.confirmed("/nodes/"+granted+"/do/retire", "scaled down"); a.status != http.StatusSeeOther {
		t.Errorf("retire: %d %s", a.status, a.body)
	}
	f.Check()
}
