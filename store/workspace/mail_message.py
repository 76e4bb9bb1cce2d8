"""A mailbox message: its format, its file name, and detection of repeated deliveries. Pure.

The file name begins with the creation time in nanoseconds, so names sort in the order of creation.
Delivery is at least once: a message delivered twice has the same id both times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self
from uuid import uuid4

import orjson
import pydantic
from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from store import layout
from store.documents import json_text
from store.documents.document import type_problem
from store.errors import InvalidContent, InvalidName, Problem
from store.model.record import Opt, Record
from store.model.timestamp import Timestamp

SEEN_IDS_CAPACITY = 4096  # of a SeenIds

# The kinds in use. Only these are sent. Readers accept any other; the consumer decides whether it knows it.
KINDS = (
    *("task", "ask", "handoff", "reply", "mcp_request", "mcp_reply", "run", "event", "outcome", "steer"),
    *("approval_request", "approval_reply", "leased_run", "fenced_run", "session_message_admitted"),
    *("owned_tree_request", "owned_tree_reply", "sub_agent_request", "sub_agent_reply", "session_envelope"),
)

_WORD = re.compile(r"[a-z][a-z0-9_]*")
_UNUSABLE = re.compile(r"[/\x00-\x1f\x7f]")


class Sender(Record):
    session_id: str
    role: Opt[str] = None


class InboxMessage(Record):
    """The JSON key of `sender` is `from`, which is a keyword in Python."""

    model_config = ConfigDict(serialize_by_alias=True)

    id: str  # the same for every delivery of one message
    sender: Sender = Field(alias="from")
    kind: str
    body: Any
    created_at: Timestamp
    correlation_id: Opt[str] = None  # of a reply: the id of the message it answers

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if not _WORD.fullmatch(kind):
            raise PydanticCustomError("kind", "expected a lower-case word such as task or mcp_reply")
        return kind

    @classmethod
    def new(
        cls, sender: str, kind: str, body: Any, *, role: str | None = None, correlation_id: str | None = None
    ) -> Self:
        """A message with a new id, created now."""
        members = {"id": str(uuid4()), "from": {"session_id": sender, "role": role}, "kind": kind, "body": body}
        try:
            return cls.model_validate({**members, "created_at": Timestamp.now(), "correlation_id": correlation_id})
        except pydantic.ValidationError as error:
            raise InvalidContent("message", type_problem(error)) from None

    @property
    def file_name(self) -> str:
        """Name of the message's file. Raises InvalidName if the id cannot be part of one."""
        ns = (
            self.created_at.ns if 0 <= self.created_at.ns < 2**63 else 0
        )  # out of range: 0, as other implementations of the format write it
        name = f"{ns:020d}-{self.id}.json"
        if not self.id or _UNUSABLE.search(self.id) or not layout.is_text(self.id):
            reason = "it is empty, not Unicode, or has '/' or control characters"
            raise InvalidName(f"{self.id!r} cannot be a message's id: {reason}")
        if len(name.encode()) > layout.MAX_NAME_BYTES:
            raise InvalidName(f"{self.id[:40]!r}… cannot be a message's id: it is too long for a file name")
        return name

    def check_sendable(self) -> None:
        """Raise InvalidContent for a kind that no reader knows: Bamboo would discard the message."""
        if self.kind not in KINDS:
            raise InvalidContent(
                "message", Problem(f"expected one of {', '.join(KINDS)}, got {self.kind!r}", field="kind")
            )

    def render(self) -> bytes:
        try:
            return json_text.render(self.model_dump())
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidContent("message", Problem(f"cannot be encoded as JSON: {error}", field="body")) from None


def parse_message(raw: bytes, name: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> InboxMessage:
    """Parse a message.

    Raises InvalidContent with the position of the error; `name` is the file named in it.
    """
    data = json_text.parse(raw, name, limit=limit)
    try:
        return InboxMessage.model_validate(data)
    except pydantic.ValidationError as error:
        raise InvalidContent(name, type_problem(error, raw)) from None


class SeenIds:
    """Message ids a consumer has processed, so that it handles a message only once.

    The consumer stores it together with its other state. Above `capacity` the oldest ids are dropped.
    """

    def __init__(self, ids: Iterable[str] = (), capacity: int = SEEN_IDS_CAPACITY) -> None:
        self._capacity = capacity
        self._ids: dict[str, None] = {}
        for message_id in ids:
            self.admit(message_id)

    def admit(self, message_id: str) -> bool:
        """Record an id. Returns False if it was recorded before."""
        if message_id in self._ids:
            return False
        self._ids[message_id] = None
        if len(self._ids) > self._capacity:
            del self._ids[next(iter(self._ids))]
        return True

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def render(self) -> bytes:
        """A JSON array of the ids, oldest first."""
        return orjson.dumps(list(self._ids))

    @classmethod
    def parse(cls, raw: bytes, capacity: int = SEEN_IDS_CAPACITY) -> Self:
        try:
            ids = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise InvalidContent("admitted ids", Problem(error.msg, error.lineno, error.colno)) from None
        if not isinstance(ids, list) or not all(isinstance(message_id, str) for message_id in ids):
            raise InvalidContent("admitted ids", Problem("expected an array of strings"))
        return cls(ids, capacity)
