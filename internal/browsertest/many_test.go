package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"muster/provisioner"
	"muster/provisioner/trust"
)

// Nodes are sorted, ticked, and retired at once, by keyboard; the page of the job shows its progress by itself.
func TestManyNodesAtOnce(t *testing.T) {
	t.Parallel()
	f := fleet(t, 12)
	axe := axeSource(t)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.visit("/nodes?state=provisioned&limit=5")
	b.tabTo(`th a[href*="sort=-name"]`)
	b.press(kb.Enter)
	b.eventually("sorted the other way", `document.querySelector("[aria-sort=descending]")?.innerText === "Name" &&
		document.querySelector("tbody th").innerText.startsWith("web9")`)
	b.tabTo(`a[href*="page=2"]`)
	b.press(kb.Enter)
	b.eventually("the second page", `document.readyState === "complete" && document.querySelector(".pager [aria-current]")?.innerText === "2"`)
	b.press("j", "x", "j", "x")
	b.eventually("two are ticked", `document.querySelectorAll("tbody input:checked").length === 2`)
	names := strings.Split(evaluate[string](b,
		`[...document.querySelectorAll("tbody input:checked")].map((box) => box.ariaLabel).join(" ")`), " ")
	b.do(chromedp.SetValue("#verdict", "retire", chromedp.ByQuery))
	b.accessible(axe, "ticked nodes")
	b.picture("nodes-ticked")
	b.tabTo("#list form button:not(.copy)")
	b.press(kb.Enter)
	b.eventually("asked first", `document.querySelector("h1")?.innerText === "Retire?"`)
	b.accessible(axe, "confirmation of many")
	b.fits("confirmation of many")
	b.picture("many-confirm")
	b.do(chromedp.SetValue("#why", "scrapped", chromedp.ByQuery), chromedp.Click("main form button", chromedp.ByQuery))
	b.eventually("done", `document.querySelector("#progress")?.innerText?.includes("2 done · 0 failed")`)
	for _, name := range names {
		if got := f.Record(name).State; got != provisioner.StateRetired {
			t.Errorf("%s is %s", name, got)
		}
	}
	b.visit("/nodes?state=provisioned&limit=5")
	b.eventually("all are ticked", `(document.querySelector("#all").checked ||= true)`) // a live part may be replaced
	b.do(chromedp.SetValue("#verdict", "restart", chromedp.ByQuery),
		chromedp.Click("#list form button:not(.copy)", chromedp.ByQuery), chromedp.WaitVisible("#why", chromedp.ByQuery),
		chromedp.SetValue("#why", "new version", chromedp.ByQuery), chromedp.Click("main form button", chromedp.ByQuery))
	b.eventually("their agents are not connected", `document.querySelector("#failed")?.innerText?.includes("not connected")`)
	b.eventually("the job ends", `document.querySelector("#progress .chip")?.innerText !== "runs"`)
	for _, look := range []struct {
		width, height int64
		scheme        string
	}{{1440, 900, "light"}, {1440, 900, "dark"}, {390, 844, "light"}, {390, 844, "dark"}} {
		b.look(look.width, look.height, look.scheme)
		for _, path := range []string{"", "/jobs"} {
			if path != "" {
				b.visit(path)
			}
			where := fmt.Sprintf("job%s-%d-%s", strings.ReplaceAll(path, "/", "-"), look.width, look.scheme)
			b.accessible(axe, where)
			b.fits(where)
			b.picture(where)
		}
		b.do(chromedp.Click(`#list th a`, chromedp.ByQuery), chromedp.WaitVisible("#progress", chromedp.ByQuery))
	}
	b.sound("many at once")
}
