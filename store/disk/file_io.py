"""Reading and writing whole files through descriptors, in chunks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

CHUNK_BYTES = 1 << 20
# The filesystem cannot copy by itself.
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def iter_chunks(fd: int, end: int | None = None, start: int = 0) -> Iterator[bytes]:
    """Yield a regular file from `start` to the offset `end`, or to its end.

    The file offset of `fd` is neither used nor moved. Yields less if the file is shorter than
    `end`.
    """
    offset = start
    while chunk := os.pread(fd, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - offset), offset):
        yield chunk
        offset += len(chunk)


def read_all(fd: int, size: int) -> bytes:
    """The bytes from the current offset to the end of the file; `size` is the expected length."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    parts = [data]  # the file grew or shrank after fstat, or exceeds what one read returns (2 GiB)
    while data:
        data = os.read(fd, CHUNK_BYTES)
        parts.append(data)
    return b"".join(parts)


def write_all(fd: int, parts: Iterable[bytes | memoryview]) -> None:
    """Write every byte of `parts` in order; os.write may accept only the beginning of a buffer."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]


def copy_file(source: int, target: int, size: int) -> None:
    """Copy the first `size` bytes of a file to an empty one.

    Holes stay holes. Where the filesystem can share blocks between files, none is read or written.
    """
    os.ftruncate(target, size)
    offset = 0
    while offset < size:
        try:
            start = os.lseek(source, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        offset = min(os.lseek(source, start, os.SEEK_HOLE), size)
        _copy_range(source, target, start, offset)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end and (copied := _try_copy_range(source, target, start, end)):
        start += copied
    for chunk in iter_chunks(source, max(start, end), start):
        view = memoryview(chunk)
        while view:
            written = os.pwrite(target, view, start)
            view, start = view[written:], start + written


def _try_copy_range(source: int, target: int, start: int, end: int) -> int:
    try:
        return os.copy_file_range(source, target, end - start, start, start)
    except OSError as error:
        if error.errno in _NO_COPY_RANGE:
            return 0
        raise


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Atomically replace a file outside the home. A symbolic link at `path` is replaced, not followed.

    The file is synced before the rename; its directory is not. Without `mode` the umask decides.
    """
    temp = path.with_name(f".{uuid4()}.tmp")
    try:
        with temp.open("xb", buffering=0) as file:
            write_all(file.fileno(), [data])
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)
