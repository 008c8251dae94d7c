package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/fleet"
)

var nextPage = regexp.MustCompile(`<a href="([^"]*)" rel="next">`)

// TestNodesAreLeafedThrough goes from page to page of each kind of list: none is left out, also
// while time goes by, of which some filters are made.
func TestNodesAreLeafedThrough(t *testing.T) {
	t.Parallel()
	f := served(t)
	const nodes = fleet.DefaultLimit + 20
	token := f.Token(nil)
	for _, n := range f.Nodes(nodes) {
		n.Identity = strings.Replace(n.Identity, "node", "web", 1)
		again := f.Node(n.Identity)
		again.Token = token
		f.Apply(again, f.Enroll(again))
	}
	v := signedIn(t, f, "vera", provisioner.RoleViewer)
	f.Eventually("all are listed", func() bool { return strings.Contains(v.see("/nodes"), "120 nodes") })
	for _, path := range []string{"/nodes", "/nodes?sort=expires", "/nodes?sort=changed&state=provisioned", "/nodes?within=720h", "/nodes?within=720h&sort=expires&q=*.example.net"} {
		listed := make(map[string]bool)
		for at := path; at != ""; {
			f.Clock.Advance(time.Second)
			page := v.see(at)
			for _, m := range regexp.MustCompile(`<a href="/nodes/([a-z0-9.]+)">`).FindAllStringSubmatch(page, -1) {
				listed[m[1]] = true
			}
			at = ""
			if next := nextPage.FindStringSubmatch(page); next != nil {
				at = html.UnescapeString(next[1])
			}
		}
		if len(listed) != nodes {
			t.Errorf("%s: %d of %d nodes are on its pages", path, len(listed), nodes)
		}
	}
	if a := v.get("/nodes?within=720h&before=never"); a.status != http.StatusBadRequest {
		t.Errorf("a time that is none: %d", a.status)
	}
}
