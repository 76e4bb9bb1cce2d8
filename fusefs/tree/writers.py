"""Names being written or taken away: private nodes, and limbo.

A writer never touches the node that readers use: the first open for writing is answered ESTALE, the kernel
looks the name up once more, and that lookup, known by its thread, is led to a private node.

Limbo: many tools take a document away before they bring the new one. Unlinking or renaming session.json
only hides the name in this mount; on disk it stays, and a crash leaves nothing to put back. Limbo ends with
the next commit, with a refusal, with the removal of the directory, or after ten quiet seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fusefs.tree.nodes import Node
from store.disk.file import Stamp
from store.path_kinds import PathInfo, classify_path

# A writer that was told to come again is back within microseconds; unless someone else's rename in that directory
# waits for the session's lock, because the kernel lets nobody else look there meanwhile. Longer than that may take.
INTENT_S = 60.0
NAMELESS_S = 2.0  # for callers of another pid namespace: they all look the same, and one must not take another's
LIMBO_S = 10.0
REFUSED_S = 10.0  # unzip does not look at what close answers, and sets mode and time by name right after


@dataclass
class PendingOpen:
    node: Node
    deadline: float


@dataclass
class HiddenName:
    """A hidden name. `was_deleted` tells unlink from rename: who deletes first means what comes next."""

    place: PathInfo
    was_deleted: bool
    stamp: Stamp | None  # of the version that was taken away: no other may go in its stead
    since: float


class Writers:
    def __init__(self, limbo_s: float = LIMBO_S) -> None:
        self.hidden_s = limbo_s
        self._pending_opens: dict[tuple[int, int, str], PendingOpen] = {}
        self._hidden: dict[str, HiddenName] = {}
        self._deleted: dict[str, float] = {}  # path → when: documents that an unlink takes away at once
        self._at_work: dict[str, int] = {}  # path → writers
        self._pending: dict[str, Node] = {}  # attachments that are being made, and were never committed yet
        self._refused: dict[tuple[str, int], float] = {}  # path and thread → until when

    # -- intents ---------------------------------------------------------------------------------------

    def reserve(self, pid: int, parent: Node, name: str, node: Node) -> None:
        """This thread was told to come again, and is to be led to this node."""
        self._pending_opens[pid, parent.inode, name] = PendingOpen(
            node, time.monotonic() + (INTENT_S if pid else NAMELESS_S)
        )
        assert node.buffer is not None
        node.buffer.awaited = True

    def reserved_for(self, pid: int, parent: Node, name: str) -> Node | None:
        intent = self._pending_opens.get((pid, parent.inode, name))
        return intent.node if intent is not None and intent.deadline > time.monotonic() else None

    def claimed(self, pid: int, node: Node) -> None:
        """The writer is here."""
        assert node.buffer is not None
        node.buffer.awaited = False
        node.buffer.opener = pid
        if node.parent is not None:
            self._pending_opens.pop((pid, node.parent.inode, node.name), None)

    def expire(self) -> list[Node]:
        """Give up on who did not come back; the nodes that were meant for them."""
        now = time.monotonic()
        late = [key for key, intent in self._pending_opens.items() if intent.deadline <= now]
        nodes = [self._pending_opens.pop(key).node for key in late]
        for node in nodes:
            assert node.buffer is not None
            node.buffer.awaited = False
        return nodes

    # -- writers at work ---------------------------------------------------------------------------------

    def begin(self, path: str) -> None:
        self._at_work[path] = self._at_work.get(path, 0) + 1

    def end(self, path: str) -> None:
        left = self._at_work.pop(path, 1) - 1
        if left:
            self._at_work[path] = left

    def is_being_written(self, path: str) -> bool:
        """While a writer is on a name, the kernel may not remember where it leads."""
        return path in self._at_work

    # -- attachments that are being made -----------------------------------------------------------------------

    def add_pending(self, path: str, node: Node) -> None:
        """Tools rename and remove what they have open: a new attachment has its name from the first."""
        self._pending[path] = node

    def pending(self, path: str) -> Node | None:
        return self._pending.get(path)

    def pending_in(self, directory: str) -> list[str]:
        """The names of those in a directory."""
        born = list(self._pending)
        return [path.rpartition("/")[2] for path in born if path.rpartition("/")[0] == directory]

    def remove_pending(self, node: Node) -> None:
        """It is committed, or gone."""
        assert node.buffer is not None
        if self._pending.get(node.buffer.place.path) is node:
            del self._pending[node.buffer.place.path]

    # -- refusals ----------------------------------------------------------------------------------------------

    def note_refused(self, path: str, pid: int) -> None:
        now = time.monotonic()
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        self._refused[path, pid] = now + REFUSED_S

    def was_refused(self, path: str, pid: int) -> bool:
        """Whether what this thread brought last is not what bears the name."""
        return self._refused.get((path, pid), 0.0) > time.monotonic()

    def forget_refusal(self, path: str, pid: int) -> None:
        self._refused.pop((path, pid), None)

    # -- limbo -----------------------------------------------------------------------------------------------

    def hide(self, place: PathInfo, info: os.stat_result, *, was_deleted: bool) -> None:
        self._hidden[place.path] = HiddenName(place, was_deleted, Stamp.of(info), time.monotonic())

    def show(self, path: str) -> None:
        """Limbo is over, one way or the other."""
        self._hidden.pop(path, None)
        self._deleted.pop(path, None)

    def hidden(self, path: str) -> HiddenName | None:
        return self._hidden.get(path)

    def note_deleted(self, path: str) -> None:
        """A sidecar knows no limbo, but who deletes it first means what comes next all the same."""
        now = time.monotonic()
        self._deleted = {p: since for p, since in self._deleted.items() if now - since <= self.hidden_s}
        self._deleted[path] = now

    def was_deleted(self, path: str) -> bool:
        """Whether whoever brings a document now has deleted it before."""
        limbo = self._hidden.get(path)
        return (
            limbo.was_deleted
            if limbo is not None
            else time.monotonic() - self._deleted.get(path, -1e9) <= self.hidden_s
        )

    def rename(self, old: str, new: str, stat: Callable[[str], os.stat_result | None]) -> None:
        """A directory bears another name: what was hidden in it, and below, stays so."""
        for path in [p for p in self._hidden if p.startswith(f"{old}/")]:
            limbo = self._hidden.pop(path)
            place = classify_path(new + path.removeprefix(old))
            info = stat(place.path)
            # Its bytes say the new name, so it is another version, but of the same time: it was this one that was
            # meant. What a program saved since it was taken away has a time of its own, and is shown.
            if info is not None and limbo.stamp is not None and info.st_mtime_ns == limbo.stamp.mtime_ns:
                self._hidden[place.path] = replace(limbo, place=place, stamp=Stamp.of(info))

    def directory_created(self, directory: str) -> None:
        """A directory is new under this name: what a program deleted while it was hidden hides nothing in it."""
        for path in [p for p in self._hidden if p.startswith(f"{directory}/")]:
            del self._hidden[path]

    def all_hidden(self) -> list[HiddenName]:
        return list(self._hidden.values())

    def hidden_in(self, directory: str) -> list[str]:
        """The names that are hidden in a directory."""
        prefix = f"{directory}/"
        hidden = list(self._hidden)  # at once: a rename in a thread may hide another meanwhile
        return [p.removeprefix(prefix) for p in hidden if p.startswith(prefix) and "/" not in p[len(prefix) :]]

    def overdue(self) -> Iterator[HiddenName]:
        """What has been hidden for too long, with nobody about to bring a new version."""
        now = time.monotonic()
        yield from [
            limbo
            for path, limbo in list(self._hidden.items())
            if now - limbo.since > self.hidden_s and path not in self._at_work
        ]
