"""What a list says of a session without opening it: whose it is, how it began, how far it went. Pure.

The index keeps it beside each row, made anew from the messages or moved along by those that are appended. It is no
part of sessions.json, whose format is another's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

TITLE_COLUMNS = 60
# Enough for every title, however many characters of it take no room; the rest of a long message is not looked at.
_LOOKED_AT = 2_000

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")
_TAGS = ("\U000e0020", "\U000e007f")
_LATER_JAMO = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7ff"))  # vowels and finals, drawn into the syllable before
# What turns the text around it the other way, and a byte order mark: no part of a title.
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Message = Mapping[str, Any]  # as parsed from session.json


class Preview(NamedTuple):
    user: str | None = None
    persona: str | None = None
    opening: str | None = None  # a title made from the first thing the user said; None before that
    asked: int = 0  # messages of the user
    answered: int = 0  # final answers

    @property
    def exchanges(self) -> int:
        return min(self.asked, self.answered)

    def with_messages(self, added: Iterable[Message]) -> Preview:
        """The gist once these messages have been appended."""
        opening, asked, answered = self.opening, self.asked, self.answered
        for message in added:
            if is_question(message):
                asked += 1
                opening = opening or make_title(message)
            answered += is_answer(message)
        return self._replace(opening=opening, asked=asked, answered=answered)

    def with_owner(self, metadata: Mapping[str, str]) -> Preview:
        """The gist with what a session's metadata says of its owner."""
        return self._replace(user=metadata.get("user_id"), persona=metadata.get("active_persona_id"))


def is_question(message: Message) -> bool:
    """Something the user said; what the runtime says in the user's name to wake an agent is not."""
    if message["role"] != "user":
        return False
    notes = message.get("metadata")
    return not (isinstance(notes, dict) and (notes.get("hidden_from_ui") is True or "runtime_kind" in notes))


def is_answer(message: Message) -> bool:
    """What the agent answered in the end, not its remarks while it called tools."""
    is_final = message.get("phase") in (None, "final_answer") and not message.get("tool_calls")
    return bool(is_final and message["role"] == "assistant")


# -- titles ----------------------------------------------------------------------------------------------


def make_title(message: Message) -> str | None:
    """The first line that says something, cut to a title's width; None if the message holds no text."""
    texts = [message.get("content"), *(part.get("text") for part in message.get("content_parts") or ())]
    text = next((text for text in texts if text and text.strip()), "")
    for line in _DIRECTIONS.sub("", text.lstrip()[:_LOOKED_AT]).splitlines():
        words = _CONTROL.sub("", " ".join(line.split()))
        if words:
            return shorten(words, TITLE_COLUMNS)
    return None


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
