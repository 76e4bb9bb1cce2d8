"""Opening, committing and letting go of files: what open(2), close(2) and truncate(2) mean here.

A writer of a version is led to a private node and its shadow; a reader of a version holds a descriptor of it;
everything else is the file itself. Between two awaits all in-memory state is ours.
"""

from __future__ import annotations

import os
import stat
import time
from functools import partial
from typing import NamedTuple

from fusefs.requests.kernel_cache import invalidate
from fusefs.requests.threads import Threads
from fusefs.switches import enabled
from fusefs.tree.handles import BufferHandle, DataHandle, FileHandle, Handle, Handles
from fusefs.tree.nodes import Node, RetryLookup
from fusefs.tree.reader_pins import ReaderPins
from fusefs.tree.tree import Tree
from fusefs.tree.write_buffers import WriteBuffer
from fusefs.tree.writers import Writers
from fusefs.views.base import VirtualFile
from store import layout
from store.commit.write_request import OnConflict
from store.disk.file import Stamp
from store.errors import Busy, Conflict, Generated, InvalidContent
from store.path_kinds import CHECKED, VERSIONED, PathKind, classify_path

WRITING = os.O_WRONLY | os.O_RDWR
# A version's pages are right for ever: a second reading asks for no byte (measured: 1 request in 4 of a warm grep -r).
_KEEP_PAGES = enabled("pages")
_PASSED_ON = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC
_MOST_BESIDE = 64  # documents in a directory that are looked at for each file that is made there


class OpenReply(NamedTuple):
    """A handle's number, and what the kernel may do with its pages."""

    number: int
    direct_io: bool = False
    keep_cache: bool = False


class Files:
    def __init__(self, tree: Tree, writers: Writers, threads: Threads, *, overwrite: bool) -> None:
        self.tree = tree
        self.names = tree.store.names
        self.writers = writers
        self.threads = threads
        self.handles = Handles()
        self.pins = ReaderPins()
        self._on_conflict: OnConflict = "overwrite" if overwrite else "reject"

    # -- opening -----------------------------------------------------------------------------------------

    async def open(self, node: Node, flags: int, pid: int) -> OpenReply:
        if node.item is not None:
            return await self._open_page(node)
        if node.buffer is not None:
            self.writers.claimed(pid, node)
            return self._open_buffer(node, flags)
        if node.is_version:
            return (
                self._redirect_to_private_node(node, flags, pid) if flags & WRITING else self._open_version(node, pid)
            )
        return self._open_plain(node, flags)

    async def _open_page(self, node: Node) -> OpenReply:
        assert isinstance(node.item, VirtualFile)
        page = node.item
        data = await self.threads.run(page.render) if page.is_cacheable else page.render()
        if len(data) != page.size:
            raise RetryLookup(f"{node.path} has changed")
        return OpenReply(self.handles.add(DataHandle(node, data)), keep_cache=True)

    def _redirect_to_private_node(self, node: Node, flags: int, pid: int) -> OpenReply:
        """Lead the writer of a version to a private node, by way of another lookup."""
        assert node.parent is not None
        again = self.writers.reserved_for(pid, node.parent, node.name)
        if again is not None:  # it came back without a lookup: through /proc/self/fd, so serve it here
            self.writers.claimed(pid, again)
            return self._open_buffer(again, flags)
        private = self.tree.make_private(node.parent, node.name, node.info, node.inode)
        self.writers.reserve(pid, node.parent, node.name, private)
        raise RetryLookup(f"{node.path} is written under a node of its own")

    def _open_buffer(self, node: Node, flags: int) -> OpenReply:
        shadow = node.buffer
        assert shadow is not None
        shadow.writers += 1
        self.writers.begin(shadow.place.path)
        if flags & os.O_TRUNC:
            shadow.truncate(0)
        handle = BufferHandle(node, bool(flags & os.O_APPEND), is_reader=not flags & WRITING)
        return OpenReply(self.handles.add(handle), direct_io=True)

    def _open_version(self, node: Node, pid: int) -> OpenReply:
        fd = self.pins.take(pid, node)
        if fd is None:
            fd = self.open_exact_version(node)
        if fd is None:
            self.pins.reserve(pid, node)
            raise RetryLookup(f"{node.path} was replaced since it was looked up")
        keep_cache, node.has_old_pages = not node.has_old_pages, False
        return OpenReply(self.handles.add(FileHandle(node, fd)), keep_cache=keep_cache and _KEEP_PAGES)

    def open_exact_version(self, node: Node) -> int | None:
        """A descriptor of the version a node stands for; None if it has been replaced."""
        try:
            fd = self.names.open(node.disk_path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        info, known = os.fstat(fd), node.info
        if known is not None and stat.S_ISREG(info.st_mode) and _identity(info) == _identity(known):
            return fd
        os.close(fd)
        return None

    def _open_plain(self, node: Node, flags: int) -> OpenReply:
        try:
            fd = self.names.open(node.disk_path, flags & _PASSED_ON & ~os.O_TRUNC)
        except FileNotFoundError:
            raise RetryLookup(f"{node.path} is gone; who may create it will") from None
        info = os.fstat(fd)
        if node.info is None or info.st_ino != node.info.st_ino:
            os.close(fd)
            raise RetryLookup(f"{node.path} is another file by now")
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
        handle = FileHandle(node, fd, appends=bool(flags & os.O_APPEND))
        return OpenReply(self.handles.add(handle), direct_io=node.disk_path.kind is PathKind.LOG)

    def create(self, parent: Node, name: str, mode: int, flags: int) -> tuple[OpenReply, Node]:
        place = classify_path(parent.path_of(name))
        if place.kind in VERSIONED:
            info = self.names.stat(place.path)
            node = self.tree.make_private(parent, name, info if self.writers.hidden(place.path) is None else None)
            assert node.buffer is not None
            node.buffer.mode = mode if info is None else None
            opened = self._open_buffer(node, flags)
            node.buffer.truncate(0)
            if place.kind is PathKind.ATTACHMENT and info is None:
                self.writers.add_pending(place.path, node)
                parent.invalidate_listing()
            return opened, node
        # Not O_EXCL unless asked for: the kernel remembered that there was none, and someone may have made it since.
        fd = self.names.open(place, flags & (_PASSED_ON | os.O_EXCL) | os.O_CREAT, mode)
        parent.invalidate_listing()
        node = self.tree.lookup(parent, name)
        node.created_ns, node.seen_at_create = time.time_ns(), self._documents_in(parent)
        handle = FileHandle(node, fd, appends=bool(flags & os.O_APPEND))
        return OpenReply(self.handles.add(handle), direct_io=place.kind is PathKind.LOG), node

    def _documents_in(self, directory: Node) -> dict[str, Stamp | None]:
        """What a new file may be meant to replace: whoever made it can have read nothing older."""
        known = [name for name, node in directory.children.items() if node.place and node.place.kind in CHECKED]
        names = {*layout.DOCUMENTS, *known[:_MOST_BESIDE]}
        infos = {path: self.names.stat(path) for path in map(directory.path_of, names)}
        return {path: Stamp.of(info) if info is not None else None for path, info in infos.items()}

    # -- committing --------------------------------------------------------------------------------------

    async def sync(self, number: int) -> None:
        """fsync: a commit point as flush is; what was refused shows itself as what stands."""
        handle = self.handles.get(number)
        if isinstance(handle, FileHandle):
            await self.threads.run(lambda: os.fsync(handle.fd))
        try:
            await self.commit(number)
        except InvalidContent:
            shadow = handle.node.buffer
            if shadow is not None:
                shadow.show_committed()
                handle.node.info = shadow.info
            raise

    async def commit(self, number: int, *, at_end: bool = False) -> None:
        handle = self.handles.get(number)
        node, shadow = handle.node, handle.node.buffer
        if shadow is None:
            if isinstance(handle, FileHandle) and handle.has_written:
                node.set_stat(os.fstat(handle.fd))  # so that our own writing is no news
            return
        if isinstance(handle, BufferHandle) and handle.is_reader:
            return
        shadow.commit_if_empty(at_end=at_end)
        if not shadow.is_dirty or node.parent is None:
            return
        path = shadow.place.path  # not the node's: its directory may bear another name by now
        if self.writers.hidden(path) is not None and not shadow.written:
            return
        shadow.unlinked_first = self.writers.was_deleted(path)
        try:
            await self._run_commit(shadow)
            self.writers.remove_pending(node)
            self.writers.forget_refusal(path, shadow.opener)
        except (InvalidContent, Conflict):
            self.writers.note_refused(path, shadow.opener)
            raise
        finally:
            # Committed: the name leads to the new version. Rejected: the old version has its name again.
            self.writers.show(path)
            node.parent.invalidate_listing()
        node.set_stat(shadow.info)
        await self._announce(node.parent, node.name)

    async def _run_commit(self, buffer: WriteBuffer) -> None:
        """Commit a buffer in a worker thread; its writer may go on meanwhile.

        One commit of a buffer at a time: the base of the next one is the version this one makes.
        """
        async with self.threads.queued(buffer.place.location):
            if not buffer.is_dirty:
                return  # another descriptor's flush has committed everything
            request = buffer.begin_commit(self._on_conflict)
            try:
                result = await self.threads.run(partial(self.names.commit, request))
            except (InvalidContent, Conflict, Busy):
                buffer.rejected()
                raise
            except BaseException:
                buffer.failed()
                raise
            buffer.committed(request, result)

    async def _announce(self, directory: Node, name: str) -> None:
        """Whoever asks for the name, or for the sidecar beside it, is led to the new version from now on."""
        changed = {name, *(n for n in layout.DOCUMENTS if n in directory.children)}
        notices = [notice for n in changed for notice in self.tree.recheck(directory, n)]
        await invalidate([*notices, *self.tree.recheck_times(directory)])

    # -- a name that moves or goes while it is written ---------------------------------------------------

    async def settle(self, node: Node) -> None:
        """Commit a new attachment as far as it is: it is to be renamed, and its writer will go on."""
        shadow = node.buffer
        assert shadow is not None
        shadow.written = True
        await self._run_commit(shadow)
        self.writers.remove_pending(node)
        node.set_stat(shadow.info)

    def retarget_writers(self, path: str, parent: Node, name: str) -> None:
        """An attachment bears another name: so does what its writers have yet to say."""
        for node in self.handles.buffered(path):
            assert node.buffer is not None
            node.parent, node.name, node.path = parent, name, parent.path_of(name)
            node.place = node.buffer.place = classify_path(node.path)
            for _ in range(node.buffer.writers):
                self.writers.end(path)
                self.writers.begin(node.path)

    def detach_writers(self, path: str) -> None:
        """An attachment was removed: what its writers have yet to say belongs nowhere."""
        for node in self.handles.buffered(path):
            assert node.buffer is not None
            self.writers.remove_pending(node)
            node.buffer.is_detached = True

    # -- letting go --------------------------------------------------------------------------------------

    async def release(self, number: int) -> None:
        shadow = self.handles.get(number).node.buffer
        try:
            if shadow is not None and shadow.writers == 1 and shadow.is_emptied:
                await self.commit(number, at_end=True)
        finally:
            self._close_handle(self.handles.pop(number))

    def _close_handle(self, handle: Handle) -> None:
        handle.close()
        shadow = handle.node.buffer
        if shadow is None:
            return
        shadow.writers -= 1
        self.writers.end(shadow.place.path)
        if shadow.is_idle:
            self.writers.remove_pending(handle.node)
            shadow.discard()  # refused bytes are kept among the rejects; what never was complete is gone
            self.tree.nodes.drop_unused(handle.node)

    # -- sizes -------------------------------------------------------------------------------------------

    async def resize(self, node: Node, size: int, number: int | None) -> None:
        """ftruncate on a shadow waits for its flush; truncate by path is a commit of its own."""
        if node.buffer is not None:
            node.buffer.truncate(size)
        elif node.is_version:
            await self._truncate_version(node, size)
        else:
            handle = self.handles.get(number) if number is not None else None
            if isinstance(handle, FileHandle):
                os.ftruncate(handle.fd, size)
                return
            fd = self.names.open(node.disk_path, os.O_WRONLY)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)

    async def _truncate_version(self, node: Node, size: int) -> None:
        """The new version is another node's; readers of this one keep theirs, and the name leads on."""
        place = node.disk_path
        assert place.location is not None
        assert node.parent is not None
        base = self.names.version(place) if place.kind in CHECKED else None
        await self.threads.run(
            partial(self.names.truncate, place, size, base=base, on_conflict=self._on_conflict), place.location
        )
        node.parent.invalidate_listing()
        await self._announce(node.parent, node.name)


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def require_writable(node: Node, *, read_only: bool) -> None:
    """What exists only in the mount, and anything in a read-only mount, cannot be written."""
    if read_only:
        raise Generated("the mount is read-only")
    if node.is_generated:
        raise Generated(f"{node.path or '/'} is generated and cannot be changed")
