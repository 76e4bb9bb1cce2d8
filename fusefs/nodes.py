"""Inode ↔ node: what the kernel has heard of, and for how long.

A node keeps its number while the kernel knows it, also across rename and unlink. A document or an
attachment is one node for each version, so pages the kernel has cached of it are right for ever: a new
version is a new node under the same name. Numbers are hashed from path and version, so that they are the
same after a remount, as backup tools wish.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from store.atomic import Stamp
from store.places import VERSIONED, Place, place_of

if TYPE_CHECKING:
    from fusefs.shadows import Shadow

ROOT_INODE = 1


@dataclass(eq=False)
class Node:
    """One file or directory as the kernel knows it."""

    inode: int
    parent: Node | None
    name: str
    info: os.stat_result | None = None  # as it was when looked up; what a version's attributes stay
    data: bytes | None = None  # of a generated file
    children: dict[str, Node] | None = None  # of a generated directory
    shadow: Shadow | None = None  # of a writer's private node
    shown_inode: int | None = None  # what fstat says of a private node: vim compares it with what stat said
    created_ns: int | None = None  # when it was created through this mount
    has_set_times: bool = False  # someone gave it the times it has
    has_old_pages: bool = (
        False  # it was renamed onto a document: what the kernel remembers may not be what was committed
    )
    lookups: int = field(default=0)

    @property
    def path(self) -> str:
        """Relative to the home; "" for the root."""
        if self.parent is None:
            return ""
        above = self.parent.path
        return f"{above}/{self.name}" if above else self.name

    @property
    def place(self) -> Place:
        return place_of(self.path)

    @property
    def is_generated(self) -> bool:
        return self.data is not None or self.children is not None

    @property
    def is_version(self) -> bool:
        """Whether it stands for one version of a file, and for no other."""
        return self.place.kind in VERSIONED and (self.info is None or stat.S_ISREG(self.info.st_mode))

    @property
    def stamp(self) -> Stamp | None:
        return Stamp.of(self.info) if self.info is not None else None


class Nodes:
    """Every node the kernel knows, and the one each name leads to now."""

    def __init__(self) -> None:
        self._by_inode: dict[int, Node] = {}
        self._by_name: dict[tuple[int, str], Node] = {}

    def get(self, inode: int) -> Node:
        return self._by_inode[inode]

    def named(self, parent: Node, name: str) -> Node | None:
        return self._by_name.get((parent.inode, name))

    def add(self, node: Node) -> Node:
        """Make a node known, and its name lead to it."""
        self._by_inode[node.inode] = node
        if node.parent is not None:
            self._by_name[node.parent.inode, node.name] = node
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
        """The node bears another name; whatever bore that before is nameless now."""
        self.unname(node)
        node.parent, node.name = parent, name
        self._by_name[parent.inode, name] = node

    def unname(self, node: Node) -> None:
        """The name is gone; who has the node open keeps it."""
        key = (node.parent.inode, node.name) if node.parent else None
        if key is not None and self._by_name.get(key) is node:
            del self._by_name[key]

    def forget(self, inode: int, count: int) -> None:
        """The kernel dropped references; the last one takes the node along."""
        node = self._by_inode.get(inode)
        if node is None or node.parent is None:
            return
        node.lookups -= count
        self.drop_unused(node)

    def drop_unused(self, node: Node) -> None:
        """A private node also lives while its writer is expected or at work; a generated directory always."""
        if node.lookups <= 0 and (node.shadow is None or node.shadow.is_idle) and node.children is None:
            self.unname(node)
            self._by_inode.pop(node.inode, None)

    def __len__(self) -> int:
        return len(self._by_inode)
