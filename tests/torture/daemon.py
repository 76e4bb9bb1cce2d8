"""The mount's daemon in a forked process that dies at a chosen durable step.

It runs `serve` of the mount, as the command does, with a store whose steps are counted.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusefs.daemon import mount
from fusefs.daemon.mountpoint import MountOptions, is_dead
from store import Store
from tests.torture.forked import PATIENCE_S

NEVER = 0


class Fuse:
    """Counts steps once armed and kills the process at the chosen one; the count survives the process."""

    def __init__(self, at: int = NEVER) -> None:
        self.at = at
        self._shown = mmap.mmap(-1, 1 << 16)  # shared with the parent
        self._lock = threading.Lock()
        self._names: list[str] = []

    def light(self) -> None:
        self._shown[0] = 1

    def __call__(self, step: str) -> None:
        with self._lock:
            if not self._shown[0]:
                return
            self._names.append(step)
            text = "\n".join(self._names).encode()
            self._shown[1 : 1 + len(text)] = text
            if len(self._names) == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(PATIENCE_S)  # the signal is pending; do nothing more

    @property
    def steps(self) -> list[str]:
        return self._shown[1:].rstrip(b"\0").decode().split()


@dataclass
class Daemon:
    """Serves `home` at `path`. Always call `end`."""

    home: Path
    path: Path
    log: Path
    fuse: Fuse = field(default_factory=Fuse)
    pid: int = 0
    was_stuck: bool = False

    def start(self) -> None:
        reads, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reads)
            self._live(writes)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            said = pipe.read().decode() if select.select([pipe], [], [], PATIENCE_S)[0] else "the mount did not come up"
        assert said == "ready", said or "the daemon died before it was ready"

    def _live(self, writes: int) -> None:
        fuse, status = self.fuse, 1

        class Counted(Store):
            @classmethod
            def open(cls, home: str | os.PathLike[str], **options: Any) -> Counted:
                return super().open(home, step=fuse, **options)

        def ready() -> None:
            os.write(writes, b"ready")
            os.close(writes)

        try:
            os.chdir("/")
            handler = logging.FileHandler(self.log)
            logging.root.handlers[:] = [handler]
            logging.root.setLevel(logging.INFO)
            vars(mount)["Store"] = Counted
            mount.serve(MountOptions(self.home, self.path, on_conflict="reject"), ready)
            status = 0
        except BaseException:
            with suppress(OSError):  # the parent, if it is still waiting
                os.write(writes, traceback.format_exc().encode())
            logging.root.error("the mount failed", exc_info=True)
        finally:
            os._exit(status)

    @property
    def is_alive(self) -> bool:
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return self.pid != 0

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def abort(self) -> None:
        """Abort the FUSE connection of a dead daemon, to release waiting processes; its watchdog should have."""
        assert self.pid, "the daemon was not killed"
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "Z", f"the daemon is alive ({state}) but does not answer"
        subprocess.run(["umount", "-f", self.path], capture_output=True)  # refused, but the connection is closed
        self.was_stuck = True

    def unmount(self) -> None:
        """Unmount as a user does; the daemon then exits by itself."""
        subprocess.run(["fusermount3", "-u", self.path], check=True, capture_output=True, text=True)
        deadline = time.monotonic() + PATIENCE_S
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, "the daemon did not exit after unmounting"
            time.sleep(0.005)
        self.pid = 0
        assert ended[1] == 0, f"the daemon exited with {ended[1]}: {self.log.read_text()}"

    def end(self) -> None:
        self.kill()
        if os.path.ismount(self.path) or is_dead(self.path):
            subprocess.run(["fusermount3", "-uz", self.path], check=True, capture_output=True)


@contextmanager
def mounted(home: Path, place: Path, at: int = NEVER) -> Iterator[Daemon]:
    """Mount below `place`, which must be outside the home; the log must contain no traceback."""
    made = Daemon(home, place / "mnt", place / "log", Fuse(at))
    made.path.mkdir(exist_ok=True)
    try:
        made.start()
        yield made
    finally:
        made.end()
    assert "Traceback" not in made.log.read_text(), made.log.read_text()
