"""Names being written or removed: open writers, pending attachments, rejections, hidden names."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fusefs.tree.hidden_names import HIDDEN_S, HiddenName, HiddenNames
from fusefs.tree.nodes import Node

REJECTED_S = 10.0  # unzip ignores the result of close and sets mode and time by name right after


class Writers:
    def __init__(self, hidden_s: float = HIDDEN_S) -> None:
        self.hidden = HiddenNames(hidden_s)
        self._writer_counts: dict[str, int] = {}  # by path
        self._pending: dict[str, Node] = {}  # new attachments and state texts, never committed
        self._rejected: dict[tuple[str, int], float] = {}  # path and thread → deadline

    # -- open writers ----------------------------------------------------------------------------

    def begin(self, path: str) -> None:
        self._writer_counts[path] = self._writer_counts.get(path, 0) + 1

    def end(self, path: str) -> None:
        left = self._writer_counts.pop(path, 1) - 1
        if left:
            self._writer_counts[path] = left

    def is_being_written(self, path: str) -> bool:
        """Whether the kernel must not cache the name: a commit is about to change its node, or it is hidden."""
        return path in self._writer_counts or path in self.hidden

    # -- pending attachments ---------------------------------------------------------------------

    def add_pending(self, path: str, node: Node) -> None:
        """Show a new attachment before its first commit: tools rename and remove files they have open."""
        self._pending[path] = node

    def pending(self, path: str) -> Node | None:
        return self._pending.get(path)

    def pending_in(self, directory: str) -> list[str]:
        """Names of pending attachments in a directory."""
        paths = list(self._pending)
        return [path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == directory]

    def remove_pending(self, node: Node) -> None:
        """The attachment was committed or removed."""
        assert node.buffer is not None
        if self._pending.get(node.buffer.path_info.path) is node:
            del self._pending[node.buffer.path_info.path]

    # -- rejections ------------------------------------------------------------------------------

    def note_rejected(self, path: str, pid: int) -> None:
        now = time.monotonic()
        self._rejected = {key: until for key, until in self._rejected.items() if until > now}
        self._rejected[path, pid] = now + REJECTED_S

    def was_rejected(self, path: str, pid: int) -> bool:
        """Whether this thread's last write to the path was rejected, so the file has other content."""
        return self._rejected.get((path, pid), 0.0) > time.monotonic()

    def forget_rejection(self, path: str, pid: int) -> None:
        self._rejected.pop((path, pid), None)

    # -- hidden names ----------------------------------------------------------------------------

    def overdue(self) -> Iterator[HiddenName]:
        """Names hidden for too long, that no writer has open."""
        return self.hidden.overdue(self._writer_counts)
