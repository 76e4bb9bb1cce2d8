"""The watchdog's child: when it aborts a connection, and when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.daemon import fuse_connection

ROOT = Path(__file__).parents[3]
# The child, with an abort that leaves a file instead.
CHILD = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
from fusefs.daemon import fuse_connection, watchdog
fuse_connection.abort = lambda mountpoint, number: Path(mountpoint, "aborted").write_text(str(number))
fuse_connection.find_number = lambda mountpoint: 7
watchdog.main()
"""
# A daemon whose main thread has ended and whose other thread never does. The thread starts the child.
DAEMON = """
import ctypes, os, subprocess, sys, threading, time
def later():
    while not started.is_set():
        time.sleep(0.01)
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    start()
def start():
    child = subprocess.Popen([sys.executable, "-c", CHILD, ROOT, str(os.getpid()), PLACE], stdin=subprocess.PIPE)
    os.write(child.stdin.fileno(), b"m")
    open(PLACE + "/child", "w").write(str(child.pid))
    time.sleep(600)
CHILD, ROOT, PLACE = sys.argv[1:4]
started = threading.Event()
threading.Thread(target=later).start()
started.set()
ctypes.CDLL(None).syscall(EXIT, 0)
"""
SOON_S = 30.0


def wait_until(is_true: Callable[[], object]) -> None:
    ends = time.monotonic() + SOON_S
    while not is_true():
        assert time.monotonic() < ends, "timeout"
        time.sleep(0.02)


@pytest.fixture
def halfdead(tmp_path: Path) -> Iterator[int]:
    """A process without a main thread; its watchdog was started by another thread after that one ended."""
    exit_call = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    code = DAEMON.replace("EXIT", str(exit_call))
    process = subprocess.Popen([sys.executable, "-c", code, CHILD, str(ROOT), str(tmp_path)])
    try:
        wait_until((tmp_path / "child").exists)
        wait_until(lambda: (tmp_path / "child").read_text())
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a9_main_thread_that_ended_before_the_child_started(halfdead: int, tmp_path: Path) -> None:
    """The kernel sends no signal for it, and the parent is still the same process."""
    wait_until((tmp_path / "aborted").exists)
    wait_until(lambda: (tmp_path / "aborted").read_text() == "7")
    child = int((tmp_path / "child").read_text())
    assert not fuse_connection.is_gone(child), "it watches as long as a thread is left"
    os.kill(halfdead, signal.SIGKILL)
    wait_until(lambda: fuse_connection.is_gone(child))
