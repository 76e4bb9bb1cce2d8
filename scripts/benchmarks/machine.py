"""The machine a bench runs on: where it may make its files, and what to say of it beside the numbers."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

DURABILITY = "full"
KB, MB = 1_000, 1_000_000


def machine_of(directory: Path) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "CPUs": os.cpu_count(),
        "filesystem": filesystem_of(directory),
        "durability": DURABILITY,
    }


def filesystem_of(path: Path) -> str:
    """The type of the filesystem that `path` lies on."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    around = [(len(m[1]), i, m[2]) for i, m in enumerate(mounts) if path.resolve().is_relative_to(m[1])]
    return max(around)[2]


@contextmanager
def workplace(parent: Path | None) -> Iterator[Path]:
    """A directory on a real disk, gone afterwards, also when the bench is told to stop."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    parent = parent or Path(tempfile.gettempdir())
    if filesystem_of(parent) in ("tmpfs", "ramfs"):
        raise typer.BadParameter(f"{parent} is in memory, where fsync costs nothing; name another with --dir")
    path = Path(tempfile.mkdtemp(prefix="grovefs-bench-", dir=parent))
    try:
        yield path
    finally:
        with undisturbed():
            shutil.rmtree(path)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Cleaning up is not to be cut short by a second Ctrl-C; it comes when this is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
