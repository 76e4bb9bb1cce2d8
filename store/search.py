"""Full-text search: what of a session is found, the query language, and the rows that answer it.

One row a message and one a session (title, summary), written in the transaction of the commit that
changed them. The index keeps no text: snippets are cut from the session's own file. Text in Chinese,
Japanese or Korean is split into single characters, so that any run of two or more is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple

import apsw
import orjson

from store import pieces
from store.schema import SHIFT
from store.timestamps import Timestamp

_CJK = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff])"
)
# SQLite integers end at 2^63, which is the year 2262; no clock does.
_LARGEST = 2**63 - 1


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


def purge_session(db: apsw.Connection, key: int) -> None:
    """As `remove_session`, but trusting nothing: full-text rows that no text stands for go too."""
    between = (key << SHIFT, ((key + 1) << SHIFT) - 1)
    rows = db.execute("SELECT id FROM search_docsize WHERE id BETWEEN ? AND ?", between).fetchall()
    db.executemany("DELETE FROM search WHERE rowid = ?", rows)
    db.execute("DELETE FROM texts WHERE row BETWEEN ? AND ?", between)
    pieces.purge(db, key)


def rows_agree(db: apsw.Connection, key: int, title: str, summary: str, messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the rows of a session are those that its files would make."""
    wanted = [_session_text(title, summary), *map(_text_of, messages)]
    present = db.execute(
        "SELECT row, role, message_id, created_ns, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row",
        (key << SHIFT, ((key + 1) << SHIFT) - 1),
    ).fetchall()
    first = key << SHIFT
    expected = [(first + i, *t.row()) for i, t in enumerate(wanted)]
    stored = db.execute(
        "SELECT count(*) FROM search_docsize WHERE id BETWEEN ? AND ?", (first, ((key + 1) << SHIFT) - 1)
    ).get
    return present == expected and stored == len(expected) and pieces.agree(db, key, [summary, *messages])


def ownerless(db: apsw.Connection) -> list[int]:
    """Keys of sessions that have search rows but are not indexed."""
    rows = db.execute(
        f"SELECT row >> {SHIFT} FROM texts UNION SELECT id >> {SHIFT} FROM search_docsize "
        f"UNION SELECT row >> {SHIFT} FROM pieces UNION SELECT row >> {SHIFT} FROM links "
        "EXCEPT SELECT key FROM sessions"
    )
    return [key for (key,) in rows]


@dataclass(frozen=True, slots=True)
class _Text:
    """What a row stands for. All but the digest is worked out only if the row has to be written."""

    digest: int
    source: dict[str, Any] | None  # a message
    title: str = ""  # of a session, where there is no message
    summary: str = ""

    def row(self) -> tuple[str, str | None, int | None, int]:
        """The columns of `texts`, but for the row number."""
        if self.source is None:
            return "", None, None, self.digest
        created_at = self.source.get("created_at")
        created_ns = clip(Timestamp(created_at).ns) if isinstance(created_at, str) else None
        return self.source["role"], self.source.get("id"), created_ns, self.digest

    def indexed(self) -> str:
        return split_cjk(f"{self.title}\n{self.summary}" if self.source is None else message_text(self.source))

    @property
    def told(self) -> str | dict[str, Any]:
        """What a transcript has of it."""
        return self.summary if self.source is None else self.source


def _put_rows(db: apsw.Connection, first: int, last: int, wanted: Sequence[_Text]) -> None:
    present = dict(db.execute("SELECT row, digest FROM texts WHERE row BETWEEN ? AND ?", (first, last)))
    gone = [(row,) for row in present if row >= first + len(wanted)]
    changed = [(first + i, text) for i, text in enumerate(wanted) if present.get(first + i) != text.digest]
    stale = gone + [(row,) for row, _ in changed if row in present]
    if stale:
        db.executemany("DELETE FROM search WHERE rowid = ?", stale)
        db.executemany("DELETE FROM texts WHERE row = ?", stale)
    if changed:
        db.executemany("INSERT INTO texts VALUES (?, ?, ?, ?, ?)", [(row, *t.row()) for row, t in changed])
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", [(row, t.indexed()) for row, t in changed])
    if gone or changed:
        pieces.put(db, first, last, gone, [(row, t.told) for row, t in changed])


def _session_text(title: str, summary: str) -> _Text:
    return _Text(_digest([title, summary]), None, title, summary)


def _text_of(message: dict[str, Any]) -> _Text:
    return _Text(_digest(message), message)


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
    """Composed first: what was typed on a Mac, or taken from a file name of one, is the same word."""
    return _CJK.sub(r" \1 ", unicodedata.normalize("NFC", text)) if not text.isascii() else text


def clip(ns: int) -> int:
    return max(-_LARGEST, min(ns, _LARGEST))


# -- queries ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<open>\() | (?P<close>\)) | (?P<minus>-(?=\S)) | "(?P<phrase>[^"]*)"?(?P<star>\*)?
      | (?P<filter>role|model|title|kind|pinned|status|project|before|after):
        (?:"(?P<quoted>[^"]*)"?|(?P<value>[^\s()]+)) | (?P<word>[^\s()"]+)""",
    re.VERBOSE,
)
# What the parsers of FTS5 and SQLite bear: a stack of 100 symbols, expressions 1000 deep.
_DEEPEST_BRACKETS = 6
_WIDEST_CHAIN = 32


@dataclass(frozen=True)
class Query:
    """A query taken apart: an FTS5 expression of quoted terms, and SQL for what FTS5 cannot say."""

    match: str  # "" if there is none
    condition: str  # on `texts t` and `sessions s`; "" if there is none
    values: list[Any]  # of the condition
    words: list[str]  # what a snippet should show

    @property
    def is_empty(self) -> bool:
        return not self.match and not self.condition


class _Term(NamedTuple):
    phrase: str
    is_prefix: bool


class _Filter(NamedTuple):
    name: str
    value: str


class _Not(NamedTuple):
    part: _Node


class _Group(NamedTuple):
    joint: Joint
    parts: tuple[_Node, ...]


Joint = Literal["AND", "OR"]
_Node = _Term | _Filter | _Not | _Group


def parse_query(text: str) -> Query:
    """Any text is a query: what is not syntax is a word to look for."""
    clean = text.encode(errors="replace").decode().replace("\0", " ")  # a shell may give bytes that are no UTF-8
    tokens = [m for m in _TOKEN.finditer(clean) if m.lastgroup != "space"]
    node = _Parser(_without_deep_brackets(tokens)).everything()
    if node is None:
        return Query("", "", [], [])
    parts = node.parts if isinstance(node, _Group) and node.joint == "AND" else (node,)
    # The terms rank; a NOT needs something to be taken from, and without it is a condition too.
    terms, others = _partition(parts)
    match = _match(_group("AND", terms)) or ""
    rest = _group("AND", others) if match else node
    condition, values = _condition(rest) if rest is not None else ("", [])
    return Query(match, condition, values, list(dict.fromkeys(_words(node))))


def _partition(parts: Iterable[_Node]) -> tuple[list[_Node], list[_Node]]:
    """What FTS5 can say, with or without a NOT before it, and what it cannot."""
    terms: list[_Node] = []
    others: list[_Node] = []
    for part in parts:
        (terms if _match(part.part if isinstance(part, _Not) else part) else others).append(part)
    return terms, others


def _without_deep_brackets(tokens: list[re.Match[str]]) -> list[re.Match[str]]:
    kept: list[re.Match[str]] = []
    depth = 0
    for token in tokens:
        depth += bool(token["open"])
        if depth <= _DEEPEST_BRACKETS or not (token["open"] or token["close"]):
            kept.append(token)
        depth -= bool(token["close"] and depth)
    return kept


class _Parser:
    """Recursive descent over the tokens; None stands for what says nothing."""

    def __init__(self, tokens: list[re.Match[str]]) -> None:
        self.tokens = tokens
        self.at = 0

    def everything(self) -> _Node | None:
        parts = []
        while self.token is not None:
            parts.append(self.alternatives())
            self.skip_close()  # a bracket that closes nothing
        return _group("AND", parts)

    @property
    def token(self) -> re.Match[str] | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def skip_close(self) -> None:
        if self.token is not None and self.token["close"]:
            self.at += 1

    def alternatives(self) -> _Node | None:
        found = [self.conjunction()]
        while self.token is not None and self.token["word"] == "OR":
            self.at += 1
            found.append(self.conjunction())
        return _group("OR", found)

    def conjunction(self) -> _Node | None:
        parts = []
        while self.token is not None and not self.token["close"] and self.token["word"] != "OR":
            parts.append(self.factor())
        return _group("AND", parts)

    def factor(self) -> _Node | None:
        negated = False
        while self.token is not None and self.token["minus"]:
            negated = not negated
            self.at += 1
        part = self.term() if self.token is not None else None
        return _not(part) if negated and part is not None else part

    def term(self) -> _Node | None:
        token = self.tokens[self.at]
        self.at += 1
        if token["open"]:
            inner = self.alternatives()
            self.skip_close()
            return inner
        if token["filter"]:
            return _Filter(token["filter"], token["quoted"] or token["value"] or "")
        if token["phrase"] is not None:
            return _term(token["phrase"], is_prefix=bool(token["star"]))
        word = token["word"] or ""
        return _term(word.rstrip("*"), is_prefix=word.endswith("*")) if word != "AND" else None


def _term(text: str, *, is_prefix: bool) -> _Term | None:
    # In anything else the tokenizer would find nothing.
    return _Term(text, is_prefix) if any(c.isalnum() for c in text) else None


def _not(node: _Node) -> _Node:
    return node.part if isinstance(node, _Not) else _Not(node)


def _group(joint: Joint, found: Iterable[_Node | None]) -> _Node | None:
    """One node for several. Of NOTs there is at most one: NOT a AND NOT b is NOT (a OR b)."""
    flat: list[_Node] = []
    for node in found:
        if isinstance(node, _Group) and node.joint == joint:
            flat += node.parts
        elif node is not None:
            flat.append(node)
    parts: list[_Node] = [node for node in flat if not isinstance(node, _Not)]
    unwanted = [node.part for node in flat if isinstance(node, _Not)]
    if unwanted:
        together = _group("OR" if joint == "AND" else "AND", unwanted)
        assert together is not None
        parts.append(_not(together))
    return _Group(joint, tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _words(node: _Node, *, wanted: bool = True) -> Iterator[str]:
    if isinstance(node, _Term) and wanted:
        yield node.phrase
    elif isinstance(node, _Not):
        yield from _words(node.part, wanted=not wanted)
    elif isinstance(node, _Group):
        for part in node.parts:
            yield from _words(part, wanted=wanted)


def _match(node: _Node | None) -> str | None:
    """An FTS5 expression for a node, in brackets unless it is a single term; None if FTS5 has none for it."""
    if isinstance(node, _Term):
        return '"' + split_cjk(node.phrase).replace('"', '""') + '"' + ("*" if node.is_prefix else "")
    if not isinstance(node, _Group):
        return None
    wanted = [_match(part) for part in node.parts if not isinstance(part, _Not)]
    unwanted = [_match(part.part) for part in node.parts if isinstance(part, _Not)]
    if not wanted or None in wanted or None in unwanted or (unwanted and node.joint == "OR"):
        return None
    text = f"({_chained(node.joint, wanted)})"
    return f"({text} NOT {unwanted[0]})" if unwanted else text


def _condition(node: _Node) -> tuple[str, list[Any]]:
    """The node as an SQL condition, in brackets, and the values it binds."""
    match = _match(node)
    if match is not None:
        return "(t.row IN (SELECT rowid FROM search WHERE search MATCH ?))", [match]
    if isinstance(node, _Filter):
        return _filter(node.name, node.value)
    if isinstance(node, _Not):
        inner, values = _condition(node.part)
        return f"(NOT {inner})", values
    assert isinstance(node, _Group)
    terms = _group(node.joint, [part for part in node.parts if _match(part)])  # one look at the index for all
    parts = [*([terms] if terms else []), *(part for part in node.parts if not _match(part))]
    conditions = [_condition(part) for part in parts]
    return f"({_chained(node.joint, [c for c, _ in conditions])})", [v for _, bound in conditions for v in bound]


def _chained(joint: Joint, parts: Sequence[str | None]) -> str:
    """`a AND b AND c`, but a long chain as a chain of chains, whose depth no parser minds."""
    while len(parts) > _WIDEST_CHAIN:
        rows = [parts[i : i + _WIDEST_CHAIN] for i in range(0, len(parts), _WIDEST_CHAIN)]
        parts = [f"({_chained(joint, row)})" for row in rows]
    return f" {joint} ".join(part for part in parts if part is not None)


def _filter(name: str, value: str) -> tuple[str, list[Any]]:
    if name == "role":
        return "(t.role = ?)", [value.lower()]
    if name == "kind":
        return "((s.child = '') = ?)", [int(value.lower() == "root")]
    if name == "pinned":
        return "(s.pinned = ?)", [int(value.lower() in ("1", "true", "yes"))]
    if name in ("before", "after"):
        return f"(s.updated_ns {'<' if name == 'before' else '>='} ?)", [_moment(value)]
    if name in ("model", "title"):
        return f"(instr(lower(s.{name}), lower(?)) > 0)", [value]
    return f"(coalesce(s.{name}, '') = ?)", [value]


_ANY_PRECISION = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


def _moment(text: str) -> int:
    """A date, an instant, or the beginning of one, in UTC; what is neither lies at the beginning of time."""
    padded = text + "2000-01-01T00:00:00Z"[len(text) :] if _ANY_PRECISION.fullmatch(text) else text
    try:
        return clip(Timestamp(padded).ns)
    except ValueError:
        return 0


# -- snippets --------------------------------------------------------------------------------------

SNIPPET_CHARS = 160
_SNIPPET_WORDS = 32  # of a query that is longer than any question
_SEPARATORS = re.compile(r"[\W_]+")  # what the tokenizer makes nothing of


def snippet(text: str, words: Iterable[str]) -> str:
    """A line of `text` around the first of `words` that occurs, every match in it in [brackets]."""
    flat = " ".join(text.split())
    pattern = "|".join(sorted(map(_pattern, islice(words, _SNIPPET_WORDS)), key=len, reverse=True))
    match = re.search(pattern, flat, re.IGNORECASE) if pattern else None
    if match is None:
        return flat[:SNIPPET_CHARS] + ("…" if len(flat) > SNIPPET_CHARS else "")
    start = max(0, match.start() - SNIPPET_CHARS // 3)
    stop = max(match.end(), min(len(flat), start + SNIPPET_CHARS))
    rest = re.sub(pattern, r"[\g<0>]", flat[match.start() : stop], flags=re.IGNORECASE)
    return ("…" if start else "") + flat[start : match.start()] + rest + ("…" if stop < len(flat) else "")


def _pattern(phrase: str) -> str:
    """`src/main.rs` is found in the index where the text says "src main rs", and so it is in the text."""
    return r"[\W_]+".join(re.escape(word) for word in _SEPARATORS.split(phrase) if word)
