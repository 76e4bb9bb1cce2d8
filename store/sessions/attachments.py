"""What lies beside the documents of a session: attachments and logs."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import orjson

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.journal import Commit
from store.disk import append_log as logs
from store.disk.file import NewFile
from store.documents import attachment_names
from store.errors import InvalidContent, NotFound, Problem
from store.index import changed_files
from store.index.catalog import CatalogRow
from store.layout import Location
from store.model.session import Session
from store.sessions.save import locate, location_of


class Attachment(NamedTuple):
    id: str
    url: str  # what a document refers to it by
    mime: str


@dataclass(frozen=True)
class Beside:
    core: Core
    commits: Commits

    def attach(self, target: Session | str, data: bytes | str, mime: str | None) -> Attachment:
        """Store a file with a session: bytes, base64 text, or a `data:` URL."""
        self.core.check_writable()
        location = location_of(target) if isinstance(target, Session) else locate(self.core, target)
        content, kind = attachment_names.decode(data, mime)
        extension = attachment_names.mime_to_extension(kind)
        if extension is None:
            raise InvalidContent("attachment", Problem(f"{kind!r} is no MIME type"))
        attachment_id = str(uuid.uuid4())
        directory = location.path(layout.ATTACHMENTS)
        file = NewFile(f"{directory}/{attachment_id}.{extension}", [content])
        # A session that was never saved may have attachments already; one that was deleted may not.
        self.put_file(location, file, must_exist=not isinstance(target, Session) or target._origin is not None)
        url = attachment_names.reference(location.id, attachment_id)
        return Attachment(attachment_id, url, attachment_names.extension_to_mime(extension) or attachment_names.OCTETS)

    def put_file(self, location: Location, file: NewFile, *, must_exist: bool = False) -> None:
        """Put an attachment in place, whole; the index notes that the session has some."""
        self.core.check_writable()
        with self.core.locked(location):
            if must_exist and self.core.disk.stat(location.path(layout.SESSION)) is None:
                raise NotFound(f"session {location} is gone")
            row = self.commits.fresh_row(location)
            self.commits.run(
                Commit(location, [file], dirs=[file.path.rpartition("/")[0]]),
                lambda db: self._note(db, row, present=True),
                "attachment",
            )

    def remove_file(self, location: Location, path: str, *, keep: bool = True) -> None:
        """Take an attachment away, and note in the same commit whether others are left. It goes to the trash, unless
        it lives on under another name, or never was anything."""
        self.core.check_writable()
        with self.core.locked(location):
            info = self.core.disk.stat(path)
            if info is None:
                raise NotFound(f"{path} does not exist")
            row = self.commits.fresh_row(location)

            def note(db: apsw.Connection) -> None:
                self._note_present(db, location, row)

            if keep and _is_worth_keeping(path, info):
                self.commits.move_to_trash(location, path, "attachment deleted", "attachment", note)
            else:
                self.commits.discard(location, [path], "attachment", note)

    def remove_log(self, location: Location, path: str) -> None:
        """Take a log away, into the trash."""
        with self.core.locked(location):
            info = self.core.disk.stat(path)
            if info is None:
                raise NotFound(f"{path} does not exist")
            if _is_worth_keeping(path, info):
                self.commits.move_to_trash(location, path, "log deleted", "log")
            else:
                self.commits.discard(location, [path], "log")

    def move_file(self, source: str, target: str, locations: Collection[Location]) -> None:
        """Rename among attachments, or to or from them; `locations` are the sessions that win or lose one."""
        self.core.check_writable()
        with ExitStack() as held:
            for location in sorted(locations, key=str):  # always in the same order: who waits crosswise waits for ever
                held.enter_context(self.core.locked(location))
            rows = {location: self.commits.fresh_row(location) for location in locations}

            def note(db: apsw.Connection) -> None:
                for location, row in rows.items():
                    self._note_present(db, location, row)

            first, is_tree = min(locations, key=str), len(locations) > 1
            commit = Commit(first, moves=[(source, target)], touched=list(locations), whole_tree=is_tree)
            self.commits.run(commit, note, "attachment")

    def tell(self, locations: Collection[Location]) -> None:
        """Attachments changed and none came or went: only others are to hear of it."""
        if locations:
            with self.core.db.write() as db:
                self.core.feed.add(db, list(locations), "attachment")
            self.core.on_commit()

    def recount(self, location: Location) -> None:
        """Something came or went among the attachments by another way."""
        with self.core.locked(location):
            row = self.commits.fresh_row(location)
            with self.core.db.write() as db:
                self._note_present(db, location, row)
        self.tell([location])

    def _note_present(self, db: apsw.Connection, location: Location, row: CatalogRow | None) -> None:
        self._note(db, row, present=session_reader.has_attachments(self.core.disk, location))

    def _note(self, db: apsw.Connection, row: CatalogRow | None, *, present: bool) -> None:
        if row is not None and row.entry.has_attachments != present:
            entry = row.entry.model_copy(update={"has_attachments": present})
            self.core.index.put_entry(db, row, entry)

    def append_log(self, session_id: str, name: str, record: str | dict[str, Any]) -> bool:
        """Append one line to a session's log; False, and nothing written, for an unknown id."""
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        return self.append_lines(location, name, _line(record, name) + b"\n")

    def append_lines(self, location: Location, name: str, lines: bytes) -> bool:
        """Append whole lines, all or none; False, and nothing written, if there is no session."""
        with self.core.locked(location):
            if self.core.disk.stat(location.path(layout.SESSION)) is None:
                return False  # gone since it was located
            path = location.path(name)
            # The index is had first, and written last: if that fails, the lines are taken back.
            with logs.appending(self.core.disk, path) as append, self.core.db.write() as db:
                self.core.feed.add(db, [location], "log")
                changed_files.note(db, [path])
                append(lines)
        self.core.on_commit()
        return True


def _is_worth_keeping(path: str, info: os.stat_result) -> bool:
    """What editors and rsync make and take away again is not, nor what is empty or no file."""
    name = path.rpartition("/")[2]
    return stat.S_ISREG(info.st_mode) and info.st_size > 0 and not name.startswith(".") and not name.endswith("~")


def _line(record: str | dict[str, Any], name: str) -> bytes:
    """Exactly one line, whatever newline the caller put at its end."""
    try:
        line = record.rstrip("\n").encode() if isinstance(record, str) else orjson.dumps(record)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidContent(name, Problem(f"the record cannot be written: {error}")) from None
    if b"\n" in line:
        raise InvalidContent(name, Problem("the record has more than one line"))
    return line
