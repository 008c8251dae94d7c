package browsertest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	kolkata  = time.FixedZone("", 5*3600+1800)
	fullHash = regexp.MustCompile(`\b[0-9a-f]{32}`)
)

// Search, rows, ticks and the list of keys, by single keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.press("/")
	b.eventually("from a page without a search, it is that of nodes",
		`location.pathname === "/nodes" && document.activeElement.id === "q"`)
	b.press("j", "?", kb.Enter)
	b.eventually("keys in a field are text", `location.search.includes("q=j%3F") && document.readyState === "complete"`)
	b.visit("/nodes")
	focus := `document.activeElement.textContent`
	b.press("j", "j", "j", "k")
	if got := evaluate[string](b, focus); got != "web2.example.net" {
		t.Errorf("j j j k goes to %q", got)
	}
	b.picture("keys-row")
	b.press(kb.Enter)
	b.eventually("its page", `location.pathname === "/nodes/web2.example.net" && document.readyState === "complete"`)
	b.press("?")
	if !evaluate[bool](b, `document.getElementById("keys").open`) {
		t.Error("? shows nothing")
	}
	b.accessible(axeSource(t), "keys")
	b.picture("keys")
	b.do(chromedp.Click("#keys-on", chromedp.ByQuery))
	b.press(kb.Escape, "?")
	if evaluate[bool](b, `document.getElementById("keys").open`) {
		t.Error("? after the keys were turned off")
	}
	b.do(chromedp.Click("#help", chromedp.ByQuery), chromedp.Click("#keys-on", chromedp.ByQuery))
	b.press(kb.Escape)
	b.visit("/approvals")
	b.press("j", "x")
	if n := evaluate[int](b, `document.querySelectorAll(".queue input:checked").length`); n != 1 {
		t.Errorf("x ticks %d", n)
	}
	b.sound("keys")
}

// Hashes are short, and a button copies all of one.
func TestCopyingAHash(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleViewer)
	tid := string(f.Record("web1.example.net").Token)
	b.visit("/tokens/" + tid)
	b.do(chromedp.Click("h1 .copy", chromedp.ByQuery))
	b.eventually("it is told", `document.getElementById("said").textContent === "Copied `+tid+`"`)
	if got := evaluate[string](b, `document.querySelector("h1 code").textContent`); got != tid[:12]+"…" {
		t.Errorf("the hash is shown as %q", got)
	}
	b.visit("/tokens/new?urls=broker.example.net:4222")
	b.do(chromedp.Click("h2 .copy", chromedp.ByQuery))
	b.eventually("a command too", `document.getElementById("said").textContent.startsWith("Copied muster jwt sign")`)
	b.visit("/nodes/web1.example.net")
	if text := evaluate[string](b, `document.querySelector("main").innerText`); fullHash.MatchString(text) {
		t.Errorf("a whole hash is shown: %s", text)
	}
	b.sound("copying")
}

// Times are those of the reader's zone, also in refreshed parts.
func TestTimesInTheReadersZone(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleViewer)
	b.do(emulation.SetTimezoneOverride("Asia/Kolkata"))
	b.visit("/nodes/web1.example.net")
	const local = `[...document.querySelectorAll("#past .timeline > li > time")].every(e => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d GMT\+5:30$/.test(e.textContent)) && document.querySelectorAll("time[title$=UTC]").length === 0`
	b.eventually("the history is in local time", local+` && document.getElementById("zone").textContent === "Asia/Calcutta"`)
	want := f.Record("web1.example.net").FirstEnrolledAt.In(kolkata).Format("2006-01-02 15:04:05")
	if !evaluate[bool](b, `document.querySelector("#record").innerHTML.includes("`+want+` GMT+5:30")`) {
		t.Errorf("the record does not say %s", want)
	}
	f.Revoke("web1.example.net")
	b.eventually("so is what is new", `document.querySelector("#past").innerText.includes("Revoked") && !document.querySelector("main").innerText.includes("Z by") && `+local)
	b.sound("zones")
}

// A table that is whole on its page is sorted by its heads, and stays so when it is refreshed.
func TestSortingATable(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "zoe", trust.RoleAdmin)
	operator(t, f, "ben", trust.RoleViewer)
	b.visit("/operators")
	first := func(name string) string {
		return `document.querySelector("tbody th").innerText.startsWith("` + name + `")`
	}
	b.do(chromedp.Click("thead th:first-child .sort", chromedp.ByQuery))
	b.eventually("up", first("ben")+` && document.querySelector("th[aria-sort=ascending]").innerText.startsWith("Operator")`)
	b.do(chromedp.Click("thead th:first-child .sort", chromedp.ByQuery))
	b.eventually("down", first("zoe")+` && document.querySelectorAll("[aria-sort=descending]").length === 1`)
	b.sound("sorting")
}

// The field finds nodes by each kind of text, the address keeps what was asked, and the files have what the list shows.
func TestFindingAndExporting(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleViewer)
	r := f.Record("web2.example.net")
	b.visit("/nodes")
	for text, rows := range map[string]int{
		"web2": 1, "*.example.net": 6, "rack=r1": 2, r.Current.Serial: 1, r.Current.KeyHash[:12]: 1, string(r.Token): 1,
	} {
		b.do(chromedp.SetValue("#q", text, chromedp.ByQuery), chromedp.Click("form[role=search] button", chromedp.ByQuery))
		b.eventually(text+" is found", fmt.Sprintf(`new URL(location.href).searchParams.get("q") === %q && document.querySelectorAll("#list tbody tr").length === %d`, text, rows))
		if got := evaluate[int](b, `fetch(document.querySelector("#list a[href*='.json']").href).then(a => a.json()).then(all => all.length)`); got != rows {
			t.Errorf("%s: the file has %d nodes, want %d", text, got, rows)
		}
		if got := evaluate[string](b, `fetch(document.querySelector("#list a[href*='.csv']").href).then(a => a.text())`); strings.Count(got, "\n") != rows+1 {
			t.Errorf("%s: the table has other rows than %d nodes:\n%s", text, rows, got)
		}
	}
	b.sound("lists")
}

// On paper there is no menu and no button, and hashes and times are whole.
func TestPrinting(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", trust.RoleOperator)
	b.do(emulation.SetDeviceMetricsOverride(794, 1123, 1, false)) // A4
	for _, path := range []string{"/", "/nodes", "/nodes/web1.example.net", "/certificates", "/approvals"} {
		b.visit(path)
		b.do(emulation.SetEmulatedMedia().WithMedia("print"))
		b.fits(path + " on paper")
		if shown := evaluate[string](b, `[...document.querySelectorAll("header, button:not(.sort), .button, nav, input[type=checkbox]")].filter(e => e.checkVisibility()).map(e => e.outerHTML.slice(0, 80)).join("\n")`); shown != "" {
			t.Errorf("%s prints %s", path, shown)
		}
		if whole := evaluate[bool](b, `[...document.querySelectorAll("code[title]")].every(e => getComputedStyle(e, "::after").content === JSON.stringify(e.title))`); !whole {
			t.Errorf("%s prints parts of hashes", path)
		}
	}
	b.visit("/nodes/web1.example.net")
	b.picture("printed-node")
	b.visit("/certificates")
	b.picture("printed-certificates")
	b.sound("printing")
}
