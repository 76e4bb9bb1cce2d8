"""Names in search/, history/ and at/: they exist once they are looked up, so there is no end of them.

The kernel keeps every name it has looked up, and the daemon the node of each, until memory is
scarce. So only the newest names stay: older ones are invalidated, and the kernel forgets them. A
name that is still in use is looked up again and gets the same node.
"""

from __future__ import annotations

import os

from fusefs.tree.nodes import Invalidation, Node

DIRECTORIES = frozenset({"search", "history", "at"})
LIMIT = 256  # names in each


class NamedEntries:
    def __init__(self) -> None:
        self._names: dict[int, dict[str, None]] = {}  # by inode of the directory, oldest first

    def note(self, parent: Node, name: str) -> list[Invalidation]:
        """A name was looked up. Returns the entries that the kernel should forget."""
        if parent.path not in DIRECTORIES:
            return []
        names = self._names.setdefault(parent.inode, {})
        names.pop(name, None)
        names[name] = None
        if len(names) <= LIMIT:
            return []
        oldest = next(iter(names))
        del names[oldest]
        return [Invalidation(parent.inode, os.fsencode(oldest))]
