"""Attachments of a session: files stored in its `attachments/` directory.

A commit that adds or removes an attachment also updates `has_attachments` in the index.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commit import Commit, IndexRefresh
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.to_trash import NOTHING_KEPT, TrashPart, deletion_reason, is_worth_keeping, to_trash
from store.commit.write_request import require_directory, stale_error
from store.disk import append_log
from store.disk.file import NewFile, is_same_content
from store.disk.trash import FILE_REPLACED, LOG_REPLACED
from store.documents import attachment_names
from store.errors import NotFound
from store.index.catalog import Version
from store.layout import Location
from store.model.session import Session
from store.path_kinds import PathKind, classify_path
from store.sessions.session_checks import locate, location_of


class Attachment(NamedTuple):
    id: str
    url: str  # how documents refer to it
    mime: str


@dataclass(frozen=True)
class Attachments:
    core: Core
    commits: Commits

    def attach(self, target: Session | str, data: bytes | str, mime: str | None) -> Attachment:
        """Store bytes, base64 text or a `data:` URL as an attachment of a session."""
        self.core.check_writable()
        location = location_of(target) if isinstance(target, Session) else locate(self.core, target)
        content, kind = attachment_names.decode(data, mime)
        extension = attachment_names.mime_to_extension(kind) or "bin"
        attachment_id = str(uuid.uuid4())
        directory = location.path(layout.ATTACHMENTS)
        file = NewFile(f"{directory}/{attachment_id}.{extension}", [content])
        # A session that was never saved may already have attachments; a deleted session may not.
        self.put_file(location, file, must_exist=not isinstance(target, Session) or target._origin is not None)
        url = attachment_names.reference(location.id, attachment_id)
        return Attachment(
            attachment_id, url, attachment_names.extension_to_mime(extension) or attachment_names.OCTET_STREAM
        )

    @repeats
    def put_file(
        self,
        location: Location,
        file: NewFile,
        *,
        must_exist: bool = False,
        base: Version | None = None,
        keep: bool = True,
    ) -> None:
        """Commit one attachment and set `has_attachments` in the index.

        `base` is the version the writer started from: if another one is there now, the write is
        rejected. The replaced file goes to the trash if `keep` is True and it is worth keeping.
        """
        self.core.check_writable()
        with self.core.locked(location):
            if must_exist and self.core.disk.stat(location.path(layout.SESSION)) is None:
                raise NotFound(f"session {location} was deleted")
            if base is not None and not is_same_content(base.main, now := self.core.disk.stamp(file.path)):
                raise stale_error(file.path, is_gone=now is None)
            self.commits.fresh_row(location)
            part = self._replaced(location, file.path) if keep else NOTHING_KEPT
            self.commits.run(
                Commit(
                    location, [*part.files, file], links=part.links, dirs=[file.path.rpartition("/")[0], *part.dirs]
                ),
                IndexRefresh(attachments={location: True}),
                "attachment",
            )

    def _replaced(self, location: Location, path: str) -> TrashPart:
        """The part of a commit that keeps the file it replaces."""
        info = self.core.disk.stat(path)
        if info is None or not is_worth_keeping(path, info):
            return NOTHING_KEPT
        row = self.core.index.find(location)
        reason = LOG_REPLACED if classify_path(path).kind is PathKind.LOG else FILE_REPLACED
        return to_trash(location, reason, linked=[path], title=row.entry.title if row else None)

    def create_file(self, location: Location, path: str, mode: int) -> None:
        """Create an empty attachment, for open(2) with O_CREAT. Raises FileExistsError."""
        self.core.check_writable()
        with self.core.locked(location), self.core.disk.creating(path, mode):
            row = self.commits.fresh_row(location)
            if row is not None and not row.entry.has_attachments:
                with self.core.db.write() as db:
                    self.core.note_attachments(db, location, present=True)
                    self.core.feed.add(db, [location], "attachment")
        self.core.on_commit()

    def append_file(self, location: Location, path: str, parts: Iterable[bytes], mode: int | None = None) -> None:
        """Append bytes to an attachment in place, all or none unless the process is killed.

        A file with another hard link is replaced by a longer copy: a link in the trash, or in a
        backup, must not change. Nothing is created where the directory is gone: the session was
        renamed or deleted since the writer opened the file.
        """
        self.core.check_writable()
        with self.core.locked(location):
            info = self.core.disk.stat(path)
            if info is None:
                require_directory(self.core.disk, path)
            if info is None or info.st_nlink > 1:
                longer = chain(self.core.disk.iter_chunks(path) if info is not None else (), parts)
                present = self.core.disk.stat_file(path)
                owner = (present.uid, present.gid) if present is not None else None
                mode = present.mode if present is not None else mode
                return self.put_file(location, NewFile(path, longer, None, None, mode, owner), keep=False)
            # As for logs: the transaction commits after the append, so either both happen or none.
            with append_log.appending_bytes(self.core.disk, path) as append, self.core.db.write() as db:
                self.core.feed.add(db, [location], "attachment")
                append(parts)
        self.core.on_commit()

    @repeats
    def remove_file(self, location: Location, path: str, *, keep: bool = True) -> None:
        """Delete an attachment and update the index in the same commit.

        The file goes to the trash. It is erased if it is not worth keeping, or if `keep` is False
        because it still exists under another name.
        """
        self.core.check_writable()
        with self.core.locked(location):
            info = self.core.disk.stat(path)
            if info is None:
                raise NotFound(f"{path} does not exist")
            self.commits.fresh_row(location)
            update = IndexRefresh(attachments={location: False})
            if keep and is_worth_keeping(path, info):
                why = deletion_reason(path, "attachment deleted")
                self.commits.move_to_trash(location, path, why, "attachment", update)
            else:
                self.commits.discard(location, [path], "attachment", update)

    def move_file(self, source: str, target: str, locations: Collection[Location]) -> None:
        """Rename a file into, out of or between the attachment directories of `locations`."""
        self.core.check_writable()
        with ExitStack() as held:
            for location in sorted(locations, key=str):  # a fixed order prevents deadlocks
                held.enter_context(self.core.locked(location))
                self.commits.fresh_row(location)
            first, is_tree = min(locations, key=str), len(locations) > 1
            place = classify_path(target)
            is_kept = place.kind is PathKind.ATTACHMENT or place.is_session_log
            part = self._replaced(place.location or first, target) if is_kept else NOTHING_KEPT
            commit = Commit(
                first,
                part.files,
                [(source, target)],
                links=part.links,
                dirs=part.dirs,
                touched=list(locations),
                whole_tree=is_tree,
            )
            self.commits.run(commit, IndexRefresh(attachments=dict.fromkeys(locations, False)), "attachment")

    def announce(self, locations: Collection[Location]) -> None:
        """Add a change to the feed only; for changes that add or remove no attachment."""
        if locations:
            with self.core.db.write() as db:
                self.core.feed.add(db, list(locations), "attachment")
            self.core.on_commit()

    def recount(self, location: Location) -> None:
        """Update the index after files in the directory changed by other means."""
        with self.core.locked(location):
            self.commits.fresh_row(location)
            present = session_reader.has_attachments(self.core.disk, location)
            with self.core.db.write() as db:
                self.core.note_attachments(db, location, present=present)
        self.announce([location])
