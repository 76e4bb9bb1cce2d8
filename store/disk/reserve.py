"""The reserve: space that a home holds for the time when its disk is full.

Without it a full disk could neither be read nor be freed: SQLite needs space to open index.db, and a deletion needs
some for the trash and the index. An opening that finds the disk full deletes the reserve, and so does a deletion that
fails. Every opening creates it again when there is space.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from store import layout

RESERVE_BYTES = 1024 * 1024


def release_if_full(home: Path) -> None:
    """Delete the reserve of a home if hardly anything else can be written."""
    if _free_bytes(home) < RESERVE_BYTES:
        release(home)


def release(home: Path) -> bool:
    """Delete the reserve; False if there is none."""
    try:
        (home / layout.RESERVE).unlink()
    except OSError:  # there is none, or the disk is read-only: what the caller does next says why it fails
        return False
    return True


def is_full(directory: Path) -> bool:
    """Whether not even one block can be written: SQLite reports that as an input/output error."""
    return _free_bytes(directory) < 4096


def renew(home: Path) -> None:
    """Create the reserve if it is missing and there is space. Failing is not an error: it is only a precaution."""
    path = home / layout.RESERVE
    if path.exists() or _free_bytes(home) < 2 * RESERVE_BYTES:
        return
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:
            path.unlink()
        finally:
            os.close(fd)


def _free_bytes(home: Path) -> int:
    info = os.statvfs(home)
    return info.f_bavail * info.f_frsize
