"""Text width: grapheme clusters and the terminal columns they take.

Titles cut with these functions are stored in the index and compared with the files later,
so the result must not depend on the version of a library or on the terminal. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")
_TAGS = ("\U000e0020", "\U000e007f")
_LATER_JAMO = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7ff"))  # vowels and finals, drawn into the syllable before


def shorten(text: str, columns: int) -> str:
    """The text, or as much of it as leaves room for an ellipsis. What a reader sees as one character stays whole."""
    if text.isascii():  # each takes one column: no need to look at them in turn
        return text if len(text) <= columns else text[: columns - 1].rstrip() + "…"
    kept: list[tuple[str, int]] = []
    used = 0
    for character, width in characters(text):
        kept.append((character, width))
        used += width
        if used > columns:
            break
    else:
        return text
    while kept and used > columns - 1:
        used -= kept.pop()[1]
    return "".join(character for character, _ in kept).rstrip() + "…"


def characters(text: str) -> Iterator[tuple[str, int]]:
    """What a reader sees as single characters, and the columns each takes on a terminal."""
    piece, width = "", 0
    for char in text:
        if piece and _belongs_to(piece, char):
            width += _width(char) if unicodedata.category(char) == "Mc" or _is_in(char, _FLAG_LETTERS) else 0
            width = max(width, 2) if char == _EMOJI_STYLE else width
            piece += char
            continue
        if piece:
            yield piece, width
        piece, width = char, _width(char)
    if piece:
        yield piece, width


def _belongs_to(piece: str, char: str) -> bool:
    if char == _JOINER or piece[-1] == _JOINER or unicodedata.category(char) in ("Mn", "Me", "Mc"):
        return True
    if _is_in(char, _FLAG_LETTERS):  # two of them are one flag
        return len(piece) == 1 and _is_in(piece, _FLAG_LETTERS)
    return _is_in(char, _SKIN_TONES) or _is_in(char, _TAGS) or any(_is_in(char, jamo) for jamo in _LATER_JAMO)


def _is_in(char: str, between: tuple[str, str]) -> bool:
    return between[0] <= char <= between[1]


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or any(_is_in(char, jamo) for jamo in _LATER_JAMO):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
