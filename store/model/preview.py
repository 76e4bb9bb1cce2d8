"""What a list says of a session without opening it: whose it is, how it began, how far it went. Pure.

The index keeps it beside each row, made anew from the messages or moved along by those that are appended. It is no
part of sessions.json, whose format is another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from store.model.text_width import shorten

TITLE_COLUMNS = 60
# Enough for every title, however many characters of it take no room; the rest of a long message is not looked at.
_LOOKED_AT = 2_000

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
