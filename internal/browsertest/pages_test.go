package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"github.com/chromedp/chromedp"

	"muster/internal/testbed"
)

// axeSource returns axe-core as `make browser` installs it.
func axeSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("axe-core is missing: `make browser` installs it: %v", err)
	}
	return string(b)
}

// A violation is a finding of axe-core.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// accessible fails the test if axe-core finds a violation.
func (b *tab) accessible(axe, where string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(axe, nil))
	// On a gradient axe-core would not judge contrast.
	text := evaluate[string](b, `(() => {
		const hints = document.querySelectorAll("nav, .scroll");
		for (const e of hints) e.style.backgroundImage = "none";
		return axe.run(document, {resultTypes: ["violations"]}).then(r => {
			for (const e of hints) e.style.backgroundImage = "";
			return JSON.stringify(r.violations);
		});
	})()`)
	var found []violation
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatalf("%s: %v: %s", where, err, text)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %s\n%s", where, v.ID, v.Help, n.HTML, n.Summary)
		}
	}
}

// pagesOf returns every kind of page by the name of its picture.
func pagesOf(f *testbed.Fleet) [][2]string {
	tid := string(f.Record("web1.example.net").Token)
	return [][2]string{
		{"overview", "/"}, {"nodes", "/nodes"}, {"nodes-sorted", "/nodes?sort=-expires&page=2&limit=10"},
		{"jobs", "/jobs"}, {"nodes-searched",
			"/nodes?q=*.example.net&state=provisioned&expires_before=30d&sort=expires"}, {"nodes-none", "/nodes?q=nobody"},
		{"nodes-by-fact", "/nodes?fact=role%3Dweb&fact=rack%3Dr*"}, {"nodes-by-other-fact", "/nodes?fact=kernel%3D6"},
		{"node", "/nodes/web1.example.net"}, {"node-revoked", "/nodes/web3.example.net"},
		{"node-refused", "/nodes/web6.example.net"}, {"node-waiting", "/nodes/db2.example.net"},
		{"node-confirm", "/nodes/web1.example.net/do/revoke"}, {"approvals", "/approvals"},
		{"operators", "/operators"}, {"signers", "/signers"}, {"authority", "/authority"}, {"webhooks", "/webhooks"},
		{"components", "/components"}, {"backups", "/backups"}, {"configuration", "/configuration"},
		{"compose", "/tokens/new?urls=broker.example.net:4222&names=web*.example.net&uses=20"},
		{"installation", "/installation"}, {"sessions", "/sessions"}, {"allow", "/allow"},
		{"tokens", "/tokens"}, {"token", "/tokens/" + tid},
		{"certificates", "/certificates"},
		{"certificate", "/certificates/web2.example.net/internal-endpoint"},
		{"policies", "/policies"}, {"events", "/events"},
		{"events-searched", "/events?type=io.muster.node.refused&code=identity_taken&since=1h"},
		{"problem", "/nothing"},
	}
}

// Each page in light and dark, wide and narrow: no violation, no error of the browser, everything fits, also zoomed to
// 200 and 400 %, no request to another host, and nothing that nodes report is executed.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	f := fleet(t, 40)
	axe := axeSource(t)
	b := signIn(t, f, "anna", trust.RoleAdmin)
	pages := pagesOf(f)
	zoomed := map[string][]int64{"wide-light": {1024, 720}, "narrow-light": {320}} // widths by look
	for _, look := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{"wide-light", 1440, 900, "light"}, {"wide-dark", 1440, 900, "dark"}, {"narrow-light", 390, 844, "light"},
		{"narrow-dark", 390, 844, "dark"},
	} {
		b.look(look.width, look.height, look.scheme)
		for _, p := range pages {
			where := p[0] + " " + look.name
			b.visit(p[1])
			b.accessible(axe, where)
			b.fits(where)
			b.picture(p[0] + "-" + look.name)
			for _, width := range zoomed[look.name] {
				b.look(width, look.height*width/look.width, look.scheme)
				b.fits(fmt.Sprintf("%s at %d px", p[0], width))
				b.look(look.width, look.height, look.scheme)
			}
			b.sound(where)
		}
		fresh := open(t, f.Daemon().APIURL())
		fresh.look(look.width, look.height, look.scheme)
		fresh.visit("/login")
		fresh.accessible(axe, "login "+look.name)
		fresh.picture("login-" + look.name)
		fresh.sound("login " + look.name)
	}
	asked := b.requests()
	for _, url := range asked {
		if !strings.HasPrefix(url, b.url+"/") {
			t.Errorf("a page asked %s", url)
		}
	}
	if len(asked) < 4*len(pages) {
		t.Errorf("only %d requests were seen", len(asked))
	}
}
