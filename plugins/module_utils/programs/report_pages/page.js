// Times in the reader's zone, the age of the page, sorted and filtered tables, nodes by keyboard.
// All of the page can be read without it. Texts are set as text alone: nothing of the page becomes HTML.
"use strict";

const two = (number) => String(number).padStart(2, "0");

function make(tag, name, text) {
  const found = document.createElement(tag);
  if (name) found.className = name;
  if (text) found.textContent = text;
  return found;
}

// -- Times ----------------------------------------------------------------------------------------------------------

function localTimes() {
  for (const time of document.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = time.textContent;
    time.textContent =
      `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.getElementById("zone").textContent = ` · times of ${zone}`;
}

// As `duration` in texts.py.
function duration(seconds) {
  const minutes = Math.max(0, Math.floor(seconds / 60));
  const days = Math.floor(minutes / 1440), hours = Math.floor((minutes % 1440) / 60), rest = minutes % 60;
  if (days) return hours && days < 100 ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return rest ? `${hours} h ${rest} min` : `${hours} h`;
  return `${rest} min`;
}

// The ages in texts are those at the time when the page was made.
function showAges() {
  for (const element of document.querySelectorAll("[data-since]")) {
    const age = duration((Date.now() - new Date(element.dataset.since).getTime()) / 1000);
    element.textContent = element.textContent.replace(element.dataset.age, () => age);
    element.dataset.age = age;
  }
}

function showAge() {
  const made = document.getElementById("made");
  if (!made) return;
  const seconds = (Date.now() - new Date(made.dateTime).getTime()) / 1000;
  // A clock that is a little behind that of the cluster is no reason for a warning.
  document.getElementById("age").textContent = seconds < 60 ? "" : `, ${duration(seconds)} ago`;
  const old = document.getElementById("old");
  const text = seconds > Number(document.body.dataset.oldAfter)
    ? `This page is old: it was made ${duration(seconds)} ago, and may no longer be true.` : "";
  if (old.textContent !== text) old.textContent = text;
  old.hidden = !text;
}

// -- Tables ---------------------------------------------------------------------------------------------------------

const order = new Intl.Collator(undefined, {numeric: true});

function compareCells(first, second) {
  if (first === second) return 0;
  // What has no value is last.
  if (first === "" || first === "–") return 1;
  if (second === "" || second === "–") return -1;
  const difference = Number(first.replaceAll(",", "")) - Number(second.replaceAll(",", ""));
  return Number.isNaN(difference) ? order.compare(first, second) : difference;
}

function sortBy(table, heading, column) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(table.tBodies[0].rows, (row) => {
    const cell = row.cells[column];
    return [cell.dataset.v ?? cell.textContent.trim().replace(/ \(.*\)$/, ""), row];
  });
  rows.sort((a, b) => (down ? compareCells(b[0], a[0]) : compareCells(a[0], b[0])));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function filterRows(table, wanted, count) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    if (!row.hidden) shown += 1;
  }
  count.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} lines here` : "";
}

function improveTable(table, number) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = make("button", "sort", heading.textContent);
    button.type = "button";
    button.addEventListener("click", () => sortBy(table, heading, column));
    heading.replaceChildren(button);
  });
  if (table.tBodies[0].rows.length < 25) return;
  const line = make("p", "filter");
  const label = make("label", "", "Filter ");
  const input = make("input");
  const count = make("output");
  input.type = "search";
  input.id = `filter-${number}`;
  label.htmlFor = input.id;
  input.addEventListener("input", () => filterRows(table, input.value, count));
  line.append(label, input, count);
  (table.closest(".scroll") ?? table).before(line);
}

// -- Nodes ----------------------------------------------------------------------------------------------------------

function showNode(cell) {
  const box = document.getElementById("node");
  const [first, ...lines] = cell.dataset.text.split("\n");
  box.classList.add("chosen");
  box.replaceChildren(make("b", "", first), ...lines.map((line) => make("span", "", line)));
  const last = document.querySelector(".cells .shown");
  last?.classList.remove("shown");
  last?.setAttribute("aria-selected", "false");
  cell.classList.add("shown");
  cell.setAttribute("aria-selected", "true");
}

function perLine(cells) {
  const top = cells[0].offsetTop;
  const count = cells.findIndex((cell) => cell.offsetTop > top);
  return count < 0 ? cells.length : count;
}

function target(cells, at, key) {
  const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: perLine(cells), ArrowUp: -perLine(cells)};
  if (key === "Home") return cells[0];
  if (key === "End") return cells[cells.length - 1];
  return key in steps ? cells[at + steps[key]] : undefined;
}

function improveCells(list) {
  const cells = Array.from(list.children);
  list.setAttribute("role", "listbox");
  cells.forEach((cell, number) => {
    // The browser's own bubble would cover the neighbours.
    cell.dataset.text = cell.title;
    cell.setAttribute("aria-label", cell.title.replaceAll("\n", ", "));
    cell.removeAttribute("title");
    cell.setAttribute("role", "option");
    cell.tabIndex = number ? -1 : 0;
  });
  list.addEventListener("pointerover", (event) => event.target.closest("li") && showNode(event.target.closest("li")));
  list.addEventListener("click", (event) => event.target.closest("li")?.focus());
  list.addEventListener("focusin", (event) => {
    for (const cell of list.querySelectorAll("[tabindex='0']")) cell.tabIndex = -1;
    event.target.tabIndex = 0;
    showNode(event.target);
  });
  list.addEventListener("keydown", (event) => {
    const next = target(cells, cells.indexOf(event.target), event.key);
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    next.focus();
  });
}

// -- My jobs --------------------------------------------------------------------------------------------------------

// A browser may keep nothing, for a page from a disk say.
function remembered(name) {
  try {
    if (name !== undefined) localStorage.setItem("gpucluster-user", name);
    return localStorage.getItem("gpucluster-user") ?? "";
  } catch {
    return "";
  }
}

function improveOwn(list) {
  const users = Array.from(list.children);
  const line = make("p", "filter");
  const label = make("label", "", "User ");
  const input = make("input");
  const found = make("output");
  input.type = "search";
  input.id = "own-user";
  input.autocomplete = "username";
  label.htmlFor = input.id;
  const show = () => {
    const name = input.value.trim();
    for (const user of users) user.open = !(user.hidden = user.dataset.user !== name);
    found.textContent = name && users.every((user) => user.hidden) ? "has no jobs here" : "";
  };
  input.addEventListener("input", () => { show(); remembered(input.value.trim()); });
  input.value = remembered();
  show();
  line.append(label, input, found);
  list.before(line);
}

localTimes();
showAge();
showAges();
setInterval(() => { showAge(); showAges(); }, 30000);
document.querySelectorAll(".own").forEach(improveOwn);
document.querySelectorAll("table.data").forEach(improveTable);
document.querySelectorAll(".cells").forEach(improveCells);
const box = document.getElementById("node");
if (box) {
  box.textContent = "Point at a node, tap it, or go to it with the keyboard: tab and arrow keys.";
  box.hidden = false;
}
