"""The machine a benchmark runs on: its description, and a temporary directory on a real disk."""

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
from typing import Any, Literal

import typer

DURABILITY: Literal["full"] = "full"
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
    """The type of the filesystem that holds `path`."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    around = [(len(m[1]), i, m[2]) for i, m in enumerate(mounts) if path.resolve().is_relative_to(m[1])]
    return max(around)[2]


@contextmanager
def workplace(parent: Path | None) -> Iterator[Path]:
    """A temporary directory on a real disk; removed afterwards, also after SIGTERM or SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    parent = parent or Path(tempfile.gettempdir())
    if filesystem_of(parent) in ("tmpfs", "ramfs"):
        raise typer.BadParameter(
            f"{parent} is in memory, where fsync costs nothing; choose another directory with --dir"
        )
    path = Path(tempfile.mkdtemp(prefix="grovefs-bench-", dir=parent))
    try:
        yield path
    finally:
        with undisturbed():
            shutil.rmtree(path)


@contextmanager
def undisturbed() -> Iterator[set[signal.Signals]]:
    """Delay signals, such as a second Ctrl-C during cleanup; yields the signal mask from before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
