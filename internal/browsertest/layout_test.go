package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
)

// misfits are what of a page does not fit into it, in words.
const misfits = `(() => {
	const all = [], name = e => e.outerHTML.slice(0, 120);
	if (document.documentElement.scrollWidth > innerWidth) all.push("the page is " + document.documentElement.scrollWidth + " wide");
	for (const e of document.querySelectorAll("body *")) {
		if (!e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth + 1) all.push("sticks out: " + name(e));
	}
	for (const nav of document.querySelectorAll("nav")) {
		for (const a of nav.querySelectorAll("a")) {
			const at = a.getBoundingClientRect(), in_ = nav.getBoundingClientRect();
			if (at.left < in_.left - 1 || at.right > in_.right + 1) all.push("cut off the menu: " + name(a));
		}
	}
	for (const e of document.querySelectorAll(".queue > .card")) {
		if (e.offsetWidth < Math.min(320, innerWidth * .85)) all.push("squeezed to " + e.offsetWidth + ": " + name(e));
	}
	for (const e of document.querySelectorAll("tbody tr")) {
		if (e.offsetHeight > 480) all.push("a row " + e.offsetHeight + " high: " + name(e));
	}
	for (const e of document.querySelectorAll(".head input")) {
		const label = e.nextElementSibling.getBoundingClientRect(), box = e.getBoundingClientRect();
		if (box.bottom < label.top) all.push("a box above its name: " + name(e.nextElementSibling));
	}
	for (const e of document.querySelectorAll("input[placeholder]")) {
		const s = getComputedStyle(e), c = document.createElement("canvas").getContext("2d");
		c.font = s.font;
		if (c.measureText(e.placeholder).width > e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight)) all.push("cut: " + e.placeholder);
	}
	const cards = [...document.querySelectorAll(".card, #list > .scroll")].filter(e => e.checkVisibility());
	for (const e of cards) {
		const close = cards.find(o => !e.contains(o) && !o.contains(e) && Math.abs(o.getBoundingClientRect().top - e.getBoundingClientRect().bottom) < 4);
		if (close) all.push("touches what is below: " + name(e));
	}
	return all.slice(0, 5).join("\n");
})()`

// fits fails the test if something of the page does not fit: it sticks out, is cut off,
// squeezed, or touches what is beside it.
func (b *tab) fits(where string) {
	b.t.Helper()
	if found := evaluate[string](b, misfits); found != "" {
		b.t.Errorf("%s: %s", where, found)
	}
}

// TestTheLongestOfAllFits has names, facts and reasons that are as long as they may be, on
// every width.
func TestTheLongestOfAllFits(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	long := strings.Repeat("averylongname", 4) + "." + strings.Repeat("anotherlongpart", 4) + "." + strings.Repeat("yetanotherpart0", 4) + ".example.net"
	by := provisioner.Cause{By: "operator:" + strings.Repeat("annabel", 8), Why: strings.TrimSpace(strings.Repeat("because ", 25))}
	wait(t, f, long, map[string]any{"role": strings.Repeat("longfact", 60), "serialnumber": strings.Repeat("x y ", 200)})
	p := f.Daemon().Operator()
	if _, err := p.AllowNames(f.Context(), "*."+long[10:], 0, 5, false, by); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RejectNode(f.Context(), "db1.example.net", "", by); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pause(f.Context(), "", false, by); err != nil {
		t.Fatal(err)
	}
	b := signIn(t, f, strings.TrimPrefix(by.By, "operator:"), provisioner.RoleOperator)
	for _, width := range []int64{1440, 1280, 1024, 768, 360} {
		b.look(width, 900, "light")
		for _, page := range [][2]string{{"overview", "/"}, {"nodes", "/nodes"}, {"node", "/nodes/" + long}, {"approvals", "/approvals"}, {"allow", "/allow"}, {"events", "/events"}, {"resume", "/enrollment/resume?site="}} {
			b.visit(page[1])
			b.fits(fmt.Sprintf("%s at %d", page[0], width))
			b.picture(fmt.Sprintf("longest-%s-%d", page[0], width))
		}
	}
	b.visit("/nodes")
	if torn := evaluate[string](b, `[...document.querySelectorAll("tbody .name a")].filter(a => a.getClientRects().length > 1 && a.innerText.length < 20).map(a => a.innerText).join()`); torn != "" {
		t.Errorf("names of usual length are torn apart at 360: %s", torn)
	}
	b.sound("the longest")
}

// TestNothingYet looks at pages on which there is nothing yet: they say what to do.
func TestNothingYet(t *testing.T) {
	t.Parallel()
	if !*wanted {
		t.Skip("needs a browser: `make browser` runs it")
	}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) { c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"} }})
	b := signIn(t, f, "anna", provisioner.RoleOperator)
	for _, page := range [][3]string{
		{"overview", "/", "Sign a token with muster jwt"}, {"nodes", "/nodes", "Sign a token with muster jwt"}, {"approvals", "/approvals", "Machines come here when"},
		{"allow", "/allow", "Let names in"}, {"tokens", "/tokens", "Sign one with muster jwt"}, {"policies", "/policies", "Name a policy as shadow_policy"}, {"events", "/events", "Search"},
	} {
		for _, width := range []int64{1440, 360} {
			b.look(width, 900, "dark")
			b.visit(page[1])
			b.fits(fmt.Sprintf("%s at %d", page[0], width))
			b.picture(fmt.Sprintf("nothing-%s-%d", page[0], width))
		}
		if says := evaluate[string](b, `document.querySelector("main").innerText.replaceAll(/\s+/g, " ")`); !strings.Contains(says, page[2]) {
			t.Errorf("%s does not say %q: %s", page[0], page[2], says)
		}
	}
	b.visit("/")
	if says := evaluate[string](b, `document.querySelector("#rate").innerText`); !strings.Contains(says, "in UTC") {
		t.Errorf("the times of the chart have no zone: %s", says)
	}
	b.sound("nothing yet")
}
