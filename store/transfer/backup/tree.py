"""A backup on disk: the files under their own paths, a manifest, and a journal.

Invariant: the manifest with the journal applied always describes the content of the backup, and every file in it is
complete. New files are written to `.grovefs-backup/tmp/`. When the files of some sessions are complete and synced, one
journal line names them all. Only then are they renamed to their paths. Recovery redoes the journal.

Readers never write. They read a file whose rename is pending from tmp/, so a backup on a read-only disk is usable.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from store import layout
from store.disk.disk import Disk, Step, no_step
from store.errors import Busy, Corrupt, InvalidName, NotFound, Problem
from store.transfer.backup import manifest
from store.transfer.backup.manifest import Manifest
from store.transfer.digests import HashedChunks

PRIVATE = ".grovefs-backup"
TMP = f"{PRIVATE}/tmp"
JOURNAL = f"{PRIVATE}/journal.jsonl"
LOCK = f"{PRIVATE}/lock"

Progress = Callable[[int, int], None]


class Damage(NamedTuple):
    """A file of a backup that differs from the manifest."""

    path: str
    reason: str


class BackupTree:
    """A backup open for reading. Without a manifest it is a plain tree: only names, sizes and times are known."""

    disk: Disk
    manifest: Manifest
    has_manifest: bool

    def __init__(self, place: Path, step: Step = no_step) -> None:
        self.disk = Disk(place, step=step)
        self._pending_moves: dict[str, str] = {}  # path → its current path under tmp/
        self._lock: int | None = None
        try:
            self._lock = self._take_lock()
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        return self.disk.home

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self.disk.close()

    def _take_lock(self) -> int | None:
        """Take a shared lock, which excludes writers. A missing or unreadable lock file means there is no writer."""
        try:
            fd = self.disk.open_to_read(LOCK)
        except (OSError, Corrupt):
            return None
        return lock_or_raise(fd, fcntl.LOCK_SH, self.path)

    def _read(self) -> None:
        file = self.disk.read(manifest.NAME)
        self.has_manifest = file is not None or self.disk.stat(JOURNAL) is not None
        self.manifest = manifest.parse(file.data, str(self.path / manifest.NAME)) if file else Manifest()
        try:
            for line in self._journal():
                self._apply(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(str(self.path / JOURNAL), Problem(f"not written by GroveFS: {error}")) from None

    def _apply(self, line: dict[str, Any]) -> None:
        """Apply a journal line to the manifest, whether or not its files have been renamed yet."""
        for path in line["gone"]:
            self.manifest.files.pop(manifest.check_path(path), None)
        for name in line["forgotten"]:
            self.manifest.sessions.pop(name, None)
        self.manifest.home = str(line["home"])
        self.manifest.files |= manifest.parse_files(line["files"])
        self.manifest.sessions |= manifest.parse_sessions(line["sessions"])
        moves = {path: temp for temp, path in line["moves"] if self.disk.stat(temp) is not None}
        self._pending_moves.update(moves)

    def _journal(self) -> list[dict[str, Any]]:
        """The complete lines of the journal. Nothing has been moved yet for an incomplete one."""
        file = self.disk.read(JOURNAL)
        lines = file.data.splitlines(keepends=True) if file else []
        found = []
        for line in lines:
            if line.endswith(b"\n"):
                with suppress(ValueError):  # zeros after a power loss; nothing was moved for that line either
                    found.append(json.loads(line))
        return found

    # -- reading -------------------------------------------------------------------------------------------

    def current_path(self, path: str) -> str:
        """The path a file is stored at now: its own, or one under tmp/ while its rename is pending."""
        return self._pending_moves.get(path, path)

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file piece by piece. What is not a plain file is Corrupt; links are not followed."""
        try:
            yield from self.disk.iter_chunks(self.current_path(path))
        except FileNotFoundError:
            raise Corrupt(path, Problem("missing")) from None
        except OSError as error:  # from the backup's disk, not the home's: only this file is affected
            raise Corrupt(path, Problem(error.strerror or str(error))) from error

    def verified_chunks(self, path: str) -> Iterator[bytes]:
        """The same, verified while reading: raises Corrupt at the end if the digest differs from the manifest."""
        hashed = HashedChunks(self.chunks(path))
        yield from hashed
        item = self.manifest.files.get(path)
        if item is not None and hashed.hexdigest() != item.sha256:
            raise Corrupt(str(self.path / path), Problem("content differs from what was backed up"))

    def find_damage(self, path: str) -> Damage | None:
        """The damage of a file in the manifest; None if it is unchanged since it was backed up."""
        item = self.manifest.files[path]
        try:
            if item.link is not None:
                target = read_link(self.disk, self.current_path(path))
                return None if target == item.link else Damage(path, "the link has another target")
            for _ in self.verified_chunks(path):
                pass
        except Corrupt as error:
            return Damage(path, error.problem.reason)
        except OSError as error:  # not a link
            return Damage(path, error.strerror or str(error))
        return None

    def iter_damages(self, paths: Iterable[str], progress: Progress | None = None) -> Iterator[Damage]:
        """Yield every file that differs from the manifest; progress is in bytes."""
        sizes = {path: self.manifest.files[path].size for path in paths}
        done, total = 0, sum(sizes.values())
        for path, size in sizes.items():
            found = self.find_damage(path)
            if found is not None:
                yield found
            done += size
            if progress is not None:
                progress(done, total)


# -- the directory of a backup -------------------------------------------------------------------------------------


def check_not_nested(place: Path, home: Path) -> None:
    """Raise InvalidName if one contains the other: such a backup would copy itself, or overwrite the home."""
    dest, source = place.resolve(), home.resolve()
    if dest == source or source in dest.parents:
        raise InvalidName(f"{place} is inside the home {home}; use a directory outside it, preferably on another disk")
    if dest in source.parents:
        raise InvalidName(f"the home {home} is inside {place}; use a directory outside it, preferably on another disk")


def is_grovefs_mount(place: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a directory is inside a GroveFS mount of any home."""
    device = os.stat(place).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    for line in mountinfo.read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        if before.split()[2:3] == [wanted] and after.split()[:1] == [b"fuse.grovefs"]:
            return True
    return False


@contextmanager
def open_backup(source: str | os.PathLike[str]) -> Iterator[BackupTree]:
    """Open a backup, or a plain copy of a home without a manifest."""
    place = Path(source).expanduser().absolute()
    if not place.is_dir():
        raise NotFound(f"no backup at {place}: no such directory")
    with BackupTree(place) as tree:
        if not tree.has_manifest and not _is_home(place):
            raise NotFound(
                f"{place} is neither a backup nor a home: it has no {manifest.NAME} and no session. "
                "To import the sessions of another agent, use `grovefs import`"
            )
        yield tree


def _is_home(place: Path) -> bool:
    """Whether a directory is a home, or a plain copy of one: other agents have directories of the same names."""
    if (place / layout.PRIVATE).is_dir() or (place / layout.INDEX_EXPORT).is_file():
        return True
    if any(path.is_file() for path in place.glob(f"{layout.STATE}/*/*.*")):
        return True
    return next(place.glob(f"{layout.SESSIONS}/*/{layout.SESSION}"), None) is not None


def read_link(disk: Disk, path: str) -> str:
    directory, _, name = path.rpartition("/")
    with disk.open_dir(directory) as parent:
        return os.readlink(name, dir_fd=parent)


def lock_or_raise(fd: int, kind: int, place: Path) -> int:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise Busy(f"the backup at {place} is in use by another process; try again later") from None
    return fd
