"""Full-text search: what of a session is found, the query language, and the rows that answer it.

One row a message and one a session (title, summary), written in the transaction of the commit that
changed them. The index keeps no text: snippets are cut from the session's own file. Text in Chinese,
Japanese or Korean is split into single characters, so that any run of two or more is a phrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import apsw
import orjson

from store.timestamps import Timestamp

# A row number is the session's key and the message's place: 16 million messages a session.
SHIFT = 24

_CJK = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)


# -- rows ------------------------------------------------------------------------------------------


def put_session(db: apsw.Connection, key: int, title: str, summary: str) -> None:
    _put_rows(db, key << SHIFT, key << SHIFT, [_session_text(title, summary)])


def put_messages(db: apsw.Connection, key: int, messages: Sequence[dict[str, Any]]) -> None:
    """Bring the rows in step with the messages; those that did not change are left alone."""
    first = (key << SHIFT) + 1
    _put_rows(db, first, ((key + 1) << SHIFT) - 1, [_text_of(message) for message in messages])


def add_messages(db: apsw.Connection, key: int, index: int, messages: Sequence[dict[str, Any]]) -> None:
    """Rows for messages appended at `index`; the cost does not depend on those before."""
    first = (key << SHIFT) + 1 + index
    _put_rows(db, first, ((key + 1) << SHIFT) - 1, [_text_of(message) for message in messages])


def remove_session(db: apsw.Connection, key: int) -> None:
    _put_rows(db, key << SHIFT, ((key + 1) << SHIFT) - 1, [])


def rows_agree(db: apsw.Connection, key: int, title: str, summary: str, messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the rows of a session are those that its files would make."""
    wanted = [_session_text(title, summary), *map(_text_of, messages)]
    present = db.execute(
        "SELECT row, role, message_id, created_ns, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row",
        (key << SHIFT, ((key + 1) << SHIFT) - 1),
    ).fetchall()
    first = key << SHIFT
    expected = [(first + i, t.role, t.message_id, t.created_ns, t.digest) for i, t in enumerate(wanted)]
    stored = db.execute(
        "SELECT count(*) FROM search_docsize WHERE id BETWEEN ? AND ?", (first, ((key + 1) << SHIFT) - 1)
    ).get
    return present == expected and stored == len(expected)


def ownerless(db: apsw.Connection) -> list[int]:
    """Keys of sessions that have search rows but are not indexed."""
    rows = db.execute(f"SELECT DISTINCT row >> {SHIFT} FROM texts EXCEPT SELECT key FROM sessions")
    return [key for (key,) in rows]


@dataclass(frozen=True, slots=True)
class _Text:
    role: str
    message_id: str | None
    created_ns: int | None
    digest: int
    text: str | dict[str, Any]  # a message is only turned into text when its row is written

    def indexed(self) -> str:
        return split_cjk(message_text(self.text) if isinstance(self.text, dict) else self.text)


def _put_rows(db: apsw.Connection, first: int, last: int, wanted: Sequence[_Text]) -> None:
    present = dict(db.execute("SELECT row, digest FROM texts WHERE row BETWEEN ? AND ?", (first, last)))
    gone = [(row,) for row in present if row >= first + len(wanted)]
    changed = [(first + i, text) for i, text in enumerate(wanted) if present.get(first + i) != text.digest]
    stale = gone + [(row,) for row, _ in changed if row in present]
    if stale:
        db.executemany("DELETE FROM search WHERE rowid = ?", stale)
        db.executemany("DELETE FROM texts WHERE row = ?", stale)
    if changed:
        db.executemany(
            "INSERT INTO texts VALUES (?, ?, ?, ?, ?)",
            [(row, t.role, t.message_id, t.created_ns, t.digest) for row, t in changed],
        )
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", [(row, t.indexed()) for row, t in changed])


def _session_text(title: str, summary: str) -> _Text:
    return _Text("", None, None, _digest([title, summary]), f"{title}\n{summary}")


def _text_of(message: dict[str, Any]) -> _Text:
    created_at = message.get("created_at")
    created_ns = Timestamp(created_at).ns if isinstance(created_at, str) else None
    return _Text(message["role"], message.get("id"), created_ns, _digest(message), message)


def _digest(value: Any) -> int:
    return int.from_bytes(blake2b(orjson.dumps(value), digest_size=8).digest(), signed=True)


def message_text(message: dict[str, Any]) -> str:
    """All of a message that a person could look for; pictures in base64 are nothing to read."""
    parts = [message.get("content") or "", message.get("reasoning") or ""]
    for part in message.get("content_parts") or ():
        text = part.get("text")
        if text and text != parts[0]:
            parts.append(text)
    for picture in message.get("image_ocr") or ():
        parts += [line.get("text", "") for line in picture.get("lines") or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts += [function.get("name", ""), function.get("arguments", "")]
    return "\n".join(part for part in parts if part)


def split_cjk(text: str) -> str:
    return _CJK.sub(r" \1 ", text) if not text.isascii() else text


# -- queries ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<open>\() | (?P<close>\)) | (?P<minus>-(?=\S)) | "(?P<phrase>[^"]*)"?(?P<star>\*)?
      | (?P<filter>role|model|title|kind|pinned|status|project|before|after):
        (?:"(?P<quoted>[^"]*)"?|(?P<value>[^\s()]+)) | (?P<word>[^\s()"]+)""",
    re.VERBOSE,
)


@dataclass
class Query:
    """A query taken apart: an FTS5 expression of quoted terms, what must not match, and filters."""

    match: str = ""
    excluded: list[str] = field(default_factory=list)
    filters: list[tuple[str, str, bool]] = field(default_factory=list)  # name, value, negated
    words: list[str] = field(default_factory=list)  # what a snippet should show


def parse_query(text: str) -> Query:
    """Any text is a query: what is not syntax is a word to look for."""
    query = Query()
    parser = _Parser([m for m in _TOKEN.finditer(text.replace("\0", " ")) if m.lastgroup != "space"], query)
    parts = []
    while not parser.at_end():
        part = parser.alternatives(top=True)
        parts.append(part)
        parser.skip_close()
    query.match = " AND ".join(f"({p})" for p in parts if p)
    return query


class _Parser:
    """Recursive descent over the tokens. A NOT needs something to be taken from: see `conjunction`."""

    def __init__(self, tokens: list[re.Match[str]], query: Query) -> None:
        self.tokens = tokens
        self.query = query
        self.at = 0

    def at_end(self) -> bool:
        return self.at >= len(self.tokens)

    def skip_close(self) -> None:
        if not self.at_end() and self.tokens[self.at]["close"]:
            self.at += 1  # a bracket that closes nothing

    def alternatives(self, *, top: bool = False) -> str:
        found = [self.conjunction(top=top)]
        while not self.at_end() and self.tokens[self.at]["word"] == "OR":
            self.at += 1
            found.append(self.conjunction(top=False))
        found = [part for part in found if part]
        return " OR ".join(f"({part})" for part in found) if len(found) > 1 else "".join(found)

    def conjunction(self, *, top: bool) -> str:
        wanted: list[str] = []
        unwanted: list[str] = []
        while not self.at_end():
            token = self.tokens[self.at]
            if token["close"] or token["word"] == "OR":
                break
            negated = False
            while not self.at_end() and self.tokens[self.at]["minus"]:
                negated = not negated
                self.at += 1
            if self.at_end():
                break
            part = self.term(negated=negated)
            if part:
                (unwanted if negated else wanted).append(part)
        if wanted and unwanted:
            return f"({' AND '.join(wanted)}) NOT ({' OR '.join(unwanted)})"
        if unwanted:  # nothing to take it from here: it counts for the whole query
            self.query.excluded += unwanted
        return " AND ".join(wanted)

    def term(self, *, negated: bool) -> str:
        token = self.tokens[self.at]
        self.at += 1
        if token["open"]:
            inner = self.alternatives()
            self.skip_close()
            return f"({inner})" if inner else ""
        if token["filter"]:
            self.query.filters.append((token["filter"], token["quoted"] or token["value"] or "", negated))
            return ""
        if token["close"]:
            return ""
        if token["phrase"] is not None:
            return self._quoted(token["phrase"], prefix=bool(token["star"]), negated=negated)
        word = token["word"] or ""
        if word == "AND":
            return ""
        return self._quoted(word.rstrip("*"), prefix=word.endswith("*"), negated=negated)

    def _quoted(self, text: str, *, prefix: bool, negated: bool) -> str:
        if not any(c.isalnum() for c in text):
            return ""  # the tokenizer would find nothing in it
        if not negated:
            self.query.words.append(text)
        return '"' + split_cjk(text).replace('"', '""') + '"' + ("*" if prefix else "")


def filters_sql(query: Query) -> tuple[list[str], list[Any]]:
    """The filters as SQL conditions on `texts t` and `sessions s`."""
    clauses: list[str] = []
    values: list[Any] = []
    for name, value, negated in query.filters:
        clause, bound = _filter(name, value)
        clauses.append(f"NOT ({clause})" if negated else clause)
        values += bound
    return clauses, values


def _filter(name: str, value: str) -> tuple[str, list[Any]]:
    if name == "role":
        return "t.role = ?", [value.lower()]
    if name == "kind":
        return "(s.child = '') = ?", [int(value.lower() == "root")]
    if name == "pinned":
        return "s.pinned = ?", [int(value.lower() in ("1", "true", "yes"))]
    if name in ("before", "after"):
        return f"s.updated_ns {'<' if name == 'before' else '>='} ?", [_moment(value)]
    if name in ("model", "title"):
        return f"instr(lower(s.{name}), lower(?)) > 0", [value]
    return f"coalesce(s.{name}, '') = ?", [value]


def _moment(text: str) -> int:
    """A date or an instant; what is neither lies at the beginning of time."""
    padded = text + "2000-01-01T00:00:00Z"[len(text) :] if re.fullmatch(r"\d{4}(-\d\d){0,2}", text) else text
    try:
        return Timestamp(padded).ns
    except ValueError:
        return 0


# -- snippets --------------------------------------------------------------------------------------

SNIPPET_CHARS = 160


def snippet(text: str, words: Iterable[str]) -> str:
    """A line of `text` around the first of `words` that occurs, the match in [brackets]."""
    flat = " ".join(text.split())
    pattern = "|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))
    match = re.search(pattern, flat, re.IGNORECASE) if pattern else None
    if match is None:
        return flat[:SNIPPET_CHARS] + ("…" if len(flat) > SNIPPET_CHARS else "")
    start = max(0, match.start() - SNIPPET_CHARS // 3)
    stop = min(len(flat), start + SNIPPET_CHARS)
    cut = flat[start : match.start()] + "[" + match[0] + "]" + flat[match.end() : max(stop, match.end())]
    return ("…" if start else "") + cut + ("…" if stop < len(flat) else "")
