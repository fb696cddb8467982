"use strict";
// Draws figures, shows their values, shows what the switch selects, and sorts, filters and copies tables.

// A browser without a window prints at the load event, which waits for an open document inside this one.
const loading = document.body.appendChild(document.createElement("iframe"));
loading.hidden = true;
loading.contentDocument.open();

const config = JSON.parse(document.getElementById("config")?.textContent ?? "{}");
let figures = {};  // by identity
let parts = [];  // HTML of views and closed parts
const loaded = unzipped("stored").then(text => { ({figures, parts} = JSON.parse(text)); });
const rows = new Map();  // rows of each figure, made once

async function unzipped(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), each => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function rowsOf(id) {
  if (!rows.has(id)) {
    const columns = figures[id].columns;
    const names = Object.keys(columns);
    rows.set(id, columns[names[0]].map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]]))));
  }
  return rows.get(id);
}

async function loadVega() {
  if (!document.getElementById("vega")) return;
  const script = document.createElement("script");
  script.textContent = await unzipped("vega");
  document.head.append(script);
}

// The names in the legends of a specification.
function legendNames(part) {
  if (!part || typeof part !== "object") return [];
  return Object.entries(part).flatMap(([key, value]) =>
    ["color", "shape", "strokeDash"].includes(key)
      ? (value?.scale?.domain ?? []).filter(name => typeof name === "string")
      : legendNames(value));
}

// Up to three columns of a legend, as many as fit beside the axis labels.
function columnsFor(id, spec, width) {
  const names = rowsOf(id).map(row => row.phase ?? row.operation ?? row.series ?? row.label ?? "");
  names.push(...legendNames(spec));
  const widest = Math.max(...names.map(name => name.length)) * 7 + 24;
  return Math.min(3, Math.max(1, Math.floor((width - 170) / widest)));
}

const choice = {machine: "", type: "", device: ""};

// The rows of a figure that the switch selects: those of the device, if its rows have one.
function chosenRows(id) {
  return rowsOf(id).filter(row => !choice.device || !row.device || row.device === choice.device);
}

// A legend names only what is drawn: removes labels without a row from the scales of a specification, and layers that
// need a field that no row has.
function pruned(spec, rows) {
  if (Array.isArray(spec)) return spec.filter(each => isDrawn(each, rows)).map(each => pruned(each, rows));
  if (spec === null || typeof spec !== "object") return spec;
  const {domain, range} = spec.scale ?? {};
  if (spec.field === "label" && Array.isArray(domain) && Array.isArray(range) && domain.length === range.length) {
    const kept = domain.map((label, i) => [label, range[i]]).filter(([label]) => rows.some(row => row.label === label));
    return {...spec, scale: {...spec.scale, domain: kept.map(([label]) => label), range: kept.map(([, value]) => value)}};
  }
  return Object.fromEntries(Object.entries(spec).map(([name, each]) => [name, pruned(each, rows)]));
}

function isDrawn(layer, rows) {
  const field = layer?.name?.match?.(/^needs_([a-z]+)/)?.[1];
  return !field || rows.some(row => row[field] != null);
}

function draw(place) {
  if (place.dataset.state || !window.vegaEmbed || !figures[place.dataset.figure]) return;
  place.dataset.state = "drawing";
  const id = place.dataset.figure;
  // a copy, because Vega adds fields to its rows
  const points = chosenRows(id).map(row => ({...row}));
  place.dataset.device = points.length < rowsOf(id).length ? choice.device : "";
  const found = place.dataset.device ? pruned(figures[id].spec, points) : figures[id].spec;
  const spec = {...found, data: {name: "points"}, datasets: {points}};
  const legend = {...config.legend, columns: columnsFor(id, spec, place.clientWidth)};
  drawings.push(vegaEmbed(place, spec, {renderer: "svg", actions: false, config: {...config, legend}}).then(
    () => {
      place.dataset.state = "drawn";
      place.querySelector("svg").setAttribute("aria-hidden", "true");  // screen readers get the caption and the values
    },
    error => fail(place, error),
  ));
}

function fail(place, error) {
  place.dataset.state = "failed";
  place.textContent = "This figure could not be drawn: " + error.message;
}

const places = () => [...document.querySelectorAll(".chart")];
const isShown = place => !place.closest("details:not([open]), [hidden]");

// All figures that are shown are drawn one after another, so that they are ready for printing; those near the viewport
// first.
const drawSoon = task => setTimeout(task, 0);
const drawings = [];
let drawing = false;
function drawNext() {
  const next = places().find(place => !place.dataset.state && figures[place.dataset.figure] && isShown(place));
  drawing = Boolean(next);
  if (next) { draw(next); drawSoon(drawNext); }
}
function drawShown() {
  if (!drawing && window.vegaEmbed) drawNext();
}
const near = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting && isShown(entry.target)) draw(entry.target);
}, {rootMargin: "600px"});
const vega = loadVega();
Promise.all([vega, loaded]).then(() => {
  for (const place of places()) near.observe(place);
  drawShown();
}, error => {
  for (const place of places()) fail(place, error);
});
const opened = [];  // only for printing
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details.table:not([open])")) {
    if (isShown(details.parentElement) && !details.querySelector("template")) opened.push(details);
  }
  for (const details of opened) details.open = true;
  for (const place of places()) if (isShown(place)) draw(place);
});
addEventListener("afterprint", () => { for (const details of opened.splice(0)) details.open = false; });

// A view of a chapter, or a closed part, is unpacked when it is shown for the first time.
const unpacking = new Map();
function unpack(part) {
  const packed = part.querySelector(":scope > template");
  if (packed) {
    unpacking.set(part, loaded.then(() => {
      part.insertAdjacentHTML("beforeend", parts[packed.dataset.part]);
      prepare(part);
    }));
    packed.remove();
  }
  return unpacking.get(part);
}

function prepare(part) {
  for (const details of part.querySelectorAll("details.values")) {
    details.addEventListener("toggle", () => { if (details.open) showValues(details); });
  }
  for (const packed of part.querySelectorAll("details > template")) {
    packed.parentElement.addEventListener("toggle", ({target}) => unpack(target));
  }
  for (const table of part.querySelectorAll("table.data")) {
    const folded = table.closest("details:not([open])");
    if (folded) folded.addEventListener("toggle", () => equip(table), {once: true});
    else equip(table);
  }
  if (window.vegaEmbed) for (const place of part.querySelectorAll(".chart")) near.observe(place);
}

const number = new Intl.NumberFormat("en", {maximumSignificantDigits: 5});

async function showValues(details) {
  await loaded;
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

// GFLOP/s and GOP/s stand only beside a rate in a table whose unit is TFLOP/s or TOP/s.
const scales = {"GFLOP/s": 1e-3, "GOP/s": 1e-3, ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30};
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

// A cell that repeats the one above it is empty in the file.
function repeatCells(table) {
  for (const cell of table.querySelectorAll("td.again")) {
    cell.textContent = cell.parentElement.previousElementSibling.cells[cell.cellIndex].firstChild?.textContent.trim();
  }
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

// Copies the visible cells, separated by tabs as spreadsheets want them.
function makeCopyable(table) {
  const button = document.createElement("button");
  const name = table.caption?.textContent ?? table.closest("[aria-label]")?.getAttribute("aria-label") ?? "table";
  Object.assign(button, {type: "button", className: "copy", textContent: "Copy"});
  button.setAttribute("aria-label", "Copy " + name);
  table.parentElement.before(button);
  button.addEventListener("click", async () => {
    const lines = [...table.rows].filter(row => !row.hidden).map(row => [...row.cells].filter(cell => !cell.hidden)
      .map(cell => [...cell.childNodes].filter(node => node.nodeName !== "A").map(node => node.textContent.trim())
        .filter(Boolean).join(" ").replaceAll(/\s+/g, " ")).join("\t"));
    let done = "Copied";
    try { await navigator.clipboard.writeText(lines.join("\n")); } catch { done = "Not allowed by the browser"; }
    button.textContent = done;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
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
      hide(row, "unfound", !words.every(word => text.includes(word)));
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

function equip(table) {
  repeatCells(table);
  makeSortable(table);
  makeFilterable(table);
  makeCopyable(table);
  linkDefinitions(table);
}

// The switch: machine, type and device, in sentences, figures and tables together.
function deviceOf(element) {
  return element.dataset.device ?? element.closest("table")?.dataset.device;
}

function isOfDevice(element) {
  const device = deviceOf(element);
  return !choice.device || !device || device === choice.device;
}

// The rows of a table that the switch selects. A type that the table does not have selects nothing in it.
function selected(rows) {
  const kept = rows.filter(isOfDevice);
  const has = kept.some(row => row.dataset.dtype === choice.type);
  return new Set(kept.filter(row => !has || [undefined, choice.type].includes(row.dataset.dtype)));
}

// A row is hidden by the switch or by the words of its filter.
function hide(row, reason, hidden) {
  row[reason] = hidden;
  row.hidden = Boolean(row.unselected || row.unfound);
}

// Of alternatives one is shown: that of the choice, or else the first.
function showOne(all, wanted) {
  const shown = all.find(wanted) ?? all[0];
  for (const each of all) each.hidden = each !== shown;
}

// Of the views of each chapter one is shown: the chosen one, or the first of the chosen machine and device.
async function showViews() {
  const fits = view => (!choice.machine || !view.dataset.machine || view.dataset.machine === choice.machine) &&
    (!choice.device || !view.dataset.devices || view.dataset.devices.split(" ").includes(choice.device));
  const shown = [];
  for (const section of document.querySelectorAll("main > section")) {
    const views = [...section.querySelectorAll(":scope > .view")];
    const radios = new Map([...section.querySelectorAll(".views input")].map(radio => [radio.value, radio]));
    const fitting = views.filter(fits);
    const one = fitting.find(view => radios.get(view.id)?.checked) ?? fitting[0];
    for (const view of views) {
      view.hidden = view !== one;
      const radio = radios.get(view.id);
      if (radio) radio.parentElement.hidden = !fits(view);
      if (radio && view === one) radio.checked = true;
    }
    section.classList.toggle("nothing", views.length > 0 && !one);
    if (one) shown.push(unpack(one));
  }
  await Promise.all(shown);
}

async function applyChoice() {
  await Promise.all([loaded, showViews()]);
  const inShown = what => document.querySelectorAll(`:is(.view:not([hidden]), .opening) ${what}`);
  for (const panels of inShown(".panels")) {
    showOne([...panels.children], panel => panel.dataset.dtype === choice.type);
  }
  for (const list of inShown(".figures")) {
    for (const all of grouped(list.children).values()) {
      const of = (each, name) => (!choice[name] || !each.dataset[name] || each.dataset[name] === choice[name]) + 0;
      const fits = each => (!choice.type || !each.dataset.dtype || each.dataset.dtype === choice.type) + 0;
      const score = each => 4 * of(each, "machine") + 2 * of(each, "device") + fits(each);
      const best = all.reduce((one, other) => score(other) > score(one) ? other : one);
      showOne(all, each => each === best);
      const id = best.querySelector(".chart")?.dataset.figure;
      const others = id && choice.device && (!of(best, "device") || !chosenRows(id).length);
      if (!list.closest(".opening") && others) best.hidden = true;
    }
  }
  for (const line of inShown(".findings li")) line.hidden = !isOfDevice(line);
  for (const table of inShown("table.data")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.dataset.device) for (const row of table.rows) row.cells[column].hidden = !isOfDevice(head);
    });
    const rows = [...table.tBodies[0].rows];
    const kept = selected(rows);
    for (const row of rows) hide(row, "unselected", !kept.has(row));
    table.classList.toggle("moved", rows.some(row => row.hidden));
    table.parentElement.hidden = rows.length > 0 && rows.every(row => row.hidden);
  }
  for (const place of places()) {
    const {figure, state, device} = place.dataset;
    if (state !== "drawn") continue;
    const wanted = figures[figure] && chosenRows(figure).length < rowsOf(figure).length ? choice.device : "";
    if (device !== wanted) { delete place.dataset.state; place.replaceChildren(); }
  }
  document.body.dataset.ready = "true";
  drawShown();
}

function grouped(elements) {
  const groups = new Map();
  for (const each of elements) groups.set(each.dataset.group, [...(groups.get(each.dataset.group) ?? []), each]);
  return groups;
}

prepare(document);
const form = document.querySelector("form.switch");
if (form) {
  // the address keeps the choice, so that it can be sent
  const given = new URLSearchParams(location.search);
  for (const field of form.elements) {
    const value = given.get(field.name);
    if ([...field.options].some(option => option.value === value)) field.value = value;
  }
  const read = () => { for (const field of form.elements) choice[field.name] = field.value; };
  form.addEventListener("change", () => {
    read();
    const chosen = new URLSearchParams();
    for (const field of form.elements) if (field.selectedIndex) chosen.set(field.name, field.value);
    const query = chosen.toString();
    try { history.replaceState(null, "", (query ? "?" + query : location.pathname) + location.hash); } catch { /* file */ }
    applyChoice();
  });
  read();
}
for (const radio of document.querySelectorAll(".views input")) radio.addEventListener("change", applyChoice);
const ready = applyChoice();
Promise.allSettled([vega, ready]).then(async () => {
  while (drawing) await new Promise(drawSoon);
  await Promise.all(drawings);
  loading.contentDocument.close();
  loading.remove();
});

// The navigation marks the section that is read.
const links = new Map([...document.querySelectorAll("nav a")].map(link => [link.hash.slice(1), link]));
const reading = new IntersectionObserver(entries => {
  for (const {isIntersecting, target} of entries) {
    const link = links.get(target.getAttribute("aria-labelledby") ?? target.id);
    if (isIntersecting && link) {
      for (const each of links.values()) each.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
    }
  }
}, {rootMargin: "-10% 0px -85% 0px"});
for (const section of document.querySelectorAll("main > section, #top")) reading.observe(section);

// Following a link opens all closed elements around its target, and shows the view that has it.
async function openTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!document.getElementById(id)) {
    const views = [...document.querySelectorAll(".view")].filter(view => id.startsWith(`figure-${view.id}-`));
    await Promise.all(views.map(unpack));
  }
  const target = document.getElementById(id);
  const view = target?.closest(".view");
  const radio = view && document.querySelector(`.views input[value="${CSS.escape(view.id)}"]`);
  if (view?.hidden && radio) {
    radio.checked = true;
    for (const name of ["machine", "device"]) {
      choice[name] = "";
      if (form?.elements[name]) form.elements[name].value = "";
    }
  }
  await applyChoice();
  for (let place = target; place; place = place.parentElement) {
    if (place.tagName === "DETAILS") place.open = true;
    if (place.hidden) {  // an alternative: shown instead of the others
      const others = [...place.parentElement.children].filter(each => each.dataset.group === place.dataset.group);
      for (const each of others) each.hidden = each !== place;
    }
  }
  drawShown();
  target?.scrollIntoView();
}
addEventListener("hashchange", openTarget);
if (location.hash) ready.then(openTarget);  // after the choice was applied
