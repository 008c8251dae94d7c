package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"muster/internal/testbed"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// The first screen says what is wrong and what to do, also on a phone; a link leads to where it is done.
func TestOverviewAnswers(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	agent := f.Agent("web90.example.net", f.Token(nil))
	f.WaitProvisioned(agent)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.picture("overview-first")
	b.eventually("the node is connected",
		`document.querySelector("#tiles a[href='/nodes?connected=yes']")?.innerText?.startsWith("1")`)
	agent.Stop()
	b.eventually("and then it is not",
		`document.querySelector("#tiles a[href='/nodes?connected=yes']")?.innerText?.startsWith("0")`)
	if _, err := f.Daemon().Orders().AllowList.Add(f.Context(), operate.AllowOrder{Pattern: "*", Everything: true},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	b.eventually("an alarm comes", `document.querySelector("#alarms a[href='/allow']") !== null`)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, 390} {
			b.look(width, 844, scheme)
			name := fmt.Sprintf("%d-%s", width, scheme)
			for page, path := range map[string]string{
				"wrong": "/?period=day", "not-connected": "/nodes?connected=no", "stopped": "/nodes/web90.example.net",
			} {
				b.visit(path)
				b.fits(page + " " + name)
				b.picture("overview-" + page + "-" + name)
			}
			b.visit("/")
			if !evaluate[bool](b, `[...document.querySelectorAll("#alarms p, #alarms a")].every(e => e.getBoundingClientRect().bottom < innerHeight)`) {
				t.Errorf("%s: the alarm and what to do are not on the first screen", name)
			}
		}
	}
	b.do(chromedp.Click("#alarms a[href='/allow']", chromedp.ByQuery))
	b.eventually("the page to do it", `document.querySelector("h1")?.innerText === "Allow-list"`)
	b.visit("/?period=week")
	b.eventually("the counts of the week", `document.querySelectorAll("#rate svg title").length > 0 && document.querySelector("#rate .note") === null && document.querySelector("#rate h2").innerText.startsWith("The last week")`)
	b.sound("overview")

	b.visit("/")
	const refused = `document.querySelector("#tiles a[href$='#codes']")?.innerText`
	before := evaluate[string](b, refused)
	f.Stop()
	f.Start()
	again := signIn(t, f, "cara", trust.RoleViewer)
	again.eventually("a restart does not change what was refused", fmt.Sprintf("%s === %q", refused, before))
	if strings.HasPrefix(before, "0") {
		t.Errorf("refused: %s", before)
	}

	f.Clock.Advance(25 * 24 * time.Hour)
	late := signIn(t, f, "ben", trust.RoleViewer)
	late.eventually("nodes that are not back yet do not renew",
		`document.querySelector("#late li")?.innerText?.includes("does not ask")`)
	for _, width := range []int64{1440, 390} {
		late.look(width, 844, "light")
		late.visit("/")
		late.fits("late")
		late.picture(fmt.Sprintf("overview-late-%d", width))
	}
}
