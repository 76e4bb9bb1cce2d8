"""Select the units of a backup to restore: all, or the sessions named by the user with their descendants.

Names (an id, `root/child`, a unique prefix of either, or a title) are resolved against the backup, not the home: a
session that is restored is usually missing from the home.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.disk import rejects
from store.errors import Corrupt, NotFound, Problem
from store.layout import Location
from store.path_kinds import PathInfo, classify_path
from store.sessions.match_name import match_one
from store.transfer.backup.tree import BackupTree, read_link
from store.transfer.backup.units import iter_units, location_of, scan_unit, unit_of

PERMISSIONS = 0o777  # a restored file never becomes set-user-ID


class RestoreFile(NamedTuple):
    """A file of the backup to restore."""

    path: str
    size: int
    mtime_ns: int
    mode: int
    link: str | None = None

    @property
    def place(self) -> PathInfo:
        return classify_path(self.path)


def files_by_unit(tree: BackupTree) -> dict[str, list[RestoreFile]]:
    """The files of a backup by unit, sorted. sessions.json is left out: it is rebuilt, not restored."""
    found: dict[str, list[RestoreFile]] = {}
    for wanted in sorted(_iter_manifest(tree) if tree.has_manifest else _iter_directories(tree)):
        if wanted.path != layout.INDEX_EXPORT:
            found.setdefault(unit_of(wanted.path), []).append(wanted)
    return dict(sorted(found.items()))


def _iter_manifest(tree: BackupTree) -> Iterator[RestoreFile]:
    for path, item in tree.manifest.files.items():
        yield RestoreFile(path, item.size, item.mtime_ns, item.mode & PERMISSIONS, item.link)


def _iter_directories(tree: BackupTree) -> Iterator[RestoreFile]:
    """The files of a plain tree, without the files a mount shows for rejected writes."""
    unreadable: dict[str, str] = {}
    for unit in iter_units(tree.disk, unreadable):
        for path, seen in scan_unit(tree.disk, unit)[0].items():
            if not path.endswith((rejects.REJECTED, rejects.REASON)):
                link = read_link(tree.disk, path) if seen.is_link else None
                yield RestoreFile(path, seen.stamp.size, seen.stamp.mtime_ns, seen.mode & PERMISSIONS, link)
    for path, why in unreadable.items():
        raise Corrupt(str(tree.path / path), Problem(f"cannot read the directory: {why}; nothing was restored"))


@dataclass(frozen=True)
class Selection:
    core: Core
    tree: BackupTree
    units: Collection[str]

    def select_units(self, names: Iterable[str]) -> list[str]:
        """The units of the named sessions and their descendants; all units without names."""
        wanted = [self._resolve(name) for name in names]
        if not wanted:
            return list(self.units)
        chosen = {unit for location in wanted for unit in self._below(location)}
        for location in wanted:
            self._require_root(location, chosen)
        return [unit for unit in self.units if unit in chosen]

    def _locations(self) -> list[Location]:
        return [location for location in map(location_of, self.units) if location is not None]

    def _resolve(self, name: str) -> Location:
        found = match_one(name, self._locations(), str, self._title)
        if found is None:
            raise NotFound(f"no session {name!r} in {self.tree.path}; nothing was restored")
        return found

    def _title(self, location: Location) -> str:
        """From the manifest; a plain tree has none."""
        session = self.tree.manifest.sessions.get(str(location))
        return session.title if session is not None else ""

    def _below(self, location: Location) -> list[str]:
        """A session and its descendants: for a root all in its directory, for a child those that name it as parent."""
        tree = [at for at in self._locations() if at.root == location.root]
        if location.child is None:
            return [at.dir for at in tree]
        parents = {at: self._parent(at) for at in tree if at.child is not None}
        chosen = {location}
        while more := {at for at, parent in parents.items() if parent in {c.id for c in chosen}} - chosen:
            chosen |= more
        return [at.dir for at in chosen]

    def _parent(self, location: Location) -> str | None:
        try:
            document = orjson.loads(b"".join(self.tree.chunks(location.path(layout.SESSION))))
            parent = document.get("parent_session_id")
        except (ValueError, AttributeError, Corrupt):  # reported when the session itself is restored
            return None
        return parent if isinstance(parent, str) else None

    def _require_root(self, location: Location, chosen: set[str]) -> None:
        root = Location(location.root)
        if root.dir not in chosen and self.core.disk.stat(root.path(layout.SESSION)) is None:
            raise NotFound(
                f"{location} needs its root {root}, which does not exist; nothing was restored. Restore {root}"
            )
