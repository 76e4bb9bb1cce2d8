"""The query language: from what a person typed to an expression for FTS5 and a condition for SQL. Pure.

Any text is a query, for what is not syntax is a word to look for; only what is longer than any question, or
holds a NUL, is refused. Words rank; filters, and what FTS5 cannot say, are conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from store.documents import search_text as words
from store.errors import InvalidQuery
from store.model.timestamp import Timestamp, clip_ns

LONGEST_BYTES = 16_384  # a page of words; more is a file pasted by mistake

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
    condition: str  # on `texts t`, `sessions s` and `state_documents d`; "" if there is none
    values: list[Any]  # of the condition
    words: list[str]  # what a snippet should show; with a * at the end if the word may go on
    notes: tuple[str, ...] = ()  # what was probably meant otherwise, and how it was read: sentences for people

    @property
    def is_empty(self) -> bool:
        return not self.match and not self.condition


class _Term(NamedTuple):
    phrase: str
    is_prefix: bool


class _FilterTerm(NamedTuple):
    name: str
    value: str


class _Not(NamedTuple):
    part: _Node


class _Group(NamedTuple):
    joint: Joint
    parts: tuple[_Node, ...]


Joint = Literal["AND", "OR"]
_Node = _Term | _FilterTerm | _Not | _Group


def parse_query(text: str) -> Query:
    """What a text asks for. InvalidQuery for what no person would ask."""
    if not isinstance(text, str):
        raise TypeError(f"query: expected a string, got {type(text).__name__}")
    clean = text.encode(errors="replace").decode()  # a shell may give bytes that are no UTF-8
    if len(clean.encode()) > LONGEST_BYTES:
        raise InvalidQuery(f"the query is too long: over {LONGEST_BYTES} bytes; look for a few words of it")
    if "\0" in clean:
        raise InvalidQuery("the query holds a NUL byte, which is no text; leave it out")
    tokens = [m for m in _TOKEN.finditer(clean) if m.lastgroup != "space"]
    notes = tuple(dict.fromkeys(note for token in tokens for note in _hints(token)))
    node = _QueryParser(_without_deep_brackets(tokens)).everything()
    if node is None:
        return Query("", "", [], [], notes)
    parts = node.parts if isinstance(node, _Group) and node.joint == "AND" else (node,)
    # The terms rank; a NOT needs something to be taken from, and without it is a condition too.
    terms, others = _partition(parts)
    match = _match(_group("AND", terms)) or ""
    rest = _group("AND", others) if match else node
    condition, values = _condition(rest) if rest is not None else ("", [])
    return Query(match, condition, values, list(dict.fromkeys(_words(node))), notes)


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


class _QueryParser:
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
            return _FilterTerm(token["filter"], token["quoted"] or token["value"] or "")
        if token["phrase"] is not None:
            return _term(token["phrase"], is_prefix=bool(token["star"]))
        word = token["word"] or ""
        return _term(word.rstrip("*"), is_prefix=word.endswith("*")) if word != "AND" else None


def _term(text: str, *, is_prefix: bool) -> _Term | None:
    # What one letter begins is half of all words: looked for as it is, it would take longer than anyone waits.
    is_prefix = is_prefix and sum(map(str.isalnum, text)) > 1
    return _Term(text, is_prefix) if words.is_word(text) else None


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
        yield node.phrase + ("*" if node.is_prefix else "")
    elif isinstance(node, _Not):
        yield from _words(node.part, wanted=not wanted)
    elif isinstance(node, _Group):
        for part in node.parts:
            yield from _words(part, wanted=wanted)


def _match(node: _Node | None) -> str | None:
    """An FTS5 expression for a node, in brackets unless it is a single term; None if FTS5 has none for it."""
    if isinstance(node, _Term):
        return '"' + words.prepare_text(node.phrase).replace('"', '""') + '"' + ("*" if node.is_prefix else "")
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
        return "(t.number IN (SELECT rowid FROM search WHERE search MATCH ?))", [match]
    if isinstance(node, _FilterTerm):
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


# A state document has no session, so every column must say something without one: NOT of nothing is nothing.
_FILTERS = {
    "role": "(t.role = lower(?))",
    "kind": "(CASE WHEN t.row < 0 THEN 'state' WHEN s.child = '' THEN 'root' ELSE 'child' END = lower(?))",
    "pinned": "(coalesce(s.pinned, 0) = ?)",
    "before": "(coalesce(s.updated_ns, d.updated_ns) < ?)",
    "after": "(coalesce(s.updated_ns, d.updated_ns) >= ?)",
    "model": "(instr(fold(coalesce(s.model, '')), fold(?)) > 0)",
    "title": "(instr(fold(coalesce(s.title, d.title)), fold(?)) > 0)",
    "status": "(fold(coalesce(s.status, '')) = fold(?))",
    "project": "(coalesce(s.project, '') = ?)",
}


def _filter(name: str, value: str) -> tuple[str, list[Any]]:
    bound: Any = value
    if name == "pinned":
        bound = int(value.lower() in _YES)
    elif name in ("before", "after"):
        bound = _moment(value)
    return _FILTERS[name], [bound]


_ANY_PRECISION = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


def _moment(text: str) -> int:
    """A date, an instant, or the beginning of one, in UTC; what is neither lies at the beginning of time."""
    return _find_moment(text) or 0


def _find_moment(text: str) -> int | None:
    padded = text + "2000-01-01T00:00:00Z"[len(text) :] if _ANY_PRECISION.fullmatch(text) else text
    try:
        return clip_ns(Timestamp(padded).ns)
    except ValueError:
        return None


# -- what was probably meant otherwise -------------------------------------------------------------------
# Any text is a query, so nothing is refused here; but who mistypes a filter is to hear more than "nothing found".

ROLES = ("system", "user", "assistant", "tool")
KINDS = ("root", "child", "state")
# What agents say of a last run. It is free text, so others may be right as well.
STATUSES = ("completed", "error", "running", "suspended", "cancelled", "pending", "skipped")
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")
# `foo:bar`, but no URL, no `std::vector`, no time or port: those are plainly words.
_LIKE_A_FILTER = re.compile(r"([A-Za-z_]+):(?![/:\\\d])(.*)")
_LONGEST_QUOTED = 40  # characters of what was typed: a note is one line


def _hints(token: re.Match[str]) -> Iterator[str]:
    if '"' in token[0] and not token[0].endswith(('"', '"*')):
        behind = _quoted(token["phrase"] or token["quoted"])
        yield f"the quote before {behind} is not closed; all behind it is one phrase"
    elif token[0] == '"':
        yield "a quote is not closed; there is nothing behind it"
    if token["filter"]:
        yield from _filter_hints(token["filter"], token["quoted"] or token["value"] or "")
    elif token["word"]:
        yield from _word_hints(token["word"])


def _filter_hints(name: str, value: str) -> Iterator[str]:
    closed = {"role": ROLES, "kind": KINDS}
    if not value:
        yield f"{name}: has no value; one follows in the same word, as in role:user"
    elif name in closed and value.lower() not in closed[name]:
        yield f"no {name} is called {_quoted(value)}; there are {', '.join(closed[name])}"
    elif name == "status" and value.casefold() not in STATUSES:
        yield f"{_quoted(value)} is no usual status; those are {', '.join(STATUSES)}"
    elif name == "pinned" and value.lower() not in (*_YES, *_NO):
        yield f"pinned: wants yes or no; {_quoted(value)} was read as no"
    elif name in ("before", "after") and _find_moment(value) is None:
        effect = "nothing lies before it" if name == "before" else "all lies after it"
        yield f"{name}: wants a date such as 2026-11-16 or 2026-11; {_quoted(value)} is none, and {effect}"


def _word_hints(word: str) -> Iterator[str]:
    found = _LIKE_A_FILTER.fullmatch(word)
    if found is not None and found[1] in _FILTERS:
        yield f"{found[1]}: has no value, and was searched as a word; one follows without a space, as in role:user"
    elif found is not None and found[2]:
        near = get_close_matches(found[1].lower(), _FILTERS, 1, 0.75)
        meant = f"; did you mean {near[0]}:?" if near else f"; filters are {', '.join(f'{name}:' for name in _FILTERS)}"
        yield f"{_quoted(found[1] + ':')} is no filter, and was searched as words{meant}"
    elif word.endswith("*") and sum(map(str.isalnum, word)) == 1:
        yield f"a prefix has two letters or more; {_quoted(word)} was searched without the star"


def _quoted(text: str | None) -> str:
    shown = words.printable(text or "")
    return repr(shown if len(shown) <= _LONGEST_QUOTED else f"{shown[:_LONGEST_QUOTED]}…")
