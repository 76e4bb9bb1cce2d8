"""A really mounted home that outlives many examples, with the API of a second process beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from store import Store
from store.layout import SESSIONS
from tests.mount.conftest import Mount, daemons_of, grovefs, wait_until

PATIENCE_S = 30.0  # for what must come soon, on a machine that may be busy with something else


class Grove:
    """Close it, whatever happened: nothing stays mounted, no process and no file is left."""

    def __init__(self, *options: str) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="grovefs-torture-", dir="/var/tmp"))
        self.options = options
        self.mounts: list[Mount] = []
        self.store = Store.open(self.base / "home", background=False)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def sessions(self) -> Path:
        return self.mounts[0].path / SESSIONS

    def mount(self) -> Mount:
        """Another mount of the home; the first is the one that is worked in."""
        number = len(self.mounts)
        made = Mount(self.home, self.base / f"mnt{number}", self.base / f"log{number}")
        made.path.mkdir()
        self._serve(made)
        self.mounts.append(made)
        return made

    def _serve(self, mount: Mount) -> None:
        result = grovefs("mount", "--home", mount.home, "--log-file", mount.log, *self.options, mount.path)
        assert result.returncode == 0, result.stderr

    def daemon(self, mount: Mount) -> int:
        (pid,) = daemons_of(mount.path)
        return pid

    def end(self, mount: Mount) -> None:
        """As a user does: fusermount3 -u; the daemon is gone when this returns."""
        wait_until(lambda: _is_unmounted(mount.path), PATIENCE_S)
        wait_until(lambda: not daemons_of(mount.path), PATIENCE_S)

    def remount(self, mount: Mount) -> None:
        self.end(mount)
        self._serve(mount)

    def kill(self, mount: Mount) -> None:
        """kill -9, and mount again."""
        os.kill(self.daemon(mount), signal.SIGKILL)
        wait_until(lambda: not daemons_of(mount.path), PATIENCE_S)
        self.end(mount)
        self._serve(mount)

    def revive(self) -> None:
        """After an example that failed half-way, the next one has its mount again."""
        for mount in self.mounts:
            if not daemons_of(mount.path):
                self.end(mount)
                self._serve(mount)

    def said(self) -> str:
        """What the daemons logged."""
        return "".join(mount.log.read_text() for mount in self.mounts if mount.log.exists())

    def close(self) -> None:
        try:
            for mount in self.mounts:
                self.end(mount)
        finally:
            self.store.close()
        shutil.rmtree(self.base)


def _is_unmounted(path: Path) -> bool:
    """Try to make it so. What a killed daemon leaves may be held open by someone; that it is dead shows late."""
    try:
        flag = "-u" if os.path.ismount(path) else ""
        os.stat(path)
    except OSError:
        flag = "-uz"
    return not flag or subprocess.run(["fusermount3", flag, path], capture_output=True).returncode == 0


def read_tree(base: Path, start: str) -> dict[str, bytes | None]:
    """Every path below `base/start`, relative to base, with what is there; None for a directory."""
    found: dict[str, bytes | None] = {start: None}
    with os.scandir(base / start) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{start}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                found |= read_tree(base, path)
            else:
                found[path] = (base / path).read_bytes()
    return found
