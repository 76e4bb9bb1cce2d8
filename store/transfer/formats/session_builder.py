"""Builder for one imported session.

Unmapped members of a foreign record are kept with its message, under the format's name in `metadata`. A record that is
not a message, or whose unmapped members are too large, is kept line by line in the attachment `records.jsonl`. Nothing
of the source is lost.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from store import layout
from store.documents import attachment_names
from store.documents import json_text as codec
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.coerce import BadRecord, make_title, parse, to_text, without_surrogates
from store.transfer.formats.importer import SessionDraft, SourceFile
from store.transfer.formats.source import MAX_LINE_BYTES, Line

RECORDS = "records"
MAX_UNMAPPED_BYTES = 32 * 1024  # per message; a record with more is kept in records.jsonl


class SessionBuilder:
    """Collect the messages, files and metadata of one session; `build` returns its draft."""

    messages: list[dict[str, Any]]
    metadata: dict[str, str]

    def __init__(self, format: str, location: Location, path: str, source_id: str) -> None:
        self.format = format
        self.location = location
        self.path = path
        self.source_id: str = without_surrogates(source_id)  # may be a file name, which can hold any bytes
        self.messages = []
        self.metadata = {}
        self.title = self.model = self.workspace = ""
        self.parent: str | None = None
        self.depth = 1
        self.project_id: str | None = None
        self.subagent_type: str | None = None
        self._times: list[Timestamp] = []
        self._ids: set[str] = set()
        self._files: dict[str, SourceFile] = {}
        self._records: list[bytes] = []

    # -- messages --------------------------------------------------------------------------------------

    def add_message(
        self,
        role: str,
        content: str,
        *,
        id: str,
        at: Timestamp | None = None,
        rest: dict[str, Any] | None = None,
        raw: bytes | None = None,
        **members: Any,
    ) -> None:
        """Add a message. `rest` holds the unmapped members of its record, `raw` is the whole record."""
        message: dict[str, Any] = {"id": self._unique(id), "role": role, "content": content}
        message |= {name: value for name, value in members.items() if value is not None}
        if role == "assistant" and not (content and "tool_calls" not in message):
            message["phase"] = "commentary"  # empty, or with tool calls: not a final answer
        if at is not None:
            message["created_at"] = at
            self._times.append(at)
        if rest:
            message["metadata"] = {self.format: self._unmapped(rest, raw)}
        self.messages.append(message)

    def _unique(self, wanted: str) -> str:
        """Make a message id unique: a source may repeat one."""
        unique, count = wanted, 1
        while unique in self._ids:
            count += 1
            unique = f"{wanted}~{count}"
        self._ids.add(unique)
        return unique

    def _unmapped(self, rest: dict[str, Any], raw: bytes | None) -> Any:
        if raw is None or len(raw) <= MAX_UNMAPPED_BYTES or len(orjson.dumps(rest)) <= MAX_UNMAPPED_BYTES:
            return rest
        self.keep_raw(raw)
        return {"record": len(self._records), "kept_in": f"{layout.ATTACHMENTS}/{RECORDS}.jsonl"}

    def add_time(self, at: Timestamp | None) -> None:
        """Count a time that belongs to no message for created_at and updated_at."""
        if at is not None:
            self._times.append(at)

    # -- files ------------------------------------------------------------------------------

    def keep_raw(self, raw: bytes) -> None:
        """Keep a record that is not a message, byte for byte, in records.jsonl."""
        self._records.append(raw)

    def attach(self, data: bytes, mime: str) -> str:
        """Add an attachment named by its digest; return the reference for messages."""
        name = hashlib.sha256(data).hexdigest()[:32]
        extension = attachment_names.mime_to_extension(mime) or "bin"
        self.add_file(f"{layout.ATTACHMENTS}/{name}.{extension}", lambda: (data,))
        return attachment_names.reference(self.location.id, name)

    def attach_base64(self, text: Any, mime: Any) -> str | None:
        """As `attach`; None if the text is not valid base64."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            return None
        return self.attach(data, mime if isinstance(mime, str) else attachment_names.OCTET_STREAM)

    def attach_file(self, name: str, read: Callable[[], Iterable[bytes]]) -> str:
        """Add an attachment named after a source file; return its reference. The name is sanitized."""
        stem, dot, extension = name.rpartition(".")
        if not dot or not stem or not extension.isalnum() or not extension.isascii():
            stem, extension = name, "bin"
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)[:80].strip("-") or "file"
        if plain != stem:  # two names may sanitize to the same
            plain = f"{plain}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:8]}"
        self.add_file(f"{layout.ATTACHMENTS}/{plain}.{extension.lower()}", read)
        return attachment_names.reference(self.location.id, plain)

    def add_file(self, name: str, read: Callable[[], Iterable[bytes]]) -> None:
        self._files[name] = SourceFile(name, read)

    # -- the document ---------------------------------------------------------------------------------------

    def add_metadata(self, key: str, value: Any) -> None:
        """Add a value to the session metadata; None and "" are left out."""
        if value is not None and value != "":
            self.metadata[f"{self.format}.{key}"] = to_text(value)

    def build(self, *, fallback: Timestamp, moved: Iterable[str] = ()) -> SessionDraft:
        """Return the draft. `fallback` is its time if the source has none. The builder cannot be used again."""
        if self._records:
            data = b"\n".join(self._records) + b"\n"
            self.add_file(f"{layout.ATTACHMENTS}/{RECORDS}.jsonl", lambda: (data,))
        main = codec.render(self._document(fallback))
        self.messages, self._records = [], []  # free them: a long session should not be in memory twice
        return SessionDraft(
            location=self.location,
            main=main,
            format=self.format,
            source_id=self.source_id,
            path=self.path,
            files=tuple(self._files.values()),
            moved=frozenset(moved),
        )

    def _document(self, fallback: Timestamp) -> dict[str, Any]:
        times = sorted(self._times, key=lambda at: at.ns) or [fallback]
        document: dict[str, Any] = {
            "id": self.location.id,
            "title": self.title or self._derive_title(),
            "pinned": False,
            "title_version": 0,
            "metadata_version": 0,
            "kind": self.location.kind,
        }
        if self.location.child is not None:
            document["parent_session_id"] = self.parent or self.location.root
        document |= {
            "root_session_id": self.location.root,
            "spawn_depth": self.depth if self.location.child is not None else 0,
            "messages": self.messages,
            "created_at": times[0],
            "updated_at": times[-1],
            "model": self.model,
        }
        return document | self._metadata_members(document)

    def _metadata_members(self, document: dict[str, Any]) -> dict[str, Any]:
        """`runtime_metadata`, its copy in `metadata` for older agents, and `workspace`."""
        runtime = {
            "subagent_type": self.subagent_type,
            "workspace_path": self.workspace or None,
            "project_id": self.project_id,
        }
        runtime = {key: value for key, value in runtime.items() if value is not None}
        metadata = {**self.metadata, **runtime, "imported_from": self.format}
        control: dict[str, Any] = {"metadata": metadata}
        if runtime:
            control["runtime_metadata"] = runtime
        if self.workspace:
            control["workspace"] = self.workspace
        return control

    def _derive_title(self) -> str:
        """A title from the first user message, or else any message. Text starting with `<` comes from a program."""
        texts = [m["content"] for m in self.messages if m["content"].strip()]
        asked = [m["content"] for m in self.messages if m["role"] == "user" and m["content"].strip()]
        typed = [text for text in asked if not text.lstrip().startswith("<")]
        first = next(iter([*typed, *asked, *texts]), "")
        return make_title(first) or f"{self.format} {self.source_id}"[:80]


class ParsedLine(NamedTuple):
    raw: bytes
    record: dict[str, Any]
    exact: bool  # as in `coerce.Parsed`


def parse_line(builder: SessionBuilder, line: Line) -> ParsedLine:
    """Parse one line of a JSONL file. A line that is not a JSON object raises BadRecord and is kept as raw text."""
    if line.data is None:
        raise BadRecord(f"line longer than {MAX_LINE_BYTES >> 20} MiB; skipped")
    try:
        record, exact = parse(line.data)
        if not isinstance(record, dict):
            raise BadRecord("expected an object")
    except BadRecord as error:
        builder.keep_raw(line.data)
        raise BadRecord(f"{error}; kept as raw text in {RECORDS}.jsonl") from None
    return ParsedLine(line.data, record, exact)
