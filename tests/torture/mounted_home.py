"""A mounted home that outlives many examples, used next to the API of a second process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from store import Store
from store.layout import SESSIONS
from tests.mount.conftest import daemons_of, wait_until
from tests.torture.mounts import Mounted
from tests.torture.places import new_place

PATIENCE_S = 30.0  # for changes that must appear soon, on a busy machine


class MountedHome:
    """Always close it: then no mount, process or file is left."""

    def __init__(self, *options: str) -> None:
        self.base = new_place()
        self.options = options
        self.mounts: list[Mounted] = []
        self.store = Store.open(self.base / "home", background=False)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def sessions(self) -> Path:
        return self.mounts[0].path / SESSIONS

    def mount(self) -> Mounted:
        """Mount the home once more; the examples work in the first mount."""
        number = len(self.mounts)
        made = Mounted(self.home, self.base / f"mnt{number}", self.base / f"log{number}")
        made.path.mkdir()
        made.mount(*self.options)
        self.mounts.append(made)
        return made

    def end(self, mount: Mounted) -> None:
        """Unmount as a user does, with fusermount3 -u; the daemon is gone when this returns."""
        wait_until(lambda: _is_unmounted(mount.path), PATIENCE_S)
        wait_until(lambda: not daemons_of(mount.path), PATIENCE_S)

    def remount(self, mount: Mounted) -> None:
        self.end(mount)
        mount.mount(*self.options)

    def kill(self, mount: Mounted) -> None:
        """kill -9 the daemon and mount again once it is gone: a zombie still owns its files."""
        daemon = mount.daemon
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{daemon}"), PATIENCE_S)
        self.end(mount)
        mount.mount(*self.options)

    def revive(self) -> None:
        """Restore the mount for the next example after one failed half-way."""
        for mount in self.mounts:
            if not daemons_of(mount.path):
                self.end(mount)
                mount.mount(*self.options)

    def logged(self) -> str:
        """The log of the daemons."""
        return "".join(mount.log.read_text() for mount in self.mounts if mount.log.exists())

    def close(self) -> None:
        try:
            for mount in self.mounts:
                self.end(mount)
        finally:
            self.store.close()
        shutil.rmtree(self.base)


def _is_unmounted(path: Path) -> bool:
    """Try to unmount. A killed daemon's mount may be held open, and its death shows late."""
    try:
        flag = "-u" if os.path.ismount(path) else ""
        os.stat(path)
    except OSError:
        flag = "-uz"
    return not flag or subprocess.run(["fusermount3", flag, path], capture_output=True).returncode == 0


def read_tree(base: Path, start: str) -> dict[str, bytes | None]:
    """Every path below `base/start`, relative to base, with its content; None for a directory."""
    found: dict[str, bytes | None] = {start: None}
    with os.scandir(base / start) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{start}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                found |= read_tree(base, path)
            else:
                found[path] = (base / path).read_bytes()
    return found
