"""How soon commands and mounts start: CPU time compared with `import typer`, which every command line needs.

CPU time, because most of it is importing modules and other programs on the machine must not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from store import Message, Session, Store

from .rows import Row, Target, compare

HELP_TARGET = 2.5
COMMAND_TARGET = 2 * HELP_TARGET  # ls and search may take twice as long as --help
MOUNT_TARGET_MS = 5_000
_CLI = [sys.executable, "-m", "fusefs.cli"]


def measure_starting(place: Path, sessions: int, rounds: int) -> list[Row]:
    home = place / "home"
    _write_home(home, sessions)
    typer = _cpu_ms([sys.executable, "-c", "import typer"])

    def row(name: str, target: float, *arguments: str) -> Row:
        command = _cpu_ms([*_CLI, "--home", str(home), *arguments])
        return compare(name, command, "import typer", typer, Target(target), rounds)

    many = f"of {sessions:,} sessions"
    return [
        row("grovefs --help", HELP_TARGET, "--help"),
        row(f"grovefs ls {many}", COMMAND_TARGET, "ls"),
        row(f"grovefs search {many}", COMMAND_TARGET, "search", "number7"),
        _mount_row(home, place / "mnt", rounds),
    ]


def _write_home(home: Path, sessions: int) -> None:
    with Store.open(home, durability="normal", background=False) as store:
        for number in range(sessions):
            session = Session.new(f"s{number}", "some-model")
            session.add_message(Message.user(f"a question about number{number % 10}"))
            store.save(session)


def _cpu_ms(command: list[str]) -> Callable[[], float]:
    """User and system time of one run of the command."""

    def run() -> float:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        return (used.ru_utime + used.ru_stime) * 1e3

    return run


def _mount_row(home: Path, mountpoint: Path, rounds: int) -> Row:
    """From the start of the command to the first file read: its user waits for this, so it is not CPU time."""
    mountpoint.mkdir()
    samples = [_mount_once(home, mountpoint) for _ in range(rounds)]
    name, target = "grovefs mount until a file is read", Target(MOUNT_TARGET_MS)
    return Row(name, statistics.median(samples), target=target, samples=rounds)


def _mount_once(home: Path, mountpoint: Path) -> float:
    start = time.perf_counter()
    subprocess.run([*_CLI, "mount", "--home", str(home), str(mountpoint)], check=True, capture_output=True)
    (mountpoint / "sessions/s0/session.json").read_bytes()
    elapsed_ms = (time.perf_counter() - start) * 1e3
    subprocess.run([*_CLI, "umount", str(mountpoint)], check=True, capture_output=True)
    return elapsed_ms
