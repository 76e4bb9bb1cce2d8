"""Request handlers of pyfuse3: decode the request, call tree and store, encode the reply.

Between two awaits a handler owns all in-memory state. During rename, create, unlink, mkdir and
rmdir the kernel holds the directory's lock until we answer, so these must not await an
invalidation; flush, fsync and setattr may.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from fusefs.fast import NODE_HANDLE, PROBED_NAMES
from fusefs.requests.attributes import absent, attributes, attributes_before_open, attributes_with_number
from fusefs.requests.callers import Callers, is_running
from fusefs.requests.change_follower import ChangeFollower
from fusefs.requests.directory_entries import DirectoryEntries
from fusefs.requests.entry_numbers import CAN_SHOW_NUMBERS
from fusefs.requests.errnos import guarded
from fusefs.requests.files import WRITING, Files, OpenReply, require_writable
from fusefs.requests.kernel_cache import invalidate_later
from fusefs.requests.named_entries import NamedEntries
from fusefs.requests.purge_follower import PurgeFollower
from fusefs.requests.read_ahead import ReadAhead
from fusefs.requests.threads import Threads
from fusefs.requests.timings import Timings
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.handles import FileHandle
from fusefs.tree.hidden_names import EVERYBODY, HIDDEN_S, HiddenName
from fusefs.tree.nodes import Listing, Node
from fusefs.tree.processes import Process
from fusefs.tree.shown_numbers import number_for
from fusefs.tree.tree import Tree
from fusefs.tree.writers import Writers
from fusefs.views.base import View, VirtualLink
from store import Store, layout
from store.commit.write_request import OnConflict
from store.disk.file import Stamp, storable_mode
from store.disk.rejects import is_reject
from store.errors import InvalidContent, NotFound, Problem, Protected, StoreError
from store.history.authors import acting_as
from store.namespace.reader import Reader
from store.path_kinds import PathKind, classify_path

log = logging.getLogger("grovefs.mount")

# Directories with this st_size have thousands of names: list them in a worker thread.
_LARGE_DIR_BYTES = 64 << 10
_MAX_NODES_AHEAD = 64  # made before the kernel reads them
# Negative cache entries per directory. Each name is kept in memory here too.
_MAX_ABSENT = 1000
# Kinds of files that a mount creates only where a program asks for their name. rg looks for ignore files everywhere.
_CREATED_BY_NAME = frozenset({PathKind.FOREIGN, PathKind.ATTACHMENT})

Views = Callable[[Callable[[], dict[str, object]]], Mapping[str, View]]


@guarded
class Operations(pyfuse3.Operations):
    enable_writeback_cache = False
    supports_dot_lookup = False

    def __init__(
        self,
        store: Store,
        views: Views,
        *,
        on_conflict: OnConflict = "merge",
        read_only: bool = False,
        hidden_s: float = HIDDEN_S,
        is_shared: bool = False,
    ) -> None:
        super().__init__()
        self.store = store
        self.timings = Timings()
        self.writers = Writers(hidden_s)
        self.watches = DirectoryWatches(store.home)
        self.callers = Callers()
        self.threads = Threads()
        self.tree = Tree(store, views(self.stats), self.writers, self.watches)
        self.read_ahead = ReadAhead(
            store.home,
            self.threads,
            self._count_opens,
            self._list_ahead,
            self._make_nodes,
            self.tree.nodes.drop_unused,
            self.tree.fast.pause_after_end,
        )
        self.files = Files(self.tree, self.writers, self.threads, on_conflict=on_conflict)
        self.entries = DirectoryEntries(self.files, read_only=read_only)
        self.listings = self.files.listings
        self.follower = ChangeFollower(self.tree, self.watches, self.threads)
        self.purges = PurgeFollower(self.tree, self.threads)
        self._nodes = self.tree.nodes
        self._named = NamedEntries()
        self._handles = self.files.handles
        self._read_only = read_only
        self._is_shared = is_shared  # with other users of the machine

    def _count_opens(self) -> int:
        """The number of files opened so far, by Python and by the extension."""
        return self.timings.counts().get("open", 0) + self.tree.fast.counters().get("opens", 0)

    def stats(self) -> dict[str, object]:
        return {
            "requests": self.timings.counts(),
            "microseconds": self.timings.snapshot(),
            "nodes": len(self._nodes),
            "opens_answered_by": self.tree.fast.mode,
            "fast_path": self.tree.fast.counters(),
        }

    def close(self) -> None:
        """Delete names that are still hidden, and close all files."""
        for hidden in self.writers.hidden.all():
            try:
                self._delete_hidden(hidden)
            except (StoreError, OSError) as error:
                log.warning("%s was not deleted: %s", hidden.path_info.path, error)
        self._handles.close_all()
        self.watches.close()

    # -- names -------------------------------------------------------------------------------------

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, text = self._nodes.get(parent_inode), os.fsdecode(name)
        private = self.files.pending_opens.reserved_for(ctx.pid, parent, text)
        if private is not None:
            private.lookups += 1
            return attributes_before_open(private)
        if self.files.pending_opens.expects_reader(ctx.pid, parent, text):
            viewer = self._viewer(ctx)
            look, open_version = (lambda: self.tree.lookup(parent, text, viewer)), self.files.open_exact_version
            pinned = self.files.pending_opens.pin(ctx.pid, look, open_version)
            self.tree.fast.revoke(pinned.inode)  # the open that follows must take the descriptor
            return self._entry(pinned)
        reader = self._reader(ctx)
        if self.tree.is_slow(parent, text) or (reader is not None and self.tree.is_generated(parent, text)):
            item = await self.threads.run(lambda: self.tree.find_item(parent, text, reader))
            invalidate_later(self._named.note(parent, text))
            return self._entry(self.tree.virtual_node(parent, text, item))
        try:
            found = self.tree.lookup(parent, text, self._viewer(ctx))
        except NotFound:
            if not self._can_cache_negative(parent, text):
                raise
            return absent()
        invalidate_later(self._named.note(parent, text))
        attrs = self._entry(found)
        has_number = found.shown_inode is not None and CAN_SHOW_NUMBERS
        if has_number and self._shows_all_the_same(found, self._handles.older_readers(found)):
            attrs.attr_timeout = attrs.entry_timeout  # else the kernel would ask for the attributes at once
        return attrs

    def _reader(self, ctx: RequestContext) -> Reader | None:
        """The user for whom a view is rendered; None for the owner and root, who see every session."""
        if not self._is_shared or ctx.uid in (0, os.geteuid()):
            return None
        return Reader(ctx.uid, frozenset({ctx.gid, *pyfuse3.get_sup_groups(ctx.pid)}))

    def _attributes(self, node: Node) -> EntryAttributes:
        """Attributes with a cached entry, unless it is being written, or may be hidden from another user."""
        is_private = self._is_shared and node.item is not None
        return attributes(node, cached=not is_private and not self.writers.is_being_written(node.path))

    def _viewer(self, ctx: RequestContext) -> int:
        """The process from which names may be hidden. Most of the time no name is."""
        return self.callers.find(ctx.pid, ctx.uid).pid if self.writers.hidden else EVERYBODY

    @contextmanager
    def _acting(self, ctx: RequestContext) -> Iterator[Process]:
        """The calling process, as the author of all commits in this block, also in worker threads."""
        process = self.callers.read(ctx.pid, ctx.uid)
        with acting_as(process.author):
            yield process

    def _can_cache_negative(self, parent: Node, name: str) -> bool:
        """Whether the kernel learns at once when this name is created through the mount.

        So it does if only its own requests create the name. Other kinds appear by commits of another name: a save of
        session.json writes runtime.json too. Changes made elsewhere are reported by the watch.
        """
        if not parent.is_watched or parent.path_info is None or len(parent.absent) >= _MAX_ABSENT or is_reject(name):
            return False
        if classify_path(parent.path_of(name)).kind not in _CREATED_BY_NAME:
            return False
        if name in PROBED_NAMES:
            self.tree.was_probed(parent)
        parent.note_absent(name)
        return True

    def _entry(self, node: Node) -> EntryAttributes:
        """Attributes for a reply that counts as a lookup."""
        node.lookups += 1
        return self._attributes(node)

    def _shows_all_the_same(self, node: Node, older_readers: Sequence[Process]) -> bool:
        """Whether a version shows the same number to every process, until it is replaced.

        A thread for which an older version is pinned is about to become a reader of it.
        """
        return not node.shows_own_to and not older_readers and not self.files.pending_opens.has_pinned

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            self._nodes.forget(inode, count)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        node = self._nodes.get(inode)
        self._refresh(node)
        if node.shown_inode is None:
            return attributes(node)
        if node.buffer is not None:
            return attributes_with_number(node, node.shown_inode, cached=False)
        older_readers = self._handles.older_readers(node)
        number = number_for(node, self.callers.find(ctx.pid, ctx.uid), older_readers)
        return attributes_with_number(node, number, cached=self._shows_all_the_same(node, older_readers))

    def _refresh(self, node: Node) -> None:
        """Stat the node again, unless it is a version, which never changes."""
        if node.is_generated or node.buffer is not None or node.is_version:
            return
        if node.listing is not None and not node.has_old_info:
            return  # nothing in the directory has changed since its last stat
        info = self.store.names.stat(node.path)
        if info is not None and node.info is not None and info.st_ino == node.info.st_ino:
            node.set_stat(info)
        elif (handle := self._handles.find_file(node)) is not None:  # its name was removed or reused
            node.set_stat(os.fstat(handle.fd))

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        node = self._nodes.get(inode)
        if isinstance(node.item, VirtualLink):
            return os.fsencode(node.item.target)
        return os.fsencode(self.store.names.read_link(node.disk_path))

    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        return True  # the kernel checks modes itself: default_permissions

    # -- directories -------------------------------------------------------------------------------

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        node = self._nodes.get(inode)
        listing = await self._list(node, self._reader(ctx) if node.path_info is None else None)
        return self._handles.add_listing(node, listing, self.callers.find(ctx.pid, ctx.uid).pid)

    async def _list(self, node: Node, reader: Reader | None) -> Listing:
        if node.listing is not None or not _is_large_dir(node):
            return self.tree.listing(node)
        changes = node.changes
        return self.tree.cache_listing(node, await self.threads.run(lambda: self.tree.scan(node, reader)), changes)

    def _list_ahead(self, node: Node) -> None:
        """List a directory before it is read, if that does not keep other requests waiting."""
        if not _is_large_dir(node):
            self.tree.listing(node)

    def _make_nodes(self, directory: Node) -> list[Node]:
        """Make missing nodes of a directory before it is read. Without lookups: the kernel does not know them yet."""
        listing, made = directory.listing, list[Node]()
        if listing is not None:
            for name in listing.names[:_MAX_NODES_AHEAD]:
                # A node that is there already may be known to the kernel. To stat it again here would hide from the
                # change follower that its times are new.
                if name not in directory.children:
                    with suppress(NotFound):  # gone since
                        made.append(self.tree.entry(directory, name, listing))
        return made

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        if fh & NODE_HANDLE:
            await self._read_cached_dir(self._nodes.get(fh & ~NODE_HANDLE), start_id, token)
            return
        directory, listing = self._handles.listing(fh)
        is_again = listing.was_read and listing is not directory.listing  # rewinddir(3)
        if start_id == 0 and (listing.is_stale or listing.changes != directory.changes or is_again):
            listing = await self._list(directory, listing.reader)
            self._handles.relist(fh, listing)
        listing.was_read = True
        hidden = self._hidden_names(directory, self._handles.viewer(fh))
        self._reply_names(directory, listing, start_id, lambda index: index + 1, hidden, token)

    async def _read_cached_dir(self, directory: Node, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        """Read a directory that the kernel opened by itself, and whose listing it will cache."""
        lister = self.tree.fast.lister()
        if start_id == 0:
            self.read_ahead.directory_read(directory)
        self.listings.will_read(directory)
        listing = self.listings.begun(directory, start_id) or await self._list(directory, None)
        hidden = self._hidden_names(directory, self.callers.find(*lister).pid if self.writers.hidden else EVERYBODY)
        self.listings.was_read(directory, listing, is_for_all=not hidden)
        position_after = partial(self.listings.position_after, listing)
        if not self._reply_names(directory, listing, self.listings.index_of(start_id), position_after, hidden, token):
            self.listings.keep(directory, listing)
        if start_id == 0:
            self.read_ahead.directory_listed(directory, listing)

    def _reply_names(
        self,
        directory: Node,
        listing: Listing,
        index: int,
        position_after: Callable[[int], int],
        hidden: Container[str],
        token: pyfuse3.ReaddirToken,
    ) -> bool:
        """Add names to a reply, as far as they fit. Returns whether all did."""
        names = listing.names
        for number in range(index, len(names)):
            if names[number] in hidden:
                continue
            try:
                node = self.tree.entry(directory, names[number], listing)
            except NotFound:
                continue  # gone since the directory was opened
            attrs = self._attributes(node)
            if not pyfuse3.readdir_reply(token, os.fsencode(names[number]), attrs, position_after(number)):
                self._nodes.drop_unused(node)
                return False
            node.lookups += 1
        return True

    def _hidden_names(self, directory: Node, viewer: int) -> Sequence[str]:
        """Names that the process listing the directory has renamed away."""
        return self.writers.hidden.in_directory(directory.path, viewer) if self.writers.hidden else ()

    async def releasedir(self, fh: int) -> None:
        self._handles.drop_listing(fh)

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Sync a directory. Renames and commits are synced before the reply; other changes of names are synced here."""
        directory = self._nodes.get(fh & ~NODE_HANDLE) if fh & NODE_HANDLE else self._handles.listing(fh)[0]
        if not directory.is_generated:
            await self.threads.run(lambda: self.store.names.sync_dir(directory.path))

    # -- changing names ------------------------------------------------------------------------------

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent, text = self.entries.writable_parent(parent_inode, name)
        with self._acting(ctx):
            return self._entry(await self.entries.make_dir(parent, text, mode & ~ctx.umask))

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent, text = self.entries.writable_parent(parent_inode, name)
        with self._acting(ctx) as caller:
            directory = parent.children.get(text)
            try:
                await self.entries.remove_dir(parent, text, caller)
            except StoreError:
                if directory is not None:  # a document that was hidden may be shown again
                    await self.listings.held_directories_changed(directory)
                raise

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent, text = self.entries.writable_parent(parent_inode, name)
        with self._acting(ctx) as caller:
            await self.entries.unlink(parent, text, caller)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        source = self._nodes.get(parent_inode_old), os.fsdecode(name_old)
        target = self._nodes.get(parent_inode_new), os.fsdecode(name_new)
        is_in_views = source[0].is_generated and target[0].is_generated
        if is_in_views and not flags & pyfuse3.RENAME_EXCHANGE:  # mv asks for NOREPLACE
            with self._acting(ctx):
                await self.entries.move_item(source, target)
            return
        for parent, _ in (source, target):
            require_writable(parent, read_only=self._read_only)
        with self._acting(ctx) as caller:
            try:
                if flags & pyfuse3.RENAME_EXCHANGE:
                    await self.entries.exchange(source, target, caller)
                else:
                    await self.entries.rename(source, target, caller, replace=not flags & pyfuse3.RENAME_NOREPLACE)
            except StoreError:
                await self.listings.held_directories_changed(source[0], target[0])
                raise

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, text = self.entries.writable_parent(parent_inode, name)
        return self._entry(self.entries.symlink(parent, text, os.fsdecode(target)))

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        raise Protected("hard links are not supported: one file is one session")

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        raise Protected("only files, directories and symbolic links can be created")

    # -- open files --------------------------------------------------------------------------------

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        node = self._nodes.get(inode)
        if flags & WRITING:
            require_writable(node, read_only=self._read_only)
        # The kernel's second try belongs to the same open(2): the process was read for the first one.
        is_first_try = not self.files.pending_opens.is_retry(ctx.pid, node)
        caller = self.callers.read if flags & WRITING and is_first_try else self.callers.find
        return _file_info(await self.files.open(node, flags, ctx.pid, caller(ctx.pid, ctx.uid)))

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent, text = self.entries.writable_parent(parent_inode, name)
        caller = self.callers.read(ctx.pid, ctx.uid)
        opened, node = await self.files.create(parent, text, storable_mode(mode & ~ctx.umask), flags, caller)
        if node.buffer is not None:
            node.buffer.opener = ctx.pid
        return _file_info(opened), self._entry(node)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return self._handles.get(fh).read(off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        handle = self._handles.get(fh)
        if handle.node.buffer is not None:
            await self.files.copy_large(handle.node.buffer)
        if isinstance(handle, FileHandle) and handle.log is not None:
            return self.files.log_writes.write(handle, off, buf)
        return handle.write(off, buf)

    async def flush(self, fh: int) -> None:
        handle = self._handles.get(fh)
        if isinstance(handle, FileHandle):
            handle.is_closing = True
        try:
            await self.files.commit(handle)
        finally:
            await self.listings.invalidate_outdated()

    async def fsync(self, fh: int, datasync: bool) -> None:
        try:
            await self.files.sync(self._handles.get(fh))
        finally:
            await self.listings.invalidate_outdated()

    async def release(self, fh: int) -> None:
        await self.files.release(fh)

    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: pyfuse3.SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        node = self._nodes.get(inode)
        require_writable(node, read_only=self._read_only)
        is_new_write = fields.update_size  # truncate(2) starts a new write
        if node.buffer is None and not is_new_write and self.writers.was_rejected(node.path, ctx.pid):
            raise InvalidContent(node.path, Problem("the write before this was rejected; attributes were not changed"))
        owner = _new_owner(node, attr, fields, ctx.uid)
        if fields.update_size:
            with self._acting(ctx) as caller:
                await self.files.resize(node, attr.st_size, fh, caller)
        mode = storable_mode(attr.st_mode, node.info) if fields.update_mode else None
        mtime_ns = attr.st_mtime_ns if fields.update_mtime else None
        if node.buffer is not None:
            node.buffer.mode = mode if mode is not None else node.buffer.mode
            node.buffer.mtime_ns = mtime_ns if mtime_ns is not None else node.buffer.mtime_ns
            node.buffer.owner = owner or node.buffer.owner
        elif mode is not None or owner is not None or fields.update_mtime or fields.update_atime:
            await self._set_attributes(node, mode, _times(node, attr, fields), owner)
            node.has_set_times = node.has_set_times or fields.update_mtime
        self._refresh(node)
        return attributes(node)

    async def _set_attributes(
        self, node: Node, mode: int | None, times: tuple[int, int] | None, owner: tuple[int, int] | None
    ) -> None:
        handle = self._handles.find_file(node)
        if handle is not None and not (node.is_version and self._has_its_name(node)):
            if owner is not None:
                os.fchown(handle.fd, *owner)
            if mode is not None:
                os.fchmod(handle.fd, mode)
            if times is not None:
                os.utime(handle.fd, ns=times)
            info = os.fstat(handle.fd)
            if not node.is_version or (node.info is not None and info.st_size == node.info.st_size):
                node.set_stat(info)  # a version keeps its size: others may have appended to the same file
            return
        path_info = node.disk_path
        node.is_changing = True  # or the change follower takes the new ctime for another version
        try:
            await self.threads.run(
                lambda: self.store.names.set_attributes(path_info, mode=mode, times_ns=times, owner=owner),
                path_info.location,
            )
        finally:
            node.is_changing = False
        after, was = self.store.names.stat(path_info.path), node.info
        if not self._has_its_name(node) or after is None or was is None:
            return
        if times is None and node.is_version and after.st_mtime_ns != was.st_mtime_ns:  # written meanwhile
            assert node.parent is not None
            invalidate_later(self.tree.recheck(node.parent, node.name))
            return
        self.files.evidence.note_restamped(node.path, Stamp.of(was), Stamp.of(after))
        node.set_stat(after)

    def _has_its_name(self, node: Node) -> bool:
        """Whether the name still leads to the node's file, with its size: it may be removed, reused or longer."""
        found = self.store.names.stat(node.path)
        was = node.info
        if found is None or was is None:
            return False
        return found.st_ino == was.st_ino and (not node.is_version or found.st_size == was.st_size)

    # -- the rest ----------------------------------------------------------------------------------

    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        disk, answer = os.statvfs(self.store.home), pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(answer, name, getattr(disk, name))
        answer.f_namemax = layout.MAX_NAME_BYTES
        return answer

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.ENOSYS)  # after ENOSYS the kernel stops asking before every write

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        raise FUSEError(errno.ENOSYS)

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        raise FUSEError(errno.ENOSYS)

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        raise FUSEError(errno.ENOSYS)

    # -- background tasks ----------------------------------------------------------------------------

    async def follow(self) -> None:
        await self.follower.run()

    async def follow_purges(self) -> None:
        await self.purges.look()

    async def expire_hidden(self) -> None:
        """Delete names hidden for ten seconds without a replacement. A pinned session is shown again."""
        self.tree.shown_numbers.expire()
        self.files.evidence.sweep(is_running)
        for node in self.files.pending_opens.expire():
            self._nodes.drop_unused(node)
        for hidden in self.writers.overdue():
            try:
                await self.threads.run(lambda hidden=hidden: self._delete_hidden(hidden), hidden.path_info.location)  # type: ignore[misc]
            except (StoreError, OSError) as error:
                log.warning("%s was not deleted: %s", hidden.path_info.path, error)
            if self.writers.hidden.is_current(hidden):
                self.writers.hidden.remove(hidden)
                self._invalidate_listing(hidden.path_info.path.rpartition("/")[0])

    def _delete_hidden(self, hidden: HiddenName) -> None:
        if not self.writers.hidden.is_current(hidden):
            return  # replaced while this waited for the session
        with acting_as(hidden.taker.author):
            self.store.names.remove_unchanged(hidden.path_info, hidden.stamp)

    def _invalidate_listing(self, path: str) -> None:
        node: Node | None = self.tree.root
        for name in path.split("/"):
            node = node.children.get(name) if node is not None else None
        if node is not None:
            node.invalidate_listing()


def _is_large_dir(node: Node) -> bool:
    """Whether listing a directory takes so long that other requests should not wait for it."""
    return node.path_info is None or (node.info is not None and node.info.st_size >= _LARGE_DIR_BYTES)


def _file_info(opened: OpenReply) -> FileInfo:
    return FileInfo(fh=opened.number, direct_io=opened.direct_io, keep_cache=opened.keep_cache)


def _new_owner(node: Node, attr: EntryAttributes, fields: pyfuse3.SetattrFields, caller: int) -> tuple[int, int] | None:
    """The owner to set, or None. Only root may change it, and not that of the store's own files."""
    owner = (node.info.st_uid, node.info.st_gid) if node.info is not None else (os.geteuid(), os.getegid())
    wanted = (
        attr.st_uid if fields.update_uid else owner[0],
        attr.st_gid if fields.update_gid else owner[1],
    )
    if wanted == owner:
        return None
    if caller != 0 or node.disk_path.kind not in (PathKind.FOREIGN, PathKind.ATTACHMENT):
        raise Protected(f"{node.path}: only root can change owners, and only of attachments and foreign files")
    return wanted


def _times(node: Node, attr: EntryAttributes, fields: pyfuse3.SetattrFields) -> tuple[int, int] | None:
    if not fields.update_mtime and not fields.update_atime:
        return None
    assert node.info is not None
    return (
        attr.st_atime_ns if fields.update_atime else node.info.st_atime_ns,
        attr.st_mtime_ns if fields.update_mtime else node.info.st_mtime_ns,
    )
