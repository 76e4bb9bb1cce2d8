"""Nodes: the files and directories that the kernel knows, by inode number.

A node keeps its inode number while the kernel knows it, also across rename and unlink. Each
version of a document or attachment is a node: a new version is a new node under the same name, so
cached pages never become stale. Numbers are hashed from path and version. They are the same after
a remount, which backup tools rely on.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fusefs.fast import PROBED_NAMES
from fusefs.views.base import Item, VirtualDir
from store.disk.file import Stamp
from store.errors import StoreError
from store.namespace.reader import Reader
from store.path_kinds import VERSIONED, PathInfo, classify_path

if TYPE_CHECKING:
    from fusefs.tree.write_buffers import WriteBuffer

ROOT_INODE = 1

# Most nodes are files. They share these until something is added: four empty containers of its own would be
# a fifth of the memory of a node.
_NO_ITEMS: MappingProxyType[str, Any] = MappingProxyType({})
_NOBODY: frozenset[Any] = frozenset()


class RetryLookup(StoreError):
    """The name has another node now. Answered ESTALE: the kernel repeats the lookup and the request once."""


class Invalidation(NamedTuple):
    """A cache entry that the kernel must drop: a name in a directory, or a node's attributes and pages."""

    inode: int
    name: bytes | None = None
    pages: bool = False  # drop the node's cached pages too, not only its attributes


@dataclass(eq=False, slots=True)
class Listing:
    """The sorted names in a directory, and their stat results while nothing has changed."""

    names: list[str]
    infos: dict[str, os.stat_result] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)  # in a view
    is_stale: bool = False
    was_read: bool = False  # from the start, by readdir
    changes: int = 0  # of the directory, when it was read
    reader: Reader | None = None  # in a view: the other user for whom it was read
    number: int = 0  # names this listing in positions; 0 until the kernel has read a part of it

    def knows(self, name: str) -> bool:
        position = bisect_left(self.names, name)
        return position < len(self.names) and self.names[position] == name

    def mark_stale(self) -> None:
        """Drop the stat results after a change. The names stay for a readdir in progress."""
        self.infos, self.is_stale = {}, True


@dataclass(eq=False, slots=True)
class Node:
    """One file or directory known to the kernel."""

    inode: int
    parent: Node | None
    name: str
    path: str  # relative to the home; "" for the root
    path_info: PathInfo | None  # None for virtual files and directories
    info: os.stat_result | None = None  # from the lookup; constant for a version
    has_old_info: bool = False  # the file or directory changed since: stat it again before it is shown
    item: Item | None = None  # for virtual files and directories
    shown_to: int = 0o700  # permission mask of virtual files: the mode of sessions/
    children: Mapping[str, Node] = field(default_factory=lambda: _NO_ITEMS)  # by name; those that the kernel knows
    listing: Listing | None = None  # cached while nothing changes in this directory
    changes: int = 0  # number of changes in this directory: a listing made meanwhile must not be cached
    on_outdated: Callable[[Node], None] | None = None  # set while the kernel may have cached the listing
    absent: AbstractSet[str] = _NOBODY  # names that the kernel has cached as absent
    is_watched: bool = False  # an inotify watch reports changes in this directory
    encoded: Any = None  # cached EntryAttributes
    buffer: WriteBuffer | None = None  # only in a writer's private node
    shown_inode: int | None = None  # st_ino, if it is not the inode: vim compares that of stat and fstat
    shows_own_to: AbstractSet[int] = _NOBODY  # processes that see the inode all the same
    min_ctime_ns: int = 0  # ctime is later than that of the version replaced
    created_ns: int | None = None  # when it was created through this mount
    # Documents in its directory then.
    seen_at_create: Mapping[str, Stamp | None] = field(default_factory=lambda: _NO_ITEMS)
    has_set_times: bool = False  # its mtime was set by utimens
    is_changing: bool = False  # chmod, chown or utimens of its file is in progress
    lookups: int = 0

    @property
    def disk_path(self) -> PathInfo:
        """The path of a node that exists in the home."""
        assert self.path_info is not None, self.path
        return self.path_info

    @property
    def is_generated(self) -> bool:
        return self.path_info is None

    @property
    def is_dir(self) -> bool:
        return isinstance(self.item, VirtualDir) or (self.info is not None and stat.S_ISDIR(self.info.st_mode))

    @property
    def is_version(self) -> bool:
        """Whether the node is one version of a document or attachment."""
        return (
            self.path_info is not None
            and self.path_info.kind in VERSIONED
            and (self.info is None or stat.S_ISREG(self.info.st_mode))
        )

    def add_child(self, name: str, node: Node) -> None:
        if not isinstance(self.children, dict):
            self.children = {}
        self.children[name] = node

    def remove_child(self, name: str) -> None:
        assert isinstance(self.children, dict)
        del self.children[name]

    def note_absent(self, name: str) -> None:
        """The kernel caches that there is no such name."""
        if not isinstance(self.absent, set):  # shared with other nodes
            self.absent = set(self.absent)
        self.absent.add(name)

    def forget_absent(self, name: str) -> bool:
        """Whether the kernel has cached that there is no such name; it is about to be invalidated.

        The extension may answer again at any time that a probed name does not exist: it stays noted.
        """
        if name not in self.absent:
            return False
        if name not in PROBED_NAMES:
            assert isinstance(self.absent, set)
            self.absent.remove(name)
        return True

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def set_stat(self, info: os.stat_result | None) -> None:
        """Take a new stat result and drop the cached attributes."""
        self.info, self.encoded, self.has_old_info = info, None, False

    def note_written(self) -> None:
        """The file itself was written through a descriptor: its size and times have changed."""
        self.encoded, self.has_old_info = None, True
        if self.parent is not None:
            self.parent.forget_info(self.name)

    def forget_info(self, name: str) -> None:
        """A file in this directory changed, not its name: drop its stat result from the cached listing."""
        if self.listing is not None:
            self.listing.infos.pop(name, None)

    def invalidate_listing(self, *, kernel_knows: bool = False) -> None:
        """Names in this directory changed. `kernel_knows` if the kernel itself asked for the change."""
        self.changes += 1
        if self.is_dir:  # not files: some callers go through all nodes
            self.encoded, self.has_old_info = None, True  # its times may have changed too
        if self.on_outdated is not None and not kernel_knows:
            self.on_outdated(self)
        if self.listing is not None:
            self.listing.mark_stale()
            self.listing = None


class Nodes:
    """All nodes that the kernel knows, and the current node of each name."""

    def __init__(self) -> None:
        self._by_inode: dict[int, Node] = {}

    def get(self, inode: int) -> Node:
        return self._by_inode[inode]

    def find(self, inode: int) -> Node | None:
        return self._by_inode.get(inode)

    def add(self, node: Node) -> Node:
        """Register a node as the current node of its name."""
        self._by_inode[node.inode] = node
        if node.parent is not None:
            self._take_name(node, node.parent, node.name)
        return node

    def _take_name(self, node: Node, parent: Node, name: str) -> None:
        former = parent.children.get(name)
        if former is not None:
            self.detach(former)
        parent.add_child(name, node)

    def add_private(self, node: Node) -> Node:
        """Register a private node: only its writer's lookups return it."""
        self._by_inode[node.inode] = node
        return node

    def number(self, path: str, version: object) -> int:
        """An unused inode number: hashed, with a salt if another node has the number."""
        salt = 0
        while True:
            digest = blake2b(f"{path}\0{version}\0{salt}".encode(errors="surrogateescape"), digest_size=8).digest()
            inode = int.from_bytes(digest) >> 1 | 2  # never 0 or 1
            if inode not in self._by_inode and not self.is_reserved(inode):
                return inode
            salt += 1

    def rename(self, node: Node, parent: Node, name: str) -> None:
        """Give a node another name and update the paths below it. The former node of that name is detached."""
        self.detach(node)
        self.path_changed(node)
        node.parent, node.name = parent, name
        self._take_name(node, parent, name)
        node.path = parent.path_of(name)
        node.path_info = classify_path(node.path)
        for below in self.below(node):
            assert below.parent is not None
            self.path_changed(below)
            below.path = below.parent.path_of(below.name)
            below.path_info = classify_path(below.path)

    def below(self, node: Node) -> Iterator[Node]:
        """All current nodes below this one, parents before children."""
        for child in list(node.children.values()):
            yield child
            yield from self.below(child)

    def detach(self, node: Node) -> None:
        """Remove a node from its name. The node stays for open handles."""
        if node.parent is not None and node.parent.children.get(node.name) is node:
            node.parent.remove_child(node.name)
            self.replaced(node)

    def forget(self, inode: int, count: int) -> None:
        """Subtract lookups that the kernel has dropped. The last one drops the node."""
        node = self._by_inode.get(inode)
        if node is not None and node.parent is not None:
            node.lookups -= count
            self.drop_unused(node)

    def drop_unused(self, node: Node) -> None:
        """Drop a node without lookups, then its parents if they are unused.

        A private node is kept while a writer is expected or has it open, a directory while it has children.
        A directory may be dropped before an old version in it, and its number be another node's by then.
        """
        while (
            node.lookups <= 0
            and self._by_inode.get(node.inode) is node
            and node.parent is not None
            and not node.children
            and (node.buffer is None or node.buffer.is_idle)
        ):
            self.detach(node)
            self._by_inode.pop(node.inode, None)
            self.dropped(node)
            node = node.parent

    def path_changed(self, node: Node) -> None:
        """Hook, called with each renamed node: its opens must find the new path."""

    def dropped(self, node: Node) -> None:
        """Hook, called with each dropped node: the tree releases its watch."""

    def replaced(self, node: Node) -> None:
        """Hook, called with each node that lost its name."""

    def is_reserved(self, number: int) -> bool:
        """Hook: whether a number is in use without a node."""
        return False

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._by_inode.values()))

    def __len__(self) -> int:
        return len(self._by_inode)
