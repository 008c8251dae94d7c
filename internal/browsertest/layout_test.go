package browsertest

// misfits describes parts of a page that do not fit.
const misfits = `new Promise(done => requestAnimationFrame(() => { // the page has taken its size
	const all = [], name = e => e.outerHTML.slice(0, 120);
	const wide = document.documentElement.scrollWidth;
	if (wide > innerWidth) all.push("the page is " + wide + " wide");
	for (const e of document.querySelectorAll("body *")) {
		if (!e.closest(".scroll, nav") && e.getBoundingClientRect().right > innerWidth + 1) all.push("sticks out: " + name(e));
	}
	for (const nav of document.querySelectorAll("nav")) {
		const rows = new Set([...nav.querySelectorAll("a")].map(a => a.getBoundingClientRect().top));
		if (rows.size !== 1) all.push("the menu has " + rows.size + " rows");
		const here = nav.querySelector("[aria-current]")?.getBoundingClientRect(), in_ = nav.getBoundingClientRect();
		if (here && (here.left < in_.left - 1 || here.right > in_.right + 1)) all.push("the page's entry is out of view");
	}
	for (const e of document.querySelectorAll("nav, .scroll")) {
		if (e.scrollWidth > e.clientWidth && !getComputedStyle(e).backgroundAttachment.includes("local")) all.push("nothing tells that there is more: " + name(e));
	}
	for (const e of document.querySelectorAll(".queue > .card")) {
		if (e.offsetWidth < Math.min(320, innerWidth * .85)) all.push("squeezed to " + e.offsetWidth + ": " + name(e));
	}
	for (const e of document.querySelectorAll("tbody tr")) {
		if (e.offsetHeight > 480) all.push("a row " + e.offsetHeight + " high: " + name(e));
	}
	for (const e of document.querySelectorAll("tbody tr:first-child > *")) {
		const head = e.closest("table").tHead?.rows[0].cells[e.cellIndex];
		if (head && getComputedStyle(head).textAlign !== getComputedStyle(e).textAlign) all.push("a head beside its column: " + name(head));
	}
	for (const e of document.querySelectorAll(".head input")) {
		if (!e.checkVisibility()) continue;
		const label = e.nextElementSibling.getBoundingClientRect(), box = e.getBoundingClientRect();
		if (box.bottom < label.top) all.push("a box above its name: " + name(e.nextElementSibling));
	}
	for (const e of document.querySelectorAll("input[placeholder]")) {
		if (!e.checkVisibility()) continue;
		const s = getComputedStyle(e), c = document.createElement("canvas").getContext("2d");
		c.font = s.font;
		if (c.measureText(e.placeholder).width > e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight)) all.push("cut: " + e.placeholder);
	}
	const cards = [...document.querySelectorAll(".card, .note, #list > .scroll")].filter(e => e.checkVisibility());
	for (const e of cards) {
		const close = cards.find(o => !e.contains(o) && !o.contains(e) && Math.abs(o.getBoundingClientRect().top - e.getBoundingClientRect().bottom) < 4);
		if (close) all.push("touches what is below: " + name(e));
	}
	done(all.slice(0, 5).join("\n"));
}))`

// fits fails the test if a part of the page sticks out, is cut off, squeezed, or touches its neighbor.
func (b *tab) fits(where string) {
	b.t.Helper()
	if found := evaluate[string](b, misfits); found != "" {
		b.t.Errorf("%s: %s", where, found)
	}
}
