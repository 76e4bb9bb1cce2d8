"""snapshots/: links from the names of snapshots to their moments in at/."""

from __future__ import annotations

from collections.abc import Iterator

from fusefs.views.base import Item, View, VirtualDir, VirtualLink
from store import Snapshot, Store, Timestamp


class SnapshotsView(View):
    def __init__(self, store: Store) -> None:
        self._history = store.history

    def find(self, path: str) -> Item | None:
        if not path:
            return VirtualDir(max((found.at_ns for found in self._history.snapshots()), default=0))
        return next((as_link(found) for found in self._history.snapshots() if found.name == path), None)

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if not path:
            for found in sorted(self._history.snapshots()):
                yield found.name, as_link(found)


def as_link(snapshot: Snapshot) -> VirtualLink:
    """The time is exact and in UTC: the zone of the mount must not matter."""
    moment = Timestamp.from_ns(snapshot.at_ns)
    exact = moment if "." in moment else moment.replace("Z", ".0Z")  # without a fraction it would be the whole second
    return VirtualLink(f"../at/{exact}", snapshot.at_ns, is_public=True)
