"""The files of a home at a moment: documents of the history, and attachments that have not changed since.

A tree is made from one query and holds no texts. Paths are those that sessions had at that moment. A
session that has no version, because nothing has changed it since history began, is shown as it is if
its file is older than the moment. So is one whose newest version was thinned out.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from store import layout
from store.commit.core import Core
from store.disk.file import Stamp
from store.errors import Corrupt, InvalidName, NotFound
from store.history.database import HistoryUnusable
from store.history.versions import SavedVersion, Snapshot, is_session_dir, place_of
from store.index.database import now_ns
from store.layout import Location

Progress = Callable[[int, int], None]

# Permissions of what is deleted now: nobody but the owner could restore it either.
_PRIVATE_DIR, _PRIVATE_FILE = 0o700, 0o600
# Directories with this many names are scanned: that takes a third of the system calls of one stat for each.
_MANY = 100


def _permissions(info: os.stat_result | None) -> tuple[int, tuple[int, int] | None]:
    """Mode and owner of a past file: those of the live one, if there is one."""
    return (stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid)) if info is not None else (_PRIVATE_FILE, None)


class PastDir(NamedTuple):
    mtime_ns: int
    mode: int
    owner: tuple[int, int] | None = None  # user and group id of the live directory, if there is one


class PastFile(NamedTuple):
    """A file of the past. `version` is None for a live file that was the same then."""

    size: int
    mtime_ns: int
    mode: int
    identity: str  # an equal one means equal bytes
    version: SavedVersion | None
    live_path: str  # where the file of this name is now, or was put into the trash
    is_side: bool = False
    owner: tuple[int, int] | None = None  # user and group id of the live file, if there is one


PastEntry = PastDir | PastFile


class _Place(NamedTuple):
    """A lineage at the moment: its version (None: only the live files), and where its files are now."""

    version: SavedVersion | None
    live_path: str
    mtime_ns: int
    is_session: bool


@dataclass
class PastTree:
    """Use `Moments.tree` to make one."""

    core: Core
    at_ns: int
    places: dict[str, _Place]
    _paths: list[str] = field(init=False)
    _times: dict[str, int] = field(init=False, default_factory=dict)
    _infos: dict[str, os.stat_result] = field(init=False, default_factory=dict)  # while a large directory is listed

    def __post_init__(self) -> None:
        self._paths = sorted(self.places)

    # -- names -----------------------------------------------------------------------------------------

    def find(self, path: str) -> PastEntry | None:
        """The file or directory of a path; "" is the top."""
        place = self.places.get(path)
        if place is not None:
            return self._directory(path, place.live_path) if place.is_session else self._file(place, place.live_path)
        owner, _, name = path.rpartition("/")
        if name in layout.DOCUMENTS and self._is_session(owner):
            return self._document(self.places[owner], name)
        attached = self._attachments_of(path)
        if attached is not None:
            return attached
        return self._directory(path, path) if self._has_below(path) else None

    def iter_names(self, path: str) -> Iterator[str]:
        """The names in a directory, in order."""
        names = dict.fromkeys(self._names_below(path))
        place = self.places.get(path)
        if place is not None and place.is_session:
            names |= dict.fromkeys(name for name in layout.DOCUMENTS if self._document(place, name) is not None)
            if self._live_directory(f"{place.live_path}/{layout.ATTACHMENTS}"):
                names[layout.ATTACHMENTS] = None
        owner, _, name = path.rpartition("/")
        if name == layout.ATTACHMENTS and self._is_session(owner):
            names = dict.fromkeys(self._attached(self.places[owner]))
        yield from sorted(names)

    def _is_session(self, path: str) -> bool:
        return path in self.places and self.places[path].is_session

    def _range(self, path: str) -> range:
        """Indexes of the paths below a directory: they begin with `path/`, and "0" follows "/"."""
        if not path:
            return range(len(self._paths))
        return range(bisect_left(self._paths, f"{path}/"), bisect_left(self._paths, f"{path}0"))

    def _has_below(self, path: str) -> bool:
        return bool(self._range(path)) or not path

    def _names_below(self, path: str) -> Iterator[str]:
        start = len(path) + 1 if path else 0
        for index in self._range(path):
            yield self._paths[index][start:].partition("/")[0]

    def iter_entries(self, path: str) -> Iterator[tuple[str, PastEntry]]:
        """The names in a directory with what they are, in order."""
        prefix = f"{path}/" if path else ""
        names = list(self.iter_names(path))
        if len(names) >= _MANY:
            with suppress(Corrupt, OSError):  # gone now, or not a directory: each is looked up below
                self._infos = {prefix + name: info for name, info in self.core.disk.scan(path)}
        try:
            for name in names:
                entry = self.find(prefix + name)
                if entry is not None:
                    yield name, entry
        finally:
            self._infos = {}

    # -- entries ---------------------------------------------------------------------------------------

    def _stat(self, live_path: str) -> os.stat_result | None:
        return self._infos.get(live_path) or self.core.disk.stat(live_path)

    def _directory(self, path: str, live_path: str) -> PastDir:
        info = self._stat(live_path) if not live_path.startswith(layout.PRIVATE) else None
        is_there = info is not None and stat.S_ISDIR(info.st_mode)
        is_part = live_path == path and not is_there  # a directory that no session has now
        if is_there and info is not None:
            return PastDir(self._time(path), stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid))
        return PastDir(self._time(path), self.core.disk.dir_mode if is_part and not path else _PRIVATE_DIR)

    def _time(self, path: str) -> int:
        """The time of the newest version at or below a directory."""
        if path not in self._times:
            own = self.places[path].mtime_ns if path in self.places else 0
            below = (self.places[self._paths[index]].mtime_ns for index in self._range(path))
            self._times[path] = max(own, max(below, default=0))
        return self._times[path]

    def _document(self, place: _Place, name: str) -> PastFile | None:
        return self._file(place, f"{place.live_path}/{name}", is_side=name == layout.RUNTIME)

    def _file(self, place: _Place, live_path: str, *, is_side: bool = False) -> PastFile | None:
        version = place.version
        if version is None:
            return self._live_file(live_path, is_side=is_side)
        size = version.side_bytes if is_side else version.main_bytes
        if size is None:
            return None
        info = self.core.disk.stat(live_path) if not live_path.startswith(layout.PRIVATE) else None
        mode, owner = _permissions(info if info is not None and stat.S_ISREG(info.st_mode) else None)
        return PastFile(size, version.at_ns, mode, f"{version.key} {is_side}", version, live_path, is_side, owner)

    def _live_file(self, path: str, *, is_side: bool = False) -> PastFile | None:
        """A file that has not changed since the moment."""
        info = self.core.disk.stat(path)
        if info is None or not stat.S_ISREG(info.st_mode) or info.st_ctime_ns > self.at_ns:
            return None
        mode, owner = _permissions(info if not path.startswith(layout.PRIVATE) else None)
        identity = repr(tuple(Stamp.of(info)))
        return PastFile(info.st_size, info.st_mtime_ns, mode, identity, None, path, is_side, owner)

    # -- attachments -----------------------------------------------------------------------------------

    def _attachments_of(self, path: str) -> PastEntry | None:
        """`attachments` of a session, or a file in it."""
        parts = path.split("/")
        for depth in (1, 2):
            owner, rest = "/".join(parts[:-depth]), parts[-depth:]
            if rest[0] == layout.ATTACHMENTS and self._is_session(owner):
                live = f"{self.places[owner].live_path}/{'/'.join(rest)}"
                if depth == 2:
                    return self._live_file(live)
                return self._directory(owner, live) if self._live_directory(live) else None
        return None

    def _live_directory(self, path: str) -> bool:
        info = self.core.disk.stat(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _attached(self, place: _Place) -> Iterator[str]:
        try:
            found = self.core.disk.scan(f"{place.live_path}/{layout.ATTACHMENTS}")
        except (Corrupt, OSError):  # a link or a file, which `check` reports: it holds no attachments
            return
        for name, info in found:
            if stat.S_ISREG(info.st_mode) and info.st_ctime_ns <= self.at_ns and layout.is_text(name):
                yield name

    # -- content ---------------------------------------------------------------------------------------

    def read(self, file: PastFile) -> bytes:
        """The bytes of a file. Raises NotFound if they are gone: purged, or changed since the lookup."""
        if file.version is not None:
            data = self.core.history.read_document(file.version, is_side=file.is_side)
        else:
            found = self.core.disk.read(file.live_path)
            is_same = found is not None and repr(tuple(found.stamp)) == file.identity
            data = found.data if found is not None and is_same else None
        if data is None:
            raise NotFound(f"{file.live_path} of that time is not kept any more")
        return data

    def open(self, file: PastFile) -> int:
        """A descriptor of a live file, which may be too large to be read as a whole."""
        return self.core.disk.open_to_read(file.live_path)


@dataclass(frozen=True)
class Moments:
    """Past states of a home."""

    core: Core

    def is_kept(self, at_ns: int) -> bool:
        """Whether there is anything to show: not in the future, and not before the oldest version."""
        oldest_ns = self.core.history.oldest_ns()
        return at_ns <= now_ns() and (oldest_ns is None or at_ns >= oldest_ns)

    def tree(self, at_ns: int) -> PastTree:
        places: dict[str, _Place] = {}
        for path, version in self.core.history.paths_at(at_ns):
            is_session = is_session_dir(path)
            if version.main_bytes is not None and layout.is_text(path) and (is_session or place_of(path) is not None):
                places[path] = _Place(version, version.path, version.at_ns, is_session)
        for location in self._unrecorded():
            path = location.dir
            info = self.core.disk.stat(f"{path}/{layout.SESSION}")
            if info is not None and info.st_ctime_ns <= at_ns:
                places[path] = _Place(None, path, info.st_mtime_ns, is_session=True)
        return PastTree(self.core, at_ns, places)

    def _unrecorded(self) -> Iterator[Location]:
        """The sessions whose present documents are not in the history."""
        known = set(self.core.history.paths_up_to_date(layout.SESSIONS))
        rows: list[tuple[Any, ...]] = self.core.db.reader.execute("SELECT root, child FROM sessions").fetchall()
        for root, child in rows:
            location = Location(root, child or None)
            if location.dir not in known:
                yield location

    def take_snapshot(self, name: str, progress: Progress | None = None) -> Snapshot:
        """Name this moment. Sessions whose documents are not in the history are recorded first.

        Without that, an edit by another program or a deletion would take them from the snapshot. Raises
        AlreadyExists if the name is in use, Busy if such a session is locked for long.
        """
        check_snapshot_name(name)
        found = list(self._unrecorded())
        for done, location in enumerate(found, 1):
            with self.core.locked(location):
                # The snapshot itself is synced, and everything that was recorded before with it.
                is_recorded = self.core.history.observe(location.dir, is_synced=False)
            if not is_recorded:
                raise HistoryUnusable(f"no snapshot was made: {self.core.history.state().problem}")
            if progress is not None:
                progress(done, len(found))
        return self.core.history.add_snapshot(name)


def check_snapshot_name(name: str) -> str:
    """Raise InvalidName if it cannot be the name of a link in a mount."""
    is_plain = name.isprintable() and layout.is_text(name) and "/" not in name and not name.startswith((".", "-"))
    if not name or not is_plain or len(name.encode()) > layout.MAX_NAME_BYTES:
        raise InvalidName(
            f"{name!r} cannot be the name of a snapshot: expected a file name without a leading dot or dash"
        )
    return name
