// The grid of examples: decoded when it is first looked at, sorted and filtered on whole columns.
const GLYPHS = "○◔◑◕●";
const ROWS_AT_ONCE = 10;

const bytesOf = text => Uint8Array.from(atob(text), character => character.charCodeAt(0));

async function unpacked(packed) {
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function startGrid(section) {
  const grid = await unpacked(section.querySelector("[data-packed]").textContent);
  const count = grid.ids.length;
  const scores = grid.scores.map(bytesOf);
  const means = scores.map((all, arm) => {
    const found = new Float32Array(count);
    const seeds = grid.seeds[arm].length;
    for (let seed = 0; seed < seeds; seed++) for (let row = 0; row < count; row++) found[row] += all[seed * count + row];
    return found.map(sum => sum / (255 * seeds));
  });
  const last = means.length - 1;
  const gain = row => means[last][row] - means[0][row];
  const disagreement = bytesOf(grid.disagreement);
  const groups = Object.values(grid.groups);
  const texts = grid.ids.map((id, row) => [id, grid.texts[row], grid.labels?.[row], ...groups.map(g => g[row])].join(" ").toLowerCase());
  const orders = {
    disputed: row => -disagreement[row], gained: row => -gain(row), lost: gain,
    hardest: row => means[0][row] + means[last][row], given: row => row,
  };
  const controls = section.querySelector("[data-grid-controls]");
  const fields = Object.fromEntries([...controls.querySelectorAll("[name]")].map(field => [field.name, field]));
  const status = controls.querySelector("[role=status]");
  const more = section.querySelector("[data-more]");
  const body = section.querySelector("tbody");
  let rows = [], shown = 0;

  const mark = score => GLYPHS[score === 0 ? 0 : score === 255 ? 4 : Math.min(3, Math.max(1, Math.round(score / 63.75)))];
  const cell = (text, name) => {
    const made = document.createElement("td");
    made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const addRows = () => {
    for (const row of rows.slice(shown, shown + ROWS_AT_ONCE)) {
      const line = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.className = "text";
      head.textContent = grid.texts[row];
      head.title = [grid.ids[row], ...Object.entries(grid.groups).map(([name, values]) => `${name}: ${values[row]}`)].join(", ");
      line.append(head, cell(grid.labels?.[row] ?? "", ""));
      scores.forEach((all, arm) => {
        let signs = "";
        for (let seed = 0; seed < grid.seeds[arm].length; seed++) signs += mark(all[seed * count + row]);
        line.append(cell(signs, "marks"), cell((100 * means[arm][row]).toFixed(0), "n"));
      });
      if (last > 0) {
        const value = Math.round(100 * gain(row));
        line.append(cell(value > 0 ? `+${value}` : String(value).replace("-", "\u2212"), "n"));
      }
      body.append(line);
    }
    shown = Math.min(rows.length, shown + ROWS_AT_ONCE);
    more.hidden = shown === rows.length;
  };
  // An interval depends on design and clusters: those of one label or group alone were computed beforehand.
  const intervalOf = (label, group, words) => {
    if (words.length || Boolean(label) === Boolean(group)) return null;
    return label ? grid.intervals.label?.[label] : grid.intervals[group[0]]?.[group[1]];
  };
  const summary = interval => {
    const mean = arm => 100 * rows.reduce((sum, row) => sum + means[arm][row], 0) / rows.length;
    const shownAs = value => value.toFixed(1).replace("-", "\u2212");
    const found = rows.length ? means.map((_, arm) => `${grid.arms[arm]} ${shownAs(mean(arm))}`) : [];
    if (rows.length && last > 0) found.push(`difference ${shownAs(mean(last) - mean(0))}`);
    if (interval) found.push(`${+(100 * interval[2]).toFixed(3)} % CI ${shownAs(100 * interval[0])} to ${shownAs(100 * interval[1])}`);
    else if (rows.length && rows.length < count) found.push("no interval");
    return [`${rows.length} of ${count} examples`, ...found].join(", ");
  };
  const apply = () => {
    const words = fields.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const group = fields.group?.value ? JSON.parse(fields.group.value) : null;
    rows = [];
    for (let row = 0; row < count; row++) {
      if (fields.label?.value && grid.labels[row] !== fields.label.value) continue;
      if (group && grid.groups[group[0]][row] !== group[1]) continue;
      if (words.every(word => texts[row].includes(word))) rows.push(row);
    }
    const key = orders[fields.order.value];
    const keys = rows.map(key);
    rows = rows.map((row, place) => place).sort((a, b) => keys[a] - keys[b] || a - b).map(place => rows[place]);
    body.replaceChildren();
    shown = 0;
    addRows();
    status.textContent = summary(intervalOf(fields.label?.value, group, words));
  };
  const fill = (select, values) => {
    for (const [text, value] of values) select.add(new Option(text, value));
    select.hidden = select.options.length < 3;
  };
  const distinct = values => [...new Set(values)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (fields.label && grid.labels) {
    const labels = distinct(grid.labels);
    if (labels.length <= 60) fill(fields.label, labels.map(label => [label, label]));
  }
  fill(fields.group, Object.entries(grid.groups).flatMap(([name, values]) => distinct(values).map(value => [`${name}: ${value}`, JSON.stringify([name, value])])));
  for (const field of Object.values(fields)) field.addEventListener("input", apply);
  more.addEventListener("click", addRows);
  controls.hidden = false;
  apply();
  section.dataset.ready = "yes";
}

for (const section of document.querySelectorAll("[data-grid]")) {
  const start = () => { if (section.open && !section.dataset.started) { section.dataset.started = "yes"; startGrid(section); } };
  section.addEventListener("toggle", start);
  start();
}
