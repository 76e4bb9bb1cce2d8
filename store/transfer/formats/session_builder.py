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
from io import BytesIO
from typing import Any, NamedTuple

import orjson

from store import layout
from store.documents import attachment_names
from store.documents import json_text as codec
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.built_messages import BuiltMessages
from store.transfer.formats.call_logs import CallLogs
from store.transfer.formats.coerce import (
    BadRecord,
    make_title,
    parse,
    source_host,
    split_objects,
    to_text,
    without_surrogates,
)
from store.transfer.formats.importer import SessionDraft, SourceFile
from store.transfer.formats.prompt_title import title_of_command, title_of_prompt
from store.transfer.formats.source import MAX_LINE_BYTES, Line

RECORDS = "records"
# How a document is rendered. No string contains a newline, so the first is found nowhere else.
_MESSAGES = b'\n  "messages": '
_NO_MESSAGES = _MESSAGES + b"[]"
# Tools with which agents ask the user. A question without an answer suspends the run.
QUESTION_TOOLS = frozenset(
    ("AskUserQuestion", "ExitPlanMode", "request_user_input", "ask_user", "ask_followup_question", "question")
)
INTERRUPTION = "[Request interrupted"  # how Claude Code begins the notice of an interruption
MAX_UNMAPPED_BYTES = 32 * 1024  # per message; a record with more is kept in records.jsonl


# Members that later lines change or keep.
_DUMPED = (
    *("title", "model", "workspace", "git_branch", "parent", "depth", "project_id", "subagent_type"),
    *("forked_from", "resumed_from", "spawned_by", "status"),
)


class DerivedTitles(NamedTuple):
    """Titles from messages, for a session in which no person typed anything."""

    answer: str = ""
    text: str = ""
    first: str = ""


class EarlierPart(NamedTuple):
    """What earlier lines of the same source made, if the builder only gets later ones."""

    messages: int = 0
    records: int = 0
    status: str | None = None  # derived from the last message
    titles: DerivedTitles = DerivedTitles()


class BuiltPart(NamedTuple):
    """What later lines of a source add to a session."""

    members: dict[str, Any]  # of the whole session, as they are now
    messages: list[dict[str, Any]]
    ids: set[str]
    records: list[bytes]
    usage: list[bytes]  # the first one replaces the last line of the log
    steps: list[bytes]
    files: list[SourceFile]


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
        self.git_branch = ""
        self.parent: str | None = None
        self.depth = 1
        self.project_id: str | None = None
        self.subagent_type: str | None = None
        self.forked_from: str | None = None
        self.resumed_from: str | None = None  # the session whose messages this one repeats and continues
        self.spawned_by: str | None = None  # the tool call that started this sub-agent
        self.status: str | None = None  # of the last run; None: derived from the last messages
        self.task_list: dict[str, Any] | None = None
        self.logs = CallLogs()
        self._prompt_title = self._command_title = ""
        self._first: Timestamp | None = None
        self._last: Timestamp | None = None
        self._ids: set[str] = set()
        self._files: dict[str, SourceFile] = {}
        self._records: list[bytes] = []
        self._before = EarlierPart()

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
        is_generated: bool = False,
        **members: Any,
    ) -> None:
        """Add a message. `rest` holds the unmapped members of its record, `raw` is the whole record.

        `is_generated` marks a user message that no person typed: it gives the session no title.
        """
        message: dict[str, Any] = {"id": self._unique(id), "role": role, "content": content}
        message |= {name: value for name, value in members.items() if value is not None}
        if role == "user" and not is_generated and not self._prompt_title:
            self._prompt_title = title_of_prompt(content)
            self._command_title = self._command_title or title_of_command(content)
        if role == "assistant" and not (content and "tool_calls" not in message):
            message["phase"] = "commentary"  # empty, or with tool calls: not a final answer
        if at is not None:
            message["created_at"] = at
            self.add_time(at)
        if rest:
            message["metadata"] = {self.format: self._unmapped(rest, raw)}
        self._log_calls(message, at)
        self.messages.append(message)

    def _log_calls(self, message: dict[str, Any], at: Timestamp | None) -> None:
        for call in message.get("tool_calls") or ():
            self.logs.add_call(call, at)
        if message["role"] == "tool" and "tool_call_id" in message:
            success = message.get("tool_success") is not False
            self.logs.add_result(message["tool_call_id"], message["content"], at, success=success)

    def note(self, message: dict[str, Any], key: str, value: Any) -> None:
        """Set a member in the metadata of a message: what the store knows of it, apart from its record."""
        message.setdefault("metadata", {})[key] = value

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
        return {"record": self._before.records + len(self._records), "kept_in": f"{layout.ATTACHMENTS}/{RECORDS}.jsonl"}

    @property
    def count(self) -> int:
        """The number of messages so far, with those of an earlier import."""
        return self._before.messages + len(self.messages)

    @property
    def period(self) -> tuple[Timestamp, Timestamp]:
        """The first and the last time so far: created_at and updated_at."""
        assert self._first is not None
        assert self._last is not None
        return self._first, self._last

    def add_time(self, at: Timestamp | None) -> None:
        """Count a time for created_at and updated_at."""
        if at is None:
            return
        if at is self._last:  # of the record whose message is added now
            return
        ns = at.ns
        if self._first is None or ns < self._first.ns:
            self._first = at
        if self._last is None or ns >= self._last.ns:
            self._last = at

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

    def resolve(self, url: str) -> tuple[bytes, str] | None:
        """Content and MIME type of an attachment that was added; None for any other reference."""
        reference = attachment_names.parse_reference(url)
        for name, file in self._files.items():
            stem, _, extension = name.removeprefix(f"{layout.ATTACHMENTS}/").rpartition(".")
            if reference == (self.location.id, stem):
                mime = attachment_names.extension_to_mime(extension) or attachment_names.OCTET_STREAM
                return b"".join(file.read()), mime
        return None

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

    def build(
        self, *, fallback: Timestamp, moved: Iterable[str] = (), cursor: dict[str, Any] | None = None
    ) -> SessionDraft:
        """Return the draft. `fallback` is its time if the source has none. The builder cannot be used again."""
        if self._records:
            data = b"\n".join(self._records) + b"\n"
            self.add_file(f"{layout.ATTACHMENTS}/{RECORDS}.jsonl", lambda: (data,))
        for name, lines in self.logs.files().items():
            self.add_file(name, lambda lines=lines: (lines,))  # type: ignore[misc]
        document = self._document(fallback)
        # What the draft has is not held here any more, and what refers to messages must not keep them in memory.
        self._records, self._ids, self.logs = [], set(), CallLogs()
        main = BytesIO()  # without a copy of the whole text, as a join of its parts would need
        head, tail = codec.render({**document, "messages": []}).split(_NO_MESSAGES, 1)
        main.write(head + _MESSAGES)
        built = BuiltMessages(self.messages, main)
        main.write(tail)
        return SessionDraft(
            location=self.location,
            main=main.getvalue(),
            data=document,
            messages=built,
            format=self.format,
            source_id=self.source_id,
            path=self.path,
            files=tuple(self._files.values()),
            updated_at=self._last or fallback,
            moved=frozenset(moved),
            cursor=cursor,
        )

    def _document(self, fallback: Timestamp) -> dict[str, Any]:
        document: dict[str, Any] = {
            "id": self.location.id,
            "title": self.title or self.derive_title(),
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
            "created_at": self._first or fallback,
            "updated_at": self._last or fallback,
        }
        if self.task_list is not None:
            document["task_list"] = self.task_list
        document["model"] = self.model
        return document | self._metadata_members(document)

    def _metadata_members(self, document: dict[str, Any]) -> dict[str, Any]:
        """`runtime_metadata`, its copy in `metadata` for older agents, and `workspace`."""
        runtime = {
            "last_run_status": self.status or self._derive_status(),
            "subagent_type": self.subagent_type,
            "workspace_path": self.workspace or None,
            "project_id": self.project_id or self.workspace.rstrip("/").rpartition("/")[2] or None,
        }
        runtime = {key: value for key, value in runtime.items() if value is not None}
        metadata = {**self.metadata, **runtime, "imported_from": self.format}
        known = {
            "host": source_host.get(),
            "git_branch": self.git_branch,
            "forked_from": self.forked_from,
            "resumed_from": self.resumed_from,
            "spawned_by": self.spawned_by,
        }
        metadata |= {key: value for key, value in known.items() if value}
        control: dict[str, Any] = {"metadata": metadata}
        if runtime:
            control["runtime_metadata"] = runtime
        if self.workspace:
            control["workspace"] = self.workspace
        return control

    def _derive_status(self) -> str | None:
        """The status of the last run: running until the agent has answered the last prompt or tool result, or asks."""
        last = next((message for message in reversed(self.messages) if message["role"] != "system"), None)
        if last is None:
            return self._before.status
        if last["role"] == "user" and last["content"].startswith(INTERRUPTION):
            return "cancelled"
        if any(call["function"]["name"] in QUESTION_TOOLS for call in last.get("tool_calls") or ()):
            return "suspended"
        is_answer = last["role"] == "assistant" and last["content"] and "tool_calls" not in last
        return "completed" if is_answer else "running"

    def derive_title(self) -> str:
        """A title from the first prompt a person typed, else from a slash command, else from any message."""
        typed = self._prompt_title or self._command_title
        if typed:
            return typed
        known = self._derived_titles()
        return known.answer or known.text or known.first or f"{self.format} {self.source_id}"[:80]

    def _derived_titles(self) -> DerivedTitles:
        before = self._before.titles
        answers = (m["content"] for m in self.messages if m["role"] == "assistant")
        texts = (m["content"] for m in self.messages)
        first = next((m["content"] for m in self.messages if m["content"].strip()), "")
        return DerivedTitles(
            before.answer or next(filter(None, map(title_of_prompt, answers)), ""),
            before.text or next(filter(None, map(title_of_prompt, texts)), ""),
            before.first or make_title(first),
        )

    # -- a later part of the same source -------------------------------------------------------------

    def dump(self) -> dict[str, Any] | None:
        """What a builder for the next lines of the source has to know, as JSON; None if they need all lines."""
        if self._first is None or self._last is None or self.task_list is not None:
            return None
        has_title = bool(self.title or self._prompt_title or self._command_title)
        return {
            "members": {name: getattr(self, name) for name in _DUMPED},
            "metadata": self.metadata,
            "typed": [self._prompt_title, self._command_title],
            "period": [self._first, self._last],
            "messages": self.count,
            "records": self._before.records + len(self._records),
            "titles": None if has_title else [*self._derived_titles()],
            "last_status": self._derive_status(),
            "logs": self.logs.dump(),
        }

    def restore(self, known: dict[str, Any]) -> None:
        """Go on after the lines that `dump` was called after."""
        for name, value in known["members"].items():
            setattr(self, name, value)
        self.metadata = known["metadata"]
        self._prompt_title, self._command_title = known["typed"]
        self._first, self._last = map(Timestamp, known["period"])
        titles = DerivedTitles(*known["titles"] or ())
        self._before = EarlierPart(known["messages"], known["records"], known["last_status"], titles)
        self.logs.restore(known["logs"])

    def take_part(self, known: Iterable[str]) -> BuiltPart:
        """What was added since `restore`. `known` are the paths of files that the session has."""
        return BuiltPart(
            members={key: value for key, value in self._document(self.period[1]).items() if key != "messages"},
            messages=self.messages,
            ids=self._ids,
            records=self._records,
            usage=self.logs.usage_lines(),
            steps=self.logs.steps,
            files=[file for name, file in self._files.items() if name not in set(known)],
        )


class ParsedLine(NamedTuple):
    raw: bytes
    record: dict[str, Any]
    exact: bool  # as in `coerce.Parsed`


def parse_line(builder: SessionBuilder, line: Line) -> list[ParsedLine]:
    """Parse one line of a JSONL file: one object, or several that a lost newline joined.

    A line that holds anything else raises BadRecord and is kept as raw text.
    """
    if line.data is None:
        raise BadRecord(f"line longer than {MAX_LINE_BYTES >> 20} MiB; skipped")
    try:
        record, exact = parse(line.data)
        if not isinstance(record, dict):
            raise BadRecord("expected an object")
    except BadRecord as error:
        joined = split_objects(line.data)
        if joined:
            return [ParsedLine(orjson.dumps(record), record, exact=True) for record in joined]
        builder.keep_raw(line.data)
        raise BadRecord(f"{error}; kept as raw text in {RECORDS}.jsonl") from None
    return [ParsedLine(line.data, record, exact)]
