"""pyfuse3.Operations: decode, call, encode. What a name means is the tree's affair, the rules are the store's.

Between two awaits a handler owns all in-memory state. In rename, create, unlink, mkdir and rmdir the caller
holds the directory's lock until we answer, so nothing is told to the kernel there; flush and fsync may.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from fusefs.attrs import attributes
from fusefs.errors import guarded
from fusefs.generated import Generated
from fusefs.handles import DataHandle, FileHandle, Handle, Handles, ShadowHandle
from fusefs.nodes import Node
from fusefs.pins import Pins
from fusefs.renames import Renamer
from fusefs.threads import Threads
from fusefs.tree import Tree
from fusefs.writers import LIMBO_S, Limbo, Writers
from store import Store, layout
from store.atomic import Stamp
from store.errors import Generated as GeneratedError
from store.errors import InvalidContent, NotFound, Protected, StoreError
from store.places import VERSIONED, Kind, Place, place_of

log = logging.getLogger("grovefs.mount")

_WRITING = os.O_WRONLY | os.O_RDWR
_PASSED_ON = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC


@guarded
class Operations(pyfuse3.Operations):
    enable_writeback_cache = False
    supports_dot_lookup = False

    def __init__(
        self, store: Store, *, overwrite: bool = False, read_only: bool = False, limbo_s: float = LIMBO_S
    ) -> None:
        super().__init__()
        self.store = store
        self.counts: Counter[str] = Counter()
        self.writers = Writers(limbo_s)
        self.tree = Tree(store, Generated(store, self.stats), self.writers)
        self.handles = Handles()
        self.threads = Threads()
        self.pins = Pins()
        self.renamer = Renamer(self.tree, self.writers, overwrite=overwrite)
        self._overwrite = overwrite
        self._read_only = read_only

    def stats(self) -> dict[str, object]:
        return {"requests": dict(self.counts), "nodes": len(self.tree.nodes)}

    # -- names -------------------------------------------------------------------------------------

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        self.counts["lookup"] += 1
        parent, text = self.tree.nodes.get(parent_inode), os.fsdecode(name)
        private = self.writers.expected(ctx.pid, parent, text)
        if private is not None:
            private.lookups += 1
            return attributes(private)
        if self.pins.is_expected(ctx.pid, parent, text):
            return self._entry(self.pins.pin(lambda: self.tree.lookup(parent, text), self._open_version))
        return self._entry(self.tree.lookup(parent, text))

    def _entry(self, node: Node) -> EntryAttributes:
        """Attributes for a reply that counts as a lookup."""
        node.lookups += 1
        return attributes(node, cached=not self.writers.are_on(node.path))

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            self.tree.nodes.forget(inode, count)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        self.counts["getattr"] += 1
        node = self.tree.nodes.get(inode)
        self._refresh(node)
        attrs = attributes(node)
        if node.shown_inode is not None:
            attrs.st_ino = node.shown_inode
        return attrs

    def _refresh(self, node: Node) -> None:
        """A version stays what it was; anything else is what the disk says now."""
        if node.is_generated or node.shadow is not None or node.is_version:
            return
        info = self.store.names.stat(node.path)
        if info is not None and node.info is not None and info.st_ino == node.info.st_ino:
            node.info = info
        elif (handle := self.handles.find_file(node)) is not None:  # its name is gone, or another's
            node.info = os.fstat(handle.fd)

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return os.fsencode(self.store.names.read_link(self.tree.nodes.get(inode).place))

    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        return True  # the kernel checks modes itself: default_permissions

    # -- directories -------------------------------------------------------------------------------

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        self.counts["opendir"] += 1
        node = self.tree.nodes.get(inode)
        return self.handles.add_listing(node, self.tree.list(node))

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        self.counts["readdir"] += 1
        directory, names = self.handles.listing(fh)
        for number in range(start_id, len(names)):
            try:
                node = self.tree.lookup(directory, names[number])
            except NotFound:
                continue  # gone since the directory was opened
            cached = not self.writers.are_on(node.path)
            if not pyfuse3.readdir_reply(
                token, os.fsencode(names[number]), attributes(node, cached=cached), number + 1
            ):
                self.tree.nodes.drop_unused(node)
                return
            node.lookups += 1

    async def releasedir(self, fh: int) -> None:
        self.handles.drop_listing(fh)

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Renames and commits last before they are answered; other changes of names once they are synced."""
        directory, _ = self.handles.listing(fh)
        if not directory.is_generated:
            await self.threads.run(lambda: self.store.names.sync_dir(directory.path))

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        self.counts["mkdir"] += 1
        parent, text = self._changing(parent_inode, name)
        place = place_of(f"{parent.path}/{text}")
        await self.threads.run(lambda: self.store.names.make_dir(place), place.location)
        return self._entry(self.tree.lookup(parent, text))

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.counts["rmdir"] += 1
        parent, text = self._changing(parent_inode, name)
        place = place_of(f"{parent.path}/{text}")
        await self.threads.run(
            lambda: self.store.names.remove_dir(place, self.writers.hidden_in(place.path)), place.location
        )
        for hidden_name in self.writers.hidden_in(place.path):
            self.writers.show(f"{place.path}/{hidden_name}")
        if place.location is not None and place.kind is Kind.SESSION:
            for document in layout.DOCUMENTS:
                self.store.names.rejects.drop(place.location, document)
        self._nameless(parent, text)

    def _changing(self, parent_inode: int, name: bytes) -> tuple[Node, str]:
        """The directory in which a name is to change, if that may be."""
        parent = self.tree.nodes.get(parent_inode)
        if self._read_only:
            raise GeneratedError("the mount is read-only")
        if not parent.path.startswith(layout.SESSIONS):
            raise GeneratedError(f"{parent.path or '/'} is generated; only sessions/ can be changed")
        return parent, os.fsdecode(name)

    def _nameless(self, parent: Node, name: str) -> None:
        node = self.tree.nodes.named(parent, name)
        if node is not None:
            self.tree.nodes.unname(node)

    # -- names of files ----------------------------------------------------------------------------

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.counts["unlink"] += 1
        parent, text = self._changing(parent_inode, name)
        place = place_of(f"{parent.path}/{text}")
        if self._is_reject(place):
            assert place.location is not None
            self.store.names.rejects.remove(place.location, text)
        elif place.kind is Kind.DOCUMENT and text == layout.SESSION:
            self.store.names.refuse_pinned(place)
            info = self.store.names.stat(place.path)
            if info is not None:
                self.writers.hide(place, info, was_deleted=True)
        else:
            await self.threads.run(lambda: self.store.names.remove_file(place), place.location)
            if place.kind is Kind.DOCUMENT:
                self.writers.note_deleted(place.path)
        self._nameless(parent, text)

    def _is_reject(self, place: Place) -> bool:
        if place.location is None or self.store.names.stat(place.path) is not None:
            return False
        return self.store.names.rejects.path(place.location, place.name) is not None

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        self.counts["rename"] += 1
        old_parent, old_name = self._changing(parent_inode_old, name_old)
        new_parent, new_name = self._changing(parent_inode_new, name_new)
        if flags & pyfuse3.RENAME_EXCHANGE:
            raise FUSEError(errno.EINVAL)
        source, target = place_of(f"{old_parent.path}/{old_name}"), place_of(f"{new_parent.path}/{new_name}")
        replace = not flags & pyfuse3.RENAME_NOREPLACE
        node = self.tree.nodes.named(old_parent, old_name)
        is_as_brought = await self.threads.run(
            lambda: self.renamer.rename(source, target, node, replace=replace), target.location or source.location
        )
        if node is None:
            return
        self.tree.nodes.rename(node, new_parent, new_name)
        if is_as_brought and (target.kind is not Kind.DOCUMENT or self.handles.find_file(node) is None):
            node.info = self.store.names.stat(target.path) or node.info
            node.has_old_pages = target.kind is Kind.DOCUMENT
            return
        # The document is other bytes than the kernel has of this node, or soon may be: it is to look again.
        self.tree.nodes.unname(node)
        trio.lowlevel.spawn_system_task(self._forget_after_answer, new_parent.inode, name_new)

    async def _forget_after_answer(self, parent: int, name: bytes) -> None:
        with suppress(OSError):
            await self.threads.tell_kernel(lambda: _forget_entry(parent, name))

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, text = self._changing(parent_inode, name)
        self.store.names.symlink(place_of(f"{parent.path}/{text}"), os.fsdecode(target))
        return self._entry(self.tree.lookup(parent, text))

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        raise Protected("two names for one file would be two sessions in one")

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        raise Protected("only files, directories and links can be made here")

    # -- opening -----------------------------------------------------------------------------------

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        self.counts["open"] += 1
        node = self.tree.nodes.get(inode)
        is_writing = bool(flags & _WRITING)
        if is_writing and (self._read_only or node.is_generated):
            raise GeneratedError(f"{node.path} cannot be written")
        if node.data is not None:
            return FileInfo(fh=self.handles.add(DataHandle(node)), keep_cache=True)
        if node.shadow is not None:
            self.writers.arrived(ctx.pid, node)
            return self._open_shadow(node, flags)
        if is_writing and node.is_version:
            return self._send_back(node, flags, ctx)
        return self._open_file(node, flags, ctx)

    def _send_back(self, node: Node, flags: int, ctx: RequestContext) -> FileInfo:
        """Lead the writer of a version to a private node, by way of another lookup."""
        assert node.parent is not None
        again = self.writers.expected(ctx.pid, node.parent, node.name)
        if again is not None:  # it came back without a lookup: through /proc/self/fd, so serve it here
            self.writers.arrived(ctx.pid, again)
            return self._open_shadow(again, flags)
        private = self.tree.make_private(node.parent, node.name, node.info, node.inode)
        self.writers.expect(ctx.pid, node.parent, node.name, private)
        raise FUSEError(errno.ESTALE)

    def _open_shadow(self, node: Node, flags: int) -> FileInfo:
        shadow = node.shadow
        assert shadow is not None
        shadow.writers += 1
        self.writers.begin(shadow.place.path)
        if flags & os.O_TRUNC:
            shadow.truncate(0)
        return FileInfo(fh=self.handles.add(ShadowHandle(node, bool(flags & os.O_APPEND))), direct_io=True)

    def _open_file(self, node: Node, flags: int, ctx: RequestContext) -> FileInfo:
        if node.is_version:
            fd = self.pins.take(ctx.pid, node) or self._open_version(node)
            if fd is None:
                self.pins.expect(ctx.pid, node)
                raise FUSEError(errno.ESTALE)  # replaced since it was looked up: the kernel looks again, once
            keep_cache, node.has_old_pages = not node.has_old_pages, False
            return FileInfo(fh=self.handles.add(FileHandle(node, fd)), keep_cache=keep_cache)
        fd = self.store.names.open(node.place, flags & _PASSED_ON & ~os.O_TRUNC)
        if node.info is None or os.fstat(fd).st_ino != node.info.st_ino:
            os.close(fd)
            raise FUSEError(errno.ESTALE)  # another file bears the name by now: the kernel looks again
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
        handle = FileHandle(node, fd, appends=bool(flags & os.O_APPEND))
        return FileInfo(fh=self.handles.add(handle), direct_io=node.place.kind is Kind.LOG)

    def _open_version(self, node: Node) -> int | None:
        """The version a node stands for; None if it has been replaced."""
        fd = self.store.names.open(node.place, os.O_RDONLY)
        if _is_version(fd, node):
            return fd
        os.close(fd)
        return None

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        self.counts["create"] += 1
        parent, text = self._changing(parent_inode, name)
        place = place_of(f"{parent.path}/{text}")
        if place.kind in VERSIONED:
            info = self.store.names.stat(place.path)
            node = self.tree.make_private(parent, text, info if self.writers.hidden(place.path) is None else None)
            assert node.shadow is not None
            node.shadow.mode = mode & ~ctx.umask & 0o7777 if info is None else None
            node.lookups += 1
            opened = self._open_shadow(node, flags)
            node.shadow.truncate(0)
            return opened, attributes(node)
        fd = self.store.names.open(place, flags & _PASSED_ON | os.O_CREAT | os.O_EXCL, mode & ~ctx.umask)
        node = self.tree.lookup(parent, text)
        node.created_ns = time.time_ns()
        handle = FileHandle(node, fd, appends=bool(flags & os.O_APPEND))
        return FileInfo(fh=self.handles.add(handle), direct_io=place.kind is Kind.LOG), self._entry(node)

    # -- open files --------------------------------------------------------------------------------

    async def read(self, fh: int, off: int, size: int) -> bytes:
        self.counts["read"] += 1
        return self.handles.get(fh).read(off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        self.counts["write"] += 1
        return self.handles.get(fh).write(off, buf)

    async def flush(self, fh: int) -> None:
        self.counts["flush"] += 1
        await self._commit(fh)

    async def fsync(self, fh: int, datasync: bool) -> None:
        self.counts["fsync"] += 1
        handle = self.handles.get(fh)
        if isinstance(handle, FileHandle):
            await self.threads.run(lambda: os.fsync(handle.fd))
        try:
            await self._commit(fh)
        except InvalidContent:
            shadow = handle.node.shadow
            if shadow is not None:
                shadow.refuse()
                handle.node.info = shadow.info
            raise

    async def _commit(self, fh: int, *, at_end: bool = False) -> None:
        node = self.handles.get(fh).node
        shadow = node.shadow
        if shadow is not None:
            shadow.accept_empty(at_end=at_end)
        if shadow is None or not shadow.has_something_to_say or node.parent is None:
            return
        path = shadow.place.path  # not the node's: its directory may bear another name by now
        if self.writers.hidden(path) is not None and not shadow.written:
            return
        shadow.deleted_before = self.writers.was_deleted(path)
        try:
            await self.threads.run(lambda: shadow.commit(overwrite=self._overwrite), shadow.place.location)
        finally:
            # Committed, the name leads to the new version; refused, the old one has its name again.
            self.writers.show(path)
        node.info = shadow.info
        parent, name = node.parent.inode, os.fsencode(node.name)
        await self.threads.tell_kernel(lambda: _forget_entry(parent, name))

    async def release(self, fh: int) -> None:
        self.counts["release"] += 1
        shadow = self.handles.get(fh).node.shadow
        try:
            if shadow is not None and shadow.writers == 1 and shadow.is_emptied:
                await self._commit(fh, at_end=True)
        finally:
            self._let_go(self.handles.pop(fh))

    def _let_go(self, handle: Handle) -> None:
        handle.close()
        shadow = handle.node.shadow
        if shadow is None:
            return
        shadow.writers -= 1
        self.writers.end(shadow.place.path)
        if shadow.is_idle:
            shadow.discard()  # refused bytes are kept among the rejects; what never was complete is gone
            self.tree.nodes.drop_unused(handle.node)

    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: pyfuse3.SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        self.counts["setattr"] += 1
        node = self.tree.nodes.get(inode)
        if self._read_only or node.is_generated:
            raise GeneratedError(f"{node.path} cannot be changed")
        if fields.update_size:
            await self._resize(node, attr.st_size, fh)
        if fields.update_uid or fields.update_gid:
            self._refuse_new_owner(node, attr, fields)
        mode = attr.st_mode if fields.update_mode else None
        mtime_ns = attr.st_mtime_ns if fields.update_mtime else None
        if node.shadow is not None:
            node.shadow.mode = mode if mode is not None else node.shadow.mode
            node.shadow.mtime_ns = mtime_ns if mtime_ns is not None else node.shadow.mtime_ns
            return attributes(node)
        times = self._times(node, attr, fields)
        handle = self.handles.find_file(node)
        if handle is not None and not node.is_version:  # its name may be gone, or another's
            _set_attributes(handle.fd, mode, times)
            node.info = os.fstat(handle.fd)
            node.has_set_times = node.has_set_times or fields.update_mtime
        elif mode is not None or times is not None:
            place = node.place
            await self.threads.run(
                lambda: self.store.names.set_attributes(place, mode=mode, times_ns=times), place.location
            )
            node.info = self.store.names.stat(place.path) or node.info
            node.has_set_times = node.has_set_times or fields.update_mtime
        self._refresh(node)
        return attributes(node)

    def _refuse_new_owner(self, node: Node, attr: EntryAttributes, fields: pyfuse3.SetattrFields) -> None:
        owner = (node.info.st_uid, node.info.st_gid) if node.info is not None else (os.geteuid(), os.getegid())
        wanted = (
            attr.st_uid if fields.update_uid else owner[0],
            attr.st_gid if fields.update_gid else owner[1],
        )
        if wanted != owner:
            raise Protected(f"{node.path} belongs to whom it belongs")

    def _times(self, node: Node, attr: EntryAttributes, fields: pyfuse3.SetattrFields) -> tuple[int, int] | None:
        if not fields.update_mtime and not fields.update_atime:
            return None
        assert node.info is not None
        return (
            attr.st_atime_ns if fields.update_atime else node.info.st_atime_ns,
            attr.st_mtime_ns if fields.update_mtime else node.info.st_mtime_ns,
        )

    async def _resize(self, node: Node, size: int, fh: int | None) -> None:
        """ftruncate on a shadow waits for its flush; truncate by path is a commit of its own."""
        if node.shadow is not None:
            node.shadow.truncate(size)
            return
        place = node.place
        if place.kind not in VERSIONED:
            handle = self.handles.get(fh) if fh is not None else None
            if isinstance(handle, FileHandle):
                os.ftruncate(handle.fd, size)
                return
            fd = self.store.names.open(place, os.O_WRONLY)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)
            return
        assert place.location is not None
        base = self.store.version(place.location)
        await self.threads.run(
            lambda: self.store.names.truncate(place, size, base=base, overwrite=self._overwrite), place.location
        )
        node.info = self.store.names.stat(place.path)

    # -- the rest ----------------------------------------------------------------------------------

    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        disk, answer = os.statvfs(self.store.home), pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(answer, name, getattr(disk, name))
        answer.f_namemax = layout.MAX_NAME_BYTES
        return answer

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.ENOSYS)  # once answered so, the kernel stops asking before every write

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        raise FUSEError(errno.ENOSYS)

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        raise FUSEError(errno.ENOSYS)

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        raise FUSEError(errno.ENOSYS)

    # -- limbo -------------------------------------------------------------------------------------

    async def end_limbo(self) -> None:
        """What was taken away ten seconds ago, and not replaced, is gone; a pinned one is back."""
        self.pins.expire()
        for node in self.writers.expire():
            self.tree.nodes.drop_unused(node)
        for limbo in self.writers.overdue():
            try:
                await self.threads.run(lambda limbo=limbo: self._bury(limbo), limbo.place.location)  # type: ignore[misc]
            except (StoreError, OSError) as error:
                log.warning("%s stays: %s", limbo.place.path, error)
            if self.writers.hidden(limbo.place.path) is limbo:
                self.writers.show(limbo.place.path)

    def _bury(self, limbo: Limbo) -> None:
        if self.writers.hidden(limbo.place.path) is not limbo:
            return  # a new version came while this waited for its turn
        info = self.store.names.stat(limbo.place.path)
        if info is not None and Stamp.of(info) == limbo.stamp:
            self.store.names.remove_file(limbo.place)


def _is_version(fd: int, node: Node) -> bool:
    info = os.fstat(fd)
    known = node.info
    return (
        known is not None
        and stat.S_ISREG(info.st_mode)
        and (info.st_ino, info.st_size, info.st_mtime_ns) == (known.st_ino, known.st_size, known.st_mtime_ns)
    )


def _set_attributes(fd: int, mode: int | None, times_ns: tuple[int, int] | None) -> None:
    if mode is not None:
        os.fchmod(fd, stat.S_IMODE(mode))
    if times_ns is not None:
        os.utime(fd, ns=times_ns)


def _forget_entry(parent: int, name: bytes) -> None:
    try:
        pyfuse3.invalidate_entry(parent, name)
    except FileNotFoundError:
        pass  # it knew nothing of it
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
