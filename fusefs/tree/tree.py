"""The namespace of the mount: lookup, listings, and the kernel caches to invalidate.

Below `sessions/`, `projects/` and `state/` names come from the home; the other top directories
are views. Rejected bytes and their reason appear next to the document, though they are stored
elsewhere. Nothing here waits or calls the kernel: methods return the invalidations, and the
request handlers send them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from functools import partial

from fusefs.fast import PROBED_NAMES
from fusefs.switches import enabled
from fusefs.tree.append_buffers import AppendBuffer
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.fast_path import FastPath
from fusefs.tree.hidden_names import EVERYBODY
from fusefs.tree.nodes import ROOT_INODE, Invalidation, Listing, Node, Nodes
from fusefs.tree.processes import Process
from fusefs.tree.shown_numbers import ShownNumbers
from fusefs.tree.write_buffers import WriteBuffer
from fusefs.tree.writers import Writers
from fusefs.views import audience
from fusefs.views.base import Item, View, VirtualDir, VirtualFile, VirtualLink
from store import Store, layout
from store.disk.file import Stamp, is_same_content
from store.disk.rejects import is_reject
from store.errors import Generated, NotFound
from store.namespace.reader import Reader
from store.path_kinds import (
    CHECKED,
    MAY_BE_EMPTY,
    VERSIONED,
    PathInfo,
    PathKind,
    classify_in,
    classify_path,
    listing_order,
)

_CACHE_LISTINGS = enabled("listings")
_KEEP_PAGES = enabled("pages")
_CACHE_NAMES = enabled("timeouts")
PROBED_S = 10.0  # a program that looks for PROBED_NAMES lists directories for that long; find needs no grants
# Directories in which PROBED_NAMES are foreign files: they exist if they are on the disk, and for everybody.
_SHOWS_PROBED = frozenset({PathKind.SESSIONS, PathKind.SESSION, PathKind.CHILDREN})


class Tree:
    def __init__(self, store: Store, views: Mapping[str, View], writers: Writers, watches: DirectoryWatches) -> None:
        self.store = store
        self.writers = writers
        self._home = os.fspath(store.home)
        self._probed_until = 0.0  # until then new directories are granted to the extension
        self.watches = watches
        self.nodes = Nodes()
        self.shown_numbers = ShownNumbers()
        self.nodes.dropped = self._dropped  # type: ignore[method-assign]
        self.nodes.replaced = self.shown_numbers.replaced  # type: ignore[method-assign]
        self.nodes.is_reserved = self.shown_numbers.is_reserved  # type: ignore[method-assign]
        self.fast = FastPath()
        self.watches.unwatched = self._path_changed  # type: ignore[method-assign]
        self.nodes.path_changed = self._path_changed  # type: ignore[method-assign]
        self._views = views  # by name of the top directory; "" for the files at the top
        # Views show content of sessions, so they get the same permissions.
        self._shown_to = store.names.mode_of_sessions
        root = Node(ROOT_INODE, None, "", "", None, item=VirtualDir(time.time_ns()), shown_to=self._shown_to)
        self.root = self.nodes.add(root)

    def _path_changed(self, node: Node) -> None:
        self.fast.revoke(node.inode)

    def _dropped(self, node: Node) -> None:
        self.shown_numbers.dropped(node)
        self.fast.revoke(node.inode)
        if node.is_watched:
            self.watches.drop(node)

    # -- lookup ------------------------------------------------------------------------------------------

    def lookup(self, parent: Node, name: str, viewer: int = EVERYBODY) -> Node:
        """The node of a name, for everyone but its writer. Raises NotFound, also if it is hidden from `viewer`."""
        path = parent.path_of(name)
        if self.is_generated(parent, name):
            return self._virtual_node(parent, name, path, self._find_item(path))
        if self.writers.hidden and self.writers.hidden.find(path, viewer) is not None:
            raise NotFound(f"{path} was removed")
        if is_reject(name) and self.store.names.rejects.path(parent.path, name) is not None:
            return self._rejected(parent, name, path)  # hides a copy that a user made of an older one
        is_new = name not in parent.children
        node = self._disk_node(parent, name, path, self.store.names.stat(path))
        if is_new and parent.listing is not None and not parent.listing.knows(name):
            parent.invalidate_listing()  # created elsewhere; its inotify event is still to come
        return node

    def _disk_node(self, parent: Node, name: str, path: str, info: os.stat_result | None) -> Node:
        present = parent.children.get(name)
        pending = self.writers.pending(path)
        if pending is not None and (info is None or _is_still_empty(pending, info)):
            return pending
        if info is None:
            return self._rejected(parent, name, path)
        if present is not None and present.info is not None and _is_same(present, info):
            if present.has_old_info or not _is_equal(present.info, info):
                present.set_stat(info)
            return present
        path_info = classify_in(parent.path_info, path)
        is_version = path_info.kind in VERSIONED and stat.S_ISREG(info.st_mode)
        if path_info.kind in VERSIONED and not is_version and not _is_foreign_dir(path_info.kind, info):
            raise NotFound(f"{path} is not a plain file")
        version = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns) if is_version else info.st_ino
        node = Node(self.nodes.number(path, version), parent, name, path, path_info, info=info)
        if stat.S_ISDIR(info.st_mode) and self.watches.add(node):
            node.info = self._stat_again(path, info)  # changes before the watch are not reported
            if time.monotonic() < self._probed_until:
                self._grant_directory(node)
        self.nodes.add(node)
        self.shown_numbers.inherit(node)
        if is_version and _KEEP_PAGES:
            # The kernel has no pages of a new node, or those of the same version.
            self.fast.grant(node.inode, path, info, is_document=path_info.kind in CHECKED)
        return node

    def _stat_again(self, path: str, info: os.stat_result) -> os.stat_result:
        """The attributes of a directory now. By its whole path, if that leads to the same directory."""
        try:
            again = os.lstat(f"{self._home}/{path}")
        except OSError:
            again = None
        if again is not None and (again.st_ino, again.st_dev) == (info.st_ino, info.st_dev):
            return again
        return self.store.names.stat(path) or info

    def was_probed(self, directory: Node) -> None:
        """A program looked for one of PROBED_NAMES here, in vain. It may do so in every directory."""
        self._probed_until = time.monotonic() + PROBED_S
        if directory.is_watched:
            self._grant_directory(directory)

    def _grant_directory(self, node: Node) -> None:
        """Let the extension answer lookups of names that do not exist, as rg sends them for each directory."""
        kind = node.disk_path.kind
        if kind in _SHOWS_PROBED and _CACHE_NAMES and self.fast.grant_directory(node.inode, node.path):
            node.absent = {*node.absent, *PROBED_NAMES} if node.absent else PROBED_NAMES  # mostly shared

    def _rejected(self, parent: Node, name: str, path: str) -> Node:
        """`session.json.rejected` and `session.json.error`: read-only copies from the rejects directory."""
        kept = self.store.names.rejects.path(parent.path, name)
        info = self.store.names.stat(kept) if kept else None
        if kept is None or info is None:
            raise NotFound(f"{path} does not exist")
        place, version = PathInfo(kept, PathKind.FOREIGN, None, name), f"{info.st_ino} {info.st_mtime_ns}"
        read = partial(self._read_rejected, place)
        file = VirtualFile(info.st_size, info.st_mtime_ns, version, read, is_cacheable=False)
        return self._virtual_node(parent, name, path, file)

    def _read_rejected(self, place: PathInfo) -> bytes:
        return self.store.names.read(place) or b""

    # -- views ---------------------------------------------------------------------------------------

    def is_slow(self, parent: Node, name: str) -> bool:
        """Whether a lookup may be slow: then call `find_item` in a thread, and `virtual_node` with its result."""
        path = parent.path_of(name)
        if not self.is_generated(parent, name):
            return False
        view, rest = self._view(path)
        return view.is_slow(rest)

    def is_generated(self, parent: Node, name: str) -> bool:
        """Whether a name is in a view, or is a generated file at the top."""
        return parent.path_info is None and parent.path_of(name) not in layout.STORED

    def find_item(self, parent: Node, name: str, reader: Reader | None = None) -> Item | None:
        """`reader` is another user of a shared mount, whom views do not show every session."""
        return self._find_item(parent.path_of(name), reader)

    def virtual_node(self, parent: Node, name: str, item: Item | None) -> Node:
        return self._virtual_node(parent, name, parent.path_of(name), item)

    def _find_item(self, path: str, reader: Reader | None = None) -> Item | None:
        view, rest = self._view(path)
        with audience.shown_to(reader):
            item = view.find(rest)
            return item if item is not None and audience.is_visible(self.store, view, rest, item) else None

    def _view(self, path: str) -> tuple[View, str]:
        if not layout.is_text(path):
            raise NotFound(f"{path!r} does not exist: names in views are UTF-8")
        top, _, rest = path.partition("/")
        return (self._views[top], rest) if top in self._views else (self._views[""], path)

    def _virtual_node(self, parent: Node, name: str, path: str, item: Item | None) -> Node:
        if item is None:
            raise NotFound(f"{path} does not exist")
        present = parent.children.get(name)
        if present is not None and present.item is not None and _version(present.item) == _version(item):
            if present.item != item:
                present.item, present.encoded = item, None
            return present
        number = self.nodes.number(path, _version(item))
        return self.nodes.add(Node(number, parent, name, path, None, item=item, shown_to=self._shown_to))

    def move_item(self, source: Node, name: str, target: Node, new_name: str) -> None:
        """Rename within a view, if the view supports it."""
        view, old = self._view(source.path_of(name))
        other, new = self._view(target.path_of(new_name))
        if view is not other:
            raise Generated(f"{source.path_of(name)} cannot be moved out of its view")
        view.move(old, new)

    # -- listing -----------------------------------------------------------------------------------------

    def scan(self, directory: Node, reader: Reader | None = None, *, in_loop: bool = False) -> Listing:
        """Read a directory, sorted. May be slow; safe to call in a worker thread, without `in_loop`."""
        if directory.path_info is None:
            return self._list_items(directory, reader)
        found = self.fast.scan(directory.path) if in_loop else None
        infos = dict(found if found is not None else self.store.names.scan(directory.path))
        names = set(infos) - set(self.writers.hidden.in_directory(directory.path, EVERYBODY))
        names.update(self.store.names.rejects.names(directory.path), self.writers.pending_in(directory.path))
        return Listing(sorted(names, key=listing_order), infos)

    def _list_items(self, directory: Node, reader: Reader | None) -> Listing:
        view, rest = self._view(directory.path)
        with audience.shown_to(reader):
            below = f"{rest}/" if rest else ""
            found = view.iter_items(rest)
            items = {k: v for k, v in found if audience.is_visible(self.store, view, below + k, v)}
        if directory is not self.root:
            return Listing(list(items), items=items, reader=reader)
        stored = {name for name in layout.STORED if self.store.names.stat(name) is not None}
        views = {name for name, view in self._views.items() if view.is_listed}
        return Listing(sorted({*items, *stored, *views} - {""}), items=items, reader=reader)

    def listing(self, directory: Node) -> Listing:
        """The cached listing, or a new one."""
        if directory.listing is not None:
            return directory.listing
        return self.cache_listing(directory, self.scan(directory, in_loop=True), directory.changes)

    def cache_listing(self, directory: Node, listing: Listing, changes: int) -> Listing:
        """Cache a listing, unless something changed since the scan began."""
        listing.changes = changes
        if directory.changes != changes:
            listing.mark_stale()
        elif directory.is_watched and _CACHE_LISTINGS:
            directory.listing = listing
        return listing

    def entry(self, directory: Node, name: str, listing: Listing) -> Node:
        """The node of a listed name, from the listing's stat result if that is still valid."""
        if name in listing.items:
            return self._virtual_node(directory, name, directory.path_of(name), listing.items[name])
        present = directory.children.get(name)
        if present is not None and present.path_info is not None and directory.is_watched and not present.has_old_info:
            return present
        # Taken from the listing: from now on the node has it, and only one of them is kept in memory.
        info = listing.infos.pop(name, None) if directory.is_watched and present is None else None
        if info is not None and directory.path_of(name) not in self.writers.hidden:
            return self._disk_node(directory, name, directory.path_of(name), info)
        return self.lookup(directory, name)

    # -- private nodes -----------------------------------------------------------------------------------

    def make_private(
        self,
        parent: Node,
        name: str,
        committed: os.stat_result | None,
        process: Process,
        shown: int | None = None,
        *,
        appends: bool = False,
    ) -> Node:
        """Create a node for one writer, with an empty write buffer. `committed` is the present version."""
        path_info = classify_path(parent.path_of(name))
        base = self.store.names.version_of(path_info, committed)
        hidden = self.writers.hidden.find(path_info.path, process.pid)
        if base.main is not None and hidden is not None:
            # The writer knew the version that it hid, and none committed since.
            base = base._replace(main=hidden.stamp)
        info = committed if hidden is None else None
        kind = AppendBuffer if appends and path_info.kind in MAY_BE_EMPTY else WriteBuffer
        buffer = kind(self.store, path_info, base, info, process=process)
        number = self.nodes.number(path_info.path, ("private", time.monotonic_ns()))
        node = Node(
            number,
            parent,
            name,
            path_info.path,
            path_info,
            info,
            buffer=buffer,
            shown_inode=shown,
            created_ns=time.time_ns(),
        )
        return self.nodes.add_private(node)

    # -- invalidations -------------------------------------------------------------------------------

    def recheck(self, directory: Node, name: str) -> list[Invalidation]:
        """Stat a name again. Returns the invalidations if it changed."""
        known, path = directory.children.get(name), directory.path_of(name)
        absent = self.forget_absent(directory, name)  # also if known: removed for a moment, it was absent
        if known is None:
            return absent
        if known.path_info is None or self.writers.hidden.find(path, EVERYBODY) is not None:
            return []  # not cached by the kernel
        info = self.store.names.stat(path)
        if known.is_changing and info is not None and _has_its_bytes(known, info):
            return []  # the request in progress stats it again afterwards
        if info is None or not _is_same(known, info):
            self.nodes.detach(known)
            return [Invalidation(directory.inode, os.fsencode(name))]
        if known.info is not None and _is_equal(known.info, info) and not known.has_old_info:
            return absent
        known.set_stat(info)
        return [*absent, Invalidation(known.inode, pages=not known.is_version and not known.is_dir)]

    def forget_absent(self, directory: Node, name: str) -> list[Invalidation]:
        """Invalidate a name that the kernel may have cached as absent."""
        if not directory.forget_absent(name):
            return []
        return [Invalidation(directory.inode, os.fsencode(name))]

    def directory_gone(self, directory: Node) -> list[Invalidation]:
        """A directory was removed. Another may have its name, or even its inode number, by now."""
        directory.invalidate_listing()
        if directory.parent is None or directory.parent.children.get(directory.name) is not directory:
            return []
        self.nodes.detach(directory)
        return [Invalidation(directory.parent.inode, os.fsencode(directory.name))]

    def recheck_times(self, directory: Node) -> list[Invalidation]:
        """Stat a directory again: its times change with its entries."""
        info = self.store.names.stat(directory.path) if directory.path_info is not None else None
        if info is None:
            return []
        if directory.info is not None and _is_equal(directory.info, info):
            directory.has_old_info = False
            return []
        directory.set_stat(info)
        return [Invalidation(directory.inode)]

    def forget_views(self) -> list[Invalidation]:
        """Drop what views have rendered, and the kernel's pages of it: texts of the past were purged."""
        for view in self._views.values():
            view.forget()
        return [Invalidation(node.inode, pages=True) for node in self.nodes if isinstance(node.item, VirtualFile)]

    def recheck_below(self, directory: Node) -> list[Invalidation]:
        """A session was renamed: its id changed in every document below, so each is a new version."""
        notices: list[Invalidation] = []
        for node in [directory, *self.nodes.below(directory)]:
            node.invalidate_listing()
            for name in list(node.children):
                notices += self.recheck(node, name)
        return notices


def _is_still_empty(pending: Node, info: os.stat_result) -> bool:
    """Whether the file is still the empty one that the writer of a pending node created."""
    assert pending.buffer is not None
    base = pending.buffer.base
    return base is not None and is_same_content(base.main, Stamp.of(info))


def _is_foreign_dir(kind: PathKind, info: os.stat_result) -> bool:
    """Attachments may contain directories, such as those of git or rsync --delay-updates."""
    return kind is not PathKind.DOCUMENT and stat.S_ISDIR(info.st_mode)


def _is_same(known: Node, info: os.stat_result) -> bool:
    """Whether the file on disk is still the one of this node."""
    was = known.info
    if was is None or stat.S_IFMT(was.st_mode) != stat.S_IFMT(info.st_mode) or was.st_ino != info.st_ino:
        return False
    if not known.is_version:
        return True
    return (was.st_size, was.st_mtime_ns, was.st_ctime_ns) == (info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _has_its_bytes(known: Node, info: os.stat_result) -> bool:
    """Whether the file is the node's own and has not been written; its mode, owner and times may differ."""
    return known.info is not None and (known.info.st_ino, known.info.st_size) == (info.st_ino, info.st_size)


def _is_equal(was: os.stat_result, info: os.stat_result) -> bool:
    """Whether the attributes are unchanged. Everything except reading changes the ctime."""
    return (was.st_ctime_ns, was.st_size, was.st_nlink) == (info.st_ctime_ns, info.st_size, info.st_nlink)


def _version(item: Item) -> object:
    if isinstance(item, VirtualFile):
        return item.version
    return item.target if isinstance(item, VirtualLink) else "folder"
