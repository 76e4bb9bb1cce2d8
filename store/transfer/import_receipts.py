"""Receipts: what an import saved, stored next to each imported session as `.import.json`.

A receipt has the digests of the version last imported: of all files, of each message and of each member. The next
import compares them with the source and with the session here, so it knows which side changed what.

A receipt names its session, and renaming a session renames it there too. A copy made with `cp -r` has the receipt of
its original, which therefore counts as none: like a fork, a copy is not the imported session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from store import layout
from store.disk.disk import Disk
from store.layout import Location

# Members whose own members are compared one by one.
MAPS = ("metadata", "runtime_metadata")
# Merged by rules of their own, or different in every version.
NOT_COMPARED = ("messages", "updated_at")
_MAX_BYTES = 64 * 1024 * 1024
# How `render` writes the last member. No string contains a newline, so these are found nowhere else.
_MESSAGES = b',\n  "messages": {\n'
_NO_MESSAGES = b',\n  "messages": {}\n}'
_END = b"\n  }\n}"


def digest_file(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_value(value: Any) -> str:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def digest_members(data: Mapping[str, Any]) -> dict[str, str]:
    """The digests of all members; those inside a map are named `map.key`."""
    found = {key: digest_value(value) for key, value in data.items() if key not in (*NOT_COMPARED, *MAPS)}
    for name in MAPS:
        inner = data.get(name)
        if isinstance(inner, dict):
            found |= {f"{name}.{key}": digest_value(value) for key, value in inner.items()}
    return found


def digest_messages(data: Mapping[str, Any]) -> dict[str, str]:
    return {message["id"]: digest_value(message) for message in data["messages"] if message.get("id")}


@dataclass(frozen=True)
class Receipt:
    """The source of a session, and the digests of what was imported from it."""

    format: str
    source_id: str
    files: dict[str, str]
    messages: dict[str, str] = field(default_factory=dict)  # by message id
    members: dict[str, str] = field(default_factory=dict)
    cursor: dict[str, Any] | None = None  # from where the source is read on
    session: str | None = None  # the session it belongs to; None in receipts of older versions

    @property
    def can_merge(self) -> bool:
        """False for a receipt of an older version, which has no digests of members."""
        return bool(self.members)

    def is_of(self, location: Location) -> bool:
        """Whether it belongs to this session; False if it was copied with the files of another one."""
        return self.session in (None, str(location))

    def is_from(self, other: Receipt) -> bool:
        return (self.format, self.source_id) == (other.format, other.source_id)

    def render(self, path: str) -> bytes:
        source = {"format": self.format, "source_id": self.source_id, "session": self.session, "path": path}
        digests = {"files": self.files, "members": self.members, "messages": self.messages}
        return orjson.dumps({**source, "cursor": self.cursor, **digests}, option=orjson.OPT_INDENT_2)


def load_receipt(disk: Disk, location: Location) -> Receipt | None:
    """The receipt of a session. One that was edited, damaged or copied counts as none, so nothing is overwritten."""
    file = disk.read(location.path(layout.RECEIPT), _MAX_BYTES)
    receipt = parse_receipt(file.data) if file else None
    return receipt if receipt is not None and receipt.is_of(location) else None


def find_source_path(disk: Disk, location: Location) -> str | None:
    """The file of the source that a session was last imported from, as it was shown."""
    file = disk.read(location.path(layout.RECEIPT), _MAX_BYTES)
    is_own = file is not None and load_receipt(disk, location) is not None
    return orjson.loads(file.data).get("path") if file is not None and is_own else None


def parse_receipt(raw: bytes) -> Receipt | None:
    try:
        found: Any = orjson.loads(raw)
        digests = (dict(found["files"]), dict(found.get("messages", {})), dict(found.get("members", {})))
        return Receipt(found["format"], found["source_id"], *digests, found.get("cursor"), found.get("session"))
    except (ValueError, KeyError, TypeError):
        return None


class OpenReceipt:
    """A receipt that gets more messages. Those it has are not parsed: there may be many."""

    def __init__(self, raw: bytes) -> None:
        """Raises ValueError if it does not look like `Receipt.render` writes it."""
        at = raw.find(_MESSAGES)
        if at < 0 or not raw.endswith(_END):
            raise ValueError("not a receipt with messages")
        receipt = parse_receipt(raw[:at] + b"\n}")
        if receipt is None:
            raise ValueError("not a receipt")
        self.receipt = receipt
        self.path: str = orjson.loads(raw[:at] + b"\n}")["path"]
        self._messages = raw[at : -len(_END)]

    def has_message(self, id: str) -> bool:
        return b"\n    " + orjson.dumps(id) + b": " in self._messages

    def render(self, receipt: Receipt) -> list[bytes]:
        """The receipt with the messages it had and those of `receipt`."""
        head = replace(receipt, messages={}).render(self.path)
        assert head.endswith(_NO_MESSAGES)
        added = orjson.dumps(receipt.messages, option=orjson.OPT_INDENT_2)[1:-2].replace(b"\n", b"\n  ")
        parts = [head.removesuffix(_NO_MESSAGES), self._messages]
        return [*parts, *([b",", added] if receipt.messages else []), _END]
