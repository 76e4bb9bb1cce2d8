"""Prompts typed while Claude Code works, as the records of its queue tell them.

A prompt that the agent got is a record too. A prompt that exists only in the queue becomes a message where it was
typed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from store.model.timestamp import Timestamp
from store.transfer.formats.coerce import as_str
from store.transfer.formats.resuming import NeedsWholeFile
from store.transfer.formats.session_builder import SessionBuilder

_MATCHED_CHARS = 60  # of a queued prompt, to find the user record it became


class _Queued(NamedTuple):
    """A prompt known only from the queue."""

    place: int  # in the messages of the session
    id: str
    text: str
    at: Timestamp | None = None
    record: dict[str, Any] = {}  # noqa: RUF012 - never changed


class PromptQueue:
    """The queue of one session."""

    def __init__(self, builder: SessionBuilder) -> None:
        self._builder = builder
        self._waiting: list[_Queued] = []
        self._taken: set[str] = set()  # ids of prompts that the agent took
        self.delivered: set[str] = set()  # ids of prompts that became records, or were taken back
        self._inserted = 0  # prompts that an earlier import inserted as messages

    def read(self, record: dict[str, Any], at: Timestamp | None, number: int) -> None:
        """Read an operation. The agent takes prompts; `popAll` gives the others back to their author."""
        operation, text = record.get("operation"), as_str(record.get("content"))
        waiting = [queued for queued in self._waiting if queued.id not in self._taken]
        if operation == "enqueue" and text.strip() and not text.lstrip().startswith("<"):
            self._waiting.append(_Queued(self._builder.count, f"line-{number}", text, at, record))
        elif operation in ("remove", "dequeue") and waiting:
            same = [queued for queued in waiting if queued.text == text]
            self._taken.add((same or waiting)[0].id)
        elif operation == "popAll":
            for queued in waiting:
                self._remove(queued)

    def deliver(self, text: str) -> None:
        """Remove the prompt that became this message."""
        start = text.strip()[:_MATCHED_CHARS]
        for queued in self._waiting:
            if queued.text.strip()[:_MATCHED_CHARS] == start:
                return self._remove(queued)

    def _remove(self, queued: _Queued) -> None:
        if queued in self._waiting[: self._inserted]:
            raise NeedsWholeFile("a queued prompt was delivered")
        self._waiting.remove(queued)
        self.delivered.add(queued.id)

    def insert(self) -> None:
        """Add the prompts that exist only in the queue, where they were typed."""
        builder = self._builder
        first = builder.count - len(builder.messages)
        for shift, queued in enumerate(self._waiting[self._inserted :]):
            rest = {key: value for key, value in queued.record.items() if key not in ("content", "timestamp")}
            builder.add_message("user", queued.text, id=queued.id, at=queued.at, rest=rest)
            message = builder.messages.pop()
            builder.messages.insert(queued.place - first + shift, message)

    def dump(self) -> dict[str, Any]:
        return {"waiting": [queued[:3] for queued in self._waiting], "taken": [*self._taken]}

    def restore(self, known: dict[str, Any]) -> None:
        self._waiting = [_Queued(*queued) for queued in known["waiting"]]
        self._taken = set(known["taken"])
        self._inserted = len(self._waiting)
