"""A backup on disk: the files under their own names, a manifest, and what makes an interrupted run harmless.

The one law: at every moment the manifest, with the journal applied, tells what the backup holds, and each file in it
is whole. New files gather under `.grovefs-backup/tmp/`; when those of some sessions are complete and synced, one line
in the journal names them all; only then are they moved to their names. Recovery is redo. Who reads does not write: a
file whose move is outstanding is read from where it lies, so a backup on a read-only disk can be used all the same.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from store import layout
from store.disk.disk import Disk, Step, no_step
from store.disk.file_io import iter_chunks
from store.errors import Busy, Corrupt, InvalidName, NotFound, Problem
from store.transfer.backup import manifest
from store.transfer.backup.manifest import Manifest

PRIVATE = ".grovefs-backup"
TMP = f"{PRIVATE}/tmp"
JOURNAL = f"{PRIVATE}/journal.jsonl"
LOCK = f"{PRIVATE}/lock"

Progress = Callable[[int, int], None]


class Damage(NamedTuple):
    """A file of a backup that is not what the manifest says."""

    path: str
    reason: str


class BackupTree:
    """A backup as one reads it. One without a manifest is a plain tree, of which only the names are known."""

    disk: Disk
    manifest: Manifest
    has_manifest: bool

    def __init__(self, place: Path, step: Step = no_step) -> None:
        self.disk = Disk(place, step=step)
        self._outstanding: dict[str, str] = {}  # path → where it still lies
        self._lock: int | None = None
        try:
            self._lock = self._locked()
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> Path:
        return self.disk.home

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self.disk.close()

    def _locked(self) -> int | None:
        """Nobody writes meanwhile. Where there is no lock to be had nobody can write either."""
        try:
            fd = self.disk.open_to_read(LOCK)
        except (OSError, Corrupt):
            return None
        return flock(fd, fcntl.LOCK_SH, self.place)

    def _read(self) -> None:
        file = self.disk.read(manifest.NAME)
        self.has_manifest = file is not None or self.disk.stat(JOURNAL) is not None
        self.manifest = manifest.parse(file.data, str(self.place / manifest.NAME)) if file else Manifest()
        try:
            for line in self._journal():
                self._apply(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(str(self.place / JOURNAL), Problem(f"this was not written by GroveFS: {error}")) from None

    def _apply(self, line: dict[str, Any]) -> None:
        """What was announced holds, moved or not."""
        for path in line["gone"]:
            self.manifest.files.pop(manifest.check_path(path), None)
        for name in line["forgotten"]:
            self.manifest.sessions.pop(name, None)
        self.manifest.home = str(line["home"])
        self.manifest.files |= manifest.parse_files(line["files"])
        self.manifest.sessions |= manifest.parse_notes(line["sessions"])
        moves = {path: temp for temp, path in line["moves"] if self.disk.stat(temp) is not None}
        self._outstanding.update(moves)

    def _journal(self) -> list[dict[str, Any]]:
        """The lines that were written to the end: of another one nothing has been done yet."""
        file = self.disk.read(JOURNAL)
        lines = file.data.splitlines(keepends=True) if file else []
        found = []
        for line in lines:
            if line.endswith(b"\n"):
                with suppress(ValueError):  # a hole that a loss of power left: nothing of it was done either
                    found.append(json.loads(line))
        return found

    # -- reading -------------------------------------------------------------------------------------------

    def where(self, path: str) -> str:
        """Where a file lies now."""
        return self._outstanding.get(path, path)

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file piece by piece. What is not a plain file is Corrupt; links are not followed."""
        try:
            fd = self.disk.open_to_read(self.where(path))
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise Corrupt(path, Problem("not a plain file"))
                yield from iter_chunks(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise Corrupt(path, Problem("it is missing")) from None
        except OSError as error:  # of the backup's disk, not of the home's: its own file's fault
            raise Corrupt(path, Problem(error.strerror or str(error))) from error

    def sure_chunks(self, path: str) -> Iterator[bytes]:
        """The same, checked against the manifest while it is read: Corrupt at its end if it is another file."""
        digest = hashlib.sha256()
        for chunk in self.chunks(path):
            digest.update(chunk)
            yield chunk
        item = self.manifest.files.get(path)
        if item is not None and digest.hexdigest() != item.sha256:
            raise Corrupt(str(self.place / path), Problem("its bytes are not those that were backed up"))

    def damage(self, path: str) -> Damage | None:
        """What is wrong with a file of the manifest; None if it is as it was backed up."""
        item = self.manifest.files[path]
        try:
            if item.link is not None:
                said = read_link(self.disk, self.where(path))
                return None if said == item.link else Damage(path, "the link says something else")
            for _ in self.sure_chunks(path):
                pass
        except Corrupt as error:
            return Damage(path, error.problem.reason)
        except OSError as error:  # no link there
            return Damage(path, error.strerror or str(error))
        return None

    def damages(self, paths: Iterable[str], progress: Progress | None = None) -> Iterator[Damage]:
        """Every file that is not what the manifest says; progress is in bytes."""
        sizes = {path: self.manifest.files[path].size for path in paths}
        done, total = 0, sum(sizes.values())
        for path, size in sizes.items():
            found = self.damage(path)
            if found is not None:
                yield found
            done += size
            if progress is not None:
                progress(done, total)


# -- where a backup may be -------------------------------------------------------------------------------------


def check_apart(place: Path, home: Path) -> None:
    """A backup inside the home would back itself up, and one around it would be in its own way."""
    dest, source = place.resolve(), home.resolve()
    if dest == source or source in dest.parents:
        raise InvalidName(f"{place} lies inside the home {home}; a backup belongs elsewhere, best on another disk")
    if dest in source.parents:
        raise InvalidName(f"the home {home} lies inside {place}; a backup belongs elsewhere, best on another disk")


def is_grove(place: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a directory is shown by a mount of ours, of whatever home."""
    device = os.stat(place).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    for line in mountinfo.read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        if before.split()[2:3] == [wanted] and after.split()[:1] == [b"fuse.grovefs"]:
            return True
    return False


@contextmanager
def reading(source: str | os.PathLike[str]) -> Iterator[BackupTree]:
    """A backup, or a plain tree that was made by other means."""
    place = Path(source).expanduser().absolute()
    if not place.is_dir():
        raise NotFound(f"there is no backup at {place}")
    with BackupTree(place) as tree:
        if not tree.has_manifest and not any(tree.disk.stat(part) is not None for part in layout.STORED):
            raise NotFound(f"{place} is no backup: it has neither {manifest.NAME} nor {layout.SESSIONS}/")
        yield tree


def read_link(disk: Disk, path: str) -> str:
    directory, _, name = path.rpartition("/")
    with disk.open_dir(directory) as parent:
        return os.readlink(name, dir_fd=parent)


def flock(fd: int, kind: int, place: Path) -> int:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise Busy(f"a backup into {place} is under way, or it is being read; try again when that is done") from None
    return fd
