"""A real mount for an attack: the command in its own process, always unmounted at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mount.conftest import CODE, Mount, daemons_of, grovefs, wait_until
from tests.torture.places import scratch

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 60.0  # seconds to wait for a daemon on a busy machine


class Mounted(Mount):
    """A mount whose daemon is monitored and can be stopped and started again."""

    @property
    def daemon(self) -> int:
        (pid,) = daemons_of(self.path)
        return pid

    def clock(self) -> Callable[[], float]:
        """CPU seconds of the daemon so far."""
        stat = Path(f"/proc/{self.daemon}/stat")

        def computed_s() -> float:
            fields = stat.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / TICKS

        return computed_s

    def mount(self, *options: str, program: str = CODE) -> None:
        done = grovefs("mount", "--home", self.home, "--log-file", self.log, *options, self.path, program=program)
        assert done.returncode == 0, done.stderr

    def unmount(self, *, lazily: bool = False) -> None:
        subprocess.run(["fusermount3", "-uz" if lazily else "-u", str(self.path)], check=True)

    def ended(self) -> None:
        """Wait until the daemon has exited; its log must not contain a bug."""
        wait_until(lambda: not daemons_of(self.path), PATIENCE_S)
        assert "Traceback" not in self.log.read_text(), self.log.read_text()[-4000:]

    def damage(self) -> list[str]:
        with self.store() as store:
            return [str(f) for f in store.check().findings if f.is_damage]


@contextmanager
def mounted(
    fill: Callable[[Path], object], *options: str, program: str = CODE, in_memory: bool = False
) -> Iterator[Mounted]:
    """Create, fill and mount a home in a scratch directory; in memory where disks do not matter."""
    with scratch() as place, scratch(in_memory=in_memory) as inner:
        made = Mounted(inner / "home", place / "mnt", place / "log")
        fill(made.home)
        made.path.mkdir()
        made.mount(*options, program=program)
        try:
            yield made
        finally:
            if os.path.ismount(made.path):
                made.unmount(lazily=sys.exc_info()[0] is not None)
            made.ended()
