// Refreshes the live parts of a page when the provisioner says that something changed, and drops one-time messages from
// its address. Without this script every page works, but is not updated.
"use strict";
(() => {
  const address = new URL(location.href), told = ["done", "none"].filter((name) => address.searchParams.has(name));
  if (told.length > 0) {
    told.forEach((name) => address.searchParams.delete(name));
    history.replaceState(null, "", address);
  }

  const here = document.querySelector("nav [aria-current]"), menu = here?.closest("nav");
  const center = () => { if (menu) menu.scrollLeft = here.offsetLeft - menu.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2; };
  window.addEventListener("resize", center);
  center();

  const button = document.getElementById("live");
  const note = document.getElementById("live-note");
  if (!button || !document.querySelector("[data-live]")) return;

  // In ms: at most, if nothing is said to have changed, and if the provisioner cannot say.
  const most = 3000, seldom = 15000, blind = 3000;
  let paused = false, asking = false, over = false, changed = false, pressed = null, timer = 0, asked = 0, source = null;

  const label = (text, state) => {
    if (button.dataset.state === state) return;
    button.textContent = text;
    button.dataset.state = state;
  };

  // Only changes: a screen reader reads each one.
  const tell = (text) => { if (note.textContent !== text) note.textContent = text; };

  // A part is in use if the mouse is pressed in it (a replacement would get no click), or if it has the focus, a ticked
  // box or selected text.
  const inUse = (part) => {
    const picked = window.getSelection();
    return part.contains(pressed) || part.contains(document.activeElement) || part.querySelector("input:checked, details[open]") !== null ||
      (picked && !picked.isCollapsed && part.contains(picked.anchorNode));
  };

  // Do not replace a node by another one that got its name: the operator may not notice, and mean the former.
  const owner = (page) => page.querySelector("[data-owned]")?.dataset.owned;
  const put = (fresh) => {
    dress(fresh);
    if (owner(document) && owner(fresh) && owner(fresh) !== owner(document)) {
      tell("Another node has this name now. Reload the page to see it.");
      return;
    }
    tell("");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || inUse(part) || next.outerHTML === part.outerHTML) continue;
      const places = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollTop, box.scrollLeft]);
      const put = document.importNode(next, true);
      part.replaceWith(put);
      put.querySelectorAll(".scroll").forEach((box, i) => { [box.scrollTop, box.scrollLeft] = places[i] ?? [0, 0]; });
    }
  };

  // Input that was not sent must not be lost.
  const filled = () => [...document.querySelectorAll("main input")].some((field) =>
    field.type === "checkbox" ? field.checked !== field.defaultChecked : field.type !== "hidden" && field.value !== field.defaultValue);

  const stale = (text) => { label("Not live", "off"); tell(text); };

  const signedOut = () => {
    if (!filled()) { location.reload(); return; }
    over = true;
    stale("Your session has expired, and this page is out of date. Copy your input before you sign in again.");
  };

  // XMLHttpRequest parses the document without running its scripts, and no text becomes HTML here.
  const refresh = () => {
    clearTimeout(timer);
    if (paused || over || asking || document.hidden) return;
    asking = true;
    changed = false;
    const ask = new XMLHttpRequest();
    ask.open("GET", location.href);
    ask.responseType = "document";
    ask.timeout = 20000;
    ask.onload = () => {
      if (new URL(ask.responseURL).pathname === "/login") signedOut();
      else if (ask.status !== 200 || !ask.response) stale("The provisioner could not refresh this page, which may be out of date. Trying again.");
      else if (!paused) { label("Live", "on"); put(ask.response); }
    };
    ask.onerror = ask.ontimeout = () => stale("The connection to the provisioner is lost. This page is out of date.");
    ask.onloadend = () => {
      asking = false;
      asked = Date.now();
      timer = setTimeout(refresh, changed ? most : source?.readyState === EventSource.OPEN ? seldom : blind);
    };
    ask.send();
  };

  const soon = () => {
    changed = true;
    if (asking) return;
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.max(0, asked + most - Date.now()));
  };

  // A hidden page keeps no connection. After a refusal the browser does not try again by itself.
  const listen = () => {
    source?.close();
    if (paused || over || document.hidden) return;
    const mine = source = new EventSource("/live");
    mine.onmessage = soon;
    mine.onerror = () => {
      soon();
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) listen(); }, seldom);
    };
  };
  const resume = () => { listen(); refresh(); };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) { resume(); return; }
    source?.close();
    label("Paused", "paused");
    note.textContent = "";
  });
  window.addEventListener("pointerdown", (event) => { pressed = event.target; });
  for (const ended of ["pointerup", "pointercancel", "blur"]) window.addEventListener(ended, () => { pressed = null; });
  document.addEventListener("visibilitychange", resume);
  resume();
})();
