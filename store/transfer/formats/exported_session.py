"""A session as the writers of foreign formats see it, and what they write. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from store.layout import Location
from store.transfer.formats.coerce import as_dict, as_str

BEFORE_EXPORT = ".before-export"  # follows the name of a file of another agent that an export replaced
JsonObject = dict[str, Any]
Resolve = Callable[[str], tuple[bytes, str] | None]  # content and MIME type of an attachment


class FileToWrite(NamedTuple):
    path: str  # relative to the destination
    data: bytes


@dataclass(frozen=True)
class ExportedSession:
    """The merged document of a session, and its other files by name."""

    location: Location
    members: JsonObject
    read: Callable[[str], bytes | None]
    resolve: Resolve

    @property
    def messages(self) -> list[JsonObject]:
        found: list[JsonObject] = self.members["messages"]
        return found

    @property
    def metadata(self) -> dict[str, str]:
        return as_dict(self.members.get("metadata"))

    def kept_text(self, format: str, key: str) -> str:
        """What the import from a format kept in the metadata; "" if nothing."""
        return as_str(self.metadata.get(f"{format}.{key}"))

    def kept(self, format: str, key: str) -> Any:
        """Like `kept_text`, parsed; None if there is nothing, or no JSON."""
        try:
            return orjson.loads(self.kept_text(format, key))
        except orjson.JSONDecodeError:
            return None

    def lines(self, name: str) -> Iterator[JsonObject]:
        """The objects in a JSONL file; other lines are left out."""
        for line in (self.read(name) or b"").splitlines():
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


Write = Callable[[ExportedSession], Iterator[FileToWrite]]  # the session file last
