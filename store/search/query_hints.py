"""Hints for likely mistakes in a query, as sentences for the user. Pure.

Any string is a query, so nothing is rejected here. But a mistyped filter deserves more than "nothing found".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from store.documents.search_text import printable
from store.search.filters import FILTERS, KINDS, NO, PARTIAL, ROLES, STATUSES, YES, find_time

# `foo:bar`, but not URLs, `std::vector`, times or ports, which are plainly words.
_LIKE_A_FILTER = re.compile(r"([A-Za-z_]+):(?![/:\\\d])(.*)")
_NAMED = ("model", "title", "project", "host", "tool")  # filters whose values are names that people give
_MAX_QUOTED = 40  # characters of the query in a hint, which is one line


def hints_of(token: re.Match[str]) -> Iterator[str]:
    """Hints about one token of a query."""
    if '"' in token[0] and not token[0].endswith(('"', '"*')):
        phrase = _quoted(token["phrase"] or token["quoted"])
        yield f"unclosed quote before {phrase}; everything after it is read as one phrase"
    elif token[0] == '"':
        yield "unclosed quote with nothing after it"
    if token["filter"]:
        yield from _filter_hints(token["filter"], token["quoted"] or token["value"] or "")
    elif token["word"]:
        yield from _word_hints(token["word"])


def unclosed_hints(tokens: Sequence[re.Match[str]]) -> Iterator[str]:
    """A hint about the first parenthesis that is opened before other tokens and never closed."""
    opened: list[re.Match[str]] = []
    for token in tokens:
        if token["open"]:
            opened.append(token)
        elif token["close"] and opened:
            opened.pop()
    if opened and opened[0] is not tokens[-1]:
        rest = opened[0].string[opened[0].end() :].strip()
        yield f"unclosed parenthesis before {_quoted(rest)}; everything after it is read as one group"


def _filter_hints(name: str, value: str) -> Iterator[str]:
    closed = {"role": ROLES, "kind": KINDS}
    if not value:
        yield f"{name}: has no value; write it without a space, as in role:user"
    elif name in closed and value.lower() not in closed[name]:
        yield f"unknown {name} {_quoted(value)}; expected one of {', '.join(closed[name])}"
    elif name == "status" and value.casefold() not in STATUSES:
        yield f"unusual status {_quoted(value)}; common values are {', '.join(STATUSES)}"
    elif name == "pinned" and value.lower() not in (*YES, *NO):
        yield f"pinned: expected yes or no, got {_quoted(value)}; read as no"
    elif name in ("before", "after") and find_time(value) is None:
        effect = "nothing" if name == "before" else "everything"
        dates = "a date such as 2026-11-16, 2026-11, yesterday or 7d"
        yield f"{name}: expected {dates}, got {_quoted(value)}; {effect} matches"
    elif name in _NAMED and "*" in value:
        advice = "write a part of the name" if name in PARTIAL else "write the whole name"
        yield f"{name}: takes no pattern, the star in {_quoted(value)} is an ordinary character; {advice}"


def _word_hints(word: str) -> Iterator[str]:
    found = _LIKE_A_FILTER.fullmatch(word)
    if found is not None and found[1] in FILTERS:
        yield f"{found[1]}: has no value and was searched as a word; write the value without a space, as in role:user"
    elif found is not None and found[2]:
        near = get_close_matches(found[1].lower(), FILTERS, 1, 0.75)
        advice = f"; did you mean {near[0]}:?" if near else f"; filters are {', '.join(f'{name}:' for name in FILTERS)}"
        yield f"unknown filter {_quoted(found[1] + ':')}, searched as words{advice}"
    elif word == "NOT":
        yield "NOT is searched as a word; write -word for texts without it"
    elif word.endswith("*") and sum(map(str.isalnum, word)) == 1:
        yield f"a prefix needs at least two letters; {_quoted(word)} was searched without the star"


def _quoted(text: str | None) -> str:
    shown = printable(text or "")
    return repr(shown if len(shown) <= _MAX_QUOTED else f"{shown[:_MAX_QUOTED]}…")
