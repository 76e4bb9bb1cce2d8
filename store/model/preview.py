"""Preview: owner, derived title and message counters of a session, for listings. Pure.

The index stores it with each row. It is computed from all messages, or updated from appended
ones. It is not part of sessions.json, whose format belongs to Bamboo.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from store.model.text_width import shorten

NEW_TITLE = "New Session"  # of a session that nobody gave a title
TITLE_COLUMNS = 60
# Enough for any title, even with many zero-width characters; the rest of a long message is ignored.
_SCANNED_CHARS = 2_000

# Bidirectional controls, which would reorder the text around a title, and the byte order mark.
_BIDI_CONTROLS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Message = Mapping[str, Any]  # as parsed from session.json


class Preview(NamedTuple):
    user: str | None = None
    persona: str | None = None
    seed: str | None = None
    host: str | None = None  # the machine it was imported from
    opening: str | None = None  # title derived from the first user message; None if there is none yet
    asked: int = 0  # user messages
    answered: int = 0  # final answers

    @property
    def exchanges(self) -> int:
        return min(self.asked, self.answered)

    def with_messages(self, added: Iterable[Message]) -> Preview:
        """The preview after these messages were appended."""
        opening, asked, answered = self.opening, self.asked, self.answered
        for message in added:
            if is_question(message):
                asked += 1
                opening = opening or make_title(message)
            answered += is_answer(message)
        return self._replace(opening=opening, asked=asked, answered=answered)

    def with_owner(self, metadata: Mapping[str, str]) -> Preview:
        """The preview with the owner and the host from a session's metadata."""
        keys = ("user_id", "active_persona_id", "active_seed_id", "host")
        user, persona, seed, host = (metadata.get(key) for key in keys)
        return self._replace(user=user, persona=persona, seed=seed, host=host)


def is_question(message: Message) -> bool:
    """True for a message typed by the user; False for one the runtime adds as the user to wake an agent."""
    if message["role"] != "user":
        return False
    notes = message.get("metadata")
    return not (isinstance(notes, dict) and (notes.get("hidden_from_ui") is True or "runtime_kind" in notes))


def is_answer(message: Message) -> bool:
    """True for a final answer of the agent; False for its commentary between tool calls."""
    is_final = message.get("phase") in (None, "final_answer") and not message.get("tool_calls")
    return bool(is_final and message["role"] == "assistant")


# -- titles ----------------------------------------------------------------------------------------------


def make_title(message: Message) -> str | None:
    """The first line with visible text, shortened to TITLE_COLUMNS; None if the message has no text."""
    texts = [message.get("content"), *(part.get("text") for part in message.get("content_parts") or ())]
    text = next((text for text in texts if text and text.strip()), "")
    for line in _BIDI_CONTROLS.sub("", text.lstrip()[:_SCANNED_CHARS]).splitlines():
        words = _CONTROL.sub("", " ".join(line.split()))
        if words:
            return shorten(words, TITLE_COLUMNS)
    return None
