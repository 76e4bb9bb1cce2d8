// Markdown as DOM nodes. Text never becomes markup: every node is made by createElement and createTextNode.
// The subset that agents write: headings, paragraphs, lists, quotes, tables, code, emphasis, links. Anything else is
// shown as it was written. Every step looks at a character a bounded number of times: a message may be hostile.

const LONG_LINE = 4000; // characters; a longer line is text, not structure
const LONG_PARAGRAPH = 20000; // a longer paragraph is shown without emphasis and links
const MAX_DEPTH = 6; // of lists and quotes inside each other

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

// Characters that reorder the text around them are shown as a label: code must read as it runs.
const BIDI = /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/;

function plainText(text) {
  const shown = document.createDocumentFragment();
  if (!BIDI.test(text)) { shown.append(text); return shown; }
  for (const part of text.split(new RegExp(`(${BIDI.source})`))) {
    if (part.length === 1 && BIDI.test(part)) {
      const code = `U+${part.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      shown.append(make("span", { className: "control", title: "invisible character that changes the text direction" }, code));
    } else if (part) shown.append(part);
  }
  return shown;
}

// -- blocks --------------------------------------------------------------------------------------

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(?=\S)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
const TABLE = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

function renderMarkdown(text) {
  return renderBlocks(text.split("\n"), 0);
}

function renderBlocks(lines, depth) {
  const shown = document.createDocumentFragment();
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) { at += 1; continue; }
    const [node, next] = renderBlock(lines, at, depth);
    shown.append(node);
    at = next;
  }
  return shown;
}

function renderBlock(lines, at, depth) {
  const line = lines[at];
  if (line.length <= LONG_LINE) {
    const fence = FENCE.exec(line);
    if (fence) return renderFence(lines, at, fence);
    const heading = HEADING.exec(line);
    if (heading) return [renderHeading(line, heading), at + 1];
    if (RULE.test(line)) return [make("hr"), at + 1];
    if (depth < MAX_DEPTH) {
      if (/^ {0,3}>/.test(line)) return renderQuote(lines, at, depth);
      if (ITEM.test(line)) return renderList(lines, at, depth);
    }
    if (isTable(lines, at)) return renderTable(lines, at);
    if (/^(?: {4}|\t)/.test(line) && depth === 0) return renderIndented(lines, at);
  }
  return renderParagraph(lines, at, depth);
}

function renderHeading(line, found) {
  let text = line.slice(found[0].length).trimEnd();
  let end = text.length;
  while (end && text[end - 1] === "#") end -= 1;
  if (end === 0 || /\s/.test(text[end - 1])) text = text.slice(0, end).trimEnd(); // a closing row of #
  // h1 is the title of the page and h2 a message.
  return make(`h${Math.min(6, found[1].length + 2)}`, {}, renderInline(text));
}

function renderFence(lines, at, found) {
  const mark = found[1];
  const closing = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !(lines[end].length <= LONG_LINE && closing.test(lines[end]))) end += 1;
  return [renderCode(lines.slice(at + 1, end).join("\n"), found[2]), end + 1];
}

function renderIndented(lines, at) {
  let end = at;
  while (end < lines.length && (/^(?: {4}|\t)/.test(lines[end]) || !lines[end].trim())) end += 1;
  const text = lines.slice(at, end).map((line) => line.replace(/^(?: {4}|\t)/, "")).join("\n");
  return [renderCode(text.trimEnd(), ""), end];
}

function renderQuote(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return [make("blockquote", {}, renderBlocks(inside, depth + 1)), end];
}

function renderList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(first[2]);
  const list = make(isOrdered ? "ol" : "ul");
  if (isOrdered && parseInt(first[2], 10) !== 1) list.start = parseInt(first[2], 10);
  const indent = first[1].length;
  while (at < lines.length) {
    const found = lines[at].length <= LONG_LINE && !RULE.test(lines[at]) ? ITEM.exec(lines[at]) : null;
    if (!found || found[1].length < indent || /\d/.test(found[2]) !== isOrdered) break;
    const [item, next] = renderItem(lines, at, found, depth);
    list.append(item);
    at = next;
  }
  return [list, at];
}

// An item continues with lines that are indented further than its mark; an empty line only if one of those follows.
function renderItem(lines, at, found, depth) {
  const inner = found[1].length + 2;
  const inside = [lines[at].slice(found[0].length)];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const space = line.length - line.trimStart().length;
    if (!line.trim()) {
      const next = lines[end + 1] ?? "";
      if (!next.trim() || next.length - next.trimStart().length < inner) break;
      inside.push("");
    } else if (space >= inner) inside.push(line.slice(Math.min(space, inner)));
    else if (ITEM.test(line.slice(0, LONG_LINE)) || FENCE.test(line) || HEADING.test(line) || /^ {0,3}>/.test(line)) break;
    else inside.push(line); // a paragraph that was wrapped without indentation
  }
  while (end < lines.length && !lines[end].trim() && ITEM.test((lines[end + 1] ?? "").slice(0, LONG_LINE))) end += 1;
  const task = /^\[([ xX])\] /.exec(inside[0]);
  const item = make("li");
  if (task) {
    inside[0] = inside[0].slice(4);
    item.append(task[1] === " " ? "☐ " : "☑ ");
  }
  const isPlain = inside.every((line) => line.trim() && !ITEM.test(line.slice(0, LONG_LINE)) && !FENCE.test(line));
  item.append(isPlain ? renderInline(inside.join("\n")) : renderBlocks(inside, depth + 1));
  return [item, end];
}

function isTable(lines, at) {
  const below = lines[at + 1];
  return lines[at].includes("|") && below !== undefined && below.length <= LONG_LINE && below.includes("-") && TABLE.test(below);
}

function renderTable(lines, at) {
  const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").replaceAll("\\|", "\u0000").split("|").map((cell) => cell.trim().replaceAll("\u0000", "|"));
  const row = (line, tag) => make("tr", {}, ...cells(line).map((cell) => make(tag, {}, renderInline(cell))));
  const table = make("table", { tabIndex: 0 }, make("thead", {}, row(lines[at], "th")));
  const body = make("tbody");
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|") && lines[end].length <= LONG_LINE; end += 1) body.append(row(lines[end], "td"));
  table.append(body);
  return [table, end];
}

function renderParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end, depth)) end += 1;
  const text = lines.slice(at, end).join("\n");
  return [make("p", {}, text.length > LONG_PARAGRAPH ? longText(text) : renderInline(text)), end];
}

function startsBlock(lines, at, depth) {
  const line = lines[at];
  if (line.length > LONG_LINE) return false;
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || isTable(lines, at)) return true;
  return depth < MAX_DEPTH && (/^ {0,3}>/.test(line) || /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line));
}

// -- text ----------------------------------------------------------------------------------------

const FIRST_SHOWN = 100000; // characters of a very long text

// Shows the beginning at once and the rest on demand: laying out megabytes takes seconds.
function longText(text) {
  if (text.length <= FIRST_SHOWN * 1.2) return plainText(text);
  const shown = document.createDocumentFragment();
  const rest = text.slice(FIRST_SHOWN);
  const button = make("button", { type: "button" }, `Show ${(rest.length / 1000).toFixed(0)},000 more characters`);
  button.addEventListener("click", () => button.replaceWith(plainText(rest)));
  shown.append(plainText(text.slice(0, FIRST_SHOWN)), make("br"), button);
  return shown;
}

function renderCode(text, language) {
  const code = make("code", {}, longText(text));
  const box = make("div", { className: "code" }, make("pre", { tabIndex: 0 }, code));
  if (language) box.append(make("span", { className: "language" }, language.slice(0, 20)));
  if (text.length < LONG_CODE) {
    code.dataset.language = language.toLowerCase();
    toHighlight.observe(code);
  }
  return box;
}

// Emphasis, code, links and addresses. `depth` bounds emphasis inside emphasis.
function renderInline(text, depth = 0) {
  const shown = document.createDocumentFragment();
  const missing = new Set(); // closing marks that do not occur any more
  let plain = "";
  let at = 0;
  const flush = () => { if (plain) shown.append(plainText(plain)); plain = ""; };
  while (at < text.length) {
    const found = depth < MAX_DEPTH ? inlineAt(text, at, depth, missing) : null;
    if (found) {
      flush();
      shown.append(found[0]);
      at = found[1];
    } else {
      if (text[at] === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) at += 1;
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return shown;
}

function inlineAt(text, at, depth, missing) {
  switch (text[at]) {
    case "`": return codeAt(text, at, missing);
    case "*": return emphasisAt(text, at, depth, missing, text.startsWith("**", at) ? "**" : "*");
    case "_": return /\w/.test(text[at - 1] ?? "") ? null : emphasisAt(text, at, depth, missing, text.startsWith("__", at) ? "__" : "_");
    case "~": return text.startsWith("~~", at) ? emphasisAt(text, at, depth, missing, "~~") : null;
    case "!": return text[at + 1] === "[" ? linkAt(text, at + 1, depth, missing) : null;
    case "[": return linkAt(text, at, depth, missing);
    case "h": return addressAt(text, at);
    default: return null;
  }
}

function codeAt(text, at, missing) {
  let end = at;
  while (text[end] === "`") end += 1;
  const mark = text.slice(at, end);
  if (missing.has(mark)) return null;
  for (let close = text.indexOf(mark, end); close >= 0; close = text.indexOf(mark, close)) {
    let after = close;
    while (text[after] === "`") after += 1;
    if (after - close === mark.length) {
      let inside = text.slice(end, close);
      if (/^ [^]* $/.test(inside) && inside.trim()) inside = inside.slice(1, -1);
      return [make("code", {}, plainText(inside)), after];
    }
    close = after;
  }
  missing.add(mark);
  return [plainText(mark), end];
}

const EMPHASIS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };

function emphasisAt(text, at, depth, missing, mark) {
  const start = at + mark.length;
  if (missing.has(mark) || /\s/.test(text[start] ?? " ")) return null;
  for (let close = text.indexOf(mark, start + 1); close >= 0; close = text.indexOf(mark, close + 1)) {
    if (mark.length === 1 && text[close + 1] === mark) { close += 1; continue; } // part of ** or __
    const isWord = mark[0] === "_" && /\w/.test(text[close + mark.length] ?? "");
    if (!/\s/.test(text[close - 1]) && !isWord && close > start) {
      return [make(EMPHASIS[mark], {}, renderInline(text.slice(start, close), depth + 1)), close + mark.length];
    }
  }
  missing.add(mark);
  return null;
}

function linkAt(text, at, depth, missing) {
  if (missing.has("](")) return null;
  const middle = text.indexOf("](", at);
  if (middle < 0) { missing.add("]("); return null; }
  if (middle - at > 1000 || text.slice(at, middle).includes("\n")) return null;
  let end = middle + 2;
  for (let open = 1; end < text.length && end - middle < 3000; end += 1) {
    if (text[end] === "(") open += 1;
    if (text[end] === ")" && --open === 0) break;
  }
  if (text[end] !== ")") return null;
  const label = text.slice(at + 1, middle);
  const target = text.slice(middle + 2, end).trim().split(/\s/)[0];
  return [makeLink(target, depth < 2 ? renderInline(label, depth + 2) : plainText(label)), end + 1];
}

function addressAt(text, at) {
  if (/\w/.test(text[at - 1] ?? "") || !/^https?:\/\/\w/.test(text.slice(at, at + 9))) return null;
  let end = at;
  while (end < text.length && end - at < 2000 && !/[\s<>"'`|\\^{}]/.test(text[end])) end += 1;
  while (/[.,;:!?)\]*_]/.test(text[end - 1])) end -= 1;
  const address = text.slice(at, end);
  return [makeLink(address, plainText(address)), end];
}

// Only addresses that a browser opens as a document. The parser of the browser decides what the scheme is.
function makeLink(target, label) {
  let url = null;
  try { url = new URL(target); } catch { /* relative, or not an address: shown as text */ }
  if (url && ["http:", "https:", "mailto:"].includes(url.protocol)) {
    return make("a", { href: url.href, rel: "noopener noreferrer nofollow", title: url.href }, label);
  }
  return make("span", { title: target }, label);
}
