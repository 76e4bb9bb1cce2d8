"""The namespace: which nodes exist, what a name leads to, what a directory lists.

Below `sessions/`, `projects/` and `state/` the home decides; beside them stand the views. Rejected bytes and
their reason are shown where they belong, though they lie elsewhere. Nothing here waits, and nothing is told to the
kernel: who changes something learns here what the kernel must hear.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping

from fusefs.switches import enabled
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.nodes import ROOT_INODE, Invalidation, Listing, Node, Nodes
from fusefs.tree.write_buffers import WriteBuffer
from fusefs.tree.writers import Writers
from fusefs.views.base import Item, View, VirtualDir, VirtualFile, VirtualLink
from store import Store, layout
from store.disk.rejects import is_reject
from store.errors import Generated, NotFound
from store.path_kinds import CHECKED, VERSIONED, PathInfo, PathKind, classify_path, listing_order

_REMEMBER = enabled("listings")


class Tree:
    def __init__(self, store: Store, views: Mapping[str, View], writers: Writers, watches: DirectoryWatches) -> None:
        self.store = store
        self.writers = writers
        self.watches = watches
        self.nodes = Nodes()
        self.nodes.dropped = self._dropped  # type: ignore[method-assign]
        self._views = views  # by the name of the directory at the top; "" for the files there
        # What is made here shows what the sessions say: who may not read those has no business here either.
        self._shown_to = store.names.mode_of_sessions
        root = Node(ROOT_INODE, None, "", "", None, item=VirtualDir(time.time_ns()), shown_to=self._shown_to)
        self.root = self.nodes.add(root)

    def _dropped(self, node: Node) -> None:
        if node.is_watched:
            self.watches.drop(node)

    # -- lookup ------------------------------------------------------------------------------------------

    def lookup(self, parent: Node, name: str) -> Node:
        """The node a name leads to for everybody but its writer; NotFound if to none."""
        path = parent.path_of(name)
        if parent.place is None and path not in layout.STORED:
            return self._virtual_node(parent, name, path, self._find_item(path))
        if self.writers.hidden(path) is not None:
            raise NotFound(f"{path} was taken away")
        if is_reject(name) and self.store.names.rejects.path(parent.path, name) is not None:
            return self._rejected(parent, name, path)  # also before a copy that someone made of an older one
        is_new = name not in parent.children
        node = self._disk_node(parent, name, path, self.store.names.stat(path))
        if is_new and parent.listing is not None and not parent.listing.knows(name):
            parent.invalidate_listing()  # it came behind our back, and we are yet to be told
        return node

    def _disk_node(self, parent: Node, name: str, path: str, info: os.stat_result | None) -> Node:
        present = parent.children.get(name)
        if info is None:
            return self.writers.pending(path) or self._rejected(parent, name, path)
        if present is not None and present.info is not None and _is_same(present, info):
            if not _is_equal(present.info, info):
                present.set_stat(info)
            return present
        place = classify_path(path)
        is_version = place.kind in VERSIONED and stat.S_ISREG(info.st_mode)
        if place.kind in VERSIONED and not is_version and not _is_foreign_dir(place.kind, info):
            raise NotFound(f"{path} is not a plain file")
        version = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns) if is_version else info.st_ino
        node = Node(self.nodes.number(path, version), parent, name, path, place, info=info)
        if stat.S_ISDIR(info.st_mode) and self.watches.add(node):
            node.info = self.store.names.stat(path) or info  # what changed before the watch is not told
        return self.nodes.add(node)

    def _rejected(self, parent: Node, name: str, path: str) -> Node:
        """`session.json.rejected` and `session.json.error`, read-only, from where they are kept."""
        kept = self.store.names.rejects.path(parent.path, name)
        info = self.store.names.stat(kept) if kept else None
        data = self.store.names.read(PathInfo(kept, PathKind.FOREIGN, None, name)) if kept else None
        if info is None or data is None:
            raise NotFound(f"{path} does not exist")
        version = f"{info.st_ino} {info.st_mtime_ns}"
        return self._virtual_node(
            parent, name, path, VirtualFile(len(data), info.st_mtime_ns, version, lambda: data, is_cacheable=False)
        )

    # -- what is made up ---------------------------------------------------------------------------------

    def is_slow(self, parent: Node, name: str) -> bool:
        """Whether a name may take long to look up: then `find_item` in a thread, and `made` with the answer."""
        path = parent.path_of(name)
        if parent.place is not None or path in layout.STORED:
            return False
        view, rest = self._view(path)
        return view.is_slow(rest)

    def find_item(self, parent: Node, name: str) -> Item | None:
        return self._find_item(parent.path_of(name))

    def virtual_node(self, parent: Node, name: str, item: Item | None) -> Node:
        return self._virtual_node(parent, name, parent.path_of(name), item)

    def _find_item(self, path: str) -> Item | None:
        view, rest = self._view(path)
        return view.find(rest)

    def _view(self, path: str) -> tuple[View, str]:
        if not layout.is_text(path):
            raise NotFound(f"{path!r} does not exist: what is made up is named in UTF-8")
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
        """What `mv` within a view means, if anything."""
        view, old = self._view(source.path_of(name))
        other, new = self._view(target.path_of(new_name))
        if view is not other:
            raise Generated(f"{source.path_of(name)} belongs to its view")
        view.move(old, new)

    # -- listing -----------------------------------------------------------------------------------------

    def scan(self, directory: Node) -> Listing:
        """What is in a directory, in order. May be slow: callable in a thread."""
        if directory.place is None:
            return self._list_items(directory)
        infos = dict(self.store.names.scan(directory.path))
        names = set(infos) - set(self.writers.hidden_in(directory.path))
        names.update(self.store.names.rejects.names(directory.path), self.writers.pending_in(directory.path))
        return Listing(sorted(names, key=listing_order), infos)

    def _list_items(self, directory: Node) -> Listing:
        view, rest = self._view(directory.path)
        items = dict(view.iter_items(rest))
        if directory is not self.root:
            return Listing(list(items), items=items)
        stored = {name for name in layout.STORED if self.store.names.stat(name) is not None}
        return Listing(sorted({*items, *stored, *self._views} - {""}), items=items)

    def listing(self, directory: Node) -> Listing:
        """As it is remembered, or scanned and remembered."""
        if directory.listing is not None:
            return directory.listing
        return self.remember(directory, self.scan(directory), directory.changes)

    def remember(self, directory: Node, listing: Listing, changes: int) -> Listing:
        """Keep a listing, unless something changed since it was begun."""
        if directory.changes != changes:
            listing.mark_stale()
        elif directory.is_watched and _REMEMBER:
            directory.listing = listing
        return listing

    def entry(self, directory: Node, name: str, listing: Listing) -> Node:
        """The node of a listed name, by what was seen when it was listed if that still holds."""
        if name in listing.items:
            return self._virtual_node(directory, name, directory.path_of(name), listing.items[name])
        present = directory.children.get(name)
        if present is not None and present.place is not None and directory.is_watched:
            return present
        info = listing.infos.get(name) if directory.is_watched else None
        if info is not None and self.writers.hidden(directory.path_of(name)) is None:
            return self._disk_node(directory, name, directory.path_of(name), info)
        return self.lookup(directory, name)

    # -- private nodes -----------------------------------------------------------------------------------

    def make_private(self, parent: Node, name: str, info: os.stat_result | None, shown: int | None = None) -> Node:
        """A node for one writer of a name, with a shadow that is still empty."""
        place = classify_path(parent.path_of(name))
        base = self.store.names.version(place) if place.kind in CHECKED else None
        limbo = self.writers.hidden(place.path)
        if base is not None and base.main is not None and limbo is not None:
            # Who took it away knew that version, and none that came since.
            base = base._replace(main=limbo.stamp)
        shadow = WriteBuffer(self.store, place, base, info)
        number = self.nodes.number(place.path, ("private", time.monotonic_ns()))
        node = Node(
            number, parent, name, place.path, place, info, buffer=shadow, shown_inode=shown, created_ns=time.time_ns()
        )
        return self.nodes.add_private(node)

    # -- what changed ------------------------------------------------------------------------------------

    def recheck(self, directory: Node, name: str) -> list[Invalidation]:
        """Look at a name again: what the kernel must hear if it is not what it was."""
        known, path = directory.children.get(name), directory.path_of(name)
        if known is None:
            return self.forget_absent(directory, name)
        if known.place is None or self.writers.hidden(path) is not None:
            return []  # not remembered
        info = self.store.names.stat(path)
        if info is None or not _is_same(known, info):
            self.nodes.detach(known)
            return [Invalidation(directory.inode, os.fsencode(name))]
        if known.info is not None and _is_equal(known.info, info):
            return []
        known.set_stat(info)
        return [Invalidation(known.inode, pages=not known.is_version and not known.is_dir)]

    def forget_absent(self, directory: Node, name: str) -> list[Invalidation]:
        """The kernel may remember that there was nothing of that name."""
        if name not in directory.absent:
            return []
        directory.absent.discard(name)
        return [Invalidation(directory.inode, os.fsencode(name))]

    def directory_gone(self, directory: Node) -> list[Invalidation]:
        """A directory is gone, though another may bear its name, and even its number, by now."""
        directory.invalidate_listing()
        if directory.parent is None or directory.parent.children.get(directory.name) is not directory:
            return []
        self.nodes.detach(directory)
        return [Invalidation(directory.parent.inode, os.fsencode(directory.name))]

    def recheck_times(self, directory: Node) -> list[Invalidation]:
        """A directory's own times change with what is in it."""
        info = self.store.names.stat(directory.path) if directory.place is not None else None
        if info is None or (directory.info is not None and _is_equal(directory.info, info)):
            return []
        directory.set_stat(info)
        return [Invalidation(directory.inode)]

    def recheck_below(self, directory: Node) -> list[Invalidation]:
        """A session was renamed: every document below says so, and is another version."""
        notices: list[Invalidation] = []
        for node in [directory, *self.nodes.below(directory)]:
            node.invalidate_listing()
            for name in list(node.children):
                notices += self.recheck(node, name)
        return notices


def _is_foreign_dir(kind: PathKind, info: os.stat_result) -> bool:
    """Among the attachments there may be directories: git's, or those of rsync --delay-updates."""
    return kind is not PathKind.DOCUMENT and stat.S_ISDIR(info.st_mode)


def _is_same(known: Node, info: os.stat_result) -> bool:
    """Whether what is there now is what the node stands for."""
    was = known.info
    if was is None or stat.S_IFMT(was.st_mode) != stat.S_IFMT(info.st_mode) or was.st_ino != info.st_ino:
        return False
    if not known.is_version:
        return True
    return (was.st_size, was.st_mtime_ns, was.st_ctime_ns) == (info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _is_equal(was: os.stat_result, info: os.stat_result) -> bool:
    """Whether the kernel would see no difference. Every change but a read's changes the ctime."""
    return (was.st_ctime_ns, was.st_size, was.st_nlink) == (info.st_ctime_ns, info.st_size, info.st_nlink)


def _version(item: Item) -> object:
    if isinstance(item, VirtualFile):
        return item.version
    return item.target if isinstance(item, VirtualLink) else "folder"
