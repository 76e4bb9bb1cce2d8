"""rename(2): onto a document, away from a document, and everything else.

Renaming a file onto a document commits its bytes. Renaming a document away writes a copy under the
new name; the caller decides whether the document itself is deleted. A stale file must not replace
a newer version: the caller passes what it knows about the file's origin.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from store import layout
from store.commit.core import Core
from store.commit.write_request import CommitResult, OnConflict, Writer, WriteRequest
from store.disk.file import Stamp, is_same_content
from store.documents import json_text
from store.errors import AlreadyExists, Conflict, NotFound, Protected
from store.index.catalog import Version
from store.namespace import incoming
from store.namespace.namespace import Namespace
from store.path_kinds import CHECKED, FIXED_DIRS, VERSIONED, PathInfo, PathKind


@dataclass(frozen=True)
class RenameRequest:
    """A file to be renamed onto `target`, and what is known about its creation."""

    source: PathInfo
    target: PathInfo
    on_conflict: OnConflict = "reject"
    # Stamps of the documents next to the file when it was created: its writer can have read
    # nothing newer.
    seen_at_create: Mapping[str, Stamp | None] = field(default_factory=dict)
    created_ns: int | None = None  # used where `seen_at_create` has nothing
    removed: Stamp | None = None  # the target's version that the writer renamed or unlinked first
    unlinked_first: bool = False
    has_set_times: bool = False  # rsync, cp -p: set mode and time even if the bytes are equal
    # The process that opened the file for writing, else the one that renames it; `opened` of the
    # former counts up to its last truncation of the file.
    writer: Writer | None = None


@dataclass(frozen=True)
class Moves:
    core: Core
    names: Namespace

    # -- everything but documents ------------------------------------------------------------------

    def move(self, source: PathInfo, target: PathInfo, *, replace: bool = True) -> None:
        """Rename anything but a document: a session, an attachment, a foreign file or directory."""
        for place in (source, target):
            self.names.check_name(place)
        self.core.check_writable()
        info = self.core.disk.stat(source.path)
        if info is None:
            raise NotFound(f"{source.path} does not exist")
        if not replace and self.core.disk.stat(target.path) is not None:
            raise AlreadyExists(f"{target.path} exists")
        if stat.S_ISDIR(info.st_mode):
            self._move_dir(source, target)
        else:
            self._move_file(source, target, info)

    def _move_dir(self, source: PathInfo, target: PathInfo) -> None:
        names = self.names
        if source.kind is PathKind.SESSION and source.location is not None:
            if target.kind is not PathKind.SESSION or target.location is None:
                raise Protected(f"{source.path} is a session; it can only become another session")
            names.require_unpinned(source)
            return names.rename.move(source.location, target.location)
        if source.kind in FIXED_DIRS:
            raise Protected(f"{source.path} cannot be moved")
        if target.kind in VERSIONED and target.kind is not PathKind.ATTACHMENT:
            raise Protected(f"{target.path} can only be a plain file")
        if target.kind is PathKind.SESSION and target.location is not None:
            layout.check_new(target.location)
        incoming.require_checked_documents(self.core, source, target)
        if names.dispatcher.move(source, target, is_dir=True):
            return names.rejects.rename(source.path, target.path)
        if self._move_plain(source, target, is_dir=True):
            self._recheck_moved(source, target)
        self._notify(source, target)
        if target.kind is PathKind.SESSION and target.location is not None:
            self.core.refresh(target.location)

    def _move_file(self, source: PathInfo, target: PathInfo, info: os.stat_result) -> None:
        if target.kind is PathKind.ATTACHMENT and stat.S_ISLNK(info.st_mode):
            raise Protected(f"{target.path} cannot be a link")
        if target.kind in VERSIONED and target.kind is not PathKind.ATTACHMENT:
            return self._commit_move(source, target, info)
        if not self.names.dispatcher.move(source, target, is_dir=False):
            self._move_plain(source, target, is_dir=False)
            self._notify(source, target)

    def _move_plain(self, source: PathInfo, target: PathInfo, *, is_dir: bool) -> bool:
        """Rename a file or directory; False for an attachment, whose index row is updated here."""
        if source.kind is not PathKind.FOREIGN:
            self.names.require_unpinned(source)
        attached = {p.location for p in (source, target) if p.kind is PathKind.ATTACHMENT and p.location is not None}
        if attached:
            self.names.attachments.move_file(source.path, target.path, attached)
            return False
        if target.is_session_log and target.location is not None and not is_dir:
            self.names.logs.replace_log(target.location, source.path, target.path)
        else:
            self._rename(source, target)
        return True

    def _notify(self, source: PathInfo, target: PathInfo) -> None:
        for place in (source, target):
            self.names.dispatcher.notify_changed(place)

    def _commit_move(self, source: PathInfo, target: PathInfo, info: os.stat_result) -> None:
        """Rename onto a file that is committed whole: commit the bytes, remove the old name."""
        if not stat.S_ISREG(info.st_mode):
            raise Protected(f"{target.path} can only be a plain file")
        json_text.check_size(info.st_size, target.path, self.core.limit_bytes)
        data = self.names.read(source)
        if data is None:
            raise NotFound(f"{source.path} does not exist")
        mode, mtime_ns = stat.S_IMODE(info.st_mode), info.st_mtime_ns
        self.names.commit(WriteRequest(target, data, mode=mode, mtime_ns=mtime_ns))
        self.names.remove_moved(source)

    def _rename(self, source: PathInfo, target: PathInfo) -> None:
        self.core.disk.move(source.path, target.path)
        self.core.disk.sync_after_change([target.directory, source.directory])  # rule 2

    def _recheck_moved(self, source: PathInfo, target: PathInfo) -> None:
        """Check the moved files again, and move them back if they were changed since the first check."""
        try:
            incoming.require_checked_documents(self.core, source, target, is_renamed=True)
        except BaseException:
            self._rename(target, source)
            raise

    # -- onto a log --------------------------------------------------------------------------------

    def onto_log(self, request: RenameRequest) -> CommitResult:
        """Rename a file onto a log, unless the log has lines that the file's writer cannot have read.

        A log that is renamed (`mv l.jsonl l.1.jsonl`) may be older than the one it replaces.
        """
        source, target = request.source, request.target
        assert target.location is not None
        with self.core.locked(target.location):
            log = self.core.disk.stat(target.path)
            is_checked = request.on_conflict != "overwrite"
            if log is not None and is_checked and self._has_new_lines(log, request):
                error = Conflict(f"{target.path} has lines that {source.name} was made without; repeat the change")
                self.names.rejects.store(target.directory, target.name, self.core.disk.iter_chunks(source.path), error)
                raise error
            self.move(source, target)
            renamed = self.core.disk.stat(target.path)
        self.names.rejects.clear(target.directory, target.name)
        return CommitResult(is_changed=True, info=renamed)

    def _has_new_lines(self, log: os.stat_result, request: RenameRequest) -> bool:
        is_rotated = request.source.kind is PathKind.LOG
        return _is_unread(log, request.writer) or (not is_rotated and self._is_newer(log, request))

    # -- onto a document ---------------------------------------------------------------------------

    def onto_document(self, request: RenameRequest) -> CommitResult:
        """Commit the source as the target.

        The source itself is left alone: the caller removes or hides its name.
        """
        source, target = request.source, request.target
        info = self.names.stat(source.path)
        if info is not None and not stat.S_ISREG(info.st_mode):
            raise Protected(f"{target.path} can only be a plain file")
        data = self.names.read(source)
        if info is None or data is None:
            raise NotFound(f"{source.path} does not exist")
        # First: a version committed from here on is a conflict.
        base: Version | None = self.names.version(target)
        on_conflict = request.on_conflict
        if self._can_merge(request):  # what is known of the writer decides, under the lock
            base = base if request.writer is not None else None
        else:
            on_conflict = "reject" if on_conflict == "merge" else on_conflict
            self._reject_stale(request, data)
        mode, mtime_ns = info.st_mode & 0o7777, info.st_mtime_ns
        write = WriteRequest(target, data, base, on_conflict, request.unlinked_first, mode, mtime_ns)
        unlinked = request.removed if request.unlinked_first else None
        result = self.names.commit(replace(write, writer=request.writer, unlinked=unlinked))
        if not result.is_changed and result.draft is None and request.has_set_times:
            self.names.set_attributes(target, mode=mode, times_ns=(info.st_atime_ns, mtime_ns))
        return result

    def _can_merge(self, request: RenameRequest) -> bool:
        """Whether the file is an edit of the target, and the versions it may have started from are known."""
        writer, kind = request.writer, request.target.kind
        if request.on_conflict != "merge" or request.source.kind in CHECKED or not self.core.history.is_on:
            return False
        has_evidence = writer is not None and (writer.opened or writer.relatives or writer.last_draft is not None)
        return kind is PathKind.DOCUMENT or (kind is PathKind.STATE_JSON and bool(has_evidence))

    def _reject_stale(self, request: RenameRequest, data: bytes) -> None:
        """Reject a file that was created before the current version was committed.

        Its writer cannot have read that version. Moving one document onto another is not an edit
        of it, however old the moved one is.
        """
        target = request.target
        committed = self.names.stat(target.path)
        if request.on_conflict == "overwrite" or committed is None or request.source.kind in CHECKED:
            return
        if request.removed == Stamp.of(committed):  # no other version was committed since the writer removed it
            return
        if self._is_newer(committed, request):
            error = Conflict(
                f"{target.path} was changed by another writer since {request.source.name} was created; "
                "the newer version is kept"
            )
            self.names.rejects.store(target.directory, target.name, data, error)
            raise error

    def _is_newer(self, committed: os.stat_result, request: RenameRequest) -> bool:
        """Whether a version was committed after the file was created: by stamps, else by times."""
        if request.target.path in request.seen_at_create:
            seen, now = request.seen_at_create[request.target.path], Stamp.of(committed)
            # A backup makes hard links, which change the ctime of a log.
            return not is_same_content(seen, now) if request.target.kind is PathKind.LOG else seen != now
        # The mount may have dropped the node since; the filesystem knows when the file was created.
        created_ns = request.created_ns or self.names.birth_ns(request.source)
        if committed.st_ctime_ns > time.time_ns():
            return False  # the clock was set back: times prove nothing, only updated_at decides
        return created_ns is not None and created_ns < committed.st_ctime_ns

    # -- away from a document, and both at once ----------------------------------------------------

    def copy_away(self, source: PathInfo, target: PathInfo) -> os.stat_result:
        """Copy a document to the foreign path it is renamed to; returns the document's stat."""
        self.core.check_writable()
        if target.kind not in (PathKind.FOREIGN, PathKind.ATTACHMENT):
            raise Protected(f"{source.path} can only become a foreign file")
        info, data = self.names.stat(source.path), self.names.read(source)
        if info is None or data is None:
            raise NotFound(f"{source.path} does not exist")
        self.names.write_copy(target, data, info)
        return info

    def exchange(
        self, one: PathInfo, other: PathInfo, on_conflict: OnConflict = "reject", writer: Writer | None = None
    ) -> CommitResult | None:
        """Exchange two files.

        Of a document and a foreign file, the file's bytes are committed first. Returns the result.
        """
        if one.kind in CHECKED and other.kind in CHECKED:
            raise Protected(f"{one.path}, {other.path}: cannot exchange two session documents")
        if one.kind in CHECKED or other.kind in CHECKED:
            document, file = (one, other) if one.kind in CHECKED else (other, one)
            return self._exchange_document(document, file, on_conflict, writer)
        self._exchange_files(one, other)
        return None

    def _exchange_document(
        self, document: PathInfo, file: PathInfo, on_conflict: OnConflict, writer: Writer | None
    ) -> CommitResult:
        names = self.names
        base = names.version(document)  # first: a version committed from here on is a conflict
        was, old, new = names.stat(document.path), names.read(document), names.read(file)
        if was is None or old is None or new is None:
            raise NotFound(f"{document.path} or {file.path} does not exist")
        if file.kind is not PathKind.FOREIGN:
            raise Protected(f"{document.path} can only be exchanged with a foreign file")
        name = f".{uuid4()}.old"  # not of the file's name: a user may have a file called that
        kept = file._replace(path=f"{file.directory}/{name}", name=name)
        names.write_copy(kept, old, was)  # first: the old version always has a name
        try:
            result = names.commit(WriteRequest(document, new, base, on_conflict, writer=writer))
        except BaseException:  # also an interrupt
            names.remove_file(kept, keep=False)
            raise
        self.move(kept, file)
        return result

    def _exchange_files(self, one: PathInfo, other: PathInfo) -> None:
        """Exchange two foreign files or attachments, in one step."""
        self.core.check_writable()
        for place in (one, other):
            if place.kind not in (PathKind.FOREIGN, PathKind.ATTACHMENT):
                raise Protected(f"{place.path} cannot be moved")
            if (info := self.core.disk.stat(place.path)) is None:
                raise NotFound(f"{place.path} does not exist")
            if PathKind.ATTACHMENT in (one.kind, other.kind) and not stat.S_ISREG(info.st_mode):
                raise Protected(f"{place.path} is not a plain file; only plain files can be attached")
            self.names.require_unpinned(place)
        self.core.disk.exchange(one.path, other.path)  # keeps the number of attachments
        try:
            self.names.attachments.announce(
                {p.location for p in (one, other) if p.kind is PathKind.ATTACHMENT and p.location is not None}
            )
            for place in (one, other):
                self.names.dispatcher.notify_exchanged(place)
        except BaseException:  # rule 7: a change that cannot be announced is undone
            self.core.disk.exchange(one.path, other.path)
            raise


def _is_unread(log: os.stat_result, writer: Writer | None) -> bool:
    """Whether a writer is known to have opened the log, but not since it changed last."""
    opened = writer.opened or writer.relatives if writer is not None else ()
    return bool(opened) and not any(is_same_content(stamp, Stamp.of(log)) for stamp in opened)
