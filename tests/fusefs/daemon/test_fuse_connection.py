"""FUSE connections: parsing of mountinfo and the states of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fusefs.daemon import fuse_connection
from fusefs.daemon.fuse_connection import Mounted, find_number, is_gone, is_zombie_with_threads, iter_mounted

MOUNTINFO = b"""\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:51 / /home/me/my\\040grove rw,nosuid,nodev - fuse.grovefs grovefs rw,user_id=1000
41 22 0:52 / /mnt/other rw,nosuid - fuse.sshfs host: rw
42 22 0:53 / /mnt/read ro,nosuid - fuse.grovefs grovefs ro
"""


def test_only_our_mounts_are_listed() -> None:
    """Spaces in paths are octal escapes. The minor device number is the connection number."""
    assert list(iter_mounted(MOUNTINFO)) == [
        Mounted(Path("/home/me/my grove"), 51, False),
        Mounted(Path("/mnt/read"), 53, True),
    ]


def test_topmost_mount_of_a_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_bytes(MOUNTINFO + b"43 42 0:54 / /mnt/read rw - fuse.grovefs grovefs rw\n")
    monkeypatch.setattr(fuse_connection, "MOUNTINFO", mountinfo)
    assert find_number(Path("/mnt/read")) == 54
    assert find_number(Path("/mnt/other")) is None


def test_plain_directory_is_not_dead(tmp_path: Path) -> None:
    assert fuse_connection.state_of(tmp_path) == "mounted"
    assert not fuse_connection.daemon_is_dead(tmp_path)


def test_silent_mount_does_not_block_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_connection, "ANSWER_S", 0.01)
    monkeypatch.setattr(fuse_connection, "_ask", lambda _: time.sleep(1))
    assert fuse_connection.state_of(tmp_path) == "silent"


def test_ended_process_is_gone_even_as_a_zombie() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_gone(process.pid)
    assert not is_zombie_with_threads(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(process.pid)
    process.wait()
    assert is_gone(process.pid)


def test_connection_is_aborted_through_fusectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_connection, "CONNECTIONS", tmp_path)
    (tmp_path / "51").mkdir()
    assert fuse_connection.abort(Path("/mnt/read"), 51)
    assert (tmp_path / "51/abort").read_bytes() == b"1"
    assert not fuse_connection.abort(tmp_path / "not mounted", 52)
