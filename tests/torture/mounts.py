"""A real mount for an attack: the command in a process of its own, and gone in the end, whatever happened."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from store import Store
from tests.mount.conftest import CODE, daemons_of, wait_until

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 60.0  # with a daemon on a busy machine


@dataclass(frozen=True)
class Mounted:
    """A home, where it is shown, and the log of who shows it."""

    place: Path
    home: Path
    path: Path
    log: Path

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    @property
    def daemon(self) -> int:
        (pid,) = daemons_of(self.path)
        return pid

    def computed_s(self) -> float:
        """How long the daemon has computed so far."""
        fields = Path(f"/proc/{self.daemon}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def mount(self, *options: str, program: str = CODE) -> None:
        command = [
            sys.executable,
            "-c",
            program,
            "mount",
            "--home",
            self.home,
            "--log-file",
            self.log,
            *options,
            self.path,
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr

    def unmount(self, *, lazily: bool = False) -> None:
        subprocess.run(["fusermount3", "-uz" if lazily else "-u", str(self.path)], check=True)

    def ended(self) -> None:
        """The daemon is gone, and had nothing to complain of that was a bug."""
        wait_until(lambda: not daemons_of(self.path), PATIENCE_S)
        assert "Traceback" not in self.log.read_text(), self.log.read_text()[-4000:]

    def damage(self) -> list[str]:
        with Store.open(self.home, background=False) as store:
            return [str(f) for f in store.check().findings if f.is_damage]


@contextmanager
def new_place(prefix: str = "torture", *, in_memory: bool = False) -> Iterator[Path]:
    """A directory outside /tmp: below it some tools save in other ways. In memory, where no disk is in question."""
    base = "/dev/shm" if in_memory and os.access("/dev/shm", os.W_OK) else "/var/tmp"
    place = Path(tempfile.mkdtemp(prefix=f"grovefs-{prefix}-", dir=base))
    try:
        yield place
    finally:
        shutil.rmtree(place)


@contextmanager
def mounted(fill: Callable[[Path], object], *options: str, program: str = CODE) -> Iterator[Mounted]:
    """A new home, filled and mounted."""
    with new_place() as place:
        made = Mounted(place, place / "home", place / "mnt", place / "log")
        fill(made.home)
        made.path.mkdir()
        made.mount(*options, program=program)
        try:
            yield made
        finally:
            if os.path.ismount(made.path):
                made.unmount(lazily=sys.exc_info()[0] is not None)
            made.ended()
