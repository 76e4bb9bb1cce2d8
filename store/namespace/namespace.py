"""Who may do what with a name in the home: the changes a filesystem asks for, as rules of the store.

What a name means is told by `places`; what is committed as a whole is written by its own module, and
refused bytes are kept here for all of them. Here is everything else: directories, attachments, foreign
files, and names that come, go and move. Under a pinned session nothing but mail is taken away.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Unpack

from store import layout
from store.commit.core import Core
from store.commit.journal import Commit
from store.commit.to_trash import to_trash
from store.disk.file import DirEntry, NewFile
from store.disk.file_io import iter_chunks, write_all
from store.disk.rejects import Rejects
from store.documents import json_text
from store.errors import AlreadyExists, Conflict, Generated, InvalidContent, NotEmpty, NotFound, Protected
from store.index.catalog import Version, WriteOptions
from store.layout import Location
from store.namespace import incoming
from store.namespace.dispatch import Dispatcher
from store.path_kinds import CHECKED, FIXED_DIRS, VERSIONED, PathInfo, PathKind
from store.sessions.attachments import Attachments
from store.sessions.delete import DeleteOperations
from store.sessions.logs import Logs
from store.sessions.put import PutOperation
from store.sessions.rename import RenameOperation

log = logging.getLogger("grovefs.store")

# Foreign files are not the session's; a pinned session goes on receiving and acknowledging its mail.
_NEVER_PINNED = (PathKind.FOREIGN, PathKind.MESSAGE, PathKind.MAILBOX)


class DocumentWriteOptions(WriteOptions, total=False):
    overwrite: bool  # a newer version there is no reason to refuse
    deleted_before: bool  # the name was taken away by whoever writes it again


@dataclass(frozen=True)
class Namespace:
    core: Core
    attachments: Attachments
    logs: Logs
    putter: PutOperation
    remover: DeleteOperations
    relocator: RenameOperation
    rejects: Rejects
    parts: Dispatcher

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def mode_of_sessions(self) -> int:
        """Who may look into the sessions: 0700 unless the home says otherwise."""
        return self.core.disk.dir_mode

    def stat(self, path: str) -> os.stat_result | None:
        return self.core.disk.stat(path)

    def entries(self, path: str) -> list[DirEntry]:
        return self.core.disk.entries(path)

    def scan(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The names in a directory, and what each is like."""
        return self.core.disk.scan(path)

    def birth_ns(self, place: PathInfo) -> int | None:
        """When a file was made, where the filesystem knows it."""
        return self.core.disk.birth_ns(place.path)

    def refresh(self, location: Location) -> None:
        """A document was changed on disk: the index is to follow, unless it knows."""
        self.core.refresh(location)

    def read(self, place: PathInfo) -> bytes | None:
        """A file whole; None if there is none."""
        file = self.core.disk.read(place.path)
        return file.data if file else None

    def open(self, place: PathInfo, flags: int, mode: int = 0o600) -> int:
        """A descriptor of the file itself; its directories are reached without following links."""
        if flags == os.O_RDONLY:
            return self.core.disk.open_to_read(place.path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            self.check_may_write(place)
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            return os.open(place.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=parent)

    def version(self, place: PathInfo) -> Version:
        """What a writer of this name starts from: what `commit` takes as `base`."""
        if place.kind is PathKind.DOCUMENT and place.location is not None:
            return self.core.version(place.location)
        return Version(self.core.disk.stamp(place.path), None)

    def check_may_write(self, place: PathInfo) -> None:
        """Raise, with the reason, if no bytes may be written under this name."""
        self.core.check_writable()
        if place.kind is PathKind.DERIVED:
            raise Generated(f"{place.path} is derived from the sessions beside it, and follows them by itself")

    def read_link(self, place: PathInfo) -> str:
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            return os.readlink(place.name, dir_fd=parent)

    def new_write_buffer(self) -> tuple[int, str]:
        """A file in which bytes may gather that are not committed yet; gone at the next opening if forgotten."""
        return self.core.disk.open_temp()

    def drop_write_buffer(self, path: str) -> None:
        self.core.disk.drop_temp(path)

    def create_top_dirs(self) -> None:
        """What a filesystem shows of a home is there from the first, though nothing is in it yet."""
        for name in layout.STORED:
            self.core.disk.make_dirs(name)

    # -- committing ------------------------------------------------------------------------------------

    def commit_file(self, place: PathInfo, fd: int, **terms: Unpack[DocumentWriteOptions]) -> bool:
        """As `commit`, from a file: an attachment of any size, a document only up to the limit."""
        if place.kind is PathKind.ATTACHMENT:
            return self._put_attachment(place, iter_chunks(fd), terms.get("mode"), terms.get("mtime_ns"))
        size = os.fstat(fd).st_size
        json_text.check_size(size, place.path, self.core.limit_bytes)  # before it is read into memory
        return self.commit(place, os.pread(fd, size, 0), **terms)

    def _put_attachment(self, place: PathInfo, parts: Iterable[bytes], mode: int | None, mtime_ns: int | None) -> bool:
        assert place.location is not None
        present = self.core.disk.stat_file(place.path)
        kept_mode = mode if mode is not None or present is None else present.mode
        self.attachments.put_file(place.location, NewFile(place.path, parts, mtime_ns=mtime_ns, mode=kept_mode))
        return True

    def truncate(self, place: PathInfo, size: int, *, base: Version | None, overwrite: bool) -> None:
        """Cut or lengthen what is there, as a commit of its own; for a document seldom a good idea."""
        fd, path = self.new_write_buffer()
        try:
            old = self.open(place, os.O_RDONLY)
            try:
                write_all(fd, iter_chunks(old))
            finally:
                os.close(old)
            os.ftruncate(fd, size)
            self.commit_file(place, fd, base=base, overwrite=overwrite)
        finally:
            os.close(fd)
            self.drop_write_buffer(path)

    def commit(
        self,
        place: PathInfo,
        data: bytes,
        *,
        overwrite: bool = False,
        deleted_before: bool = False,
        **terms: Unpack[WriteOptions],
    ) -> bool:
        """Put a file that is committed as a whole in place. What is refused is kept, with the reason."""
        self.check_may_write(place)
        if place.kind is PathKind.ATTACHMENT:
            return self._put_attachment(place, [data], terms.get("mode"), terms.get("mtime_ns"))
        try:
            if place.kind is PathKind.DOCUMENT:
                changed = self._put_document(place, data, overwrite, deleted_before, **terms)
            else:
                if overwrite:
                    terms["base"] = None
                changed = self.parts.put(place, data, **terms)
        except (InvalidContent, Conflict) as error:
            self.rejects.store(place.directory, place.name, data, error)
            raise
        if changed:  # vim and `cp -b` put the old version back after a refusal: that mends nothing
            self.rejects.clear(place.directory, place.name)
        return changed

    def _put_document(
        self, place: PathInfo, data: bytes, overwrite: bool, deleted_before: bool, **terms: Unpack[WriteOptions]
    ) -> bool:
        assert place.location is not None
        return self.putter.put_document(
            place.location,
            place.name,
            data,
            on_conflict="overwrite" if overwrite else "reject",
            deleted_before=deleted_before,
            alone=True,
            **terms,
        )

    # -- directories -----------------------------------------------------------------------------------

    def make_dir(self, place: PathInfo) -> None:
        self.core.check_writable()
        if place.kind is PathKind.SESSION and place.location is not None:
            layout.check_new(place.location)
        if place.kind in (PathKind.PROJECT_SESSION, PathKind.PROJECT):
            layout.check_new_id(place.name)
        if place.kind in CHECKED or place.kind in (PathKind.DERIVED, PathKind.STATE_TEXT):
            raise Protected(f"{place.path} can only be a plain file")
        if place.name == layout.CHILDREN and place.location is not None and place.kind is PathKind.FOREIGN:
            raise Protected(f"{place.path}: a child has no children of its own; they lie beside it")
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.mkdir(place.name, self.core.disk.dir_mode, dir_fd=parent)
        self._sync_name(place)

    def remove_dir(self, place: PathInfo, hidden: Collection[str] = ()) -> None:
        """Remove an empty directory. For a session that is its deletion: `hidden` names what counts as gone."""
        self.core.check_writable()
        left = [e.name for e in self.core.disk.entries(place.path) if e.name not in hidden]
        if left:
            raise NotEmpty(f"{place.path} still holds {left[0]!r}")
        if place.kind is not PathKind.FOREIGN:
            self.refuse_pinned(place)
        if place.kind is PathKind.SESSION and place.location is not None and hidden:
            self.remover.delete_one(place.location)
            return
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.rmdir(place.name, dir_fd=parent)
        self._sync_name(place)

    def _sync_name(self, place: PathInfo) -> None:
        """That a name came or went lasts (rule 2). Foreign files are as on any disk: who cares syncs."""
        if place.kind is not PathKind.FOREIGN:
            self.core.disk.sync_after_change([place.path.rpartition("/")[0]])
        if place.kind is PathKind.ATTACHMENT and place.location is not None:  # a directory among them counts as one too
            self.attachments.recount(place.location)

    def refuse_pinned(self, place: PathInfo) -> None:
        """A pinned session, and a root with a pinned descendant, keep what they have until unpinned."""
        location = place.location
        if location is None or not location.is_session or place.kind in _NEVER_PINNED:
            return
        pinned = self.core.index.pinned_in(location.root)
        if location in pinned or (location.child is None and pinned):
            which = location if location in pinned else pinned[0]
            raise Protected(f"{place.path} stays: {which} is pinned")

    # -- files --------------------------------------------------------------------------------------------

    def remove_file(self, place: PathInfo, *, keep: bool = True) -> None:
        """Take a file away. What is the session's goes to the trash, unless it lives on under another name; its
        session.json takes its rows along."""
        if place.kind is not PathKind.DERIVED or not self.parts.projects.is_empty(place):
            self.check_may_write(place)
        self.refuse_pinned(place)
        if place.kind is PathKind.DOCUMENT and place.location is not None:
            return self._trash_document(place.location, place)
        if self.parts.remove(place):
            return
        if place.kind is PathKind.ATTACHMENT and place.location is not None:
            return self.attachments.remove_file(place.location, place.path, keep=keep)
        if place.kind is PathKind.LOG and keep and place.location is not None and place.location.is_session:
            return self.logs.remove_log(place.location, place.path)
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.unlink(place.name, dir_fd=parent)
        self._sync_name(place)
        self.parts.notify_changed(place)

    def write_copy(self, place: PathInfo, data: bytes, like: os.stat_result) -> None:
        """A foreign file that is a copy of something, with its mode and times."""
        self.core.check_writable()
        file = NewFile(place.path, [data], None, like.st_mtime_ns, stat.S_IMODE(like.st_mode))
        if place.kind is PathKind.ATTACHMENT and place.location is not None:
            return self.attachments.put_file(place.location, file)
        self.core.disk.put(file)
        self.core.disk.sync_after_change([place.path.rpartition("/")[0]])

    def _trash_document(self, location: Location, place: PathInfo) -> None:
        with self.core.locked(location):
            if self.core.disk.stat(place.path) is None:
                raise NotFound(f"{place.path} does not exist")
            row = self.core.index.find(location)
            part = to_trash(location, "document deleted", moved=[place.path], title=row.entry.title if row else None)
            commit = Commit(location, part.files, part.moves, part.dirs)
            self.core.journal.run(commit, lambda db: self.core.reread(location))
            self.core.on_commit()

    # -- renames ----------------------------------------------------------------------------------------------

    def move(self, source: PathInfo, target: PathInfo, *, replace: bool = True) -> None:
        """Rename anything but a document: a session's directory, an attachment, a foreign file or directory."""
        for place in (source, target):
            self.check_may_write(place)
        info = self.core.disk.stat(source.path)
        if info is None:
            raise NotFound(f"{source.path} does not exist")
        if not replace and self.core.disk.stat(target.path) is not None:
            raise AlreadyExists(f"{target.path} exists")
        is_dir = stat.S_ISDIR(info.st_mode)
        if is_dir and source.kind is PathKind.SESSION and source.location is not None:
            if target.kind is not PathKind.SESSION or target.location is None:
                raise Protected(f"{source.path} is a session; it can only become another session")
            self.refuse_pinned(source)
            return self.relocator.move(source.location, target.location)
        if target.kind is PathKind.ATTACHMENT and stat.S_ISLNK(info.st_mode):
            raise Protected(f"{target.path} cannot be a link")
        if is_dir and source.kind in FIXED_DIRS:
            raise Protected(f"{source.path} belongs where it is")
        if target.kind in VERSIONED and target.kind is not PathKind.ATTACHMENT:
            return self._commit_move(source, target, info)
        if is_dir and target.kind is PathKind.SESSION and target.location is not None:
            layout.check_new(target.location)
        if is_dir:
            incoming.require_checked_documents(self.core, source, target)
        if self.parts.move(source, target, is_dir=is_dir):
            return self.rejects.rename(source.path, target.path) if is_dir else None
        if source.kind is not PathKind.FOREIGN:
            self.refuse_pinned(source)
        attached = {p.location for p in (source, target) if p.kind is PathKind.ATTACHMENT and p.location is not None}
        if attached:
            self.attachments.move_file(source.path, target.path, attached)
        else:
            self._rename(source, target)
            if is_dir:
                self._recheck_moved(source, target)
        for place in (source, target):
            self.parts.notify_changed(place)
        if is_dir and target.kind is PathKind.SESSION and target.location is not None:
            self.core.refresh(target.location)

    def _commit_move(self, source: PathInfo, target: PathInfo, info: os.stat_result) -> None:
        """A rename onto what is committed as a whole: its bytes are, and then the other name goes."""
        if not stat.S_ISREG(info.st_mode):
            raise Protected(f"{target.path} can only be a plain file")
        json_text.check_size(info.st_size, target.path, self.core.limit_bytes)
        data = self.read(source)
        if data is None:
            raise NotFound(f"{source.path} does not exist")
        self.commit(target, data, mode=stat.S_IMODE(info.st_mode), mtime_ns=info.st_mtime_ns)
        self.remove_moved(source)

    def remove_moved(self, place: PathInfo) -> None:
        """Take a file away whose bytes live on under another name: not to the trash, where that can be helped."""
        self.check_may_write(place)
        try:
            if not self.parts.remove(place, keep=False):
                self.remove_file(place, keep=False)
        except OSError as error:  # they are committed there: it would be untrue to say that nothing was
            log.warning("%s stays beside what it became: %s", place.path, error)

    def _rename(self, source: PathInfo, target: PathInfo) -> None:
        with (
            self.core.disk.open_dir(source.path.rpartition("/")[0]) as src,
            self.core.disk.open_dir(target.path.rpartition("/")[0]) as dst,
        ):
            os.rename(source.name, target.name, src_dir_fd=src, dst_dir_fd=dst)
        self.core.disk.sync_after_change([target.path.rpartition("/")[0], source.path.rpartition("/")[0]])  # rule 2

    def _recheck_moved(self, source: PathInfo, target: PathInfo) -> None:
        """Someone may have written in it since it was looked at; then it is back where it was."""
        try:
            incoming.require_checked_documents(self.core, source, target, has_come=True)
        except BaseException:
            self._rename(target, source)
            raise

    def exchange(self, one: PathInfo, other: PathInfo) -> None:
        """Two foreign files or attachments change places, in one step."""
        self.core.check_writable()
        for place in (one, other):
            if place.kind not in (PathKind.FOREIGN, PathKind.ATTACHMENT):
                raise Protected(f"{place.path} belongs where it is")
            if (info := self.core.disk.stat(place.path)) is None:
                raise NotFound(f"{place.path} does not exist")
            if PathKind.ATTACHMENT in (one.kind, other.kind) and not stat.S_ISREG(info.st_mode):
                raise Protected(f"{place.path} is no plain file; only such can be attached")
            self.refuse_pinned(place)
        self.core.disk.exchange(one.path, other.path)  # as many attachments as before, wherever they are
        try:
            self.attachments.announce(
                {p.location for p in (one, other) if p.kind is PathKind.ATTACHMENT and p.location is not None}
            )
            for place in (one, other):
                self.parts.notify_exchanged(place)
        except BaseException:  # rule 7: what others cannot be told of is not done
            self.core.disk.exchange(one.path, other.path)
            raise

    def sync_dir(self, path: str) -> None:
        """What was made and removed in a directory is to last."""
        self.core.disk.sync_dirs([path])

    def symlink(self, place: PathInfo, text: str) -> None:
        """Foreign files may be links; nothing of ours may."""
        self.core.check_writable()
        if place.kind is not PathKind.FOREIGN:
            raise Protected(f"{place.path} cannot be a link")
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            os.symlink(text, place.name, dir_fd=parent)

    # -- modes and times --------------------------------------------------------------------------------------

    def set_attributes(
        self,
        place: PathInfo,
        *,
        mode: int | None = None,
        times_ns: tuple[int, int] | None = None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """chmod, utimens, chown. A document stays the version it was, and its row knows it again."""
        self.core.check_writable()
        if place.kind is PathKind.DOCUMENT and place.location is not None:
            with self.core.locked(place.location):
                row = self.core.index.find(place.location)
                is_current = row is not None and row.version == self.core.version(place.location)
                self._set(place, mode, times_ns, owner)
                if row is not None and is_current:
                    with self.core.db.write() as db:
                        self.core.index.put_version(db, row, self.core.version(place.location))
            return
        self.check_may_write(place)
        self._set(place, mode, times_ns, owner)
        self.parts.notify_attributes(place)

    def _set(
        self, place: PathInfo, mode: int | None, times_ns: tuple[int, int] | None, owner: tuple[int, int] | None
    ) -> None:
        with self.core.disk.open_dir(place.path.rpartition("/")[0]) as parent:
            if owner is not None:
                os.chown(place.name, *owner, dir_fd=parent, follow_symlinks=False)
            if mode is not None:
                _chmod(place, mode, parent)
            if times_ns is not None:
                os.utime(place.name, ns=times_ns, dir_fd=parent, follow_symlinks=False)


def _chmod(place: PathInfo, mode: int, parent: int) -> None:
    """By a descriptor of the file itself: chmod follows links, and what is no link now may be one the next moment."""
    fd = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), place.path)
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode))
    finally:
        os.close(fd)
