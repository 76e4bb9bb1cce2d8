// Syntax colours: comments, strings, numbers, keywords, and lines of a diff. One regular expression per family of
// languages; every alternative matches to the end of an unclosed comment or string, so nothing is scanned twice.

const LONG_CODE = 60000; // characters; longer code has no colours

const WORDS = {
  python: "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return self True try while with yield match case",
  c: "abstract any as async await bool boolean break byte case catch char class const continue crate debugger default delete do double dyn else enum export extends extern false final finally float fn for from func function go goto if impl implements import in instanceof int interface let long loop match mod move mut namespace new nil null number of operator override package private protected pub public range readonly ref return self Self short signed sizeof static string struct super switch template this throw throws trait true try type typedef typeof undefined union unsafe unsigned use using var virtual void volatile where while yield defer select chan map",
  shell: "if then else elif fi for in do done while until case esac function return export local readonly set unset source exit echo cd sudo",
  sql: "select from where and or not in is null insert into values update set delete create table index view drop alter add primary key foreign references unique join left right inner outer on group by order having limit offset as distinct union all exists between like case when then else end begin commit rollback with",
  data: "true false null yes no on off",
};
const FAMILIES = {
  python: ["py", "python", "python3", "pyi"],
  c: ["c", "h", "cpp", "c++", "cc", "java", "js", "javascript", "jsx", "mjs", "ts", "typescript", "tsx", "rust", "rs", "go", "swift", "kotlin", "kt", "scala", "csharp", "cs", "php", "css", "scss", "dart", "zig"],
  shell: ["sh", "bash", "zsh", "shell", "console", "fish", "dockerfile", "makefile", "make", "ruby", "rb", "perl"],
  sql: ["sql", "postgresql", "sqlite"],
  data: ["json", "jsonc", "json5", "jsonl", "yaml", "yml", "toml", "ini"],
  diff: ["diff", "patch"],
};
const QUOTED = String.raw`"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?`;
const REST = String.raw`|\b\d[\w.]*|[A-Za-z_$][\w$]*`;
const PATTERNS = {
  python: String.raw`#[^\n]*|"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${QUOTED}${REST}`,
  c: String.raw`//[^\n]*|/\*[^]*?(?:\*/|$)|\x60(?:\\[^]|[^\x60\\])*\x60?|${QUOTED}${REST}`,
  shell: String.raw`(?<![^\s;])#[^\n]*|"(?:\\[^]|[^"\\])*"?|'[^']*'?${REST}`,
  sql: String.raw`--[^\n]*|/\*[^]*?(?:\*/|$)|${QUOTED}${REST}`,
  data: String.raw`(?<![^\s,])(?:#|//)[^\n]*|${QUOTED}${REST}`,
};
const keywords = Object.fromEntries(Object.entries(WORDS).map(([family, words]) => [family, new Set(words.split(" "))]));
const familyOf = new Map(Object.entries(FAMILIES).flatMap(([family, names]) => names.map((name) => [name, family])));

// Code is coloured when it comes near the window.
const toHighlight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    toHighlight.unobserve(target);
    highlight(target);
  }
}, { rootMargin: "600px" });

function highlight(code) {
  const text = code.textContent;
  if (BIDI.test(text)) return; // its labels are elements already
  const family = familyOf.get(code.dataset.language) ?? guessFamily(text);
  if (family === "diff") code.replaceChildren(...diffLines(text));
  else if (family) code.replaceChildren(...colouredParts(text, family));
}

function guessFamily(text) {
  if (/^(?:diff --git |--- |@@ -\d)/m.test(text.slice(0, 2000))) return "diff";
  return /^\s*[{[]\s*["{[]/.test(text.slice(0, 200)) ? "data" : null;
}

function* colouredParts(text, family) {
  let last = 0;
  for (const found of text.matchAll(new RegExp(PATTERNS[family], "g"))) {
    const word = found[0];
    const kind = kindOf(word, family, text[found.index + word.length]);
    if (!kind) continue;
    if (found.index > last) yield text.slice(last, found.index);
    yield make("span", { className: kind }, word);
    last = found.index + word.length;
  }
  yield text.slice(last);
}

function kindOf(word, family, next) {
  const first = word[0];
  if (/[#/-]/.test(first)) return "c";
  if (/["'`]/.test(first)) return family === "data" && next === ":" ? "f" : "s";
  if (/\d/.test(first)) return "n";
  if (keywords[family].has(family === "sql" ? word.toLowerCase() : word)) return "k";
  return next === "(" ? "f" : null;
}

function* diffLines(text) {
  const kinds = { "+": "added", "-": "removed", "@": "hunk" };
  const lines = text.split("\n");
  for (const [place, line] of lines.entries()) {
    const kind = kinds[line[0]];
    if (kind) yield make("span", { className: kind }, line); // a block, so it needs no line break
    else yield place < lines.length - 1 ? `${line}\n` : line;
  }
}
