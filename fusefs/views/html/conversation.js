// Turns the transcript at the end of the page into messages.
//
// The transcript is one text. Control characters mark where a message, a part of its heading and a block begin; the
// store replaces them in everything that an agent wrote, so a message cannot contain one (store/documents/transcript.py).

const PIECE = "\n##\x1e";
const FACT = " ·\x1f";
const BLOCK = /\n([\x0e-\x16])/;
const KINDS = { "\x0e": "prose", "\x0f": "reasoning", "\x10": "image", "\x11": "embedded", "\x12": "link", "\x13": "ocr", "\x14": "call", "\x15": "result", "\x16": "file" };
const FIRST_BUILT = 60; // messages built at once; the others follow in slices, so that the page answers meanwhile
const SLICE_MS = 20;

const root = document.documentElement;
root.classList.add("js");
document.addEventListener("DOMContentLoaded", start);

function start() {
  const source = document.querySelector("plaintext");
  const [header, ...pieces] = source.textContent.split(PIECE);
  source.remove();
  const messages = pieces.map(parsePiece);
  const page = { messages, list: make("div", { id: "messages" }), day: "", called: calledTools(messages), ...readData() };
  showTitle(header, page);
  placeChildren(page);
  document.querySelector("main").append(page.list);
  buildAll(page);
}

function readData() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const children = [...document.querySelectorAll("details.children a")].map((link) => ({
    id: link.dataset.id, created: Number(link.dataset.created), title: link.textContent, status: link.dataset.status, href: link.getAttribute("href"),
  }));
  return { tokens: new Map(data.tokens.map(([index, ...counts]) => [index, counts])), images: data.images, children, at: new Map() };
}

// The tool of each call, by the call's id.
function calledTools(messages) {
  const calls = messages.flatMap((message) => message.blocks.filter((block) => block.kind === "call"));
  return new Map(calls.map((block) => parseCall(block.text)).map((call) => [call.id, call.name]));
}

// -- parsing ---------------------------------------------------------------------------------------

// "[7] tool · 2026-11-17 03:00:00 UTC · Bash · answers call_1 · failed", then the blocks.
function parsePiece(piece) {
  const [heading, ...parts] = piece.replace(/\n$/, "").split(BLOCK);
  const [first, ...facts] = heading.split(FACT);
  const found = /^\[(\d+)\] (\w+)$/.exec(first);
  const message = { index: found ? Number(found[1]) : null, role: found ? found[2] : "summary", blocks: [], time: null, facts: [], answers: null };
  for (const fact of facts) {
    const moment = message.time === null && /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (UTC|[+-]\d\d:\d\d)$/.exec(fact);
    if (moment) message.time = new Date(`${moment[1]}T${moment[2]}${moment[3] === "UTC" ? "Z" : moment[3]}`);
    else if (fact.startsWith("answers ")) message.answers = fact.slice(8);
    else message.facts.push(fact);
  }
  for (let at = 0; at < parts.length; at += 2) message.blocks.push({ kind: KINDS[parts[at]], text: parts[at + 1] });
  return message;
}

// A tool call: "**→ Bash** call_1", an empty line, the arguments.
function parseCall(text) {
  const line = text.split("\n", 1)[0];
  const end = line.lastIndexOf("** ");
  const name = line.slice(4, end < 0 ? -2 : end);
  return { name, id: end < 0 ? "" : line.slice(end + 3), body: text.slice(line.length).replace(/^\n+/, "") };
}

// "- name: value" lines; a long value follows in a code block. Null if the text is something else.
function parseMembers(text) {
  const lines = text.split("\n");
  const members = [];
  for (let at = 0; at < lines.length; at += 1) {
    if (!lines[at].trim()) continue;
    const short = /^- ([^]*?): ([^]*)$/.exec(lines[at].slice(0, 4000));
    const fence = lines[at].startsWith("- ") && lines[at].endsWith(":") && lines[at + 1] === "" && /^`{3,}$/.exec(lines[at + 2] ?? "");
    if (fence) {
      const end = lines.indexOf(fence[0], at + 3);
      if (end < 0) return null;
      members.push({ name: lines[at].slice(2, -1), value: lines.slice(at + 3, end).join("\n"), isLong: true });
      at = end;
    } else if (short) members.push({ name: short[1], value: short[2], isLong: false });
    else return null;
  }
  return members.length ? members : null;
}

// The text inside the code block that a whole block consists of; null if it is something else.
function parseFenced(text) {
  const fence = /^`{3,}\n/.exec(text);
  return fence && text.endsWith(`\n${fence[0].trim()}`) ? text.slice(fence[0].length, -fence[0].length) : null;
}

const unquote = (text) => text.split("\n").slice(2).map((line) => line.replace(/^> ?/, "")).join("\n");

// -- the title -------------------------------------------------------------------------------------

function showTitle(header, page) {
  const lines = header.split("\n");
  const facts = lines.filter((line) => line.startsWith("- ")).map((line) => /^- ([a-z -]+): (.*)$/.exec(line)).filter(Boolean);
  const list = make("dl");
  for (const [, name, value] of facts) {
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, factValue(name, value))));
  }
  const total = [0, 0, 0, 0];
  for (const counts of page.tokens.values()) counts.forEach((count, place) => { total[place] += count; });
  if (page.tokens.size) list.append(make("div", {}, make("dt", {}, "tokens"), make("dd", {}, tokenText(total))));
  const title = make("header", { className: "title" }, make("h1", {}, make("bdi", {}, plainText(lines[0].slice(2)))), list);
  document.querySelector("main").prepend(title);
}

function factValue(name, value) {
  if (name === "status") return make("span", { className: `badge ${/^[a-z]+$/.test(value) ? value : ""}` }, value);
  const moment = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (UTC|[+-]\d\d:\d\d)$/.exec(value);
  if (!moment) return make("bdi", {}, plainText(value));
  const at = new Date(`${moment[1]}T${moment[2]}${moment[3] === "UTC" ? "Z" : moment[3]}`);
  return make("time", { dateTime: at.toISOString(), title: value }, `${dayText(at)}, ${clockText(at)}`);
}

const dayFormat = new Intl.DateTimeFormat(undefined, { weekday: "short", year: "numeric", month: "short", day: "numeric" });
const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayText = (at) => dayFormat.format(at);
const clockText = (at) => clockFormat.format(at);

// 1234 → 1.2k: two or three digits, rounded.
function short(count) {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= limit * 0.9995) return `${(count / limit).toFixed(count < limit * 9.95 ? 1 : 0)}${unit}`;
  }
  return String(count);
}

function tokenText([input, output, read, write]) {
  const parts = [`${short(input + read + write)} in`, `${short(output)} out`];
  const title = `input ${input.toLocaleString()}, output ${output.toLocaleString()}, read from cache ${read.toLocaleString()}, written to cache ${write.toLocaleString()}`;
  return make("span", { className: "tokens", title }, parts.join(" · "));
}

// -- sub-agents --------------------------------------------------------------------------------------

// A sub-agent belongs to the tool call that names it: by id in the call or its result, or by its title in an argument.
// Otherwise to the last message before it was created.
function placeChildren({ messages, children, at }) {
  if (!children.length) return;
  const calls = new Map(); // id of a call → index of its message
  const spoken = [];
  for (const message of messages) {
    for (const { kind, text } of message.blocks) {
      if (kind === "call") calls.set(parseCall(text).id, message.index);
      if (kind === "call" || kind === "result") spoken.push([message, text]);
    }
  }
  for (const child of children) {
    const message = findMention(spoken, child) ?? messages.findLast((one) => one.time && one.time.getTime() <= child.created) ?? messages[0];
    if (!message) continue;
    const index = (message.role === "tool" && calls.get(message.answers)) ?? message.index;
    const key = index === false ? message.index : index;
    at.set(key, [...(at.get(key) ?? []), child]);
  }
}

function findMention(spoken, child) {
  const short = child.id.replace(/^.*agent-/, "");
  const names = short.length >= 6 ? [child.id, short] : [child.id];
  const named = spoken.find(([, text]) => names.some((name) => name.length >= 4 && text.includes(name)));
  const titled = () => spoken.find(([, text]) => child.title.length >= 8 && text.includes(`: ${child.title}`));
  return (named ?? titled())?.[0];
}

function childLink(child) {
  const link = make("a", { className: "child", href: child.href }, make("bdi", {}, plainText(child.title)));
  if (child.status) link.append(" ", make("span", { className: `badge ${/^[a-z]+$/.test(child.status) ? child.status : ""}` }, child.status));
  return link;
}

// -- messages --------------------------------------------------------------------------------------

const ROLES = { user: "User", assistant: "Assistant", tool: "Tool", system: "System", summary: "Summary" };

function buildAll(page) {
  let built = 0;
  const wanted = /^#m?(\d+)$/.exec(location.hash);
  const buildUntil = (isEnough) => {
    const shown = document.createDocumentFragment();
    while (built < page.messages.length && !isEnough()) shown.append(...buildMessage(page.messages[built++], page));
    page.list.append(shown);
  };
  const target = wanted ? Number(wanted[1]) + 2 : 0;
  buildUntil(() => built >= Math.max(FIRST_BUILT, target + 20));
  if (wanted) showTarget();
  page.applyFilter = bindTools(page);
  performance.mark("usable"); // scripts/bench pages
  document.querySelector("details.children")?.classList.add("listed");
  const slice = () => {
    const end = performance.now() + SLICE_MS;
    buildUntil(() => performance.now() > end);
    if (built < page.messages.length) setTimeout(slice);
    else finish(page);
  };
  setTimeout(slice);
}

function finish(page) {
  showOutline(page);
  page.applyFilter();
  root.dataset.ready = "yes";
}

// #7, as `grovefs search` prints it, is the same as #m7.
function showTarget() {
  const found = /^#m?(\d+)$/.exec(location.hash);
  const message = found && document.getElementById(`m${found[1]}`);
  if (!message) return;
  message.querySelectorAll("details").forEach((part) => { part.open = true; });
  message.scrollIntoView({ block: "start" });
  message.focus({ preventScroll: true });
}
addEventListener("hashchange", showTarget);

function* buildMessage(message, page) {
  const day = message.time ? dayText(message.time) : "";
  if (day && day !== page.day) {
    page.day = day;
    yield make("div", { className: "day" }, day);
  }
  const article = make("article", { className: `message ${message.role}`, tabIndex: -1 });
  if (message.index !== null) article.id = `m${message.index}`;
  if (message.facts.includes("hidden")) article.classList.add("hidden-message");
  article.append(headingOf(message, page));
  let images = 0;
  for (const block of message.blocks) {
    article.append(buildBlock(block, message, page, images));
    images += block.kind === "embedded";
  }
  for (const child of page.at.get(message.index) ?? []) article.append(childLink(child));
  message.article = article;
  yield article;
}

function headingOf(message, page) {
  const header = make("header", {}, make("h2", {}, ROLES[message.role] ?? message.role));
  for (const fact of message.facts) {
    header.append(make("span", { className: `badge ${fact === "failed" ? "failed" : ""}` }, make("bdi", {}, plainText(fact))));
  }
  const end = make("span", { className: "end" });
  const counts = page.tokens.get(message.index);
  if (counts) end.append(tokenText(counts));
  if (message.time) end.append(make("time", { dateTime: message.time.toISOString(), title: message.time.toString() }, clockText(message.time)));
  if (message.index !== null) end.append(make("a", { className: "number", href: `#m${message.index}`, title: "Link to this message" }, `#${message.index}`));
  header.append(end);
  return header;
}

function buildBlock(block, message, page, number) {
  switch (block.kind) {
    case "prose": return message.role === "system" ? fold("Instructions", firstLine(block.text), () => prose(block.text), true) : prose(block.text);
    case "reasoning": return fold("Reasoning", firstLine(unquote(block.text)), () => prose(unquote(block.text)), true);
    case "ocr": return fold("Text in the image", firstLine(unquote(block.text)), () => prose(unquote(block.text)), true);
    case "call": return buildCall(block.text);
    case "result": return buildResult(block.text, page.called.get(message.answers) ?? "");
    case "image": return buildImage(block.text);
    case "file": return make("p", {}, "Attachment: ", make("code", {}, plainText(decodePath(/\]\(([^()]*)\)$/.exec(block.text)?.[1] ?? ""))));
    case "embedded": return buildEmbedded(block.text, message, page, number);
    default: return make("p", {}, renderInline(block.text));
  }
}

const prose = (text) => make("div", { className: "prose" }, renderMarkdown(text));
const firstLine = (text) => text.slice(0, 2000).split("\n").find((line) => line.trim())?.trim().slice(0, 200) ?? "";

// A folded part. Its content is in the page from the start, so that the browser's own search finds it.
function fold(name, brief, content, isProse = false) {
  const summary = make("summary", { className: isProse ? "prosaic" : "" }, make("b", {}, plainText(name)), make("span", { className: "brief" }, plainText(brief)));
  return make("details", { className: "fold" }, summary, make("div", { className: "inside" }, content()));
}

const TELLING = ["command", "cmd", "file_path", "path", "pattern", "query", "url", "description", "prompt", "question", "title", "name"];

function buildCall(text) {
  const call = parseCall(text);
  const members = parseMembers(call.body);
  const telling = members && (TELLING.map((name) => members.find((member) => member.name === name)).find(Boolean) ?? members[0]);
  const brief = telling ? firstLine(telling.value) : firstLine(parseFenced(call.body) ?? call.body);
  return fold(call.name, brief, () => (members ? showMembers(members) : renderCode(parseFenced(call.body) ?? call.body, "")));
}

function buildResult(text, tool) {
  const fenced = parseFenced(text);
  const members = fenced === null ? parseMembers(text) : null;
  const brief = members ? `${members[0].name}: ${firstLine(members[0].value)}` : firstLine(fenced ?? text.replaceAll("*", ""));
  return fold(tool ? `${tool} result` : "Result", brief, () => (members ? showMembers(members) : renderCode(fenced ?? text, "")));
}

const SHOWN_AS = { command: "bash", cmd: "bash", script: "bash", sql: "sql", patch: "diff", diff: "diff" };

function showMembers(members) {
  const list = make("dl", { className: "arguments" });
  for (const { name, value, isLong } of members) {
    const shown = isLong ? renderCode(value, SHOWN_AS[name] ?? "") : plainText(value);
    const kind = /^old_(str|string|text)$/.test(name) ? "old" : /^new_(str|string|text)$/.test(name) ? "new" : "";
    list.append(make("dt", {}, plainText(name)), make("dd", { className: kind }, shown));
  }
  return list;
}

// An attachment: the store wrote its relative path. A reference that it could not resolve is an address with a scheme.
function buildImage(text) {
  const found = /^!\[([^]*)\]\(([^()]*)\)$/.exec(text);
  if (!found || /^[a-z][a-z0-9+.-]*:/i.test(found[2])) return make("p", {}, "Missing attachment: ", make("code", {}, plainText(found?.[2] ?? text)));
  return figure(found[2], found[1]);
}

// An image inside the message: the mount decodes it into a file of its own.
function buildEmbedded(text, message, page, number) {
  const mime = /^\*embedded image: ([^,]*),/.exec(text)?.[1] ?? "";
  const kind = /^[^/]*\/([^+]*)/.exec(mime)?.[1] ?? "";
  const extension = /^[A-Za-z0-9]+$/.test(kind) ? kind : "bin";
  return figure(`${page.images}${message.index}-${number}.${extension}`, mime);
}

// Not a link: opening what an agent wrote is for the reader to decide.
function decodePath(path) {
  try { return decodeURI(path); } catch { return path; }
}

function figure(source, label) {
  const image = make("img", { src: source, alt: `Image: ${label}`, loading: "lazy", decoding: "async" });
  const box = make("figure", { className: "image" }, image);
  image.addEventListener("error", () => box.replaceChildren(make("figcaption", {}, `This image cannot be shown: ${label}`)));
  return box;
}

// -- outline, filter, keys ---------------------------------------------------------------------------

function showOutline(page) {
  const asked = page.messages.filter((message) => message.role === "user" && !message.facts.includes("hidden"));
  if (asked.length < 2) return;
  const list = make("ol");
  for (const message of asked) {
    const text = firstLine(message.blocks.find((block) => block.kind === "prose")?.text ?? "") || "(no text)";
    list.append(make("li", {}, make("a", { href: `#m${message.index}`, title: text }, plainText(text.slice(0, 80)))));
  }
  const outline = make("nav", { className: "outline", ariaLabel: "Questions" }, make("h2", {}, `${asked.length} questions`), list);
  document.querySelector(".layout").prepend(outline);
}

// Works from the first messages on; returns the function that filters, to be called again when all are built.
function bindTools(page) {
  const field = document.getElementById("filter");
  const count = document.getElementById("count");
  const all = page.messages.map((message) => ({ text: null, message }));
  const apply = () => {
    const words = wordsOf(field.value);
    let shown = 0;
    for (const one of all) {
      one.text ??= one.message.blocks.map((block) => block.text).join("\n").toLowerCase();
      const fits = words.every((word) => one.text.includes(word));
      if (one.message.article) one.message.article.hidden = !fits;
      shown += fits;
    }
    for (const day of page.list.querySelectorAll(".day")) day.hidden = words.length > 0;
    count.textContent = words.length ? `${shown} of ${all.length}` : `${all.length} messages`;
  };
  field.addEventListener("input", apply);
  const unfold = document.getElementById("unfold");
  const toggle = () => {
    const isOpen = unfold.getAttribute("aria-pressed") !== "true";
    unfold.setAttribute("aria-pressed", String(isOpen));
    page.list.querySelectorAll("details").forEach((part) => { part.open = isOpen; });
  };
  unfold.addEventListener("click", toggle);
  const follow = (id) => () => document.getElementById(id)?.click();
  bindKeys(field, () => all.map((one) => one.message.article).filter((article) => article && !article.hidden), { e: toggle, n: follow("older"), p: follow("newer") });
  apply();
  return apply;
}
