"""Inode ↔ node: what the kernel has heard of, and for how long.

A node keeps its number while the kernel knows it, also across rename and unlink. A document or an
attachment is one node for each version, so pages the kernel has cached of it are right for ever: a new
version is a new node under the same name. Numbers are hashed from path and version, so that they are the
same after a remount, as backup tools wish.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from fusefs.views.base import Item, VirtualDir
from store.disk.file import Stamp
from store.errors import StoreError
from store.path_kinds import VERSIONED, PathInfo, classify_path

if TYPE_CHECKING:
    from fusefs.tree.write_buffers import WriteBuffer

ROOT_INODE = 1


class RetryLookup(StoreError):
    """The node is not what its name leads to now; the kernel looks the name up once more, and comes again."""


class Invalidation(NamedTuple):
    """What the kernel is to forget: where a name in a directory leads, or what it knows of a node."""

    inode: int
    name: bytes | None = None
    pages: bool = False  # of a node: its bytes too, not only its attributes


@dataclass(eq=False, slots=True)
class Listing:
    """The names in a directory, in order, and what each was like if nothing changed since."""

    names: list[str]
    infos: dict[str, os.stat_result] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)  # in a view
    is_stale: bool = False

    def knows(self, name: str) -> bool:
        place = bisect_left(self.names, name)
        return place < len(self.names) and self.names[place] == name

    def mark_stale(self) -> None:
        """Something changed: the names stay for who is reading them, but each is looked at anew."""
        self.infos, self.is_stale = {}, True


@dataclass(eq=False, slots=True)
class Node:
    """One file or directory as the kernel knows it."""

    inode: int
    parent: Node | None
    name: str
    path: str  # relative to the home; "" for the root
    place: PathInfo | None  # what the store says of the path; None of what exists only in the mount
    info: os.stat_result | None = None  # as it was when looked up; what a version's attributes stay
    item: Item | None = None  # of what exists only in the mount
    shown_to: int = 0o700  # of what exists only in the mount: who may see it, as the mode of sessions/ says it
    children: dict[str, Node] = field(default_factory=dict)  # the names in it that the kernel knows
    listing: Listing | None = None  # of a directory in which nothing changed since
    changes: int = 0  # how often something changed in this directory: a listing made meanwhile is not to be remembered
    absent: set[str] = field(default_factory=set)  # names in it that the kernel was told lead nowhere
    is_watched: bool = False  # changes in this directory are told to us
    encoded: Any = None  # its attributes as the kernel wants them
    buffer: WriteBuffer | None = None  # of a writer's private node
    shown_inode: int | None = None  # what fstat says of a private node: vim compares it with what stat said
    created_ns: int | None = None  # when it was created through this mount
    seen_at_create: dict[str, Stamp | None] = field(default_factory=dict)  # the documents there, as they were then
    has_set_times: bool = False  # someone gave it the times it has
    has_old_pages: bool = False  # what the kernel remembers of its bytes may not be what was committed
    lookups: int = 0

    @property
    def disk_path(self) -> PathInfo:
        """The place of what is in the home."""
        assert self.place is not None, self.path
        return self.place

    @property
    def is_generated(self) -> bool:
        return self.place is None

    @property
    def is_dir(self) -> bool:
        return isinstance(self.item, VirtualDir) or (self.info is not None and stat.S_ISDIR(self.info.st_mode))

    @property
    def is_version(self) -> bool:
        """Whether it stands for one version of a file, and for no other."""
        return (
            self.place is not None
            and self.place.kind in VERSIONED
            and (self.info is None or stat.S_ISREG(self.info.st_mode))
        )

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def set_stat(self, info: os.stat_result | None) -> None:
        """What the disk says of it now."""
        self.info, self.encoded = info, None

    def invalidate_listing(self) -> None:
        self.changes += 1
        if self.listing is not None:
            self.listing.mark_stale()
            self.listing = None


class Nodes:
    """Every node the kernel knows, and the one each name leads to now."""

    def __init__(self) -> None:
        self._by_inode: dict[int, Node] = {}

    def get(self, inode: int) -> Node:
        return self._by_inode[inode]

    def add(self, node: Node) -> Node:
        """Make a node known, and its name lead to it."""
        self._by_inode[node.inode] = node
        if node.parent is not None:
            node.parent.children[node.name] = node
        return node

    def add_private(self, node: Node) -> Node:
        """Make a node known that only its writer is led to."""
        self._by_inode[node.inode] = node
        return node

    def number(self, path: str, version: object) -> int:
        """A number for a new node: hashed, and salted while that number is live for another."""
        salt = 0
        while True:
            digest = blake2b(f"{path}\0{version}\0{salt}".encode(errors="surrogateescape"), digest_size=8).digest()
            inode = int.from_bytes(digest) >> 1 | 2  # never 0 or 1
            if inode not in self._by_inode:
                return inode
            salt += 1

    def rename(self, node: Node, parent: Node, name: str) -> None:
        """The node bears another name, and all below it another path; whatever bore that name is nameless now."""
        self.detach(node)
        node.parent, node.name = parent, name
        parent.children[name] = node
        node.path = parent.path_of(name)
        node.place = classify_path(node.path)
        for below in self.below(node):
            assert below.parent is not None
            below.path = below.parent.path_of(below.name)
            below.place = classify_path(below.path)

    def below(self, node: Node) -> Iterator[Node]:
        """Every node that a name below this one leads to, from the top down."""
        for child in list(node.children.values()):
            yield child
            yield from self.below(child)

    def detach(self, node: Node) -> None:
        """The name is gone; who has the node open keeps it."""
        if node.parent is not None and node.parent.children.get(node.name) is node:
            del node.parent.children[node.name]

    def forget(self, inode: int, count: int) -> None:
        """The kernel dropped references; the last one takes the node along."""
        node = self._by_inode.get(inode)
        if node is not None and node.parent is not None:
            node.lookups -= count
            self.drop_unused(node)

    def drop_unused(self, node: Node) -> None:
        """A private node also lives while its writer is expected or at work, a directory while it has children.

        A directory may be gone before an old version that was in it, and its number be another node's by then.
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

    def dropped(self, node: Node) -> None:
        """Called with each node that is gone; whoever keeps something for it lets go of it."""

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._by_inode.values()))

    def __len__(self) -> int:
        return len(self._by_inode)
