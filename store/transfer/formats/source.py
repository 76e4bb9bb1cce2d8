"""A source to import from: a directory or a single file, opened read-only.

Links inside it are never followed; only the path given by the user may be a link. Anything but plain files and
directories is ignored. Large files are read in chunks or lines.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, NamedTuple, Self, cast

from store.disk.disk import Disk
from store.disk.file import DirEntry
from store.errors import Corrupt, InvalidContent, NotFound, Problem
from store.transfer.formats.file_position import FilePosition

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_LEVELS = 32  # of nested directories; no agent stores sessions deeper
_CHUNK_BYTES = 1024 * 1024
_SAMPLE_BYTES = 4 * 1024 * 1024  # read from a file to recognise its format
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Line(NamedTuple):
    """One line of a file without its newline; `data` is None if it is longer than MAX_LINE_BYTES."""

    number: int
    data: bytes | None


class Source:
    """A directory or file to import from. `name` is the single file to read; None for the whole directory."""

    root: Path
    name: str | None
    done_bytes: int  # read so far, for progress
    links: set[str]  # links found and not followed
    unreadable: dict[str, str]  # directories that could not be listed, and why

    def __init__(self, path: str | os.PathLike[str]) -> None:
        place = Path(path).expanduser()
        if not place.exists():
            raise NotFound(f"no such file or directory: {place}")
        place = place.resolve()
        self.name = None if place.is_dir() else place.name
        self.root = place if self.name is None else place.parent
        self.done_bytes = 0
        self.links = set()
        self.unreadable = {}
        self._disk = Disk(self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk.close()

    # -- listing ---------------------------------------------------------------------------------------

    def entries(self, path: str = "") -> list[DirEntry]:
        """The entries of a directory sorted by name; empty if it does not exist or cannot be read.

        One that exists and cannot be read is noted in `unreadable`.
        """
        if path == "" and self.name is not None:
            return [entry for entry in self._listed("") if entry.name == self.name]
        return self._listed(path)

    def _listed(self, path: str) -> list[DirEntry]:
        try:
            found = sorted(self._disk.entries(path))
        except Corrupt:
            return []
        except OSError as error:
            if error.errno not in _ABSENT:
                self.unreadable[path] = error.strerror or str(error)
            return []
        self.links |= {f"{path}/{entry.name}" if path else entry.name for entry in found if entry.is_symlink}
        return found

    def iter_files(self, path: str = "", levels: int = MAX_LEVELS) -> Iterator[str]:
        """Yield every plain file below a directory, sorted by name: the order must not vary between runs."""
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

    def stamp(self, path: str) -> tuple[int, int, int]:
        """What changes when a file does: its size, time and inode; zeros if there is no file."""
        info = self._stat(path)
        return (info.st_size, info.st_mtime_ns, info.st_ino) if info else (0, 0, 0)

    def total_bytes(self, base: str) -> int:
        """The size of all files below `base`, or of the whole source if there is no such directory."""
        return sum(self.size(path) for path in self.iter_files(base if self.is_dir(base) else ""))

    def display_path(self, path: str) -> str:
        """The path as valid Unicode, for messages and metadata."""
        return os.fsencode(str(self.root / path)).decode(errors="replace")

    # -- reading ---------------------------------------------------------------------------------------

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Open a plain file. Anything else raises OSError; opening a pipe does not block."""
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
        """The content of a file. Raises InvalidContent above the limit."""
        with self.open_file(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidContent(path, Problem(f"larger than the limit of {limit} bytes"))
        self.done_bytes += len(data)
        return data

    def head(self, path: str, size: int = 64 * 1024) -> bytes:
        """The first bytes of a file; empty if it cannot be read."""
        try:
            with self.open_file(path) as file:
                return file.read(size)
        except OSError:
            return b""

    def iter_samples(self, paths: Iterable[str], count: int = 5) -> Iterator[bytes]:
        """Yield the content of the smallest files, to recognise a format; of a large file only the beginning."""
        for path in sorted(paths, key=self.size)[:count]:
            yield self.head(path, _SAMPLE_BYTES)

    def iter_chunks(self, path: str) -> Iterator[bytes]:
        with self.open_file(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def iter_lines(self, path: str, position: FilePosition | None = None) -> Iterator[Line]:
        """Yield the lines of a file that are not blank. A file named `.zst` is decompressed.

        `position` is moved to the end of each line before the line is yielded.
        """
        position = position or FilePosition()
        with self.open_file(path) as raw, _decompressed(raw, path) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                position.line += 1
                position.add(line)
                self.done_bytes += len(line)
                if len(line) > MAX_LINE_BYTES:
                    self._skip_line(file, position)
                    yield Line(position.line, None)
                elif not line.isspace():
                    yield Line(position.line, line.rstrip(b"\r\n"))

    def iter_new_lines(self, path: str, position: FilePosition) -> Iterator[Line]:
        """Yield the complete lines after `position`, which is moved to the end of each line."""
        with self.open_file(path) as file:
            file.seek(position.offset)
            while (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
                position.line += 1
                position.add(line)
                if line.strip():
                    yield Line(position.line, line.rstrip(b"\r\n"))

    def _skip_line(self, file: IO[bytes], position: FilePosition) -> None:
        while chunk := file.readline(_CHUNK_BYTES):
            position.add(chunk)
            self.done_bytes += len(chunk)
            if chunk.endswith(b"\n"):
                return


@contextmanager
def _decompressed(file: BinaryIO, path: str) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed if its name says that it is compressed."""
    if not path.endswith(".zst"):
        yield file
        return
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    try:
        with zstd.open(file, "rb") as plain:
            yield cast("IO[bytes]", plain)
    except (zstd.ZstdError, EOFError) as error:
        raise OSError(errno.EIO, f"cannot be decompressed: {error}", path) from None
