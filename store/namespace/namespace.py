"""Filesystem operations on paths of a home: open, commit, create, remove, set attributes.

`path_kinds` gives the kind of a path. Files that are committed whole are written by the module of
their kind; bytes they reject are stored here. This module handles the rest: directories,
attachments and foreign files. Nothing but mail can be removed from a pinned session. Renames are
in `moves`.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from store import layout
from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.commit.to_trash import is_worth_keeping, to_trash
from store.commit.write_request import CommitResult, OnConflict, Writer, WriteRequest
from store.disk.file import DirEntry, NewFile, Stamp, Temp
from store.disk.file_io import copy_file
from store.disk.rejects import Rejects
from store.errors import (
    BambooAtWork,
    Busy,
    Conflict,
    Generated,
    InvalidContent,
    NotEmpty,
    NotFound,
    Protected,
    StoreError,
    TooLarge,
    Unreachable,
    Unsure,
)
from store.index.catalog import Version
from store.layout import Location
from store.namespace.dispatch import Dispatcher
from store.namespace.file_attributes import change_attributes, change_mode, create_file, has_attributes
from store.namespace.reader import Reader, may_read
from store.path_kinds import CHECKED, PathInfo, PathKind
from store.sessions.attachments import Attachments
from store.sessions.delete import DeleteOperations
from store.sessions.logs import Logs
from store.sessions.put import PutOperation
from store.sessions.rename import RenameOperation

log = logging.getLogger("grovefs.store")

# Foreign files do not belong to the session, except for the receipt of its import; a pinned session still receives
# and acknowledges mail.
_NEVER_PINNED = (PathKind.FOREIGN, PathKind.MESSAGE, PathKind.MAILBOX)

# After these the typed text is kept. Unreachable, Unsure: the grove has not taken it, or may not have.
# BambooAtWork, Busy: open(2) may have succeeded before.
_KEPT_WHEN_REFUSED = (InvalidContent, Conflict, Unreachable, Unsure, BambooAtWork, Busy)


@dataclass(frozen=True)
class Namespace:
    core: Core
    attachments: Attachments
    logs: Logs
    put: PutOperation
    delete: DeleteOperations
    rename: RenameOperation
    rejects: Rejects
    dispatcher: Dispatcher

    # -- reading -----------------------------------------------------------------------------------

    @property
    def mode_of_sessions(self) -> int:
        """Mode of new directories: 0700 unless the home is shared."""
        return self.core.disk.dir_mode

    def may_read(self, reader: Reader, path: str) -> bool:
        """Whether another user may see a file, or what is derived from a session given by its directory."""
        return may_read(self.core.disk, reader, path)

    def stat(self, path: str) -> os.stat_result | None:
        return self.core.disk.stat(path)

    def entries(self, path: str) -> list[DirEntry]:
        return self.core.disk.entries(path)

    def scan(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The names in a directory, with their stat results."""
        return self.core.disk.scan(path)

    def birth_ns(self, place: PathInfo) -> int | None:
        """Creation time of a file; None if the filesystem does not store it."""
        return self.core.disk.birth_ns(place.path)

    def refresh(self, location: Location) -> None:
        """Index a session again if its files changed."""
        self.core.refresh(location)

    def read(self, place: PathInfo) -> bytes | None:
        """The content of a file; None if it does not exist."""
        file = self.core.disk.read(place.path)
        return file.data if file else None

    def open(self, place: PathInfo, flags: int, mode: int = 0o600) -> int:
        """Open a file without following links, neither in its directories nor in its name."""
        if flags == os.O_RDONLY:
            return self.core.disk.open_to_read(place.path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            self.check_may_write(place)
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            opener = create_file if flags & os.O_CREAT else os.open
            return opener(place.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=parent)

    def version(self, place: PathInfo) -> Version:
        """The current version of a file: the `base` of a later WriteRequest."""
        return self.version_of(place, self.stat(place.path))

    @staticmethod
    def version_of(place: PathInfo, info: os.stat_result | None) -> Version:
        """The same for a file that was stat-ed; `info` is None if it does not exist."""
        stamp = Stamp.of(info) if info is not None else None
        is_sidecar = place.kind is PathKind.DOCUMENT and place.name == layout.RUNTIME
        return Version(None, stamp) if is_sidecar else Version(stamp, None)

    def check_may_write(self, place: PathInfo) -> None:
        """Raise, with the reason, if this file cannot be written now."""
        self.core.check_writable()
        self.check_name(place)

    def check_may_hide(self, place: PathInfo) -> None:
        """Raise if a document cannot be removed now. Only hidden, it would reappear after ten seconds."""
        self.check_may_write(place)
        self.require_unpinned(place)
        self.core.disk.require_writable()

    def check_name(self, place: PathInfo) -> None:
        """Raise Generated if the store writes this file itself."""
        if place.kind is PathKind.DERIVED:
            raise Generated(f"{place.path} is generated from the sessions next to it and cannot be changed")

    def read_link(self, place: PathInfo) -> str:
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            return os.readlink(place.name, dir_fd=parent)

    def new_write_buffer(self) -> Temp:
        """Create a file for bytes that are not committed yet.

        The next opening of the home removes leftovers.
        """
        return self.core.disk.open_temp()

    def drop_write_buffer(self, path: str) -> None:
        self.core.disk.drop_temp(path)

    def create_top_dirs(self) -> None:
        """Create the top directories that a mount shows, even if they are empty."""
        for name in layout.STORED:
            self.core.disk.make_dirs(name)

    # -- committing --------------------------------------------------------------------------------

    def commit(self, request: WriteRequest) -> CommitResult:
        """Commit one file whole. Content that is rejected is kept, with the reason."""
        target = request.target
        if request.content is None:
            self._set_known_attributes(request)
            return CommitResult(False, self.core.disk.stat(target.path))
        if target.kind is PathKind.ATTACHMENT:
            self._commit_attachment(request)
            is_in_place = self._is_in_place(request)
            return CommitResult(True, self._stat_committed(request, is_in_place=is_in_place), is_in_place=is_in_place)
        raw: bytes | None = None
        try:
            if target.kind is not PathKind.DOCUMENT:  # PutOperation checks this itself
                self.check_may_write(target)
            raw = request.read(self.core.limit_bytes)
            put = self.put.put if target.kind is PathKind.DOCUMENT else self.dispatcher.put
            result = put(request, raw)
        except _KEPT_WHEN_REFUSED as error:
            if raw is not None or not isinstance(error, TooLarge):  # a sparse file may be larger than the disk
                self._keep_rejected(request, raw if raw is not None else request.read(self.core.limit_bytes), error)
            raise
        if result.is_changed:  # vim and `cp -b` put the old version back after a rejection: that repairs nothing
            self.rejects.clear(target.directory, target.name)
        elif target.kind is PathKind.STATE_TEXT:  # the same text, but mode and time are as on any filesystem
            self._set_known_attributes(request)
        is_in_place = result.is_changed and self._is_in_place(request)
        info = result.info or self._stat_committed(request, is_in_place=is_in_place)
        return CommitResult(result.is_changed, info, result.draft, result.base, is_in_place, result.at_ns)

    def _keep_rejected(
        self, request: WriteRequest, content: bytes | Iterable[bytes], error: StoreError | OSError
    ) -> None:
        """Store rejected bytes next to their file.

        If the directory was renamed or deleted while a mount had the file open, they go to the nearest one above it
        that exists, under the rest of the path: `sessions/a_attachments_log.rejected`.
        """
        directory, name = request.target.directory, request.target.name
        while request.writer is not None and directory and self.core.disk.stat(directory) is None:
            directory, _, gone = directory.rpartition("/")
            name = f"{gone}_{name}"
        self.rejects.store(directory, name, content, error)

    def _is_in_place(self, request: WriteRequest) -> bool:
        """Whether a commit has renamed the temporary file of its request into place."""
        return isinstance(request.content, Temp) and self.core.disk.stat(request.content.path) is None

    def _stat_committed(self, request: WriteRequest, *, is_in_place: bool) -> os.stat_result | None:
        """The file that this request committed, though another writer may have replaced it since.

        It is the base of the writer's next save: the other writer's version must not be.
        """
        if is_in_place and isinstance(request.content, Temp):
            return os.fstat(request.content.fd)
        return self.core.disk.stat(request.target.path)

    def _commit_attachment(self, request: WriteRequest) -> None:
        place = request.target
        assert place.location is not None
        try:
            if request.appended is None:
                self._put_attachment(request, place.location)
            else:
                self.attachments.append_file(place.location, place.path, request.parts(), request.mode)
                self._set_known_attributes(request)
        except _KEPT_WHEN_REFUSED as error:
            self._keep_rejected(request, request.parts(), error)
            raise
        self.rejects.clear(place.directory, place.name)

    def _put_attachment(self, request: WriteRequest, location: Location) -> None:
        place = request.target
        present = self.core.disk.stat_file(place.path)
        mode = request.mode if request.mode is not None or present is None else present.mode
        owner = request.owner or ((present.uid, present.gid) if present is not None else None)
        content = request.content
        parts = content if isinstance(content, Temp) else [content or b""]
        file = NewFile(place.path, parts, None, request.mtime_ns, mode, owner)
        self.attachments.put_file(location, file, base=request.checked_base, keep=not request.replaces_own)

    def _set_known_attributes(self, request: WriteRequest) -> None:
        """Set mode and time of a file that exists, without a new version."""
        mtime_ns = request.mtime_ns
        has_attributes = request.mode is not None or mtime_ns is not None or request.owner is not None
        if not has_attributes or self.core.disk.stat(request.target.path) is None:
            return
        times = None if mtime_ns is None else (mtime_ns, mtime_ns)
        self.set_attributes(request.target, mode=request.mode, times_ns=times, owner=request.owner)

    def truncate(
        self,
        place: PathInfo,
        size: int,
        *,
        base: Version | None,
        on_conflict: OnConflict,
        writer: Writer | None = None,
    ) -> None:
        """Change the size of a file in one commit, for truncate(2) on a path."""
        temp = self.new_write_buffer()
        try:
            old = self.open(place, os.O_RDONLY)
            try:
                copy_file(old, temp.fd, min(size, os.fstat(old).st_size))
            finally:
                os.close(old)
            os.ftruncate(temp.fd, size)
            self.commit(WriteRequest(place, temp, base, on_conflict, writer=writer))
        finally:
            os.close(temp.fd)
            self.drop_write_buffer(temp.path)

    def create_empty(self, place: PathInfo, mode: int) -> None:
        """Create an empty attachment or state text. Raises FileExistsError.

        It is visible at once and durable after `sync_created`, or after a commit of its content.
        """
        self.check_may_write(place)
        assert place.location is not None
        if place.kind is PathKind.ATTACHMENT:
            self.attachments.create_file(place.location, place.path, mode)
        else:
            self.dispatcher.state.create(place, mode)

    def sync_created(self, place: PathInfo) -> None:
        """Make a file from `create_empty` durable."""
        self.core.disk.sync_created(place.path)

    def truncate_log(self, place: PathInfo, fd: int, size: int) -> None:
        """Truncate a log that is open as `fd`. The lines it loses go to the trash."""
        assert place.location is not None
        self.check_may_write(place)
        self.logs.truncate_log(place.location, place.path, fd, size)

    def sync_log(self, place: PathInfo, fd: int, *, is_new: bool) -> None:
        """Make the lines of a log durable (rule 2)."""
        self.core.disk.fsync(fd, "sync-log")
        if is_new:
            self.core.disk.sync_dirs([place.directory])

    # -- directories -------------------------------------------------------------------------------

    def make_dir(self, place: PathInfo, mode: int | None = None) -> None:
        """Create a directory, with the mode of new directories unless `mode` is given."""
        self.core.check_writable()
        if place.kind is PathKind.SESSION and place.location is not None:
            layout.check_new(place.location)
        if place.kind in (PathKind.PROJECT_SESSION, PathKind.PROJECT):
            layout.check_new_id(place.name)
        if place.kind in CHECKED or place.kind in (PathKind.DERIVED, PathKind.STATE_TEXT):
            raise Protected(f"{place.path} can only be a plain file")
        if place.name == layout.CHILDREN and place.location is not None and place.kind is PathKind.FOREIGN:
            raise Protected(
                f"{place.path}: a child session has no children; put them in the children directory of its root"
            )
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.mkdir(place.name, self.core.disk.dir_mode, dir_fd=parent)
            if mode is not None:  # not as an argument of mkdir: the umask of this process would count
                change_mode(place, mode | stat.S_ISGID, parent)  # kept if inherited from the parent
        self._sync_name(place)

    def remove_dir(self, place: PathInfo, hidden: Collection[str] = ()) -> None:
        """Remove an empty directory; for a session, delete it.

        `hidden` lists names that count as removed.
        """
        self.core.check_writable()
        left = [e.name for e in self.core.disk.entries(place.path) if e.name not in hidden]
        if left:
            raise NotEmpty(f"{place.path} is not empty: it contains {left[0]!r}")
        if place.kind is not PathKind.FOREIGN:
            self.require_unpinned(place)
        if place.kind is PathKind.SESSION and place.location is not None and hidden:
            self.delete.delete_one(place.location)
            return
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.rmdir(place.name, dir_fd=parent)
        self._sync_name(place)

    def _sync_name(self, place: PathInfo) -> None:
        """Sync the directory (rule 2), except for foreign files, which need an explicit fsync."""
        if place.kind is not PathKind.FOREIGN:
            self.core.disk.sync_after_change([place.path.rpartition("/")[0]])
        if (
            place.kind is PathKind.ATTACHMENT and place.location is not None
        ):  # a directory there counts as an attachment
            self.attachments.recount(place.location)

    def require_unpinned(self, place: PathInfo) -> None:
        """Raise Protected if the session, or a descendant of it, is pinned."""
        may_go = place.kind in _NEVER_PINNED and place.name != layout.RECEIPT
        pinned = self._find_pinned(place) if not may_go else None
        if pinned is not None:
            raise Protected(f"{place.path} cannot be removed or moved: session {pinned} is pinned")

    def _find_pinned(self, place: PathInfo) -> Location | None:
        """The pinned session that contains the path, or a pinned descendant of its root."""
        location = place.location
        if location is None or not location.is_session:
            return None
        pinned = self.core.index.pinned_in(location.root)
        if location in pinned:
            return location
        return pinned[0] if location.child is None and pinned else None

    # -- files -------------------------------------------------------------------------------------

    def remove_file(self, place: PathInfo, *, keep: bool = True) -> None:
        """Remove a file.

        Files of a session go to the trash, unless `keep` is False (it was renamed). So do backups of
        its logs, files below its attachments, and other foreign files of a pinned session: `rm -r`
        of it fails, but has removed them before. Removing session.json removes the session from the
        index.
        """
        if place.kind is not PathKind.DERIVED or not self.dispatcher.projects.is_empty(place):
            self.check_may_write(place)
        self.require_unpinned(place)
        if not self.dispatcher.remove(place):
            self._remove(place, keep=keep)

    def _remove(self, place: PathInfo, *, keep: bool) -> None:
        """Remove a file that belongs to no other module."""
        if place.kind is PathKind.DOCUMENT and place.location is not None:
            return self._trash_document(place.location, place)
        if place.kind is PathKind.ATTACHMENT and place.location is not None:
            return self.attachments.remove_file(place.location, place.path, keep=keep)
        # `undelete` brings them back. To save a log, vim makes it `NAME~`: an agent may append to it meanwhile.
        is_recorded = place.kind is PathKind.LOG or place.is_log_backup or place.name == layout.RECEIPT
        if is_recorded and keep and place.location is not None and place.location.is_session:
            return self.logs.remove_log(place.location, place.path)
        if keep and self._is_kept_foreign(place) and place.location is not None:
            return self.logs.remove_log(place.location, place.path, "file deleted")
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.unlink(place.name, dir_fd=parent)
        self._sync_name(place)
        self.dispatcher.notify_changed(place)

    def _is_kept_foreign(self, place: PathInfo) -> bool:
        """Whether a foreign file goes to the trash."""
        is_pinned = place.kind is PathKind.FOREIGN and self._find_pinned(place) is not None
        if not is_pinned and not place.is_nested_attachment:
            return False
        info = self.core.disk.stat(place.path)
        return info is not None and is_worth_keeping(place.path, info)

    def remove_unchanged(self, place: PathInfo, stamp: Stamp | None) -> None:
        """Remove a document that a mount has hidden, unless another version was committed since."""
        assert place.location is not None
        with self.core.locked(place.location):
            if stamp is not None and self.core.disk.stamp(place.path) == stamp:
                self.remove_file(place)

    def write_copy(self, place: PathInfo, data: bytes, like: os.stat_result) -> None:
        """Write a foreign file with the mode and times of the file it is a copy of."""
        file = NewFile(place.path, [data], None, like.st_mtime_ns, stat.S_IMODE(like.st_mode))
        if place.kind is PathKind.ATTACHMENT and place.location is not None:
            return self.attachments.put_file(place.location, file)
        self.core.disk.put(file)
        self.core.disk.sync_after_change([place.path.rpartition("/")[0]])

    def remove_moved(self, place: PathInfo) -> None:
        """Remove the old name of a renamed file, without a trash copy where its kind allows.

        Whether the home can be written was asked by the commit of its bytes.
        """
        self.check_name(place)
        try:
            if not self.dispatcher.remove(place, keep=False):
                self.require_unpinned(place)
                self._remove(place, keep=False)
        except OSError as error:  # the bytes are committed under the new name: do not report a failure
            log.warning("%s was renamed, but its old name could not be removed: %s", place.path, error)

    def _trash_document(self, location: Location, place: PathInfo) -> None:
        with self.core.locked(location):
            if self.core.disk.stat(place.path) is None:
                raise NotFound(f"{place.path} does not exist")
            row = self.core.index.find(location)
            part = to_trash(location, "document deleted", moved=[place.path], title=row.entry.title if row else None)
            commit = Commit(location, part.files, part.moves, part.dirs, label="deleted")
            self.core.journal.run(commit, IndexRefresh([location]))
            self.core.on_commit()

    # -- the rest --------------------------------------------------------------------------------

    def sync_dir(self, path: str) -> None:
        """Make creations and removals in a directory durable."""
        self.core.disk.sync_dirs([path])

    def symlink(self, place: PathInfo, text: str) -> None:
        """Create a symlink. Only foreign files can be links."""
        self.core.check_writable()
        if place.kind is not PathKind.FOREIGN:
            raise Protected(f"{place.path} cannot be a link")
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.symlink(text, place.name, dir_fd=parent)

    # -- modes and times ---------------------------------------------------------------------------

    def set_attributes(
        self,
        place: PathInfo,
        *,
        mode: int | None = None,
        times_ns: tuple[int, int] | None = None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """chmod, utimens, chown.

        The version of a document stays the same; its row gets the new stamp. Editors set the mode
        that a file already has after each save: that must not change its stamp, by which the
        history finds the version that another writer has opened.
        """
        self.core.check_writable()
        if times_ns is None and place.kind in CHECKED and has_attributes(self.stat(place.path), mode, owner):
            return
        if place.kind is PathKind.DOCUMENT and place.location is not None:
            with self.core.locked(place.location):
                row = self.core.index.find(place.location)
                is_current = row is not None and row.version == self.core.version(place.location)
                change_attributes(self.core.disk, place, mode, times_ns, owner)
                if row is not None and is_current:
                    with self.core.db.write() as db:
                        self.core.index.put_version(db, row, self.core.version(place.location))
                self.core.history.observe(place.location.dir)
            return
        self.check_may_write(place)
        change_attributes(self.core.disk, place, mode, times_ns, owner)
        self.dispatcher.notify_attributes(place)
