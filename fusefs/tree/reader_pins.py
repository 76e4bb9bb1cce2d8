"""Readers whose version was replaced between their lookup and their open.

Such an open is answered ESTALE, and the kernel looks the name up once more, but only once: where commits come
fast, the version found then may be gone again before it is opened. So that lookup, known by its thread, opens
the version it answers, and the open that follows is given that descriptor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from fusefs.tree.nodes import Node

EXPECTED_S = 60.0  # who was told to come again may have to wait for someone else's rename in that directory
PINNED_S = 10.0  # who was led to a version opens it within microseconds, or never
_TRIES = 100  # nothing comes between lookup and open here but another process's commit


class ReaderPins:
    def __init__(self) -> None:
        self._expected: dict[tuple[int, int, str], float] = {}
        self._pinned: dict[tuple[int, int], tuple[int, float]] = {}  # thread, node number → descriptor, deadline

    def reserve(self, pid: int, node: Node) -> None:
        """This thread is told to come again for the same name."""
        assert node.parent is not None
        self._expected[pid, node.parent.inode, node.name] = time.monotonic() + EXPECTED_S

    def is_reserved(self, pid: int, parent: Node, name: str) -> bool:
        return self._expected.get((pid, parent.inode, name), 0.0) > time.monotonic()

    def pin(self, pid: int, look: Callable[[], Node], open_version: Callable[[Node], int | None]) -> Node:
        """The node a name leads to, with its version held open for the thread that is about to open it."""
        for _ in range(_TRIES):
            node = look()
            fd = open_version(node)
            if fd is not None:
                self._close((pid, node.inode))
                self._pinned[pid, node.inode] = fd, time.monotonic() + PINNED_S
                break
        return node

    def take(self, pid: int, node: Node) -> int | None:
        """The descriptor that was kept for this open; None if none was."""
        if node.parent is not None:
            self._expected.pop((pid, node.parent.inode, node.name), None)
        fd, _ = self._pinned.pop((pid, node.inode), (None, 0.0))
        return fd

    def expire(self) -> None:
        """Let go of what nobody came for."""
        now = time.monotonic()
        self._expected = {key: deadline for key, deadline in self._expected.items() if deadline > now}
        for key in [key for key, (_, deadline) in self._pinned.items() if deadline <= now]:
            self._close(key)

    def _close(self, key: tuple[int, int]) -> None:
        fd, _ = self._pinned.pop(key, (None, 0.0))
        if fd is not None:
            os.close(fd)
