package console_test

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/trust"
)

var rowName = regexp.MustCompile(`<th scope="row" class="name"><a href="/nodes/([a-z0-9]+)\.example\.net"`)

// listed returns the first labels of the names on a list.
func listed(page string) string {
	var names []string
	for _, m := range rowName.FindAllStringSubmatch(page, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}

// listing is a fleet with nodes a, b and c: b is revoked, c is enrolled again last; a and c keep the fact role.
func listing(t *testing.T) (*testbed.Fleet, *visitor) {
	t.Helper()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.Fleet.Facts = []string{"role"}
	}})
	f.Allow("*.example.net")
	for _, name := range []string{"c", "a", "b"} {
		n := f.Node(name + ".example.net")
		n.Facts = testbed.Facts(t, map[string]string{"role": "=" + name})
		f.Apply(n, f.Enroll(n))
		f.Clock.Advance(time.Minute)
	}
	f.Revoke("b.example.net")
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("all are listed", func() bool {
		return strings.Contains(v.see("/nodes"), "3 nodes · 2 provisioned · 1 revoked")
	})
	return f, v
}

// The heads of columns sort, and a second click sorts the other way round.
func TestSortingByEachColumn(t *testing.T) {
	t.Parallel()
	_, v := listing(t)
	for head, want := range map[string]string{
		"name": "a b c", "-name": "c b a", "state": "a c b", "-state": "b a c", "expires": "c a b", "-expires": "b a c",
		"changed": "b a c", "-changed": "c a b", "seen": "b a c", "connected": "a c b", "-connected": "c a b", "site": "a b c",
	} {
		page := v.see("/nodes?sort=" + head)
		if head == "connected" || head == "-connected" {
			if got := listed(page); !strings.HasSuffix(got, " b") { // it has no agent in the fleet
				t.Errorf("%s: %s", head, got)
			}
		} else if got := listed(page); got != want {
			t.Errorf("%s: %s, want %s", head, got, want)
		}
		back, reversed := strings.CutPrefix(head, "-")
		if !reversed {
			back = "-" + head
		}
		says(t, page, `href="/nodes?sort=`+back+`"`, `aria-sort="`)
	}
	says(t, v.see("/nodes?q=a&state=provisioned"), html.EscapeString("/nodes?q=a&sort=-name&state=provisioned"))
}

// Pages have numbers, and filters stay in their addresses.
func TestPageNumbers(t *testing.T) {
	t.Parallel()
	_, v := listing(t)
	page := v.see("/nodes?limit=1&page=2&state=provisioned")
	if got := listed(page); got != "c" {
		t.Errorf("page 2: %s", got)
	}
	says(t, page, html.EscapeString("/nodes?limit=1&page=1&state=provisioned"), `aria-current="page">2</a>`, `value="1"`)
	behind := v.see("/nodes?limit=1&page=9")
	if got := listed(behind); got != "" || strings.Contains(behind, "No node has enrolled") {
		t.Errorf("behind the last page: %s", behind)
	}
	says(t, behind, "ends before this page", `href="/nodes?limit=1&amp;page=1"`)
	says(t, v.get("/nodes?page=0").body, "page: &#34;0&#34;, want 1 to")
	says(t, v.see("/nodes?connected=no&for=10m&protocol=muster"), "<option selected>no</option>",
		`<option value="10m" selected>`, "<option selected>muster</option>")
}

// One field finds nodes by each kind of text, and says what has it.
func TestSearchingByEachKindOfText(t *testing.T) {
	t.Parallel()
	f, v := listing(t)
	r := f.Record("a.example.net")
	for text, want := range map[string]string{
		"a": "a", "A.example": "a", "*.example.net": "a b c", "role==a": "a", "role=*": "a b c", r.Current.Serial: "a",
		r.Current.KeyHash: "a", r.Current.KeyHash[:8]: "a", string(r.Token): "a", "127.0.0.1": "a b c", "127.0.0.0/8": "a b c",
		"10.0.0.1": "", "nobody": "",
	} {
		page := v.see("/nodes?q=" + url.QueryEscape(text))
		if got := listed(page); got != want {
			t.Errorf("%s finds %q, want %q", text, got, want)
		}
	}
	if a := v.get("/nodes?q=Hm_is_no_name"); a.status != http.StatusBadRequest {
		t.Errorf("a text that is no name: %d", a.status)
	}
	says(t, v.see("/nodes?q="+r.Current.Serial), "Found by serial number")
	says(t, v.see("/nodes?q="+strings.ToUpper(r.Current.KeyHash)), "Found by key")
	says(t, v.see("/nodes?q="+string(r.Token)), "Found by token")
	for _, token := range v.tokens() {
		if token["tid"] == string(r.Token) {
			if label, _ := token["jti"].(string); label == "" || listed(v.see("/nodes?q="+url.QueryEscape(label))) != "a" {
				t.Errorf("the label %q does not find its node", label)
			}
		}
	}
	n := f.Node("db1.other.net") // no allowance: it waits
	f.Refused(n)
	f.Eventually("the waiting key is found", func() bool {
		return strings.Contains(v.see("/nodes?q=db1"), `<a href="/approvals?q=db1.other.net">`)
	})
}

func (v *visitor) tokens() (all []map[string]any) {
	v.t.Helper()
	if err := json.Unmarshal([]byte(v.see("/tokens.json")), &all); err != nil {
		v.t.Fatal(err)
	}
	return all
}

// A list is exported as filtered and sorted, all pages of it. No text of a node becomes a formula.
func TestExport(t *testing.T) {
	t.Parallel()
	f, v := listing(t)
	a := v.get("/nodes.csv?sort=-name&state=provisioned&limit=1&page=2")
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][0] != "identity" || rows[1][0] != "c.example.net" || rows[2][0] != "a.example.net" {
		t.Fatalf("%v %v", rows, err)
	}
	if fact := rows[1][len(rows[1])-1]; fact != "'=c" {
		t.Errorf("a fact that begins with =: %s", fact)
	}
	if got := a.header.Get("Content-Disposition"); got != `attachment; filename="nodes.csv"` {
		t.Errorf("it is sent as %s", got)
	}
	var nodes []map[string]any
	if err := json.Unmarshal([]byte(v.see("/nodes.json?q=a")), &nodes); err != nil || len(nodes) != 1 ||
		nodes[0]["serial"] != f.Record("a.example.net").Current.Serial {
		t.Errorf("%v %v", nodes, err)
	}
	if got := v.see("/nodes.json?q=nobody"); got != "[]\n" {
		t.Errorf("of none: %q", got)
	}
	if got := len(v.tokens()); got != 3 {
		t.Errorf("%d tokens", got)
	}
	says(t, v.see("/tokens.csv"), "tid,signer_name,jti")
	says(t, v.get("/nodes.csv?state=gone").body, "want enrolled, provisioned, revoked or retired")
}
