"""Open files: open, create, commit, truncate and release.

A writer of a version gets a private node with a write buffer. A reader of a version holds a
descriptor of it. All other files are opened directly. Between two awaits a handler owns all
in-memory state.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fusefs.requests.kernel_cache import invalidate
from fusefs.requests.kernel_listings import KernelListings
from fusefs.requests.log_syncs import LogSyncs
from fusefs.requests.log_writes import LogWrites
from fusefs.requests.threads import Threads
from fusefs.switches import enabled
from fusefs.tree.evidence import Evidence
from fusefs.tree.handles import BufferHandle, DataHandle, FileHandle, Handle, Handles, ReadOnlyHandle
from fusefs.tree.nodes import Invalidation, Node, RetryLookup
from fusefs.tree.pending_opens import PendingOpens
from fusefs.tree.processes import Process
from fusefs.tree.shown_numbers import number_for
from fusefs.tree.tree import Tree
from fusefs.tree.write_buffers import WriteBuffer
from fusefs.tree.writers import Writers
from fusefs.views.base import VirtualFile
from store import SidecarConflict, layout
from store.commit.write_request import OnConflict
from store.disk.file import Stamp, is_same_content
from store.errors import Conflict, Generated, InvalidContent, StoreError
from store.history.authors import acting_as
from store.path_kinds import CHECKED, MAY_BE_EMPTY, VERSIONED, PathInfo, PathKind, classify_path

WRITING = os.O_WRONLY | os.O_RDWR
# Cached pages of a version stay valid: reading it again sends no read (measured: 1 request in 4 of
# a warm grep -r).
_KEEP_PAGES = enabled("pages")
_OPEN_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC
_EDITED = CHECKED | {PathKind.LOG}  # a file renamed onto one of these is an edit of it
_MAX_DOCUMENTS_SEEN = 64  # documents in a directory to stat for each file created there


class OpenReply(NamedTuple):
    """A file handle number and its caching flags."""

    number: int
    direct_io: bool = False
    keep_cache: bool = False


class Files:
    def __init__(self, tree: Tree, writers: Writers, threads: Threads, *, on_conflict: OnConflict) -> None:
        self.tree = tree
        self.listings = KernelListings()
        self.names = tree.store.names
        self.writers = writers
        self.threads = threads
        self.log_syncs = LogSyncs(threads, self.names.sync_log)
        self.handles = Handles(tree.nodes, tree.fast)
        self.pending_opens = PendingOpens()
        self._evidence = Evidence()
        self.log_writes = LogWrites(tree.store, self._evidence)
        tree.fast.on_opened = self._evidence.note_opened
        self.on_conflict = on_conflict

    @property
    def evidence(self) -> Evidence:
        """What is known of processes, including all opens that the C extension has answered by now."""
        self.tree.fast.report_opens()
        return self._evidence

    # -- opening -----------------------------------------------------------------------------------------

    async def open(self, node: Node, flags: int, pid: int, process: Process) -> OpenReply:
        if node.item is not None:
            return await self._open_virtual(node)
        if node.buffer is not None and not self._is_for_readers(node, flags, pid):
            self.pending_opens.claimed(pid, node)
            return self._open_buffer(node, flags, process)
        if node.is_version:
            if flags & WRITING:
                return self._redirect_to_private_node(node, flags, pid, process)
            return self._open_version(node, pid, process)
        return await self._open_plain(node, flags, process)

    def _is_for_readers(self, node: Node, flags: int, pid: int) -> bool:
        """Whether it is the pending node of another writer. Everyone sees it, but writes his own buffer."""
        if not flags & WRITING or node.parent is None or self.writers.pending(node.path) is not node:
            return False
        return self.pending_opens.reserved_for(pid, node.parent, node.name) is not node

    async def _open_virtual(self, node: Node) -> OpenReply:
        assert isinstance(node.item, VirtualFile)
        file = node.item
        if file.open is not None:
            return self._open_unchanged(node, file, await self.threads.run(file.open))
        data = await self.threads.run(file.render) if file.is_cacheable else file.render()
        if len(data) != file.size:
            raise RetryLookup(f"{node.path} has changed")
        return OpenReply(self.handles.add(DataHandle(node, data)), keep_cache=True)

    def _open_unchanged(self, node: Node, file: VirtualFile, fd: int) -> OpenReply:
        if os.fstat(fd).st_size != file.size:
            os.close(fd)
            raise RetryLookup(f"{node.path} has changed")
        return OpenReply(self.handles.add(ReadOnlyHandle(node, fd, file.size)), keep_cache=True)

    def _redirect_to_private_node(self, node: Node, flags: int, pid: int, process: Process) -> OpenReply:
        """Answer ESTALE: the writer's next lookup returns a private node."""
        assert node.parent is not None
        reserved = self.pending_opens.reserved_for(pid, node.parent, node.name)
        if reserved is not None:  # reopened without a lookup, through /proc/self/fd
            self.pending_opens.claimed(pid, reserved)
            return self._open_buffer(reserved, flags, process)
        shown = self._number_seen(node, process)
        appends = bool(flags & os.O_APPEND) and not flags & os.O_TRUNC
        committed = self.names.stat(node.path)
        private = self.tree.make_private(node.parent, node.name, committed, process, shown, appends=appends)
        assert private.buffer is not None
        private.buffer.awaits_truncation = bool(flags & os.O_TRUNC)
        self.pending_opens.reserve(pid, node.parent, node.name, private)
        raise RetryLookup(f"{node.path} is written through a private node")

    def _number_seen(self, node: Node, process: Process) -> int:
        """The inode number that stat(2) has shown the writer.

        Readers do not matter: RELEASE of what the writer has closed may come late. While another
        process renames the document away, the kernel still has the old node under its name.
        """
        assert node.parent is not None
        if process.pid not in node.shows_own_to and node.parent.children.get(node.name) is not node:
            number = self.tree.shown_numbers.find(node.path)
            if number is not None:
                return number
        return number_for(node, process, older_readers=())

    def _open_buffer(self, node: Node, flags: int, process: Process, *, is_creator: bool = False) -> OpenReply:
        buffer = node.buffer
        assert buffer is not None
        if not flags & os.O_TRUNC and buffer.writers == 0:
            buffer.pin()
            node.set_stat(buffer.info)
        evidence = self.evidence
        if flags & os.O_ACCMODE == os.O_RDWR and not flags & os.O_TRUNC and buffer.path_info.kind in CHECKED:
            evidence.note_opened(process, buffer.path_info.path, buffer.base_stamp)
        buffer.process, buffer.opened_at = process, evidence.now
        buffer.writers += 1
        self.writers.begin(buffer.path_info.path)
        if flags & os.O_TRUNC:
            buffer.truncate(0)
        handle = BufferHandle(node, bool(flags & os.O_APPEND), is_reader=not flags & WRITING and not is_creator)
        return OpenReply(self.handles.add(handle), direct_io=True)

    def _open_version(self, node: Node, pid: int, process: Process) -> OpenReply:
        fd = self.pending_opens.take_pinned(pid, node)
        if fd is None:
            fd = self.open_exact_version(node)
        if fd is None:
            self.pending_opens.expect_reader(pid, node)
            raise RetryLookup(f"{node.path} was replaced since it was looked up")
        is_document = node.disk_path.kind in CHECKED
        if node.info is not None and is_document:
            self.evidence.note_opened(process, node.path, Stamp.of(node.info))
        if _KEEP_PAGES and node.info is not None and not self.pending_opens.is_pinned(node):
            self.tree.fast.admit(pid, process)
            self.tree.fast.grant(node.inode, node.path, node.info, is_document=is_document)
        end = node.info.st_size if node.info is not None else None
        handle = FileHandle(node, fd, process=process, path=node.path, end=end)
        return OpenReply(self.handles.add(handle), keep_cache=_KEEP_PAGES)

    def open_exact_version(self, node: Node) -> int | None:
        """Open the node's version. Returns None if it was replaced."""
        try:
            fd = self.names.open(node.disk_path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        info, known = os.fstat(fd), node.info
        if known is not None and stat.S_ISREG(info.st_mode) and _identity(info) == _identity(known):
            return fd
        os.close(fd)
        return None

    async def _open_plain(self, node: Node, flags: int, process: Process) -> OpenReply:
        try:
            fd = self.names.open(node.disk_path, flags & _OPEN_FLAGS & ~os.O_TRUNC)
        except FileNotFoundError:
            raise RetryLookup(f"{node.path} was removed") from None
        info = os.fstat(fd)
        if node.info is None or info.st_ino != node.info.st_ino:
            os.close(fd)
            raise RetryLookup(f"{node.path} was replaced by another file")
        if node.disk_path.is_session_log and not flags & os.O_WRONLY:
            self.evidence.note_opened(process, node.path, Stamp.of(info))
        if flags & os.O_TRUNC:
            try:
                await self._truncate_plain(node.disk_path, fd, 0)
            except BaseException:
                os.close(fd)
                raise
            node.note_written()
            self._note_created(node, process)
            self._note_emptied(node, process, fd)
        is_truncated = bool(flags & os.O_TRUNC)
        log = node.disk_path if node.disk_path.kind is PathKind.LOG else None
        appends = bool(flags & os.O_APPEND)
        handle = FileHandle(node, fd, appends=appends, process=process, is_unsynced=is_truncated, log=log)
        return OpenReply(self.handles.add(handle), direct_io=log is not None)

    def _note_emptied(self, node: Node, process: Process, fd: int) -> None:
        """A process that has emptied a log knows all of its lines."""
        info = os.fstat(fd)
        if node.disk_path.is_session_log and info.st_size == 0:
            self.evidence.note_saved(process, node.path, Stamp.of(info), None)

    async def create(self, parent: Node, name: str, mode: int, flags: int, process: Process) -> tuple[OpenReply, Node]:
        path_info = classify_path(parent.path_of(name))
        if path_info.kind in MAY_BE_EMPTY:
            return await self._create_empty(parent, name, mode, flags, process)
        if path_info.kind in VERSIONED:
            info = self.names.stat(path_info.path)
            if flags & os.O_EXCL and self._exists(path_info.path, info, process):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path_info.path)
            shown = self.tree.shown_numbers.find(path_info.path)
            node = self.tree.make_private(parent, name, info, process, shown)
            assert node.buffer is not None
            node.buffer.mode = mode if info is None else None
            self.writers.hidden.created(path_info.path, process)
            opened = self._open_buffer(node, flags | os.O_TRUNC, process)
            return opened, node
        # O_EXCL only if the caller asked for it: the kernel's negative entry may be outdated.
        fd = self.names.open(path_info, flags & (_OPEN_FLAGS | os.O_EXCL) | os.O_CREAT, mode)
        parent.invalidate_listing(kernel_knows=True)
        node = self.tree.lookup(parent, name, process.pid)
        self._note_created(node, process)
        log = path_info if path_info.kind is PathKind.LOG else None
        handle = FileHandle(node, fd, appends=bool(flags & os.O_APPEND), process=process, is_new=True, log=log)
        return OpenReply(self.handles.add(handle), direct_io=log is not None), node

    def _exists(self, path: str, info: os.stat_result | None, process: Process) -> bool:
        """Whether O_EXCL finds a document: one that is stored, or that another process is creating."""
        if self.writers.hidden.find(path, process.pid) is not None:
            return False
        return info is not None or bool(self.handles.buffered(path))

    async def _create_empty(
        self, parent: Node, name: str, mode: int, flags: int, process: Process
    ) -> tuple[OpenReply, Node]:
        """Create an attachment or state text. Its name exists at once, its content after close."""
        path_info = classify_path(parent.path_of(name))
        is_new = True
        try:
            await self.threads.run(partial(self.names.create_empty, path_info, mode), path_info.location)
        except FileExistsError:  # the kernel's negative entry was outdated
            if flags & os.O_EXCL:
                raise
            is_new = False
        appends = bool(flags & os.O_APPEND) and (is_new or not flags & os.O_TRUNC)
        node = self.tree.make_private(parent, name, self.names.stat(path_info.path), process, appends=appends)
        assert node.buffer is not None
        node.buffer.is_created = is_new
        opened = self._open_buffer(node, flags & ~os.O_TRUNC if is_new else flags, process, is_creator=is_new)
        if is_new:
            self.writers.add_pending(path_info.path, node)
        parent.invalidate_listing()
        return opened, node

    def _note_created(self, node: Node, process: Process) -> None:
        """The file's content starts now: its writer may have read the documents that exist now."""
        assert node.parent is not None
        if node.info is not None:
            self.evidence.note_written(process, node.info.st_ino)
        node.created_ns, node.seen_at_create = time.time_ns(), self._documents_in(node.parent)

    def _documents_in(self, directory: Node) -> dict[str, Stamp | None]:
        """Documents and logs that a new file may replace later: its writer cannot have read older versions."""
        known = [name for name, node in directory.children.items() if node.path_info and node.path_info.kind in _EDITED]
        names = {*layout.DOCUMENTS, *known[:_MAX_DOCUMENTS_SEEN]}
        infos = {path: self.names.stat(path) for path in map(directory.path_of, names)}
        return {path: Stamp.of(info) if info is not None else None for path, info in infos.items()}

    # -- committing --------------------------------------------------------------------------------------

    async def sync(self, handle: Handle) -> None:
        """fsync: a commit point. A rejected buffer then shows the committed version's attributes."""
        if isinstance(handle, FileHandle):
            await self.threads.run(lambda: os.fsync(handle.fd))
        try:
            await self.commit(handle)
        except InvalidContent:
            buffer = handle.node.buffer
            if buffer is not None:
                buffer.show_committed()
                handle.node.info = buffer.info
            raise

    async def commit(self, handle: Handle) -> None:
        node, buffer = handle.node, handle.node.buffer
        if buffer is None:
            if isinstance(handle, FileHandle) and handle.has_written:
                info = os.fstat(handle.fd)
                if node.info is None or node.info.st_ino == info.st_ino:  # not if the handle is of a new log now
                    node.set_stat(info)  # our own write is not a change made elsewhere
                self.evidence.note_written(handle.process, info.st_ino)
            if isinstance(handle, FileHandle):
                await self._sync_log(handle)
            return
        if isinstance(handle, BufferHandle) and handle.is_reader:
            return
        buffer.commit_if_empty()
        if not buffer.is_dirty or node.parent is None:
            await self._sync_created(buffer)
            return
        path = buffer.path_info.path  # not the node's path: its directory may have been renamed
        if not buffer.written and self.writers.hidden.find(path, buffer.process.pid) is not None:
            return
        buffer.unlinked_first = self.writers.hidden.was_deleted(path, buffer.process.pid)
        buffer.unlinked = self.writers.hidden.unlinked_version(path, buffer.process.pid)
        try:
            await self._run_commit(buffer)
            self.writers.remove_pending(node)
            self.writers.forget_rejection(path, buffer.opener)
        except (InvalidContent, Conflict):
            self.writers.note_rejected(path, buffer.opener)
            raise
        finally:
            # Committed: the name has the new version. Rejected: it has the old one again.
            self.writers.hidden.show(path, buffer.process)
            node.parent.invalidate_listing()
        node.set_stat(buffer.info)
        await self._invalidate_name(node.parent, node.name)

    async def _sync_log(self, handle: FileHandle) -> None:
        """Make what was written to a log durable before close(2) reports success."""
        place = handle.place
        if place.kind is not PathKind.LOG or not (handle.is_unsynced or handle.is_new):
            return
        is_new, handle.is_new, handle.is_unsynced = handle.is_new, False, False
        try:
            await self.log_syncs.sync(place, handle.fd, is_new=is_new)
        except BaseException:
            handle.is_new, handle.is_unsynced = is_new, True
            raise

    async def _sync_created(self, buffer: WriteBuffer) -> None:
        """Make a new empty file durable."""
        if buffer.is_created and not buffer.is_detached:
            buffer.is_created = False
            with suppress(FileNotFoundError):  # removed elsewhere
                await self.threads.run(partial(self.names.sync_created, buffer.path_info))

    async def _run_commit(self, buffer: WriteBuffer) -> None:
        """Commit a buffer in a worker thread. The writer may continue meanwhile.

        One commit of a buffer at a time: the next one is based on the version that this one creates.
        """
        async with self.threads.queued(("buffer", id(buffer))):
            location = None
            while location != buffer.path_info.location:  # a rename may move it while it waits
                location = buffer.path_info.location
                async with self.threads.queued(location):
                    if location == buffer.path_info.location and buffer.is_dirty:
                        with acting_as(buffer.process.author):
                            await self._commit_now(buffer)

    async def _commit_now(self, buffer: WriteBuffer) -> None:
        path, process = buffer.path_info.path, buffer.process
        writer = self.evidence.writer(process, path, buffer.opened_at, is_truncated=buffer.is_truncated)
        request = buffer.begin_commit(self.on_conflict, writer)
        try:
            result = await self.threads.run(partial(self.names.commit, request), is_change=True)
        except (InvalidContent, Conflict) as error:
            buffer.rejected()
            if isinstance(error, SidecarConflict):
                self.evidence.note_refused(process, path)
            raise
        except BaseException as error:
            buffer.failed(error)
            raise
        buffer.committed(request, result)
        if request.content is not None and buffer.path_info.kind in CHECKED:
            evidence = self.evidence
            evidence.note_saved(process, path, buffer.base_stamp, result.draft, result.base, result.at_ns)
            buffer.opened_at = evidence.now

    async def _invalidate_name(self, directory: Node, name: str) -> None:
        """Invalidate a committed name and its sidecar, and the listing: what comes next finds the new version.

        Also if the tree has no node of that name: the change follower may have dropped it already,
        and its own invalidation may still be on its way.
        """
        changed = {name, *layout.DOCUMENTS} if name in layout.DOCUMENTS else {name}
        notices = {notice: None for n in changed for notice in self.tree.recheck(directory, n)}
        notices |= {Invalidation(directory.inode, os.fsencode(n)): None for n in changed}
        await invalidate([*self.listings.take_outdated(), *notices, *self.tree.recheck_times(directory)])

    # -- renaming or removing an open attachment or state text -----------------------------------------

    async def commit_pending(self, node: Node) -> None:
        """Commit a pending file as it is, before a rename. Its writer may continue."""
        buffer = node.buffer
        assert buffer is not None
        if buffer.is_dirty:
            await self._run_commit(buffer)
        self.writers.remove_pending(node)
        node.set_stat(buffer.info)

    def retarget_writers(self, path: str, parent: Node, name: str, before: Stamp | None) -> None:
        """A file was renamed: its open writers commit to the new name. `before` was its stamp."""
        for node in self.handles.buffered(path):
            assert node.buffer is not None
            node.parent, node.name = parent, name
            self._retarget(node, node.buffer, parent.path_of(name))
            base = node.buffer.base  # a state text is committed again under its new name
            if base is not None and is_same_content(base.main, before):
                node.buffer.base = self.names.version(node.buffer.path_info)

    def retarget_writers_below(self, old: str, new: str) -> None:
        """A directory was renamed: open writers of attachments and state texts below it commit to the new paths."""
        for node in self.handles.buffered_below(old):
            assert node.buffer is not None
            place = node.buffer.path_info
            path = new + place.path.removeprefix(old)
            if place.kind in MAY_BE_EMPTY and classify_path(path).kind is place.kind:
                is_pending = self.writers.pending(place.path) is node
                self.writers.remove_pending(node)
                self._retarget(node, node.buffer, path)
                if is_pending:
                    self.writers.add_pending(path, node)

    def _retarget(self, node: Node, buffer: WriteBuffer, path: str) -> None:
        before = buffer.path_info.path
        node.path = path
        node.path_info = buffer.path_info = classify_path(path)
        for _ in range(buffer.writers):
            self.writers.end(before)
            self.writers.begin(path)

    def detach_writers(self, path: str) -> None:
        """A file was removed: its open writers no longer commit."""
        for node in self.handles.buffered(path):
            assert node.buffer is not None
            self.writers.remove_pending(node)
            node.buffer.is_detached = True

    # -- releasing -----------------------------------------------------------------------------------

    async def release(self, number: int) -> None:
        self._close_handle(self.handles.pop(number))

    def _close_handle(self, handle: Handle) -> None:
        handle.close()
        buffer = handle.node.buffer
        if buffer is None:
            return
        buffer.writers -= 1
        self.writers.end(buffer.path_info.path)
        if buffer.is_idle:
            self.writers.remove_pending(handle.node)
            buffer.discard()  # rejected bytes are kept as rejects; incomplete writes are lost
            self.tree.nodes.drop_unused(handle.node)

    async def copy_large(self, buffer: WriteBuffer) -> None:
        """Before a write: copy a large version in a worker thread. Other requests do not wait for it."""
        while (source := buffer.large_source()) is not None:
            (fd, size), writes = source, buffer.writes
            try:
                buffer.use_copy(await self.threads.run(partial(buffer.copy, fd, size), is_change=True), writes)
            except OSError as error:
                buffer.failure = error
                raise
            finally:
                os.close(fd)

    # -- sizes -------------------------------------------------------------------------------------------

    async def resize(self, node: Node, size: int, number: int | None, process: Process) -> None:
        """Truncate. On a write buffer it takes effect at the flush; by path it commits at once."""
        handle = self.handles.get(number) if number is not None else None
        if isinstance(handle, FileHandle):
            handle.require_unsaved()
        if node.buffer is not None:
            if size:
                await self.copy_large(node.buffer)
            node.buffer.truncate(size)
        elif node.is_version:
            await self._truncate_version(node, size, process)
        else:
            if isinstance(handle, FileHandle):
                await self._truncate_plain(handle.place, handle.fd, size)
            else:
                fd = self.names.open(node.disk_path, os.O_WRONLY)
                try:
                    await self._truncate_plain(node.disk_path, fd, size)
                finally:
                    os.close(fd)
            if size == 0 and node.parent is not None:
                self._note_created(node, process)

    async def _truncate_plain(self, place: PathInfo, fd: int, size: int) -> None:
        """Truncate a file that is written in place. Lines that a log loses go to the trash."""
        if place.is_session_log:
            await self.threads.run(partial(self.names.truncate_log, place, fd, size), place.location)
        else:
            os.ftruncate(fd, size)

    async def _truncate_version(self, node: Node, size: int, process: Process) -> None:
        """Commit a truncated version as a new node. Readers keep the old one."""
        path_info = node.disk_path
        assert path_info.location is not None
        assert node.parent is not None
        base = self.names.version(path_info)
        writer = self.evidence.writer(process, path_info.path, self.evidence.now, is_truncated=False)
        truncate = partial(self.names.truncate, path_info, size, base=base, on_conflict=self.on_conflict, writer=writer)
        try:
            await self.threads.run(truncate, path_info.location)
        except StoreError:
            node.parent.invalidate_listing()  # it may have the rejected text and the reason now
            await self.listings.invalidate_outdated()
            raise
        node.parent.invalidate_listing()
        await self._invalidate_name(node.parent, node.name)


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def require_writable(node: Node, *, read_only: bool) -> None:
    """Raise for virtual files, and for every file of a read-only mount."""
    if read_only:
        raise Generated("the mount is read-only")
    if node.is_generated:
        raise Generated(f"{node.path or '/'} is generated and cannot be changed")
