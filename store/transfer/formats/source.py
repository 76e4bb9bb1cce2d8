"""A source to import from: a directory or a single file, read only, and never left.

Links inside it are not followed, whatever they point to; only the path the user typed may be one. What
is not a plain file is passed over. Nothing here keeps more of a file in memory than is asked for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from store.disk.disk import Disk
from store.disk.file import DirEntry
from store.errors import Corrupt, InvalidContent, NotFound, Problem

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_LEVELS = 32  # directories below each other; deeper is not where any agent keeps sessions
_CHUNK_BYTES = 1024 * 1024
_SAMPLE_BYTES = 4 * 1024 * 1024  # of a file that is only to be recognised
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Line(NamedTuple):
    """One line of a file, without its newline; `data` is None where it is too long to be taken."""

    number: int
    data: bytes | None


class Source:
    """Where sessions come from. `name` is the one file that was asked for; None: the whole directory."""

    root: Path
    name: str | None
    done_bytes: int  # read so far: what a progress bar shows
    links: set[str]  # seen, and not followed

    def __init__(self, path: str | os.PathLike[str]) -> None:
        place = Path(path).expanduser()
        if not place.exists():
            raise NotFound(f"there is nothing at {place}")
        place = place.resolve()
        self.name = None if place.is_dir() else place.name
        self.root = place if self.name is None else place.parent
        self.done_bytes = 0
        self.links = set()
        self._disk = Disk(self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk.close()

    # -- looking ---------------------------------------------------------------------------------------

    def entries(self, path: str = "") -> list[DirEntry]:
        """What a directory holds, by name; nothing if it is none, or cannot be read."""
        if path == "" and self.name is not None:
            return [entry for entry in self._listed("") if entry.name == self.name]
        return self._listed(path)

    def _listed(self, path: str) -> list[DirEntry]:
        try:
            found = sorted(self._disk.entries(path))
        except (Corrupt, OSError):
            return []
        self.links |= {f"{path}/{entry.name}" if path else entry.name for entry in found if entry.is_symlink}
        return found

    def iter_files(self, path: str = "", levels: int = MAX_LEVELS) -> Iterator[str]:
        """Every plain file below a directory, in the order of names, so that two runs see the same."""
        for entry in self.entries(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.is_file:
                yield below
            elif entry.is_dir and levels > 1:
                yield from self.iter_files(below, levels - 1)

    def directories(self, path: str = "") -> list[str]:
        return [entry.name for entry in self.entries(path) if entry.is_dir]

    def is_file(self, path: str) -> bool:
        info = self._stat(path)
        return info is not None and stat.S_ISREG(info.st_mode)

    def is_dir(self, path: str) -> bool:
        info = self._stat(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return self._disk.stat(path)
        except (Corrupt, OSError):
            return None

    def size(self, path: str) -> int:
        info = self._stat(path)
        return info.st_size if info else 0

    def mtime_ns(self, path: str) -> int:
        info = self._stat(path)
        return info.st_mtime_ns if info else 0

    def total_bytes(self, base: str) -> int:
        """How much there is to read, below `base` if there is such a directory."""
        return sum(self.size(path) for path in self.iter_files(base if self.is_dir(base) else ""))

    def display_path(self, path: str) -> str:
        """A path as it can be printed and stored: names that are not Unicode are made so."""
        return os.fsencode(str(self.root / path)).decode(errors="replace")

    # -- reading ---------------------------------------------------------------------------------------

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """A plain file. A link, a pipe or a directory in its place is an OSError, and nothing hangs."""
        directory, _, name = path.rpartition("/")
        try:
            with self._disk.open_dir(directory) as parent:
                fd = os.open(name, _READ, dir_fd=parent)
        except Corrupt as error:
            raise OSError(errno.ELOOP, str(error), path) from None
        with os.fdopen(fd, "rb", buffering=_CHUNK_BYTES) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            yield file

    def read(self, path: str, limit: int = 256 * 1024 * 1024) -> bytes:
        """A file whole, up to a limit."""
        with self.open_file(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidContent(path, Problem(f"over the limit of {limit} bytes"))
        self.done_bytes += len(data)
        return data

    def head(self, path: str, size: int = 64 * 1024) -> bytes:
        """How a file begins: enough to recognise it by."""
        try:
            with self.open_file(path) as file:
                return file.read(size)
        except OSError:
            return b""

    def iter_samples(self, paths: Iterable[str], count: int = 5) -> Iterator[bytes]:
        """Some files out of many, the cheapest: what they hold says what they all are. Of a large one, its head."""
        for path in sorted(paths, key=self.size)[:count]:
            yield self.head(path, _SAMPLE_BYTES)

    def iter_chunks(self, path: str) -> Iterator[bytes]:
        with self.open_file(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def iter_lines(self, path: str) -> Iterator[Line]:
        """The lines of a file that are not blank, one at a time."""
        with self.open_file(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                self.done_bytes += len(line)
                if len(line) > MAX_LINE_BYTES:
                    yield Line(number, None)
                    self._skip_line(file)
                elif line.strip():
                    yield Line(number, line.rstrip(b"\r\n"))

    def _skip_line(self, file: BinaryIO) -> None:
        while piece := file.readline(_CHUNK_BYTES):
            self.done_bytes += len(piece)
            if piece.endswith(b"\n"):
                return
