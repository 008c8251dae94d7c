package console_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
)

// FuzzForms sends forms with the browser's own secret to every page that takes one. Nobody can
// make the provisioner fail, each answer is a page or leads to one, and where it refuses nothing
// has changed.
func FuzzForms(f *testing.F) {
	fleet := testbed.New(f, testbed.Options{Quiet: true, DefaultPolicy: true, AllowList: "allow:\n  - pattern: web*.example.net\n", Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	n := fleet.Node("web1.example.net")
	fleet.Apply(n, fleet.Enroll(n))
	waits(f, fleet, "db1.example.net")
	v := signedIn(f, fleet, "anna", provisioner.RoleAdmin)
	one := box(f, v.see("/approvals"), "db1.example.net")
	for i, s := range []string{
		"why=a+reason&owned=0&state=provisioned&command=a", "verdict=approve&why=a+reason&each=" + one, "verdict=reject&each=" + one + "/x&each=a", "pattern=web*.example.net&for=24h&uses=2&why=x",
		"why=%ff%fe&who=a", "since=1h", "why=a;b=c", "why=%zz", "site=ams1&why=x", "next=//x&token=y&kept=why%3Dx",
	} {
		f.Add(byte(i), s)
	}
	paths := []string{
		"/nodes/web1.example.net/do/restart", "/nodes/web1.example.net/do/grant", "/tokens/" + unusedToken + "/do/thaw", "/tokens/" + unusedToken + "/do/release",
		"/approvals/confirm", "/approvals/decide", "/allow", "/allow/remove", "/enrollment/pause", "/enrollment/resume", "/policies/reload", "/policies/replay", "/login",
		"/nodes/web1.example.net/do/retire", "/nodes/db1.example.net/do/revoke",
	}
	f.Fuzz(func(t *testing.T, page byte, form string) {
		v.t = t
		path, before := paths[int(page)%len(paths)], world(t, fleet)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fleet.Daemon().APIURL()+path, strings.NewReader("form="+v.form+"&"+form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		a := v.do(r)
		switch {
		case a.status == http.StatusSeeOther && strings.HasPrefix(a.header.Get("Location"), "/") && !strings.HasPrefix(a.header.Get("Location"), "//"):
			return
		case a.status == http.StatusInternalServerError || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(a.body, "</html>"):
			t.Fatalf("%s: %d %s", path, a.status, main(a.body))
		}
		if after := world(t, fleet); !maps.Equal(before, after) {
			t.Fatalf("%s: answered with %d, and %v became %v", path, a.status, before, after)
		}
	})
}
