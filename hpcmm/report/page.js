"use strict";
// Draws figures when they come into view, shows their values, sorts and filters tables.

let config = {}, figures = {};
const rows = new Map();  // rows of each figure, unpacked once

async function unzipped(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), each => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const unpacked = document.getElementById("figures") ? unzipped("figures").then(text => {
  ({config, figures} = JSON.parse(text));
}) : Promise.resolve();

function rowsOf(id) {
  if (!rows.has(id)) {
    const columns = figures[id].columns;
    const names = Object.keys(columns);
    const lists = names.map(name => {
      const column = columns[name];
      return Array.isArray(column) ? column : column.rows.map(i => column.texts[i]);
    });
    rows.set(id, lists[0].map((_, i) => Object.fromEntries(names.map((name, j) => [name, lists[j][i]]))));
  }
  return rows.get(id);
}

async function loadVega() {
  if (!document.getElementById("vega")) return;
  const script = document.createElement("script");
  script.textContent = await unzipped("vega");
  document.head.append(script);
}

// Up to three columns of a legend, as many as fit beside the axis labels.
function columnsFor(id, width) {
  const names = rowsOf(id).map(row => row.phase ?? row.operation ?? row.series ?? row.label ?? "");
  const widest = Math.max(...names.map(name => name.length)) * 7 + 24;
  return Math.min(3, Math.max(1, Math.floor((width - 170) / widest)));
}

function draw(place) {
  if (place.dataset.state || !window.vegaEmbed) return;
  place.dataset.state = "drawing";
  const id = place.dataset.figure;
  // a copy, because Vega adds fields to its rows
  const points = rowsOf(id).map(row => ({...row}));
  const spec = {...figures[id].spec, data: {name: "points"}, datasets: {points}};
  const legend = {...config.legend, columns: columnsFor(id, place.clientWidth)};
  vegaEmbed(place, spec, {renderer: "svg", actions: false, config: {...config, legend}}).then(
    () => {
      place.dataset.state = "drawn";
      place.querySelector("svg").setAttribute("aria-hidden", "true");  // screen readers get the caption and the values
    },
    error => fail(place, error),
  );
}

function fail(place, error) {
  place.dataset.state = "failed";
  place.textContent = "This figure could not be drawn: " + error.message;
}

const places = [...document.querySelectorAll(".chart")];
const isShown = place => !place.closest("details:not([open])");

// Figures near the viewport are drawn first; other visible ones when idle, so that they are ready for printing.
const whenIdle = window.requestIdleCallback || (task => setTimeout(task, 50));
function drawNext() {
  const next = places.find(place => !place.dataset.state && isShown(place));
  if (next) { draw(next); whenIdle(drawNext); }
}
Promise.all([unpacked, loadVega()]).then(() => {
  const near = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, {rootMargin: "600px"});
  for (const place of places) near.observe(place);
  whenIdle(drawNext);
}, error => {
  for (const place of places) fail(place, error);
});
addEventListener("beforeprint", () => {  // open sections are printed
  for (const place of places) if (isShown(place)) draw(place);
});

const number = new Intl.NumberFormat("en", {maximumSignificantDigits: 5});

async function showValues(details) {
  await unpacked;
  if (details.querySelector("table")) return;
  const id = details.dataset.figure;
  const table = document.createElement("table");
  const names = Object.entries(figures[id].shown);
  const head = table.createTHead().insertRow();
  for (const [, title] of names) {
    const cell = head.appendChild(document.createElement("th"));
    cell.scope = "col";
    cell.textContent = title;
  }
  const body = table.createTBody();
  for (const row of rowsOf(id)) {
    const line = body.insertRow();
    for (const [name] of names) {
      const value = row[name], cell = line.insertCell();
      cell.textContent = value == null ? "" : typeof value === "number" ? number.format(value) : value;
      if (typeof value === "string") cell.className = "text";
    }
  }
  const scroll = details.appendChild(document.createElement("div"));
  Object.assign(scroll, {className: "scroll", tabIndex: 0});
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Values of the figure: " + details.dataset.of);
  scroll.append(table);
  makeSortable(table);
}
for (const details of document.querySelectorAll("details.values")) {
  details.addEventListener("toggle", () => { if (details.open) showValues(details); });
}

// GFLOP/s stands only beside a rate in a table whose unit is TFLOP/s.
const scales = {"GFLOP/s": 1e-3, ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30};
const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// Sort keys: "8.05 ms" is 0.00805, "2²²" is 4194304, "128 × 64 × 32" the product, "0.85×" is 0.85, other text itself.
function sortKey(cell) {
  const text = (cell.firstChild?.textContent ?? "").trim();
  const power = text.match(/^2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)$/);
  if (power) return 2 ** Number([...power[1]].map(digit => digits.indexOf(digit)).join(""));
  const parts = text.replaceAll(",", "").match(/^(-?[\d.]+(?:e[-+]?\d+)?)((?: × \d+)*)×?(?: (\S+?))?(?: †)?$/);
  if (!parts) return text;
  const product = parts[2].split(" × ").slice(1).reduce((all, each) => all * Number(each), Number(parts[1]));
  return product * (scales[parts[3]] ?? 1);
}

function compare(one, other) {
  if (typeof one === typeof other) return typeof one === "number" ? one - other : one.localeCompare(other);
  return typeof one === "number" ? -1 : 1;
}

function makeSortable(table) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const next = {ascending: "descending", descending: null}[before] ?? (before ? null : "ascending");
      for (const each of heads) each.removeAttribute("aria-sort");
      let rows = original;
      if (next) {
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const keyed = original.map(row => [sortKey(row.cells[column]), row]);
        const empty = keyed.filter(([key]) => key === ""), full = keyed.filter(([key]) => key !== "");
        full.sort(([one], [other]) => sign * compare(one, other));
        rows = [...full, ...empty].map(([, row]) => row);
      }
      table.classList.toggle("moved", Boolean(next) || table.classList.contains("filtered"));
      body.append(...rows);
    });
  });
}

function makeFilterable(table) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 12) return;
  const name = table.caption?.textContent ?? "this table";
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  label.className = "filter";
  Object.assign(input, {type: "search", placeholder: "words in the row"});
  input.setAttribute("aria-label", "Filter rows: " + name);
  label.append("Filter ", input, " ", count);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    for (const row of body.rows) {
      const text = [...row.cells].map(cell => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      kept += !row.hidden;
    }
    count.textContent = words.length ? `${kept} of ${body.rows.length} rows` : "";
    table.classList.toggle("filtered", words.length > 0);
    const sorted = Boolean(table.querySelector("[aria-sort]"));
    table.classList.toggle("moved", sorted || words.length > 0);
  });
}
// A question mark after a column heading links to the definition.
function linkDefinitions(table) {
  for (const head of table.querySelectorAll("th[data-defined]")) {
    const link = document.createElement("a");
    link.href = "#" + head.dataset.defined;
    link.textContent = "?";
    link.setAttribute("aria-label", "Definition of " + head.firstChild.textContent);
    head.append(link);
  }
}

for (const table of document.querySelectorAll("table.data")) {
  makeSortable(table);
  makeFilterable(table);
  linkDefinitions(table);
}

// Following a link opens all closed elements around its target.
function openTarget() {
  let place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const target = place;
  for (; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", openTarget);
if (location.hash) openTarget();
