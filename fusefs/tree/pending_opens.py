"""Opens that were answered ESTALE and are expected again from the same thread.

The kernel reacts to ESTALE with one more lookup of the name and one more open. A registry entry,
keyed by thread, directory and name, tells that lookup apart from everyone else's:

    a writer   opened the readers' node; its lookup gets a private node
    a reader   opened a version that was replaced since its lookup. The kernel retries only once,
               and with frequent commits the version found then may be replaced again before it is
               opened. So that lookup opens the version it answers and pins the descriptor, and
               the open that follows takes it.

Callers from another pid namespace all have pid 0. A writer's and a reader's entry under the same
key therefore do not replace each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from fusefs.tree.nodes import Node

# The retry comes within microseconds, unless another thread's rename in that directory waits for
# the session's lock: the kernel blocks all lookups in the directory meanwhile. That can take this
# long.
RETRY_S = 60.0
UNKNOWN_PID_S = 2.0  # writers with pid 0 look alike: one must not get another's private node
PINNED_S = 10.0  # the open follows its lookup within microseconds, or never
_MAX_TRIES = 100  # only another process's commit can come between lookup and open here

Key = tuple[int, int, str]  # thread, inode of the directory, name


@dataclass
class PendingWriter:
    node: Node
    deadline: float


class PendingOpens:
    def __init__(self) -> None:
        self._writers: dict[Key, PendingWriter] = {}
        self._readers: dict[Key, float] = {}  # → deadline
        self._pinned: dict[tuple[int, int], tuple[int, float]] = {}  # thread, inode → descriptor, deadline

    # -- writers ---------------------------------------------------------------------------------

    def reserve(self, pid: int, parent: Node, name: str, node: Node) -> None:
        """Give this private node to the thread's next lookup of the name."""
        seconds = RETRY_S if pid else UNKNOWN_PID_S
        self._writers[pid, parent.inode, name] = PendingWriter(node, time.monotonic() + seconds)
        assert node.buffer is not None
        node.buffer.awaited = True

    def reserved_for(self, pid: int, parent: Node, name: str) -> Node | None:
        pending = self._writers.get((pid, parent.inode, name))
        return pending.node if pending is not None and pending.deadline > time.monotonic() else None

    def is_retry(self, pid: int, node: Node) -> bool:
        """Whether the thread opens the private node that it got after its first open. Not known of pid 0."""
        return pid > 0 and node.parent is not None and self.reserved_for(pid, node.parent, node.name) is node

    def claimed(self, pid: int, node: Node) -> None:
        """The writer opened its private node."""
        assert node.buffer is not None
        node.buffer.awaited = False
        node.buffer.opener = pid
        if node.parent is not None:
            self._writers.pop((pid, node.parent.inode, node.name), None)

    # -- readers ---------------------------------------------------------------------------------

    def expect_reader(self, pid: int, node: Node) -> None:
        """The thread's next lookup of this name must pin the version that it finds."""
        assert node.parent is not None
        self._readers[pid, node.parent.inode, node.name] = time.monotonic() + RETRY_S

    def expects_reader(self, pid: int, parent: Node, name: str) -> bool:
        return self._readers.get((pid, parent.inode, name), 0.0) > time.monotonic()

    def pin(self, pid: int, look: Callable[[], Node], open_version: Callable[[Node], int | None]) -> Node:
        """Look up a node and keep its version open for the thread that is about to open it."""
        for _ in range(_MAX_TRIES):
            node = look()
            fd = open_version(node)
            if fd is not None:
                self._unpin((pid, node.inode))
                self._pinned[pid, node.inode] = fd, time.monotonic() + PINNED_S
                break
        return node

    def take_pinned(self, pid: int, node: Node) -> int | None:
        """The descriptor pinned for this open. The caller closes it."""
        if node.parent is not None:
            self._readers.pop((pid, node.parent.inode, node.name), None)
        fd, _ = self._pinned.pop((pid, node.inode), (None, 0.0))
        return fd

    @property
    def has_pinned(self) -> bool:
        """Whether any thread has yet to take its descriptor. Most of the time none has."""
        return bool(self._pinned)

    def is_pinned(self, node: Node) -> bool:
        """Whether some thread must still open the node itself, to take its descriptor."""
        return any(inode == node.inode for _, inode in self._pinned)

    # -- expiry ----------------------------------------------------------------------------------

    def expire(self) -> list[Node]:
        """Drop entries past their deadline. Returns the private nodes that no writer claimed."""
        now = time.monotonic()
        self._readers = {key: deadline for key, deadline in self._readers.items() if deadline > now}
        for pin in [pin for pin, (_, deadline) in self._pinned.items() if deadline <= now]:
            self._unpin(pin)
        late = [key for key, pending in self._writers.items() if pending.deadline <= now]
        nodes = [self._writers.pop(key).node for key in late]
        for node in nodes:
            assert node.buffer is not None
            node.buffer.awaited = False
        return nodes

    def _unpin(self, pin: tuple[int, int]) -> None:
        fd, _ = self._pinned.pop(pin, (None, 0.0))
        if fd is not None:
            os.close(fd)
