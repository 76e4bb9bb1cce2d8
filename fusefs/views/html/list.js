// The list of sessions: filter as you type, sort by column, times in the reader's time zone.

const FIRST_ROWS = 500; // shown at once; a button shows the rest

document.documentElement.classList.add("js");
const table = document.getElementById("sessions");
const body = table.tBodies[0];
const field = document.getElementById("filter");
const withChildren = document.getElementById("children");
let rows = [...body.rows].map((row) => ({ row, text: null, isChild: row.classList.contains("child") }));
let limit = FIRST_ROWS;

const more = document.createElement("button");
more.className = "more";
more.type = "button";
table.after(more);
more.addEventListener("click", () => { limit = Infinity; apply(); });

function apply() {
  const words = wordsOf(field.value);
  const showChildren = withChildren.getAttribute("aria-pressed") === "true" || words.length > 0;
  let matching = 0;
  for (const one of rows) {
    one.text ??= one.row.textContent.toLowerCase();
    const fits = (showChildren || !one.isChild) && words.every((word) => one.text.includes(word));
    matching += fits;
    one.row.hidden = !fits || matching > limit;
    if (!one.row.hidden) localTime(one.row);
  }
  document.getElementById("count").textContent = `${matching.toLocaleString()} of ${rows.length.toLocaleString()}`;
  document.getElementById("none").hidden = matching > 0;
  more.hidden = matching <= limit;
  more.textContent = `Show all ${matching.toLocaleString()}`;
}

const sameYear = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const otherYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

function localTime(row) {
  const time = row.querySelector("time");
  if (!time || time.title) return;
  const at = new Date(time.dateTime);
  time.title = at.toString();
  time.textContent = (at.getFullYear() === new Date().getFullYear() ? sameYear : otherYear).format(at);
}

function sortBy(column, heading) {
  const isDescending = heading.ariaSort ? heading.ariaSort !== "descending" : column >= 4; // newest and largest first
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.ariaSort = isDescending ? "descending" : "ascending";
  const keyOf = ({ row }) => { const cell = row.cells[column]; return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent.toLowerCase(); };
  const keyed = rows.map((one) => [keyOf(one), one]);
  const compare = typeof keyed[0]?.[0] === "number" ? (a, b) => a[0] - b[0] : (a, b) => a[0].localeCompare(b[0]);
  keyed.sort((a, b) => (isDescending ? compare(b, a) : compare(a, b)));
  rows = keyed.map(([, one]) => one);
  body.append(...rows.map((one) => one.row));
  apply();
}

for (const [column, heading] of [...table.tHead.rows[0].cells].entries()) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = heading.textContent;
  button.addEventListener("click", () => sortBy(column, heading));
  heading.replaceChildren(button);
}
table.tHead.rows[0].cells[4].ariaSort = "descending";
withChildren.addEventListener("click", () => {
  withChildren.setAttribute("aria-pressed", String(withChildren.getAttribute("aria-pressed") !== "true"));
  apply();
});
withChildren.hidden = !rows.some((one) => one.isChild);
field.addEventListener("input", apply);
bindKeys(field, () => rows.filter((one) => !one.row.hidden).map((one) => one.row.querySelector("a")));
apply();
document.documentElement.dataset.ready = "yes";
