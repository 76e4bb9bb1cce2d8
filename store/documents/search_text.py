"""Search text: extraction of text from messages, preparation for the tokenizer, snippets. Pure.

Chinese, Japanese and Korean text is split into single characters, so any run of two or more
characters is a phrase. An emoji is a separate word. Rows and queries must be split in the same
way, or matches are lost.
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
# The tokenizer drops emoji but treats private-use characters as letters, so an emoji is encoded with one.
_EMOJI_PREFIX = "\ue000"
MAX_WORD_CHARS = 1 << 16  # FTS5 itself compares the first 32 KiB of a word
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS}}}")


def message_text(message: dict[str, Any]) -> str:
    """All searchable text of a message. Images in base64 are not searchable."""
    parts = [message.get("content") or "", message.get("reasoning") or ""]
    for part in message.get("content_parts") or ():
        text = part.get("text")
        if text and text != parts[0]:
            parts.append(text)
    for image in message.get("image_ocr") or ():
        parts += [line.get("text", "") for line in image.get("lines") or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts += [function.get("name", ""), _argument_text(function.get("arguments", ""))]
    return "\n".join(part for part in parts if part)


def tool_names(message: dict[str, Any]) -> str | None:
    """The tools that a message calls, or whose result it is, between spaces; None without one."""
    calls = message.get("tool_calls") or ()
    names = [(call.get("function") or {}).get("name", "") for call in calls]
    notes = message.get("metadata")
    if isinstance(notes, dict) and isinstance(notes.get("tool_name"), str):
        names.append(notes["tool_name"])
    found = dict.fromkeys("_".join(name.split()) for name in names if name.strip())
    return f" {' '.join(found)} " if found else None


def _argument_text(arguments: str) -> str:
    """Text of tool arguments, which are JSON in a string: the words of `"a\\nls"` are a and ls, not nls."""
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
    """The text for the tokenizer.

    Normalized to NFC first: text from macOS, such as file names, is often decomposed. The tokenizer
    keeps a buffer of the size of the longest word it has met, so very long ones are split.
    """
    if len(text) > MAX_WORD_CHARS:
        text = _LONG_WORD.sub(r"\g<0> ", text)
    if text.isascii():
        return text
    text = _CJK.sub(lambda run: f" {' '.join(run[0])} ", unicodedata.normalize("NFC", text))
    return _EMOJI.sub(lambda found: f" {_EMOJI_PREFIX}{ord(found[0]):x} ", text)


def is_word(text: str) -> bool:
    """Whether the tokenizer would find a word in it."""
    return any(c.isalnum() for c in text) or _EMOJI.search(text) is not None


def casefold_nfc(text: str) -> str:
    """For comparing names: ignores case and the encoding of accents."""
    return unicodedata.normalize("NFC", text).casefold()


# -- snippets --------------------------------------------------------------------------------------

SNIPPET_CHARS = 160
_MAX_WORDS = 32  # of a query; more are ignored
_MAX_PIECES = 32  # of a phrase; more are ignored
_MAX_FOLDED_CHARS = 200_000  # folding handles one character at a time
_PIECE = re.compile(f"[{_CJK_RANGES}{_EMOJI_RANGES}]|[^\\W_{_CJK_RANGES}]+")
_LETTER = re.compile(f"[^\\W_{_CJK_RANGES}]")  # a letter that continues a word


def snippet(text: str, words: Iterable[str]) -> str:
    """One line of `text` around the first match of `words`, with every match in [brackets].

    A word that ends in `*` matches as a prefix.
    """
    flat = " ".join(text.split())
    spans = _spans(flat, list(islice(words, _MAX_WORDS)))
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
    """One line without control characters, safe to print to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def occurs(text: str, words: Iterable[str]) -> bool:
    """Whether a snippet of this text would contain a match."""
    return bool(_spans(" ".join(text.split()), list(islice(words, _MAX_WORDS))))


def _spans(flat: str, words: list[str]) -> list[tuple[int, int]]:
    """Spans of matches, in order: exact ones, else matches that ignore accents, like the index does."""
    found = list(_matches(flat, words))
    if found or (flat.isascii() and all(map(str.isascii, words))):
        return found
    plain, places = _without_accents(flat[:_MAX_FOLDED_CHARS])
    return [(places[a], places[b]) for a, b in _matches(plain, [_without_accents(word)[0] for word in words])]


def _matches(flat: str, words: list[str]) -> Iterator[tuple[int, int]]:
    """The matches that fit into one snippet."""
    lowered, flags = flat.lower(), 0
    if len(lowered) != len(flat):  # İ becomes two characters in lower case, which would shift the positions
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
    """Whether a word begins before `at` and continues there. A lookbehind in the pattern would be slower."""
    return at > 0 and _joins_letters(text[at]) and _LETTER.match(text[at - 1]) is not None


def _without_accents(text: str) -> tuple[str, list[int]]:
    """The text without accents, and the position in `text` of each remaining character and of the end."""
    letters, places = [], []
    for at, char in enumerate(text):
        # Marks on kana and the parts of a Korean syllable are not accents; the index keeps them.
        letter = unicodedata.normalize("NFD", char)[0] if not char.isascii() and char < "\u2e80" else char
        if not unicodedata.combining(letter):
            letters.append(letter)
            places.append(at)
    return "".join(letters), [*places, len(text)]


@lru_cache(maxsize=64)
def _pattern(phrase: str) -> str:
    """A regular expression for a phrase. Like in the index, `src/main.rs` also matches "src main rs"."""
    pieces: list[str] = _PIECE.findall(phrase)[:_MAX_PIECES]
    if not pieces:
        return ""
    text = re.escape(pieces[0])
    for before, piece in pairwise(pieces):
        # A character that is a separate word needs no space before or after it.
        text += ("[\\W_]+" if _joins_letters(before) and _joins_letters(piece) else "[\\W_]*") + re.escape(piece)
    return text + (f"(?!{_LETTER.pattern})" if _joins_letters(pieces[-1]) and not phrase.endswith("*") else "")


def _joins_letters(piece: str) -> bool:
    """Whether an adjacent letter would belong to the same word."""
    return not (_CJK.match(piece) or _EMOJI.match(piece))
