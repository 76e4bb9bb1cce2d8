"""Text width: grapheme clusters and the terminal columns they take.

Titles cut with these functions are stored in the index and compared with the files later,
so the result must not depend on the version of a library or on the terminal. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_JOINER = "\u200d"
_EMOJI_PRESENTATION = "\ufe0f"
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")
_TAGS = ("\U000e0020", "\U000e007f")
_TRAILING_JAMO = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7ff"))  # vowels and finals, rendered in the preceding syllable


def shorten(text: str, columns: int) -> str:
    """`text`, or as many whole graphemes as fit into `columns` together with an ellipsis."""
    if text.isascii():  # one column each: no need to iterate
        return text if len(text) <= columns else text[: columns - 1].rstrip() + "…"
    kept: list[tuple[str, int]] = []
    used = 0
    for cluster, width in iter_graphemes(text):
        kept.append((cluster, width))
        used += width
        if used > columns:
            break
    else:
        return text
    while kept and used > columns - 1:
        used -= kept.pop()[1]
    return "".join(cluster for cluster, _ in kept).rstrip() + "…"


def iter_graphemes(text: str) -> Iterator[tuple[str, int]]:
    """The grapheme clusters of a text, and the terminal columns each takes."""
    cluster, width = "", 0
    for char in text:
        if cluster and _extends(cluster, char):
            width += _width(char) if unicodedata.category(char) == "Mc" or _is_between(char, _FLAG_LETTERS) else 0
            width = max(width, 2) if char == _EMOJI_PRESENTATION else width
            cluster += char
            continue
        if cluster:
            yield cluster, width
        cluster, width = char, _width(char)
    if cluster:
        yield cluster, width


def _extends(cluster: str, char: str) -> bool:
    if char == _JOINER or cluster[-1] == _JOINER or unicodedata.category(char) in ("Mn", "Me", "Mc"):
        return True
    if _is_between(char, _FLAG_LETTERS):  # two of them form one flag
        return len(cluster) == 1 and _is_between(cluster, _FLAG_LETTERS)
    return _is_between(char, _SKIN_TONES) or _is_between(char, _TAGS) or _is_trailing_jamo(char)


def _is_trailing_jamo(char: str) -> bool:
    return any(_is_between(char, jamo) for jamo in _TRAILING_JAMO)


def _is_between(char: str, bounds: tuple[str, str]) -> bool:
    return bounds[0] <= char <= bounds[1]


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or _is_trailing_jamo(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
