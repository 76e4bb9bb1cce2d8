"""Names being written or taken away: private nodes, and limbo.

A writer never touches the node that readers use: the first open for writing is answered ESTALE, the kernel
looks the name up once more, and that lookup, known by its thread, is led to a private node.

Limbo: many tools take a document away before they bring the new one. Unlinking or renaming session.json
only hides the name in this mount; on disk it stays, and a crash leaves nothing to put back. Limbo ends with
the next commit, with a refusal, with the removal of the directory, or after ten quiet seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from fusefs.nodes import Node
from store.places import Place

INTENT_S = 2.0  # a writer that was told to come again is back within microseconds, or never
LIMBO_S = 10.0


@dataclass
class _Intent:
    node: Node
    deadline: float


@dataclass
class Limbo:
    """A hidden name. `was_deleted` tells unlink from rename: who deletes first means what comes next."""

    place: Place
    was_deleted: bool
    since: float


class Writers:
    def __init__(self) -> None:
        self._intents: dict[tuple[int, int, str], _Intent] = {}
        self._limbo: dict[str, Limbo] = {}
        self._at_work: dict[str, int] = {}  # path → writers

    # -- intents ---------------------------------------------------------------------------------------

    def expect(self, pid: int, parent: Node, name: str, node: Node) -> None:
        """This thread was told to come again, and is to be led to this node."""
        self._expire()
        self._intents[pid, parent.inode, name] = _Intent(node, time.monotonic() + INTENT_S)
        assert node.shadow is not None
        node.shadow.awaited = True

    def expected(self, pid: int, parent: Node, name: str) -> Node | None:
        intent = self._intents.get((pid, parent.inode, name))
        return intent.node if intent is not None and intent.deadline > time.monotonic() else None

    def arrived(self, pid: int, node: Node) -> None:
        """The writer is here."""
        assert node.shadow is not None
        node.shadow.awaited = False
        if node.parent is not None:
            self._intents.pop((pid, node.parent.inode, node.name), None)

    def _expire(self) -> None:
        now = time.monotonic()
        for key in [key for key, intent in self._intents.items() if intent.deadline <= now]:
            intent = self._intents.pop(key)
            if intent.node.shadow is not None:
                intent.node.shadow.awaited = False

    # -- writers at work ---------------------------------------------------------------------------------

    def begin(self, path: str) -> None:
        self._at_work[path] = self._at_work.get(path, 0) + 1

    def end(self, path: str) -> None:
        left = self._at_work.pop(path, 1) - 1
        if left:
            self._at_work[path] = left

    def are_on(self, path: str) -> bool:
        """While a writer is on a name, the kernel may not remember where it leads."""
        return path in self._at_work

    # -- limbo -----------------------------------------------------------------------------------------------

    def hide(self, place: Place, *, was_deleted: bool) -> None:
        self._limbo[place.path] = Limbo(place, was_deleted, time.monotonic())

    def show(self, path: str) -> None:
        """Limbo is over, one way or the other."""
        self._limbo.pop(path, None)

    def hidden(self, path: str) -> Limbo | None:
        return self._limbo.get(path)

    def hidden_in(self, directory: str) -> list[str]:
        """The names that are hidden in a directory."""
        prefix = f"{directory}/"
        return [p.removeprefix(prefix) for p in self._limbo if p.startswith(prefix) and "/" not in p[len(prefix) :]]

    def overdue(self) -> Iterator[Limbo]:
        """What has been hidden for too long, with nobody about to bring a new version."""
        now = time.monotonic()
        yield from [
            limbo for path, limbo in self._limbo.items() if now - limbo.since > LIMBO_S and path not in self._at_work
        ]
