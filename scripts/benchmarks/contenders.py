"""Who is compared: the disk itself, and three ways to show the same files through FUSE.

Each daemon runs in the foreground as a child of the bench, in a session of its own, so that Ctrl-C reaches the
bench alone and the bench ends exactly those daemons that it began.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
READY_S = 60.0
END_S = 30.0
GROVEFS = "from fusefs.cli import main; main()"


@dataclass(frozen=True)
class Place:
    """Directories of a run. `files` is what bindfs and the pass-through show; GroveFS shows `files/home`."""

    base: Path

    @property
    def files(self) -> Path:
        return self.base / "files"

    @property
    def home(self) -> Path:
        return self.files / "home"

    @property
    def scratch(self) -> Path:
        return self.base / "scratch"

    def make(self) -> None:
        for path in (self.home / "sessions", self.files / "plain" / "sessions", self.scratch):
            path.mkdir(parents=True)


class Contender(ABC):
    name: str
    tool = "fusermount3"  # what has to be installed

    def __init__(self, place: Place) -> None:
        self.place = place
        self.mountpoint = place.base / "mnt" / self.name
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def sessions(self) -> Path:
        """The tree that is read: the home's sessions."""
        return self.mountpoint / "home" / "sessions"

    @property
    def writable(self) -> Path:
        """Where it writes. Not the home, if it is not GroveFS: who writes there behind its back gives it work."""
        return self.mountpoint / "plain" / "sessions"

    @property
    def writable_on_disk(self) -> Path:
        return self.place.files / "plain" / "sessions"

    @abstractmethod
    def command(self) -> list[str]:
        """What to start."""

    def mount(self) -> None:
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._daemon = subprocess.Popen(
                self.command(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} could not be mounted: {self.log.read_text()[-2_000:].strip()}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        return os.path.ismount(self.mountpoint) and self.sessions.is_dir()

    @property
    def log(self) -> Path:
        return self.place.base / f"{self.name}.log"

    def unmount(self) -> None:
        """End the mount and its daemon, whatever state they are in."""
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return
        if os.path.ismount(self.mountpoint):
            ended = subprocess.run(["fusermount3", "-u", str(self.mountpoint)], capture_output=True)
            if ended.returncode:  # a tool that was interrupted may still have a file open
                subprocess.run(["fusermount3", "-uz", str(self.mountpoint)], capture_output=True)
        try:
            daemon.wait(END_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    @property
    def is_mounted(self) -> bool:
        return self._daemon is not None

    # -- what it costs

    @property
    def pid(self) -> int | None:
        return self._daemon.pid if self._daemon else None

    def cpu_s(self) -> float:
        """Processor time of the daemon so far; it is counted in hundredths."""
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self, name: str) -> int | None:
        """VmRSS or VmHWM of the daemon."""
        return None if self.pid is None else status_bytes(self.pid, name)

    def counted(self) -> Counter[str] | None:
        """How often each operation has been asked of the daemon so far; None if it does not count."""
        return None

    def requests_since(self, before: Counter[str] | None) -> Counter[str] | None:
        return None


class Native(Contender):
    name = "native"

    @property
    def sessions(self) -> Path:
        return self.place.home / "sessions"

    @property
    def writable(self) -> Path:
        return self.writable_on_disk

    def command(self) -> list[str]:
        raise NotImplementedError("the disk needs no daemon")

    def mount(self) -> None:
        pass


class GroveFS(Contender):
    name = "grovefs"

    def __init__(self, place: Place, options: Sequence[str] = ()) -> None:
        super().__init__(place)
        self._options = options  # more of them for `grovefs mount`
        self._asking: Counter[str] = Counter()

    @property
    def sessions(self) -> Path:
        return self.mountpoint / "sessions"

    @property
    def writable(self) -> Path:
        return self.sessions

    @property
    def writable_on_disk(self) -> Path:
        return self.place.home / "sessions"

    def command(self) -> list[str]:
        arguments = ["mount", "--foreground", "--home", str(self.place.home)]
        return [sys.executable, "-c", GROVEFS, *arguments, *self._options, str(self.mountpoint)]

    def mount(self) -> None:
        super().mount()
        self.counted()  # the first time there are still names to look up
        second, third = self.counted(), self.counted()
        self._asking = third - second

    def counted(self) -> Counter[str]:
        requests = Counter(json.loads((self.mountpoint / ".grovefs/stats.json").read_bytes())["requests"])
        del requests["forget"]  # the kernel's own housekeeping, whenever it likes
        return requests

    def requests_since(self, before: Counter[str] | None) -> Counter[str] | None:
        """Without those that the asking itself has cost."""
        return None if before is None else self.counted() - before - self._asking


class Bindfs(Contender):
    name = tool = "bindfs"

    def command(self) -> list[str]:
        return ["bindfs", "-f", str(self.place.files), str(self.mountpoint)]


class Passthrough(Contender):
    name = "passthrough"

    def command(self) -> list[str]:
        program = ROOT / "scripts/passthrough.py"
        return [sys.executable, str(program), str(self.place.files), str(self.mountpoint)]


CONTENDERS: dict[str, type[Contender]] = {c.name: c for c in (Native, GroveFS, Bindfs, Passthrough)}


def status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def wakeups(pid: int) -> int:
    """How often any thread of a process has waited for something so far."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("voluntary_ctxt_switches:")]
    return sum(int(line.split()[1]) for line in lines)
