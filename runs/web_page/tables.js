"use strict";
// Tables that sort (th[data-sorts]) and filter ([data-filters]); what was chosen outlives a reload.
const memory = {
  key: name => location.pathname + "#" + name,
  get(name) { try { return sessionStorage.getItem(this.key(name)); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(this.key(name), value); } catch { /* kept nowhere */ } },
};

for (const bar of document.querySelectorAll("[data-filters]")) {
  const name = bar.dataset.filters;
  const target = document.getElementById(name);
  const rows = [...target.querySelectorAll("tbody tr, .row")];
  const [input, select] = [bar.querySelector("input"), bar.querySelector("select")];
  const shown = bar.querySelector("[role=status]");
  const noun = shown.textContent.replace(/^\d+ /, "");
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = (row.textContent + " " + (row.querySelector("[title]")?.title ?? "")).toLowerCase();
      const fits = words.every(word => text.includes(word)) && (!select?.value || row.dataset.state === select.value);
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = count === rows.length ? `${count} ${noun}` : `${count} of ${rows.length} ${noun}`;
    memory.set(name, JSON.stringify([input.value, select?.value ?? ""]));
  };
  const [text, state] = JSON.parse(memory.get(name) ?? '["", ""]');
  input.value = text;
  if (select) select.value = state;
  if (select && select.selectedIndex < 0) select.value = "";
  input.addEventListener("input", apply);
  select?.addEventListener("change", apply);
  bar.hidden = false;
  apply();
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
    const body = table.tBodies[0];
    const sign = direction === "ascending" ? 1 : -1;
    body.append(...[...body.rows].sort((a, b) => compare(valueOf(a.cells[index]), valueOf(b.cells[index]), sign)));
    memory.set(table.id + "-order", JSON.stringify([index, direction]));
  };
  button.addEventListener("click", () => sort(heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending"));
  const [kept, direction] = JSON.parse(memory.get(table.id + "-order") ?? "[-1, 0]");
  if (kept === index) sort(direction);
}
