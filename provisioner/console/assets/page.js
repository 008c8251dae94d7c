// Adds to pages: times in the reader's zone, buttons that copy hashes, and keys. Without this script every page works.
"use strict";
const dress = (() => {
  const stamp = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" }); // as 2027-01-31 12:00:00
  const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  const local = (at) => `${stamp.format(at)} ${zone.formatToParts(at).find((part) => part.type === "timeZoneName").value}`;

  const instant = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g; // in sentences

  // Tables that are whole on the page are sorted by a click on a head; sorted has the column by the table's label, minus: down.
  const sorted = new Map();
  const value = (row, column) => {
    const cell = row.cells[column], time = cell.querySelector("time");
    const text = time?.dateTime ?? cell.textContent.trim();
    return cell.matches(".count") ? Number(text.replaceAll(/\D/g, "")) : text;
  };
  const sort = (table) => {
    const by = sorted.get(table.parentElement.ariaLabel), rows = [...table.tBodies[0].rows];
    for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
    if (by === undefined) return;
    const column = Math.abs(by) - 1, sign = Math.sign(by);
    table.tHead.rows[0].cells[column].ariaSort = by < 0 ? "descending" : "ascending";
    rows.sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
    });
    table.tBodies[0].append(...rows);
  };
  const sortable = (page, table) => !page.querySelector(".pager a") && !table.tHead.querySelector("a") && table.tBodies[0].rows.length > 1;

  // dress completes a page as the provisioner sent it. A second call changes nothing.
  const dress = (page) => {
    for (const time of page.querySelectorAll("time[datetime]")) {
      if (time.title.endsWith(" UTC")) time.title = local(new Date(time.dateTime));
      if (time.textContent.endsWith(" UTC")) time.textContent = local(new Date(time.dateTime));
    }
    const texts = page.createTreeWalker(page.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (!text.parentElement.closest("code, pre")) text.data = text.data.replace(instant, (at) => local(new Date(at)));
    }
    for (const hash of page.querySelectorAll(":is(code[title], [data-copy]):not([data-dressed])")) {
      const copy = page.createElement("button");
      copy.type = "button";
      copy.className = "copy";
      copy.title = "Copy";
      copy.dataset.text = hash.title || hash.textContent;
      copy.setAttribute("aria-label", "Copy " + (hash.ariaLabel ?? hash.textContent));
      hash.dataset.dressed = "";
      if (hash.matches("pre")) hash.previousElementSibling.append(copy); // its heading
      else (hash.closest("a") ?? hash).after(copy);
    }
    for (const table of page.querySelectorAll(".scroll > table:has(thead th):not([data-dressed])")) {
      if (!sortable(page, table)) continue;
      table.dataset.dressed = "";
      for (const head of table.tHead.querySelectorAll("th")) {
        const button = page.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...head.childNodes);
        head.append(button);
      }
      sort(table);
    }
  };
  dress(document);
  document.getElementById("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;

  document.addEventListener("click", (event) => {
    const head = event.target.closest?.(".sort")?.closest("th");
    if (!head) return;
    if (event.detail > 0) event.target.blur(); // a part with the focus is not refreshed
    const table = head.closest("table"), label = table.parentElement.ariaLabel, column = head.cellIndex + 1;
    sorted.set(label, sorted.get(label) === column ? -column : column);
    sort(table);
  });

  const said = document.getElementById("said");
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.(".copy");
    if (!copy) return;
    if (event.detail > 0) copy.blur(); // a part with the focus is not refreshed
    try {
      await navigator.clipboard.writeText(copy.dataset.text);
      said.textContent = "Copied " + copy.dataset.text;
      copy.classList.add("done");
    } catch {
      said.textContent = "The browser does not allow copying.";
    }
  });

  const link = (row) => row.querySelector('th a[href], a[href^="/nodes/"]') ?? row.querySelector("a[href]");
  const rows = () => [...document.querySelectorAll("main tbody tr, main .queue > li, main .feed > li")].filter((row) =>
    row.checkVisibility() && link(row));
  const current = (row) => row.contains(document.activeElement);
  const step = (by) => {
    const all = rows(), now = all.findIndex(current);
    const next = all[now < 0 ? 0 : now + by];
    if (next) link(next).focus();
  };
  const search = () => {
    const field = document.querySelector("main input[type=search], main form[role=search] input:not([type=hidden])");
    if (field) { field.focus(); field.select(); } else if (document.querySelector("nav")) location.assign("/nodes#q");
  };
  if (location.hash === "#q") document.getElementById("q")?.focus();

  const keys = document.getElementById("keys"), on = document.getElementById("keys-on"), help = document.getElementById("help");
  on.checked = localStorage.getItem("keys") !== "off";
  on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
  help.hidden = !document.querySelector("nav");
  help.addEventListener("click", () => keys.showModal());
  const does = {
    "/": search, j: () => step(1), k: () => step(-1), "?": () => keys.showModal(),
    x: () => rows().find(current)?.querySelector("input[type=checkbox]")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || keys.open || !on.checked || !Object.hasOwn(does, event.key)) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
    event.preventDefault();
    does[event.key]();
  });
  return dress;
})();
