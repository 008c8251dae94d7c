package browsertest

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"muster/provisioner"
)

// TestWhatIsFilledInOutlivesTheSession has the session end while somebody fills in a form: the
// page stays as it is and says so, and once they have signed in what they sent is there again.
func TestWhatIsFilledInOutlivesTheSession(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", provisioner.RoleOperator)
	b.visit("/allow")
	b.eventually("the stream is open", streamOpen)
	b.do(chromedp.SendKeys("#pattern", "cache*.example.net", chromedp.ByQuery), chromedp.SetValue("#for", "168h", chromedp.ByQuery))
	f.Clock.Advance(2 * time.Hour)
	b.eventually("its end is told", `document.querySelector("#live").innerText === "Not live" && document.querySelector("#live-note").innerText.includes("Your session is over")`)
	b.picture("session-over")
	if got := evaluate[string](b, `document.querySelector("#pattern").value`); got != "cache*.example.net" {
		t.Errorf("what was filled in is %q", got)
	}
	b.do(chromedp.SendKeys("#why", "the new caches", chromedp.ByQuery), chromedp.Submit("#why", chromedp.ByQuery))
	b.eventually("it is asked for", `document.querySelector("[role=alert]")?.innerText.includes("nothing was done") && document.querySelector("#token") !== null`)
	b.picture("session-over-sign-in")
	b.do(chromedp.SetValue("#token", operator(t, f, "anna", provisioner.RoleOperator), chromedp.ByQuery), chromedp.Click("main button", chromedp.ByQuery))
	b.eventually("it is there again", `document.querySelector("#pattern")?.value === "cache*.example.net" && document.querySelector("#for").value === "168h" && document.querySelector("#why").value === "the new caches"`)
	b.eventually("and live", streamOpen)
	b.picture("session-over-again")
	b.fits("a form that is there again")
	b.do(chromedp.Submit("#why", chromedp.ByQuery))
	b.eventually("it is done", `document.querySelector("#list")?.innerText.includes("cache*.example.net")`)

	// Whoever has filled in nothing is asked to sign in at once.
	b.visit("/allow")
	b.eventually("the stream is open", streamOpen)
	f.Clock.Advance(2 * time.Hour)
	b.eventually("who has filled in nothing signs in", `location.pathname === "/login"`)
	b.sound("a session that is over")
}
