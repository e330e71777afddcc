"use strict";

// Filters: everything about a run carries data-task and data-method.
const filters = [...document.querySelectorAll("select[data-filter]")];

function matches(element) {
  return filters.every((filter) => {
    const value = element.dataset[filter.dataset.filter];
    return !filter.value || value === undefined || value === filter.value;
  });
}

function applyFilters() {
  for (const element of document.querySelectorAll("main [data-task]")) {
    element.hidden = !matches(element);
  }
  const method = filters.find((filter) => filter.dataset.filter === "method");
  for (const figure of document.querySelectorAll("figure[data-methods]")) {
    const owners = JSON.parse(figure.dataset.methods);
    for (const mark of figure.querySelectorAll("[data-series]")) {
      const owner = owners[Number(mark.dataset.series)];
      mark.style.display = method && method.value && owner !== method.value ? "none" : "";
    }
  }
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

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.parentElement));
}

// Light and dark: the system's choice until the reader makes one.
document.querySelector("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.style.colorScheme
    ? root.style.colorScheme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
});

// Videos play while they are on the screen, unless the reader asked for less motion.
if ("IntersectionObserver" in window && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) target.play().catch(() => {}); // refused by a power saver: controls stay
      else target.pause();
    }
  });
  for (const video of document.querySelectorAll("video")) watcher.observe(video);
}

// Paper shows what a screen folds away.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
