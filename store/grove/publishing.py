"""What a joined home gives to its grove on request: sessions that only it has, and outside edits that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.disk.file import NewFile
from store.errors import NotFound, ReadOnly
from store.grove.agreeing import GroveAgreement
from store.grove.local_units import unit_files
from store.grove.units import location_of

if TYPE_CHECKING:
    from store.grove.follower import LogFollower


@dataclass(frozen=True)
class Publishing:
    """`Store.grove`, of a home that has joined."""

    core: Core
    follower: LogFollower | None = None

    @property
    def problem(self) -> str:
        """Why changes of other hosts do not arrive at the moment; "" if they do, or if another process follows them."""
        return self.follower.problem if self.follower is not None else ""

    def publish(self, name: str) -> list[str]:
        """Publish a session that only this home has, with its children and mailboxes; returns the units.

        Of one that the grove has, what was edited on disk is published, merged or rejected, as in a sweep.
        """
        location = self.core.locate(name)
        if location is None:
            raise NotFound(f"there is no session {name!r}")
        places = [location]
        if location.child is None:
            places += [other for other in self.core.index.locations_in_tree(location.root) if other != location]
        units = [unit for place in places for unit in (place.dir, f"{place.dir}/mailbox")]
        return [unit for unit in units if self._publish(unit)]

    def _publish(self, unit: str) -> bool:
        replica = self._agreement.replica
        known = replica.find_unit(unit)
        if known is None or known.is_gone:
            return publish_unit(self.core, unit)
        self._agreement.settle_unit(unit)
        return replica.find_unit(unit) != known

    def waiting(self) -> list[str]:
        """The files that were edited on disk and are not published yet, because they are many."""
        return self._agreement.outside.sweep()

    def publish_edits(self) -> None:
        """Publish, merge or reject everything that was edited on disk, however much it is."""
        self._agreement.outside.sweep(ask=False)

    @property
    def _agreement(self) -> GroveAgreement:
        agreement = self.core.agreement
        if not isinstance(agreement, GroveAgreement):
            raise ReadOnly("psycopg is not installed: pip install 'grovefs[grove]'")
        return agreement


def publish_unit(core: Core, unit: str) -> bool:
    """Give a unit that only this home has to the grove; False if it has no files."""
    location = location_of(unit)
    with core.locked_tree(location.root):
        paths = unit_files(core.disk, unit)
        if not paths:
            return False
        # One file in the commit is enough: a new unit is sent whole.
        present = core.disk.read(paths[-1])
        assert present is not None
        file = NewFile(paths[-1], [present.data], present, present.stamp.mtime_ns)
        commit = Commit(location, [file], what="saved" if location.is_session else None, label="published")
        core.journal.run(commit, IndexRefresh([location] if location == location.owner else []))
        core.on_commit()
    return True
