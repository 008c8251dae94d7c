// Fetches the live parts of a page again and again, and forgets what was just done once it is told. Without this script
// every page works the same, but stands still.
"use strict";
(() => {
  const address = new URL(location.href), told = ["done", "none"].filter((name) => address.searchParams.has(name));
  if (told.length > 0) {
    told.forEach((name) => address.searchParams.delete(name));
    history.replaceState(null, "", address);
  }

  const button = document.getElementById("live");
  const note = document.getElementById("live-note");
  if (!button || !document.querySelector("[data-live]")) return;

  const every = 3000; // ms
  let paused = false, asking = false, over = false, pressed = null, timer = 0;

  const label = (text, state) => {
    if (button.dataset.state === state) return;
    button.textContent = text;
    button.dataset.state = state;
  };

  // Once: it is read aloud.
  const tell = (text) => { if (note.textContent !== text) note.textContent = text; };

  // In use: a button of the mouse is down in it (what is put in its place gets no click), the
  // focus is in it, something is ticked, or text of it is selected.
  const inUse = (part) => {
    const picked = window.getSelection();
    return part.contains(pressed) || part.contains(document.activeElement) || part.querySelector("input:checked, details[open]") !== null ||
      (picked && !picked.isCollapsed && part.contains(picked.anchorNode));
  };

  // A page about a machine does not become one about another machine that has got its name:
  // the operator who looks at it might not see that, and means the one before.
  const owner = (page) => page.querySelector("[data-owned]")?.dataset.owned;
  const put = (fresh) => {
    if (owner(document) && owner(fresh) && owner(fresh) !== owner(document)) {
      tell("Another machine has this name by now. Load the page again to see that one.");
      return;
    }
    tell("");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || inUse(part) || next.outerHTML === part.outerHTML) continue;
      const box = part.querySelector(".scroll"), top = box ? box.scrollTop : 0, left = box ? box.scrollLeft : 0;
      const put = document.importNode(next, true);
      part.replaceWith(put);
      const after = put.querySelector(".scroll");
      if (after) { after.scrollTop = top; after.scrollLeft = left; }
    }
  };

  // What was filled in, and not sent: it is not to be lost.
  const filled = () => [...document.querySelectorAll("main input")].some((field) =>
    field.type === "checkbox" ? field.checked !== field.defaultChecked : field.type !== "hidden" && field.value !== field.defaultValue);

  const stale = (text) => { label("Not live", "off"); tell(text); };

  const signedOut = () => {
    if (!filled()) { location.reload(); return; }
    over = true;
    stale("Your session is over, and this page is not up to date. Copy what you have filled in before you sign in again.");
  };

  // A document over XMLHttpRequest runs no script of it and is no text that
  // becomes HTML here.
  const refresh = () => {
    clearTimeout(timer);
    if (paused || over || asking || document.hidden) return;
    asking = true;
    const ask = new XMLHttpRequest();
    ask.open("GET", location.href);
    ask.responseType = "document";
    ask.timeout = 20000;
    ask.onload = () => {
      if (new URL(ask.responseURL).pathname === "/login") signedOut();
      else if (ask.status !== 200 || !ask.response) stale("The provisioner could not make this page anew. What is here is not up to date; it is tried again.");
      else if (!paused) { label("Live", "on"); put(ask.response); }
    };
    ask.onerror = ask.ontimeout = () => stale("The connection to the provisioner is lost. This page is not up to date.");
    ask.onloadend = () => { asking = false; timer = setTimeout(refresh, every); };
    ask.send();
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) { refresh(); return; }
    label("Paused", "paused");
    note.textContent = "";
  });
  window.addEventListener("pointerdown", (event) => { pressed = event.target; });
  for (const ended of ["pointerup", "pointercancel", "blur"]) window.addEventListener(ended, () => { pressed = null; });
  document.addEventListener("visibilitychange", refresh);
  refresh();
})();
