"""One session in the making: messages, what lies beside them, and all that has no place of its own.

What of a foreign record means nothing to us is kept with its message, under the format's name in
`metadata`; a record that is no message, or too much to carry along, is kept line by line in the attachment
`records.jsonl`. So the source can always be told from what was imported.
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
MAX_UNMAPPED_BYTES = 32 * 1024  # of a record's rest beside a message; more goes to records.jsonl


class SessionBuilder:
    """Collects a session in the order of its source; `draft` ends it."""

    messages: list[dict[str, Any]]
    metadata: dict[str, str]

    def __init__(self, format: str, location: Location, path: str, source_id: str) -> None:
        self.format = format
        self.location = location
        self.path = path
        self.source_id: str = without_surrogates(source_id)  # it may be a file's name, and those are any bytes
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
        """A message; `rest` is what of its record has no place, `raw` the record itself."""
        message: dict[str, Any] = {"id": self._unique(id), "role": role, "content": content}
        message |= {name: value for name, value in members.items() if value is not None}
        if role == "assistant" and not (content and "tool_calls" not in message):
            message["phase"] = "commentary"  # said on the way, no answer yet
        if at is not None:
            message["created_at"] = at
            self._times.append(at)
        if rest:
            message["metadata"] = {self.format: self._unmapped(rest, raw)}
        self.messages.append(message)

    def _unique(self, wanted: str) -> str:
        """Two messages never share an id, also where the source repeats one."""
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
        """Something happened then, though it is no message."""
        if at is not None:
            self._times.append(at)

    # -- what lies beside ------------------------------------------------------------------------------

    def keep_raw(self, raw: bytes) -> None:
        """A record that has no place, byte for byte."""
        self._records.append(raw)

    def attach(self, data: bytes, mime: str) -> str:
        """An attachment, named after its bytes; returns what a message refers to it by."""
        name = hashlib.sha256(data).hexdigest()[:32]
        extension = attachment_names.mime_to_extension(mime) or "bin"
        self.add_file(f"{layout.ATTACHMENTS}/{name}.{extension}", lambda: (data,))
        return attachment_names.reference(self.location.id, name)

    def attach_base64(self, text: Any, mime: Any) -> str | None:
        """As `attach`; None if that is no base64."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            return None
        return self.attach(data, mime if isinstance(mime, str) else attachment_names.OCTETS)

    def attach_file(self, name: str, read: Callable[[], Iterable[bytes]]) -> str:
        """An attachment under a name of its own, which may be any file's; returns its reference."""
        stem, dot, extension = name.rpartition(".")
        if not dot or not stem or not extension.isalnum() or not extension.isascii():
            stem, extension = name, "bin"
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)[:80].strip("-") or "file"
        if plain != stem:  # two names may become one
            plain = f"{plain}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:8]}"
        self.add_file(f"{layout.ATTACHMENTS}/{plain}.{extension.lower()}", read)
        return attachment_names.reference(self.location.id, plain)

    def add_file(self, name: str, read: Callable[[], Iterable[bytes]]) -> None:
        self._files[name] = SourceFile(name, read)

    # -- the end ---------------------------------------------------------------------------------------

    def add_metadata(self, key: str, value: Any) -> None:
        """Keep a value with the session; None and "" say nothing."""
        if value is not None and value != "":
            self.metadata[f"{self.format}.{key}"] = to_text(value)

    def build(self, *, fallback: Timestamp, moved: Iterable[str] = ()) -> SessionDraft:
        """The session as it shall be saved; `fallback` is its time if the source names none. Uses the builder up."""
        if self._records:
            data = b"\n".join(self._records) + b"\n"
            self.add_file(f"{layout.ATTACHMENTS}/{RECORDS}.jsonl", lambda: (data,))
        main = codec.render(self._document(fallback))
        self.messages, self._records = [], []  # a long session is not held twice
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
        """What both `runtime_metadata` and its older mirror in `metadata` say."""
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
        """A title from the first thing a person said, or else anyone; what begins with `<` was said by a program."""
        said = [m["content"] for m in self.messages if m["content"].strip()]
        asked = [m["content"] for m in self.messages if m["role"] == "user" and m["content"].strip()]
        typed = [text for text in asked if not text.lstrip().startswith("<")]
        first = next(iter([*typed, *asked, *said]), "")
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
