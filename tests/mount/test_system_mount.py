"""Mounts by the system, from /etc/fstab or a systemd unit; and backups of a mounted home."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from store import Store
from store.transfer.backup.backup import check
from tests.builders import files_below
from tests.mount.conftest import CODE, Mount, grovefs, wait_until

ROOT = Path(__file__).parents[2]


OPTIONS = "ro,nosuid,noatime,noauto,nofail,x-systemd.automount"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can call mount(8)")


@pytest.fixture
def command(place: Path) -> Path:
    """The command, at a path where mount(8) does not search."""
    script = place / "bin/grovefs"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -c "{CODE}" "$@"\n')
    script.chmod(0o755)
    return script


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)


def is_served(mountpoint: Path) -> bool:
    """Whether a daemon is running, by any command line: mount(8) does not pass `mount`."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.fsencode(mountpoint) in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


def check_mounted(mountpoint: Path, mounts: str) -> None:
    """Check that it is mounted read-only and with the kernel's mount options."""
    [line] = [line for line in mounts.splitlines() if f" {mountpoint} " in line]
    assert line.split()[2] == "fuse.grovefs"
    assert {"ro", "nosuid", "noatime"} <= {*line.split()[3].split(",")}


@needs_root
def test_fstab_line_mounts_the_home(filled: Path, place: Path, command: Path) -> None:
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    (place / "fstab").write_text(f"{command}#{filled} {mountpoint} fuse {OPTIONS} 0 0\n")
    result = run("mount", "-T", place / "fstab", mountpoint)
    assert result.returncode == 0, result.stderr
    try:
        assert json.loads((mountpoint / "sessions/root/session.json").read_text())["title"] == "The root"
        with pytest.raises(OSError, match="Read-only"):
            (mountpoint / "sessions/root/note").write_text("x")
        check_mounted(mountpoint, Path("/proc/mounts").read_text())
    finally:
        assert run("umount", mountpoint).returncode == 0
    wait_until(lambda: not is_served(mountpoint), timeout_s=60)


@needs_root
def test_mount_supports_the_type_fuse_grovefs(filled: Path, place: Path, command: Path) -> None:
    """With the command in mount(8)'s search path, in a mount namespace of this test."""
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    program = f"""
        mount -t tmpfs none /usr/local/sbin
        cp {command} /usr/local/sbin
        ! mount -t fuse.grovefs {filled} {mountpoint} -o r0 2>&1 || exit 1
        mount -t fuse.grovefs {filled} {mountpoint} -o {OPTIONS}
        cat /proc/mounts
        test -f {mountpoint}/sessions/root/session.json
        umount {mountpoint}
    """
    result = run("unshare", "--mount", "sh", "-e", "-c", program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "unknown mount option 'r0'" in result.stdout
    check_mounted(mountpoint, result.stdout)
    wait_until(lambda: not is_served(mountpoint), timeout_s=60)


def test_notify_unit_is_ready_when_mounted_and_stops_on_sigterm(filled: Path, place: Path) -> None:
    """As systemd does: start in the foreground, wait for readiness, end with SIGTERM."""
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(str(place / "notify"))
        door.settimeout(60)
        words = [sys.executable, "-m", "fusefs.cli", "mount", "--foreground", "--home", str(filled), str(mountpoint)]
        environment = {**os.environ, "NOTIFY_SOCKET": str(place / "notify")}
        with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                assert door.recv(100) == b"READY=1"
                wait_until(lambda: (mountpoint / "sessions/root/session.json").exists())
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
    assert not os.path.ismount(mountpoint)


def test_mounted_home_can_be_backed_up_and_restored(mounted: Mount, place: Path) -> None:
    dest = place / "backup"
    (mounted.sessions / "root/note").write_text("through the mount")
    result = grovefs("backup", "--home", mounted.home, dest)
    assert result.returncode == 0, result.stderr
    assert files_below(dest) == files_below(mounted.home)
    shutil.rmtree(mounted.sessions / "root")
    wait_until(lambda: not (mounted.home / "sessions/root").exists())
    result = grovefs("restore", "--home", mounted.home, dest, "root")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "3 restored, 0 same, 0 kept, 0 skipped")
    wait_until(lambda: (mounted.sessions / "root/note").exists())
    assert (mounted.sessions / "root/note").read_text() == "through the mount"
    assert json.loads((mounted.sessions / "root/children/child/session.json").read_text())["title"] == "A child"
    assert (mounted.path / "search/from the child").exists()
    refused = grovefs("backup", "--home", mounted.home, mounted.sessions / "root/backup")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "is inside a GroveFS mount" in refused.stderr


def test_rsync_copy_of_a_mount_can_be_restored(mounted: Mount, place: Path) -> None:
    """The virtual files that a mount adds are left out."""
    dest, second = place / "copy", place / "second"
    subprocess.run(["rsync", "-a", f"{mounted.path}/", f"{dest}/"], check=True, timeout=60)
    with Store.open(second, background=False) as store:
        summary = store.restore(dest)
        assert (summary.has_manifest, summary.counts["skipped"]) == (False, 0)
        assert files_below(second) == files_below(mounted.home)
        store.backup(place / "backup")
    assert check(place / "backup") == []
