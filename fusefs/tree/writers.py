"""Names being written or removed: open writers, pending attachments, rejections, hidden names.

Hidden names: many tools remove a document before they write its replacement. Unlinking or renaming
session.json only hides the name in this mount. The file stays on disk, so a crash needs no repair.
The name is shown again by the next commit, a rejection or the removal of its directory. After ten
seconds without any of these the session is deleted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fusefs.tree.nodes import Node
from store.disk.file import Stamp
from store.path_kinds import PathInfo, classify_path

HIDDEN_S = 10.0
REJECTED_S = 10.0  # unzip ignores the result of close and sets mode and time by name right after


@dataclass
class HiddenName:
    """A hidden name. After an unlink (`was_deleted`) any replacement is intended; after a rename it is not."""

    path_info: PathInfo
    was_deleted: bool
    stamp: Stamp | None  # of the version that was hidden: expiry deletes no other version
    since: float


class Writers:
    def __init__(self, hidden_s: float = HIDDEN_S) -> None:
        self.hidden_s = hidden_s
        self._hidden: dict[str, HiddenName] = {}
        self._deleted: dict[str, float] = {}  # path → time: documents that unlink deletes without hiding
        self._writer_counts: dict[str, int] = {}  # by path
        self._pending: dict[str, Node] = {}  # new attachments that were never committed
        self._rejected: dict[tuple[str, int], float] = {}  # path and thread → deadline

    # -- open writers ----------------------------------------------------------------------------

    def begin(self, path: str) -> None:
        self._writer_counts[path] = self._writer_counts.get(path, 0) + 1

    def end(self, path: str) -> None:
        left = self._writer_counts.pop(path, 1) - 1
        if left:
            self._writer_counts[path] = left

    def is_being_written(self, path: str) -> bool:
        """Whether the kernel must not cache the name: a commit is about to change its node."""
        return path in self._writer_counts

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

    def hide(self, path_info: PathInfo, info: os.stat_result, *, was_deleted: bool) -> None:
        self._hidden[path_info.path] = HiddenName(path_info, was_deleted, Stamp.of(info), time.monotonic())

    def show(self, path: str) -> None:
        """Stop hiding a name: it was replaced, restored or deleted."""
        self._hidden.pop(path, None)
        self._deleted.pop(path, None)

    def hidden(self, path: str) -> HiddenName | None:
        return self._hidden.get(path)

    def note_deleted(self, path: str) -> None:
        """Remember the unlink of a sidecar. It is not hidden, but its replacement is intended all the same."""
        now = time.monotonic()
        self._deleted = {p: since for p, since in self._deleted.items() if now - since <= self.hidden_s}
        self._deleted[path] = now

    def was_deleted(self, path: str) -> bool:
        """Whether the document was unlinked through this mount shortly before its replacement."""
        hidden = self._hidden.get(path)
        if hidden is not None:
            return hidden.was_deleted
        return time.monotonic() - self._deleted.get(path, -1e9) <= self.hidden_s

    def rename(self, old: str, new: str, stat: Callable[[str], os.stat_result | None]) -> None:
        """A directory was renamed: keep names hidden in it, and below it, hidden."""
        for path in [p for p in self._hidden if p.startswith(f"{old}/")]:
            hidden = self._hidden.pop(path)
            path_info = classify_path(new + path.removeprefix(old))
            info = stat(path_info.path)
            # Renaming a session rewrites its id, which makes another version with the same mtime:
            # still the hidden one. A version saved since it was hidden has another mtime, and is
            # shown.
            if info is not None and hidden.stamp is not None and info.st_mtime_ns == hidden.stamp.mtime_ns:
                self._hidden[path_info.path] = replace(hidden, path_info=path_info, stamp=Stamp.of(info))

    def directory_created(self, directory: str) -> None:
        """Forget names hidden in an earlier directory of this name: they hide nothing in the new one."""
        for path in [p for p in self._hidden if p.startswith(f"{directory}/")]:
            del self._hidden[path]

    def all_hidden(self) -> list[HiddenName]:
        return list(self._hidden.values())

    def hidden_in(self, directory: str) -> list[str]:
        """Names hidden in a directory."""
        prefix = f"{directory}/"
        paths = list(self._hidden)  # a copy: a rename in a worker thread may hide another name meanwhile
        return [p.removeprefix(prefix) for p in paths if p.startswith(prefix) and "/" not in p[len(prefix) :]]

    def overdue(self) -> Iterator[HiddenName]:
        """Names hidden for longer than `hidden_s` that no writer has open."""
        now = time.monotonic()
        yield from [
            hidden
            for path, hidden in list(self._hidden.items())
            if now - hidden.since > self.hidden_s and path not in self._writer_counts
        ]
