package browsertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"muster/internal/testbed"
	"muster/provisioner"
)

// focused describes the element with the focus.
const focused = `(() => { const e = document.activeElement; return (e.id || e.textContent || e.value || e.tagName).trim().slice(0, 60) })()`

// tabTo presses the tabulator until the focused element matches. It fails the test if the focus is invisible on the
// way or never gets there.
func (b *tab) tabTo(fits string) {
	b.t.Helper()
	var seen []string
	for range 150 {
		b.press(kb.Tab)
		if evaluate[bool](b, `document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === "none"`) {
			b.t.Errorf("the focus on %q cannot be seen", evaluate[string](b, focused))
		}
		if evaluate[bool](b, `document.activeElement.matches(`+fmt.Sprintf("%q", fits)+`)`) {
			return
		}
		seen = append(seen, evaluate[string](b, focused))
	}
	b.t.Fatalf("the tabulator does not reach %s: %q", fits, seen)
}

// Sign in, find a node, revoke it, and approve a node, without a pointer.
func TestByKeyboardAlone(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	token := operator(t, f, "anna", trust.RoleOperator)
	b := open(t, f.Daemon().APIURL())
	b.visit("/nodes")
	b.tabTo("#token")
	b.do(chromedp.KeyEvent(token))
	b.press(kb.Enter)
	b.eventually("signed in, and where she wanted to go",
		`location.pathname === "/nodes" && document.querySelector("#q") !== null`)
	b.tabTo("a.skip")
	b.press(kb.Enter)
	b.tabTo("#q")
	b.press("w", "e", "b", "1", ".", kb.Enter)
	b.eventually("found",
		`location.search.includes("web1") && document.querySelectorAll("#list tbody tr").length === 1`)
	b.tabTo(`a[href="/nodes/web1.example.net"]`)
	b.press(kb.Enter)
	b.eventually("its page", `document.querySelector("h1")?.innerText?.startsWith("web1.example.net")`)
	b.tabTo(`a[href*="/do/revoke?"]`)
	b.press(kb.Enter)
	b.eventually("asked first", `document.querySelector("h1")?.innerText === "Revoke?"`)
	b.tabTo("#why")
	b.do(chromedp.KeyEvent("stolen"))
	b.press(kb.Enter)
	b.eventually("done", `document.querySelector("[role=status].good")?.innerText?.includes("revoked")`)
	if got := f.Record("web1.example.net").State; got != provisioner.StateRevoked {
		t.Errorf("the node is %s", got)
	}
	b.eventually("done is told once", `location.search === ""`)
	b.do(chromedp.Reload())
	b.eventually("and not again",
		`document.querySelector("h1")?.innerText?.includes("revoked") && document.querySelector("[role=status].good") === null`)
	b.visit("/approvals")
	b.tabTo(`input[value^="db1.example.net/"]`)
	b.press(" ")
	b.tabTo(`button[value=approve]`)
	b.press(kb.Enter)
	b.eventually("asked first", `document.querySelector("h1")?.innerText === "Approve?"`)
	b.tabTo("#why")
	b.do(chromedp.KeyEvent("racked today"))
	b.press(kb.Enter)
	b.eventually("done", `document.querySelector("[role=status].good")?.innerText?.includes("Approved")`)
	b.visit("/certificates?waiting=true")
	b.tabTo(`a[href="/certificates/web2.example.net/internal-endpoint"]`)
	b.press(kb.Enter)
	b.eventually("its page", `document.querySelector("h1")?.innerText?.startsWith("internal-endpoint")`)
	b.tabTo(`a[href*="/do/approve?"]`)
	b.press(kb.Enter)
	b.eventually("asked first", `document.querySelector("h1")?.innerText === "Approve?"`)
	b.tabTo("#why")
	b.do(chromedp.KeyEvent("ticket 17"))
	b.press(kb.Enter)
	b.eventually("done", `document.querySelector("[role=status].good")?.innerText?.includes("Approved")`)
	// Every control can be reached, and none traps the focus.
	for _, path := range []string{"/", "/nodes", "/nodes/web2.example.net", "/certificates", "/tokens", "/policies", "/events"} {
		b.visit(path)
		n := evaluate[int](b,
			`(() => { window.left = new Set([...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")].filter(e => e.checkVisibility() && e.tabIndex >= 0)); return left.size })()`)
		for range n + 2 {
			b.press(kb.Tab)
			evaluate[bool](b, `left.delete(document.activeElement)`)
		}
		// Live parts may have been replaced meanwhile.
		if missed := evaluate[int](b, `[...left].filter(e => e.isConnected).length`); missed > 0 {
			t.Errorf("%s: the tabulator does not reach %s", path,
				evaluate[string](b, `[...left].filter(e => e.isConnected).map(e => e.outerHTML.slice(0, 100)).join("\n")`))
		}
	}
	b.sound("by keyboard")
}

// Events happen while the pages are open.
func TestLiveParts(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleOperator)
	queue := signIn(t, f, "ben", trust.RoleOperator)
	b.eventually("the page is live", `document.querySelector("#live")?.dataset.state === "on"`)
	evaluate[bool](b, `window.stays = true`)
	queue.visit("/approvals")
	queue.eventually("the page is live", `document.querySelector("#live")?.dataset.state === "on"`)
	ticked := `document.querySelector("input[value^='db1.example.net/']").checked`
	// the page may be replaced once more between the search and the click
	for !evaluate[bool](queue, ticked) {
		queue.do(chromedp.Click(`input[value^="db1.example.net/"]`, chromedp.ByQuery))
	}

	n := f.Node("web77.example.net")
	f.Apply(n, f.Enroll(n))
	wait(t, f, "db77.example.net", map[string]any{"role": "database"})
	b.eventually("the overview shows the node",
		`window.stays && document.querySelector("#feed")?.innerText?.includes("web77.example.net")`)
	b.eventually("and counts the pending nodes",
		`document.querySelector("#tiles a[href='/approvals']")?.innerText?.startsWith("7")`)
	if !evaluate[bool](queue, ticked+` && !document.body.innerText.includes("db77")`) {
		t.Error("the queue changed under a hand that has ticked something")
	}
	queue.do(chromedp.Click(`input[value^="db1.example.net/"]`, chromedp.ByQuery))
	evaluate[bool](queue, `document.activeElement.blur() === undefined`)
	f.Refused(f.Node("broker.fleet.test"))
	queue.eventually("the queue has the new node", `document.body.innerText.includes("db77.example.net")`)

	// A paused page does not change.
	b.do(chromedp.Click("#live", chromedp.ByQuery))
	b.eventually("paused",
		`document.querySelector("#live")?.innerText === "Paused" && document.querySelector("#live")?.ariaPressed === "true"`)
	b.do(chromedp.Click("#live", chromedp.ByQuery))
	b.eventually("live again", `document.querySelector("#live")?.innerText === "Live"`)

	if err := f.Daemon().Orders().Operators.Remove(f.Context(), "anna", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	b.eventually("a removed operator is signed out", `location.pathname === "/login"`)
	if !slices.Contains(b.requests(), b.url+"/live") {
		t.Error("the page does not ask to be told of changes")
	}
	f.Stop()
	queue.eventually("a page that stands still says so",
		`document.querySelector("#live-note")?.innerText?.includes("out of date")`)
}

// A proxy lets no stream through: the page asks by itself.
func TestLivePartsWithoutAStream(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(
			`window.EventSource = class { static OPEN = 1; static CLOSED = 2; readyState = 0; close() {} }`).Do(ctx)
		return err
	}))
	b.visit("/")
	b.eventually("the page is live", `document.querySelector("#live")?.dataset.state === "on"`)
	n := f.Node("web77.example.net")
	f.Apply(n, f.Enroll(n))
	b.eventually("the overview shows the node", `document.querySelector("#feed")?.innerText?.includes("web77.example.net")`)
}

// A browser without scripts revokes a node.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	token := operator(t, f, "anna", trust.RoleOperator)
	b := open(t, f.Daemon().APIURL())
	b.do(emulation.SetScriptExecutionDisabled(true))
	b.visit("/nodes/web1.example.net/do/revoke")
	b.do(
		chromedp.WaitVisible("#token", chromedp.ByQuery), chromedp.SendKeys("#token", token, chromedp.ByQuery),
		chromedp.Click("main button", chromedp.ByQuery),
		chromedp.WaitVisible("#why", chromedp.ByQuery), chromedp.SendKeys("#why", "stolen", chromedp.ByQuery),
		chromedp.Click("main button", chromedp.ByQuery),
		chromedp.WaitVisible(".note.good", chromedp.ByQuery),
	)
	if got := f.Record("web1.example.net").State; got != provisioner.StateRevoked {
		t.Errorf("the node is %s", got)
	}
	b.sound("without scripts")
}

// A link from another site comes without the session's cookie at first.
func TestALinkFromAnotherSite(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleViewer)
	b.do(
		chromedp.Navigate("data:text/html,<a href='"+f.Daemon().APIURL()+"/nodes/web1.example.net'>look</a>"),
		chromedp.Click("a", chromedp.ByQuery),
	)
	b.eventually("the page is there",
		`location.pathname === "/nodes/web1.example.net" && document.querySelector("h1")?.innerText.startsWith("web1")`)
	stranger := open(t, f.Daemon().APIURL())
	stranger.do(
		chromedp.Navigate("data:text/html,<a href='"+f.Daemon().APIURL()+"/nodes/web1.example.net'>look</a>"),
		chromedp.Click("a", chromedp.ByQuery),
	)
	stranger.eventually("without a session the page asks to sign in",
		`location.pathname === "/login" && document.querySelector("[name=next]")?.value === "/nodes/web1.example.net"`)
}

// The name on an open page goes to another node: the page does not become that node's, and its buttons do nothing to
// it.
func TestAnOpenPageStaysWithItsNode(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.visit("/nodes/web1.example.net")
	b.eventually("the page is live", `document.querySelector("#live")?.dataset.state === "on"`)
	f.Clock.Advance(time.Minute)
	retire := evaluate[string](b, `document.querySelector("a.button[href*='/do/retire?']").getAttribute("href")`)
	f.Retire("web1.example.net")
	b.eventually("its end is told", `document.querySelector("#explain").innerText.includes("The name is free")`)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	b.eventually("it is told that there is another one",
		`document.querySelector("#live-note").innerText.includes("Another node has this name now")`)
	if !evaluate[bool](b, `document.querySelector("#explain").innerText.includes("The name is free")`) {
		t.Error("the page has become that of another machine")
	}
	b.picture("changed-hands-note")
	b.visit(retire) // as an operator about to press the button
	b.do(chromedp.SendKeys("#why", "scaled down\n", chromedp.ByQuery))
	b.eventually("nothing is done",
		`document.querySelector("[role=alert]")?.innerText?.includes("another machine has had the name since")`)
	b.picture("changed-hands")
	b.do(chromedp.Click("main a", chromedp.ByQuery))
	b.eventually("the page is that of the other one",
		`document.querySelector("#explain")?.innerText?.includes("The node is in the fleet")`)
	b.picture("changed-hands-back")
	b.do(chromedp.Click(`a.button[href*="/do/revoke?"]`, chromedp.ByQuery))
	b.eventually("it is asked", `document.querySelector("h1")?.innerText === "Revoke?"`)
	b.picture("changed-hands-confirm")
	b.sound("a name that changes hands")
}
