// Keys of all pages: / goes to the search field, Escape leaves it, j and k step through the items.

function isTyping(event) {
  return event.target.closest("input, textarea, select") !== null || event.ctrlKey || event.metaKey || event.altKey;
}

// `items()` returns the elements to step through; each must be focusable.
function bindKeys(field, items, others = {}) {
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target === field) {
      field.value = "";
      field.dispatchEvent(new Event("input"));
      field.blur();
    }
    if (isTyping(event)) return;
    if (event.key === "/") field.focus();
    else if (event.key === "j" || event.key === "k") step(items(), event.key === "j" ? 1 : -1);
    else if (others[event.key]) others[event.key]();
    else return;
    event.preventDefault();
  });
}

// From the focused item, or from the first one in the window.
function step(all, by) {
  if (!all.length) return;
  let at = all.findIndex((item) => item.contains(document.activeElement));
  if (at < 0) {
    at = all.findIndex((item) => item.getBoundingClientRect().bottom > 80);
    if (by > 0) at -= 1;
  }
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "start" });
}

// The words of a search, lower case; every word must occur.
function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}
