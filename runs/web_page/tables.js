"use strict";
// Tables that sort (th[data-sorts]) and filter ([data-filters]); what was chosen outlives a reload.
const memory = {
  key: name => location.pathname + "#" + name,
  get(name) { try { return sessionStorage.getItem(this.key(name)); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(this.key(name), value); } catch { /* kept nowhere */ } },
};

// Shows the rows of a long table that fit its filter, fifty at a time.
const PAGE = 50;
const pagesOf = table => {
  const bar = document.createElement("div");
  const [back, shown, next] = ["button", "span", "button"].map(tag => bar.appendChild(document.createElement(tag)));
  bar.className = "pages soft";
  back.type = next.type = "button";
  back.textContent = "Previous";
  next.textContent = "Next";
  shown.role = "status";
  table.parentElement.after(bar);
  let first = 0;
  table.turnTo = start => {
    first = start;
    const rows = [...table.querySelectorAll("tbody tr:not(.group)")];
    const fitting = rows.filter(row => !row.misfit);
    for (const row of rows) row.hidden = true;
    for (const row of fitting.slice(first, first + PAGE)) row.hidden = false;
    for (const group of table.querySelectorAll("tr.group")) group.hidden = ![...group.parentElement.rows].some(row => row !== group && !row.hidden);
    shown.textContent = `Rows ${first + 1} to ${Math.min(first + PAGE, fitting.length)} of ${fitting.length}`;
    bar.hidden = fitting.length <= PAGE;
    back.disabled = first === 0;
    next.disabled = first + PAGE >= fitting.length;
  };
  const turnBy = rows => { table.turnTo(first + rows); table.scrollIntoView(); };
  back.addEventListener("click", () => turnBy(-PAGE));
  next.addEventListener("click", () => turnBy(PAGE));
};

for (const bar of document.querySelectorAll("[data-filters]")) {
  const name = bar.dataset.filters;
  const target = document.getElementById(name);
  const rows = [...target.querySelectorAll("tbody tr:not(.group)")];
  pagesOf(target);
  const groupOf = row => row.parentElement.querySelector("tr.group");
  const [input, select] = [bar.querySelector("input"), bar.querySelector("select")];
  const shown = bar.querySelector("[role=status]");
  const noun = shown.textContent.replace(/^\d+ /, "");
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = (row.textContent + " " + (groupOf(row)?.textContent ?? "") + " " + (row.querySelector("[title]")?.title ?? "")).toLowerCase();
      const fits = words.every(word => text.includes(word)) && (!select?.value || row.dataset.state === select.value);
      row.misfit = !fits;
      count += fits;
    }
    target.turnTo(0);
    shown.textContent = count === rows.length ? `${count} ${noun}` : `${count} of ${rows.length} ${noun}`;
    memory.set(name, JSON.stringify([input.value, select?.value ?? ""]));
  };
  const choose = (text, state) => {
    input.value = text;
    if (select) select.value = state;
    if (select && select.selectedIndex < 0) select.value = "";
    apply();
  };
  // An address can name a view: #TABLE?text=...&state=...
  const viewed = () => {
    if (!location.hash.startsWith(`#${name}?`)) return false;
    const view = new URLSearchParams(location.hash.slice(name.length + 2));
    choose(view.get("text") ?? "", view.get("state") ?? "");
    bar.scrollIntoView();
    return true;
  };
  const chosen = () => {
    apply();
    const view = new URLSearchParams(Object.entries({ text: input.value, state: select?.value ?? "" }).filter(pair => pair[1]));
    history.replaceState(null, "", view.size ? `#${name}?${view}` : `#${name}`);
  };
  input.addEventListener("input", chosen);
  select?.addEventListener("change", chosen);
  addEventListener("hashchange", viewed);
  bar.hidden = false;
  if (!viewed()) choose(...JSON.parse(memory.get(name) ?? '["", ""]'));
}

const valueOf = cell => {
  const text = cell.dataset.v ?? cell.textContent;
  return text === "" ? null : isNaN(text) ? text : Number(text);
};
// Empty cells come last, whichever way the rest is sorted.
const compare = (a, b, sign) =>
  a === null || b === null ? (a === null) - (b === null)
  : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

for (const heading of document.querySelectorAll("th[data-sorts]")) {
  const table = heading.closest("table");
  const index = heading.cellIndex;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  const sort = direction => {
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    // Each group by itself, below its heading.
    for (const body of table.tBodies) {
      const rows = [...body.querySelectorAll("tr:not(.group)")];
      body.append(...rows.sort((a, b) => compare(valueOf(a.cells[index]), valueOf(b.cells[index]), sign)));
    }
    table.turnTo?.(0);
    memory.set(table.id + "-order", JSON.stringify([index, direction]));
  };
  button.addEventListener("click", () => sort(heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending"));
  const [kept, direction] = JSON.parse(memory.get(table.id + "-order") ?? "[-1, 0]");
  if (kept === index) sort(direction);
}
