"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Filters: everything about a run carries data-task, data-method or both.
const filters = all("select[data-filter]");

function matches(element) {
  return filters.every((filter) => {
    const value = element.dataset[filter.dataset.filter];
    return !filter.value || value === undefined || value === filter.value;
  });
}

function applyFilters() {
  for (const element of all("main [data-task], main [data-method]")) {
    element.hidden = !matches(element);
  }
  const method = filters.find((filter) => filter.dataset.filter === "method")?.value;
  for (const figure of all("figure[data-methods]")) {
    const owners = JSON.parse(figure.dataset.methods);
    figure.hidden = Boolean(method) && !owners.includes(method);
    for (const mark of all("[data-series]", figure)) {
      mark.style.display = method && owners[Number(mark.dataset.series)] !== method ? "none" : "";
    }
  }
  for (const matrix of all(".matrix")) {
    const empty = (parts) => parts.length > 0 && parts.every((part) => part.hidden);
    matrix.hidden = empty(all("tr[data-task]", matrix)) || empty(all("th[data-method]", matrix));
  }
  for (const section of all("main > section")) {
    section.hidden = false;
    const parts = all(".card, .chart, .matrix, .gallery, .run, #returns [data-task]", section);
    section.hidden = parts.length > 0 && parts.every((part) => part.closest("[hidden]"));
    const link = document.querySelector(`nav a[href="#${section.id}"]`);
    if (link) link.hidden = section.hidden;
  }
  document.querySelector("#nothing").hidden = all(".card").some((card) => !card.hidden);
}

for (const filter of filters) filter.addEventListener("change", applyFilters);
applyFilters(); // a browser may restore a choice when the page is reloaded

// Tables: a click on a head sorts by it, a second click reverses. Empty cells stay last.
function sortBy(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const column = [...head.parentElement.children].indexOf(head);
  const descending = head.getAttribute("aria-sort") === "ascending";
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (!x || !y) return Number(!x) - Number(!y);
    const [p, q] = [Number(x), Number(y)];
    const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q;
    return descending ? -order : order;
  });
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  body.append(...rows);
}

for (const button of all("th button")) {
  button.addEventListener("click", () => sortBy(button.parentElement));
}

// Figures: point at one and read its lines off. The points are those that are drawn.
const vertices = (path) =>
  [...path.getAttribute("d").matchAll(/[ML] (\S+) (\S+)/g)].map((m) => [Number(m[1]), Number(m[2])]);

const words = (value) =>
  Math.abs(value) >= 10 || value === 0
    ? Math.round(value).toLocaleString("en-US")
    : value.toLocaleString("en-US", { maximumSignificantDigits: 3 });

function readings(svg, x) {
  const lines = all('[id$="-line"][data-series]', svg).filter((g) => g.style.display !== "none");
  return lines.flatMap((line) => {
    const path = line.querySelector("path");
    const points = path ? vertices(path) : [];
    if (!points.length) return [];
    const near = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const name = svg.querySelector(`[id$="series-${line.dataset.series}-text"]`)?.textContent.trim();
    return [{ near, name, color: getComputedStyle(path).stroke }];
  });
}

// A bar is read off at its end that is not on the ground.
function bars(svg, x) {
  return all('[id*="-bar"][data-series]', svg).flatMap((bar) => {
    const box = bar.getBBox();
    if (bar.style.display === "none" || x < box.x || x > box.x + box.width || !box.height) return [];
    const name = svg.querySelector(`[id$="series-${bar.dataset.series}-text"]`)?.textContent.trim();
    const near = [box.x + box.width / 2, box.y];
    return [{ near, name, color: getComputedStyle(bar.querySelector("path")).fill, bar: true }];
  });
}

function reader(figure) {
  const svg = figure.querySelector("svg");
  const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
  const [x0, y1, x1, y0] = svg.dataset.limits.split(" ").map(Number);
  const log = svg.dataset.scale === "log";
  const inX = (x) => x0 + ((x - left) / (right - left)) * (x1 - x0);
  const inY = (y) => {
    const share = (bottom - y) / (bottom - top);
    return log ? y0 * (y1 / y0) ** share : y0 + share * (y1 - y0);
  };
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);
  const rule = document.createElementNS("http://www.w3.org/2000/svg", "line");
  rule.setAttribute("class", "rule");
  rule.style.display = "none";
  svg.append(rule);

  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = at.x < left || at.x > right ? [] : [...readings(svg, at.x), ...bars(svg, at.x)];
    tip.hidden = !found.length;
    rule.style.display = found.length ? "" : "none";
    if (!found.length) return;
    const x = found.reduce((a, b) => (Math.abs(b.near[0] - at.x) < Math.abs(a.near[0] - at.x) ? b : a)).near[0];
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) {
      rule.setAttribute(name, value);
    }
    const here = found.filter(({ near }) => Math.abs(near[0] - x) < (right - left) / 40);
    here.sort((a, b) => a.near[1] - b.near[1]);
    tip.replaceChildren(
      here.some((one) => one.bar) ? "" : words(inX(x)),
      ...here.map(({ near, name, color }) => {
        const row = document.createElement("div");
        row.append(`${name ?? ""} `, Object.assign(document.createElement("b"), { textContent: words(inY(near[1])) }));
        row.style.borderLeftColor = color;
        return row;
      }),
    );
    const box = figure.getBoundingClientRect();
    const place = event.clientX - box.left;
    tip.style.top = `${event.clientY - box.top + 14}px`;
    tip.style.left = place < box.width / 2 ? `${place + 14}px` : "";
    tip.style.right = place < box.width / 2 ? "" : `${box.width - place + 14}px`;
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    rule.style.display = "none";
  });
}

for (const figure of all("figure.chart")) {
  if (figure.querySelector("[data-series]")) reader(figure);
}

// Take a figure (SVG, PNG) or a table (CSV) from the page.
function save(name, kind, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The figure by itself: light, on white, with its colours written out, as a page of paper wants it.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  all(".rule", copy).forEach((rule) => rule.remove());
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width * 2);
  copy.setAttribute("height", height * 2);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.fontFamily = "system-ui, sans-serif";
  const text = new XMLSerializer().serializeToString(copy).replace(/var\(--[\w-]+, ([^)]+)\)/g, "$1");
  return text.replace(/(<svg[^>]*>)/, '$1<rect width="100%" height="100%" fill="#fff"/>');
}

function saveAsPicture(name, svg) {
  const text = standalone(svg);
  const picture = new Image();
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width * 1.5, picture.height * 1.5];
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, "image/png", blob));
  };
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function asCsv(table) {
  const field = (cell) => {
    const shown = (cell.dataset.value || cell.innerText).trim().replace(/\s+/g, " ");
    const text = shown.replace(/^(?=[=@]|[+-](?![\d.]+$))/, "'"); // no formula
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rows = all("tr", table).filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells].filter((cell) => !cell.hidden).map(field).join(",")).join("\n") + "\n";
}

function offer(holder, choices) {
  const bar = document.createElement("div");
  bar.className = "take";
  for (const [label, action] of Object.entries(choices)) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: label });
    button.title = `download as ${label}`;
    button.addEventListener("click", action);
    bar.append(button);
  }
  holder.append(bar);
}

for (const figure of all("figure.chart")) {
  const svg = figure.querySelector("svg");
  const name = figure.dataset.name || "figure";
  offer(figure, {
    SVG: () => save(`${name}.svg`, "image/svg+xml", standalone(svg)),
    PNG: () => saveAsPicture(`${name}.png`, svg),
  });
}
for (const table of all(".scroll > table")) {
  const name = table.dataset.name || table.parentElement.dataset.name || "table";
  const panel = table.parentElement;
  const frame = document.createElement("div"); // the buttons stay where they are when it scrolls
  if (panel.matches(".wide")) frame.className = "wide";
  panel.replaceWith(frame);
  frame.append(panel);
  offer(frame, { CSV: () => save(`${name}.csv`, "text/csv", asCsv(table)) });
}

// Light and dark: the system's choice until the reader makes one.
document.querySelector("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.style.colorScheme
    ? root.style.colorScheme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
});

// Pictures: a click shows one as large as the window, another closes it.
const stage = document.body.appendChild(document.createElement("dialog"));
stage.addEventListener("click", () => stage.close());
for (const picture of all(".modes img")) {
  picture.addEventListener("click", () => {
    stage.replaceChildren(picture.cloneNode());
    stage.showModal();
  });
}

// Videos play while they are on the screen, unless the reader asked for less motion.
if ("IntersectionObserver" in window && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) target.play().catch(() => {}); // refused by a power saver: controls stay
      else target.pause();
    }
  });
  for (const video of all("video")) watcher.observe(video);
}

// Paper shows what a screen folds away; the configurations of a large study would be a book.
const FEW_RUNS = 12;
let opened = [];
addEventListener("beforeprint", () => {
  const runs = all("details.run");
  const kept = runs.length > FEW_RUNS ? runs : [];
  opened = all("details:not([open])").filter((details) => !kept.includes(details));
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
