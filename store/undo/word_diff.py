"""Differences of two texts word by word, as `git diff --word-diff` marks them: [-teh-]{+the+}. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

Kind = Literal["same", "removed", "added", "gap"]

CONTEXT = 24  # characters shown around a change
MAX_SHOWN = 200  # characters shown of one removed or added stretch
MAX_TOKENS = 4000  # in one stretch; more are not compared word by word, which takes quadratic time

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_MARKS = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}", "gap": "…"}


class Piece(NamedTuple):
    """A stretch of text that both, only the old or only the new text has; `gap` stands for text left out."""

    kind: Kind
    text: str


def diff_words(old: str, new: str) -> list[Piece]:
    """All of both texts. The same and removed pieces are the old text, the same and added ones the new text."""
    before, after = _TOKEN.findall(old), _TOKEN.findall(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    middle = slice(head, len(before) - tail), slice(head, len(after) - tail)
    pieces = [
        Piece("same", "".join(before[:head])),
        *_diff_tokens(before[middle[0]], after[middle[1]]),
        Piece("same", "".join(before[len(before) - tail :])),
    ]
    return _joined(pieces)


def _common(one: list[str], other: list[str]) -> int:
    """The number of equal tokens at the beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _diff_tokens(before: list[str], after: list[str]) -> Iterator[Piece]:
    if max(len(before), len(after)) > MAX_TOKENS:
        yield from (Piece("removed", "".join(before)), Piece("added", "".join(after)))
        return
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            yield Piece("same", "".join(before[start:end]))
        else:
            yield Piece("removed", "".join(before[start:end]))
            yield Piece("added", "".join(after[new_start:new_end]))


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Without empty pieces. White space between two changes is part of both: whole phrases are easier to read."""
    found: list[Piece] = []
    removed = added = ""
    items = [piece for piece in pieces if piece.text]
    for place, piece in enumerate(items):
        is_between = bool(removed or added) and place + 1 < len(items) and piece.text.isspace()
        if piece.kind == "same" and not is_between:
            found += [Piece("removed", removed), Piece("added", added), piece]
            removed = added = ""
        else:
            removed += piece.text if piece.kind != "added" else ""
            added += piece.text if piece.kind != "removed" else ""
    return [piece for piece in [*found, Piece("removed", removed), Piece("added", added)] if piece.text]


def excerpt(pieces: list[Piece], context: int = CONTEXT, longest: int = MAX_SHOWN) -> list[Piece]:
    """The changes with some text around them."""
    found: list[Piece] = []
    for place, piece in enumerate(pieces):
        if piece.kind != "same":
            found += _clipped(piece, longest // 2, longest // 2)
        else:  # nothing is shown before the first change and after the last but its context
            found += _clipped(piece, context if place else 0, context if place + 1 < len(pieces) else 0)
    return found


def _clipped(piece: Piece, head: int, tail: int) -> list[Piece]:
    kind, text = piece
    if len(text) <= head + tail + 1:
        return [piece]
    ends = Piece(kind, text[:head]), Piece("gap", ""), Piece(kind, text[len(text) - tail :])
    return [end for end in ends if end.text or end.kind == "gap"]


def render_words(pieces: Iterable[Piece]) -> str:
    """One line, with marks instead of colours."""
    return "".join(_MARKS[piece.kind].format(one_line(piece.text)) for piece in pieces)


def one_line(text: str) -> str:
    return text.replace("\r\n", "↵").replace("\n", "↵").replace("\t", " ")
