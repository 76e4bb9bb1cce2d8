"""What a word is: which text of a message is searched, how it is cut into words, where a match shows. Pure.

Text in Chinese, Japanese or Korean is split into single characters, so that any run of two or more is a
phrase; an emoji is a word of its own. The same cut is made for rows and for queries, or nothing is found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import orjson

_CJK_RANGES = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
_EMOJI_RANGES = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_CJK = re.compile(f"[{_CJK_RANGES}]+")
_EMOJI = re.compile(f"[{_EMOJI_RANGES}]")
# The tokenizer drops emoji, but takes characters of private use for letters: so an emoji is spelt with one.
_SPELT = "\ue000"


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
        parts += [function.get("name", ""), _argument_text(function.get("arguments", ""))]
    return "\n".join(part for part in parts if part)


def _argument_text(arguments: str) -> str:
    """Arguments are JSON inside a string: of `"a\\nls"` the words are a and ls, not nls."""
    if "\\" not in arguments:
        return arguments
    try:
        return "\n".join(_texts_in(orjson.loads(arguments)))
    except (orjson.JSONDecodeError, RecursionError):
        return arguments


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from _texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts_in(member)
    elif value is not None:
        yield str(value)


def prepare_text(text: str) -> str:
    """The text as the tokenizer shall have it.

    Composed first: what was typed on a Mac, or taken from a file name of one, is the same word.
    """
    if text.isascii():
        return text
    text = _CJK.sub(lambda run: f" {' '.join(run[0])} ", unicodedata.normalize("NFC", text))
    return _EMOJI.sub(lambda found: f" {_SPELT}{ord(found[0]):x} ", text)


def is_word(text: str) -> bool:
    """Whether the tokenizer would find anything in it."""
    return any(c.isalnum() for c in text) or _EMOJI.search(text) is not None


def casefold_nfc(text: str) -> str:
    """For comparing names: no matter which case, and how an accent is typed."""
    return unicodedata.normalize("NFC", text).casefold()


# -- snippets --------------------------------------------------------------------------------------

SNIPPET_CHARS = 160
_MOST_WORDS = 32  # of a query that is longer than any question
_MOST_PIECES = 32  # of a phrase, likewise
_LONGEST_FOLDED = 200_000  # characters; each is looked at in turn
_PIECE = re.compile(f"[{_CJK_RANGES}{_EMOJI_RANGES}]|[^\\W_{_CJK_RANGES}]+")
_LETTER = re.compile(f"[^\\W_{_CJK_RANGES}]")  # of a word that goes on


def snippet(text: str, words: Iterable[str]) -> str:
    """A line of `text` around the first of `words` that occurs, every match in it in [brackets].

    A word that ends in `*` may go on in the text.
    """
    flat = " ".join(text.split())
    spans = _spans(flat, list(islice(words, _MOST_WORDS)))
    if not spans:
        return printable(flat[:SNIPPET_CHARS]) + ("…" if len(flat) > SNIPPET_CHARS else "")
    start = max(0, spans[0][0] - SNIPPET_CHARS // 3)
    stop = max(spans[0][1], min(len(flat), start + SNIPPET_CHARS))
    shown, at = ["…" if start else ""], start
    for first, last in spans:
        if last <= stop:
            shown += [flat[at:first], "[", flat[first:last], "]"]
            at = last
    return printable("".join([*shown, flat[at:stop], "…" if stop < len(flat) else ""]))


def printable(text: str) -> str:
    """One line that does nothing to a terminal but show itself."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def occurs(text: str, words: Iterable[str]) -> bool:
    """Whether a snippet of this text would show a match."""
    return bool(_spans(" ".join(text.split()), list(islice(words, _MOST_WORDS))))


def _spans(flat: str, words: list[str]) -> list[tuple[int, int]]:
    """Where words occur, in order: as they are written, else without their accents, as the index has them."""
    found = list(_matches(flat, words))
    if found or (flat.isascii() and all(map(str.isascii, words))):
        return found
    plain, places = _without_accents(flat[:_LONGEST_FOLDED])
    return [(places[a], places[b]) for a, b in _matches(plain, [_without_accents(word)[0] for word in words])]


def _matches(flat: str, words: list[str]) -> Iterator[tuple[int, int]]:
    """Those that one snippet can show."""
    lowered, flags = flat.lower(), 0
    if len(lowered) != len(flat):  # İ becomes two: then the places would not be the same
        lowered, flags = flat, re.IGNORECASE
    patterns = [_pattern(word if flags else word.lower()) for word in words]
    pattern = "|".join(sorted(filter(None, patterns), key=len, reverse=True))
    first: int | None = None
    for match in re.finditer(pattern, lowered, flags) if pattern else ():
        if _is_within_word(lowered, match.start()):
            continue
        first = match.start() if first is None else first
        if match.start() > first + SNIPPET_CHARS:
            return
        yield match.span()


def _is_within_word(text: str, at: int) -> bool:
    """Whether a word begins before `at` and goes on there. A look behind in the pattern would slow down the search."""
    return at > 0 and _is_run(text[at]) and _LETTER.match(text[at - 1]) is not None


def _without_accents(text: str) -> tuple[str, list[int]]:
    """Each character's letter without its marks; and for each letter, and the end, its place in `text`."""
    letters, places = [], []
    for at, char in enumerate(text):
        # Marks on kana and the parts of a Korean syllable are no accents; the index keeps them.
        letter = unicodedata.normalize("NFD", char)[0] if not char.isascii() and char < "\u2e80" else char
        if not unicodedata.combining(letter):
            letters.append(letter)
            places.append(at)
    return "".join(letters), [*places, len(text)]


@lru_cache(maxsize=64)
def _pattern(phrase: str) -> str:
    """`src/main.rs` is found in the index where the text says "src main rs", and so it is in the text."""
    pieces: list[str] = _PIECE.findall(phrase)[:_MOST_PIECES]
    if not pieces:
        return ""
    text = re.escape(pieces[0])
    for before, piece in pairwise(pieces):
        # A character that is a word of its own needs no space before or after it.
        text += ("[\\W_]+" if _is_run(before) and _is_run(piece) else "[\\W_]*") + re.escape(piece)
    return text + (f"(?!{_LETTER.pattern})" if _is_run(pieces[-1]) and not phrase.endswith("*") else "")


def _is_run(piece: str) -> bool:
    """Whether letters before or after it would belong to the same word."""
    return not (_CJK.match(piece) or _EMOJI.match(piece))
