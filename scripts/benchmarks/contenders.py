"""The contenders of `bench mount`: the disk itself, and three FUSE filesystems that serve the same files.

Each daemon runs in the foreground as a child of the benchmark, in its own process session: Ctrl-C reaches only the
benchmark, which then ends exactly the daemons it started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .machine import undisturbed

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
READY_S = 60.0
END_S = 30.0
GROVEFS = "from fusefs.cli import main; main()"


@dataclass(frozen=True)
class Place:
    """Directories of a run. bindfs and the pass-through serve `files`; GroveFS serves `files/home`."""

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
    tool = "fusermount3"  # the program that must be installed

    def __init__(self, place: Place) -> None:
        self.place = place
        self.mountpoint = place.base / "mnt" / self.name
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def sessions(self) -> Path:
        """The tree to read: the home's sessions."""
        return self.mountpoint / "home" / "sessions"

    @property
    def writable(self) -> Path:
        """Where to write. Only GroveFS writes to the home: it would have to re-index what others write there."""
        return self.mountpoint / "plain" / "sessions"

    @property
    def writable_on_disk(self) -> Path:
        return self.place.files / "plain" / "sessions"

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the daemon."""

    def mount(self) -> None:
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        # Undisturbed: Ctrl-C between the start of the daemon and the assignment would leave it running.
        with open(self.log, "ab") as log, undisturbed() as unblocked:
            self._daemon = subprocess.Popen(
                self.command(),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, unblocked),
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
        """Unmount and end the daemon, whatever their state."""
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return
        if os.path.ismount(self.mountpoint):
            ended = subprocess.run(["fusermount3", "-u", str(self.mountpoint)], capture_output=True)
            if ended.returncode:  # an interrupted tool may still have a file open
                subprocess.run(["fusermount3", "-uz", str(self.mountpoint)], capture_output=True)
        else:
            daemon.terminate()  # it may be about to mount
        try:
            daemon.wait(END_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        # A daemon that mounted just before it ended leaves a dead mount. Fails if there is none.
        subprocess.run(["fusermount3", "-uz", str(self.mountpoint)], capture_output=True)

    @property
    def is_mounted(self) -> bool:
        return self._daemon is not None

    # -- resources

    @property
    def pid(self) -> int | None:
        return self._daemon.pid if self._daemon else None

    def cpu_s(self) -> float:
        """CPU time of the daemon so far; the kernel counts it in hundredths of a second."""
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self, name: str) -> int | None:
        """VmRSS or VmHWM of the daemon."""
        return None if self.pid is None else status_bytes(self.pid, name)

    def counted(self) -> Counter[str] | None:
        """Number of requests of each kind so far; None if the daemon does not count them."""
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
        self._options = options  # for `grovefs mount`
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
        self.counted()  # the first call also looks up names
        second, third = self.counted(), self.counted()
        self._asking = third - second

    def counted(self) -> Counter[str]:
        stats = json.loads((self.mountpoint / ".grovefs/stats.json").read_bytes())
        requests, in_c = Counter(stats["requests"]), stats["fast_path"]
        requests.update({kind: in_c.get(f"{kind}s", 0) for kind in ("open", "read", "release")})
        del requests["forget"]  # sent by the kernel at any time
        return requests

    def requests_since(self, before: Counter[str] | None) -> Counter[str] | None:
        """Requests since `before`, without those that reading the counters costs."""
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


SAMPLE_S = 0.05  # more often than threads end


class Wakeups:
    """Counts the voluntary context switches of a process.

    The kernel counts them for each thread and forgets those of a thread that has ended. So the threads are looked at
    often, and what each of them did since the last look is added up.
    """

    def __init__(self, counts: dict[int, int]) -> None:
        self._last = counts
        self.total = 0

    def note(self, counts: dict[int, int]) -> None:
        """The present counts, by thread. A thread that is new has done all of its own since the last look."""
        self.total += sum(count - self._last.get(thread, 0) for thread, count in counts.items())
        self._last = counts


def wakeups_during(pid: int, duration_s: float) -> int:
    """Number of voluntary context switches of all threads of a process from now on, for this long."""
    counted = Wakeups(switches(pid))
    ends = time.monotonic() + duration_s
    while time.monotonic() < ends:
        time.sleep(SAMPLE_S)
        counted.note(switches(pid))
    return counted.total


def switches(pid: int) -> dict[int, int]:
    """Voluntary context switches so far of each thread of a process."""
    found: dict[int, int] = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (path / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        found[int(path.name)] = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return found
