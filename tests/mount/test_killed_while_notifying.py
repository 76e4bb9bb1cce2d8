"""A daemon killed while it notifies the kernel leaves no process waiting for its answer.

To invalidate a name the kernel takes the lock of its directory. A rename there holds that lock until it is answered. A
thread waiting for the lock cannot be killed and keeps the connection open, so the rename waits for a dead daemon.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusefs.daemon import fuse_connection
from tests.mount.conftest import Mount, daemons_of, grovefs, wait_until

# The command, but a rename blocks at its durable step as long as a file exists.
HELD = """
import os, sys, time
from fusefs.daemon import mount
from fusefs.cli import main
from store import Store
hold, held = sys.argv.pop(1), sys.argv.pop(1)

class Held(Store):
    @classmethod
    def open(cls, home, **options):
        return super().open(home, step=stay, **options)

def stay(step):
    while step == "move" and os.path.exists(hold):
        open(held, "w").close()
        time.sleep(0.01)

mount.Store = Held
main()
"""
SOON_S = 30.0


@dataclass
class Stuck:
    """A deadlock: a rename waits for a daemon, and a thread of that daemon waits for the rename."""

    home: Path
    mountpoint: Path
    daemon: int
    guards: list[int]
    rename: subprocess.Popen[str]

    def is_free(self) -> bool:
        return self.rename.poll() is not None


def watchdogs_of(daemon: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()]


def states_of(daemon: int) -> set[str]:
    tasks = Path(f"/proc/{daemon}/task").iterdir()
    return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}


@pytest.fixture
def stuck(filled: Path, place: Path) -> Iterator[Stuck]:
    mountpoint, hold, held = place / "mnt", place / "hold", place / "held"
    mountpoint.mkdir()
    command = [
        sys.executable,
        "-c",
        HELD,
        hold,
        held,
        "mount",
        "--home",
        filled,
        "--log-file",
        place / "log",
        mountpoint,
    ]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    (daemon,) = daemons_of(mountpoint)
    session = mountpoint / "sessions/root"
    (session / "known").write_text("to the kernel")
    (session / "new.json").write_bytes((session / "session.json").read_bytes().replace(b"The root", b"Renamed"))
    hold.touch()
    code = "import os, sys; os.rename(sys.argv[1] + '/new.json', sys.argv[1] + '/session.json')"
    rename = subprocess.Popen([sys.executable, "-c", code, session], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(held.exists, SOON_S)
        (filled / "sessions/root/other").write_text("behind its back")
        os.replace(filled / "sessions/root/other", filled / "sessions/root/known")
        wait_until(lambda: "D" in states_of(daemon), SOON_S)
        yield Stuck(filled, mountpoint, daemon, watchdogs_of(daemon), rename)
    finally:
        hold.unlink()
        if rename.poll() is None:  # otherwise it never ends
            subprocess.run(["umount", "-f", mountpoint], capture_output=True)
        rename.communicate(timeout=SOON_S)
        if fuse_connection.find_number(mountpoint) is not None:
            subprocess.run(["fusermount3", "-uz", mountpoint], check=True)
        wait_until(lambda: not daemons_of(mountpoint), SOON_S)


def orphaned(stuck: Stuck) -> None:
    """The daemon is killed without a watchdog, so nothing releases the waiting rename."""
    for pid in (*stuck.guards, stuck.daemon):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: fuse_connection.daemon_is_dead(stuck.mountpoint), SOON_S)
    assert not stuck.is_free()


def test_waiting_rename_is_released(stuck: Stuck) -> None:
    """Afterwards the mountpoint does not accept writes meant for the mount."""
    assert len(stuck.guards) == 1
    os.kill(stuck.daemon, signal.SIGKILL)
    wait_until(stuck.is_free, SOON_S)
    assert "Software caused connection abort" in stuck.rename.communicate()[1]
    with pytest.raises(OSError, match="not connected"):
        (stuck.mountpoint / "x").touch()
    wait_until(lambda: fuse_connection.is_gone(stuck.guards[0]), SOON_S)


def test_a9_repeated_signals_do_not_end_the_watchdog(stuck: Stuck) -> None:
    """The kernel signals the end of each thread that the watchdog was handed to, not only of the main thread."""
    for _ in range(3):
        os.kill(stuck.guards[0], signal.SIGUSR1)
        time.sleep(0.1)  # one by one: the kernel merges pending signals
    os.kill(stuck.daemon, signal.SIGKILL)
    wait_until(stuck.is_free, SOON_S)


def test_umount_releases_a_waiting_rename(stuck: Stuck) -> None:
    orphaned(stuck)
    assert f"DEAD     {stuck.mountpoint}: " in grovefs("status", "--home", stuck.home).stdout
    result = grovefs("umount", stuck.mountpoint)
    assert (result.returncode, result.stderr) == (0, "")
    wait_until(stuck.is_free, SOON_S)
    assert fuse_connection.find_number(stuck.mountpoint) is None


def test_next_mount_releases_a_waiting_rename(stuck: Stuck) -> None:
    orphaned(stuck)
    result = grovefs("mount", "--home", stuck.home, stuck.mountpoint)
    assert (result.returncode, result.stderr) == (0, "")
    wait_until(stuck.is_free, SOON_S)
    assert (stuck.mountpoint / "sessions/root/known").read_text() == "behind its back"


def test_watchdog_ends_with_its_daemon(mounted: Mount) -> None:
    (daemon,) = daemons_of(mounted.path)
    (guard,) = watchdogs_of(daemon)
    assert grovefs("umount", mounted.path).returncode == 0
    wait_until(lambda: fuse_connection.is_gone(guard), SOON_S)
