"""Append the new lines of a source to the session that its earlier lines became.

The cost depends on the new lines, and on the length of the session only as far as that of `store.append` does: files
are copied, but nothing in them is parsed again. Everything is one commit: messages, members, logs, and the receipt with
the cursor. So a crash leaves either the old cursor and the old session, or the new ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import pydantic

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.disk.file import File, NewFile
from store.documents import json_text, sidecar
from store.documents.document import type_problem
from store.errors import Corrupt, InvalidContent
from store.history.versions import KnownChange
from store.layout import Location
from store.model.message import Message
from store.model.timestamp import Timestamp, clip_ns
from store.transfer.formats.coerce import BadRecord, parse, source_host
from store.transfer.formats.file_position import FilePosition, is_prefix_unchanged, resumed
from store.transfer.formats.importer import Format, ImportProblem, ResumedFile
from store.transfer.formats.resuming import VERSION, Cursor, LineReader, NeedsWholeFile, make_cursor
from store.transfer.formats.session_builder import RECORDS, BuiltPart
from store.transfer.formats.source import MAX_LINE_BYTES, Source
from store.transfer.import_merge import merge_members
from store.transfer.import_receipts import OpenReceipt, Receipt, digest_file, digest_members, digest_messages
from store.transfer.open_document import OpenDocument

_RECORDS_FILE = f"{layout.ATTACHMENTS}/{RECORDS}.jsonl"


class GrownFile(NamedTuple):
    """A file of a source that has changed, and the session it became."""

    source: Source
    format: Format
    path: str
    location: Location
    is_checked_whole: bool  # compare all bytes that were read before, not only the first and the last


class AppendedLines(NamedTuple):
    """What became of the new lines of a file."""

    has_changed: bool
    has_rest: bool  # the last line is incomplete, and was not read
    can_go_on: bool  # the next lines can be read alone too
    problems: list[ImportProblem]


class _Present(NamedTuple):
    """The session as it is here."""

    main: File
    side: File
    receipt: OpenReceipt
    receipt_file: File


@dataclass(frozen=True)
class LineAppender:
    core: Core
    commits: Commits

    @repeats
    def append(self, file: GrownFile) -> AppendedLines | None:
        """Import the new lines of a file; None if the source has to be imported as a whole."""
        self.core.check_writable()
        try:
            with self.core.locked(file.location):
                return self._append(file)
        except (NeedsWholeFile, InvalidContent, Corrupt):
            return None  # the complete import reports what is wrong

    def _append(self, file: GrownFile) -> AppendedLines:
        present = self._read_present(file.location)
        try:
            cursor = _checked_cursor(file, present.receipt.receipt)
            reader, position = _resume(file, present.receipt.receipt, cursor)
        except (KeyError, TypeError, ValueError):
            raise NeedsWholeFile("the cursor was edited") from None
        problems = _read_lines(file, reader, position)
        has_rest = _check_rest(file, position)
        if position.offset == cursor["file"]["offset"]:
            return AppendedLines(False, has_rest, True, [])
        reader.finish()
        after = make_cursor(file.source, file.path, position, reader)
        part = reader.builder.take_part(present.receipt.receipt.files)
        if any(map(present.receipt.has_message, part.ids)):
            raise NeedsWholeFile("a message is repeated")
        self._commit(file.location, present, part, cursor, after)
        return AppendedLines(True, has_rest, after is not None, problems)

    def _read_present(self, location: Location) -> _Present:
        pair = self.core.read(location)
        receipt = self.core.disk.read(location.path(layout.RECEIPT))
        if pair.main is None or pair.side is None or receipt is None:
            raise NeedsWholeFile("a document or the receipt is missing")
        try:
            present = _Present(pair.main, pair.side, OpenReceipt(receipt.data), receipt)
        except ValueError as error:
            raise NeedsWholeFile(str(error)) from None
        if not present.receipt.receipt.is_of(location):
            raise NeedsWholeFile("the receipt of another session")
        return present

    # -- the commit --------------------------------------------------------------------------------

    def _commit(
        self, location: Location, present: _Present, part: BuiltPart, before: Cursor, after: Cursor | None
    ) -> None:
        row = self.commits.fresh_row(location)
        if row is None or row.append_offsets is None:
            raise NeedsWholeFile("session.json cannot be appended to")
        for message in part.messages:
            _check_message(message)
        document = OpenDocument(location, present.main, present.side, row.append_offsets)
        here, receipt = document.members, present.receipt.receipt
        merged = merge_members(receipt, here, part.members)
        merged["updated_at"] = max((here["updated_at"], part.members["updated_at"]), key=lambda at: Timestamp(at).ns)
        grown = document.extended(merged, part.messages)
        json_text.check_size(sum(map(len, grown.parts)), location.path(layout.SESSION), self.core.limit_bytes)
        texts = self._log_texts(location, receipt, part, before["builder"]["logs"]["usage"])
        files = [self._new_file(location, name, [data]) for name, data in texts.items()]
        digests = {name: digest_file(data) for name, data in texts.items()}
        digests |= _document_digests(present, receipt, grown.parts, grown.side)
        new_receipt = replace(
            receipt,
            files={**receipt.files, **digests},
            messages=digest_messages({"messages": part.messages}),
            members=digest_members(part.members),
            cursor=after,
        )
        receipt_parts = present.receipt.render(new_receipt)
        files += [
            NewFile(location.path(layout.RECEIPT), receipt_parts, present.receipt_file),
            NewFile(location.path(layout.RUNTIME), [grown.side], present.side),
            NewFile(location.path(layout.SESSION), grown.parts, present.main),
        ]
        record = sidecar.overlay(grown.main_record, grown.side_record)
        has_attachments = row.entry.has_attachments or any(name.startswith(layout.ATTACHMENTS) for name in texts)
        count = row.entry.message_count + len(part.messages)
        entry = session_reader.entry_of(record, location, count, has_attachments=has_attachments)
        summary = session_reader.summary_of(record)
        update = self.core.index.plan_append(row, entry, grown.offsets, part.messages, summary)
        known = {location.path(layout.SESSION): KnownChange(clip_ns(record.updated_at.ns), grown.splices)}
        self.commits.run(Commit(location, files, dirs=_dirs_of(files), known=known), update, "appended")

    def _log_texts(self, location: Location, receipt: Receipt, part: BuiltPart, last_usage: Any) -> dict[str, bytes]:
        """The files of the session that change, other than its documents."""
        texts = {file.name: b"".join(file.read()) for file in part.files}
        if part.records:
            texts[_RECORDS_FILE] = self._text(location, _RECORDS_FILE, receipt) + _lines(part.records)
        if part.steps:
            texts[layout.TRAJECTORY] = self._text(location, layout.TRAJECTORY, receipt) + _lines(part.steps)
        old_usage = [orjson.dumps(last_usage)] if last_usage else []
        if part.usage != old_usage:
            text = self._text(location, layout.TOKEN_USAGE, receipt)
            texts[layout.TOKEN_USAGE] = _with_usage(text, old_usage, part.usage)
        return texts

    def _text(self, location: Location, name: str, receipt: Receipt) -> bytes:
        """A log as it was imported. One that was changed here is merged by a complete import."""
        found = self.core.disk.read(location.path(name))
        if (digest_file(found.data) if found else None) != receipt.files.get(name):
            raise NeedsWholeFile(f"{name} was changed here")
        return found.data if found else b""

    def _new_file(self, location: Location, name: str, parts: Sequence[bytes]) -> NewFile:
        path = location.path(name)
        present = self.core.disk.read(path)
        if present is not None and name not in (_RECORDS_FILE, layout.TRAJECTORY, layout.TOKEN_USAGE):
            raise NeedsWholeFile(f"{name} already exists here")
        return NewFile(path, parts, present)


# -- the source ----------------------------------------------------------------------------------------


def _checked_cursor(file: GrownFile, receipt: Receipt) -> Cursor:
    """The cursor of a session, if it is of this file, and the file still begins with what was read."""
    cursor = receipt.cursor
    host = source_host.get()
    if cursor is None or cursor["version"] != VERSION or receipt.format != file.format.name:
        raise NeedsWholeFile("there is no cursor")
    if cursor["file"]["path"] != file.source.display_path(file.path):
        raise NeedsWholeFile("the cursor is of another file")
    if host and not receipt.source_id.startswith(f"{host}:"):
        raise NeedsWholeFile("the session is of another machine")
    with file.source.open_file(file.path) as opened:
        if not is_prefix_unchanged(opened, cursor["file"], whole=file.is_checked_whole):
            raise NeedsWholeFile("the file was rewritten")
    return cursor


def _resume(file: GrownFile, receipt: Receipt, cursor: Cursor) -> tuple[LineReader, FilePosition]:
    assert file.format.resume is not None
    host = source_host.get()
    source_id = receipt.source_id.removeprefix(f"{host}:") if host else receipt.source_id
    resumed_file = ResumedFile(file.source, file.path, file.location, source_id, cursor["reader"])
    reader: LineReader = file.format.resume(resumed_file)
    reader.builder.restore(cursor["builder"])
    return reader, resumed(cursor["file"], file.source.head(file.path, cursor["file"]["first"][0]))


def _read_lines(file: GrownFile, reader: LineReader, position: FilePosition) -> list[ImportProblem]:
    problems: list[ImportProblem] = []
    for line in file.source.iter_new_lines(file.path, position):
        try:
            reader.read_line(line)
        except BadRecord as error:
            problems.append(ImportProblem(file.source.display_path(file.path), line.number, str(error)))
    return problems


def _check_rest(file: GrownFile, position: FilePosition) -> bool:
    """Whether an incomplete line follows. A complete record without a newline is left to the complete import."""
    with file.source.open_file(file.path) as opened:
        opened.seek(position.offset)
        rest = opened.read(MAX_LINE_BYTES + 1)
    if not rest.strip():
        return False
    if file.is_checked_whole or len(rest) > MAX_LINE_BYTES or rest.endswith(b"\n"):
        raise NeedsWholeFile("the last line is incomplete or too long")
    try:
        parse(rest)
    except BadRecord:
        return True
    raise NeedsWholeFile("the last line has no newline")


# -- texts -----------------------------------------------------------------------------------------------


def _check_message(message: dict[str, Any]) -> None:
    """Reject a message that the owning agent could not load (rule 6)."""
    try:
        Message.model_validate(message)
    except pydantic.ValidationError as error:
        raise InvalidContent("message", type_problem(error)) from None


def _with_usage(text: bytes, old: list[bytes], new: list[bytes]) -> bytes:
    """The log with new answers, the first of which replaces the last line: it may have more tokens now."""
    if old and not text.endswith(last := _lines(old)):
        raise NeedsWholeFile("the log of answers does not end as expected")
    kept = text[: -len(last)] if old else text
    for line in new[len(old) :]:
        answer = orjson.dumps(orjson.loads(line)["answer"])
        if b'"answer":' + answer in kept:
            raise NeedsWholeFile("an earlier answer is repeated")
    return kept + _lines(new)


def _document_digests(
    present: _Present, receipt: Receipt, parts: Sequence[bytes | memoryview], side: bytes
) -> dict[str, str]:
    """The digests of documents that are as they were imported. For others the digests of the last import stay."""
    found = {}
    if digest_file(present.main.data) == receipt.files[layout.SESSION]:
        sha256 = hashlib.sha256()
        for part in parts:
            sha256.update(part)
        found[layout.SESSION] = sha256.hexdigest()
    if digest_file(present.side.data) == receipt.files[layout.RUNTIME]:
        found[layout.RUNTIME] = digest_file(side)
    return found


def _lines(lines: Sequence[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


def _dirs_of(files: Sequence[NewFile]) -> list[str]:
    return list(dict.fromkeys(file.path.rpartition("/")[0] for file in files))
