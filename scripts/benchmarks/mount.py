"""`bench mount`: the same tree through the disk, GroveFS, bindfs and a plain pass-through, in turn.

The order changes from round to round. Warm: all contenders stay mounted and have run the workload once before it
counts. Cold: each alone, freshly mounted, with the page cache dropped where permitted. Mounts and files are removed
however the run ends; nothing outside its directory is touched.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.progress import Progress, TaskID

from store import Store

from .contenders import CONTENDERS, Contender, GroveFS, Place, wakeups_during
from .machine import DURABILITY, MB, machine_of, undisturbed
from .reads import BIG, CAT, READS, Failed, Read, Subject
from .results import Fact, Report, Row, Samples, line_of, row_of
from .tree import Planned, Shape, plan, write_tree
from .writes import Files, Itself, Text, Write, Writer, writes

Rows = Generator[Row, None, None]

DROP = Path("/proc/sys/vm/drop_caches")
SCALE_BYTES = 2_000  # the daemon's memory depends on names, not on content
SCALE_READS = ("find", "ls -lR", "grep -r", "tar")
MEMORY_MB = 200
WAKEUPS = 2
QUICK_COLD = ("find", "cat")


FULL = Shape()


@dataclass(frozen=True)
class Settings:
    shape: Shape = FULL
    rounds: int = 5
    big_mb: int = 200
    jq_sessions: int = 200
    idle_s: float = 10.0
    caches: tuple[str, ...] = ("warm", "cold")
    only: tuple[str, ...] = ()  # prefixes of workload names; empty: all
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    mount_options: tuple[str, ...] = ()
    scale: int = 0  # sessions in the home for the memory measurement; 0: skip it
    quick: bool = False

    def wants(self, workload: str) -> bool:
        return not self.only or any(workload.startswith(name) for name in self.only)

    @property
    def reads(self) -> list[Read]:
        return [read for read in [*READS, CAT] if self.wants(read.name)]

    def read_cold(self, read: Read) -> bool:
        """Whether to measure with a cold cache. A fresh mount per run is slow, so --quick measures only a few."""
        return "cold" in self.caches and (not self.quick or read.name in QUICK_COLD)

    @property
    def runs(self) -> int:
        """The total number of runs, for the progress bar."""
        warm = len(self.reads) * (self.rounds + 1) if "warm" in self.caches else 0
        cold = sum(map(self.read_cold, self.reads)) * self.rounds
        written = len(self.writes) * (self.rounds + 1)
        return (warm + cold) * len(self.contenders) + written * (len(self.contenders) + 1)

    @property
    def writes(self) -> list[Write]:
        return [write for write in writes(quick=self.quick) if self.wants(write.name)]


def smaller(settings: Settings, rounds: int | None) -> Settings:
    """Settings for --quick: a small tree and two rounds, too few for a verdict."""
    return replace(
        settings,
        shape=Shape(roots=100, rare_every=40),
        rounds=rounds or 2,
        big_mb=50,
        jq_sessions=50,
        idle_s=3.0,
        quick=True,
    )


class Bench:
    """One benchmark run in one directory."""

    def __init__(self, base: Path, settings: Settings, meter: Progress) -> None:
        self.settings = settings
        self.place = Place(base)
        self.place.make()
        self.meter = meter
        self.contenders: list[Contender] = [self._contender(name) for name in settings.contenders]
        self.can_drop = os.access(DROP, os.W_OK)  # reported in the table if not
        self.rows: list[Row] = []
        self.facts: list[Fact] = []
        self.failures: list[str] = []
        self._load, self._sessions = os.getloadavg()[0], 0
        self._task: TaskID | None = None

    def _contender(self, name: str) -> Contender:
        if name == GroveFS.name:
            return GroveFS(self.place, self.settings.mount_options)
        return CONTENDERS[name](self.place)

    def run(self) -> Report:
        self._check_tools()
        self._sessions = make_home(self.place.home, self.settings.shape, self.meter)
        self._task = self.meter.add_task("measuring", total=self.settings.runs)
        for source in (self._read(self._subject()), self._write()):
            with closing(source) as rows:  # also if interrupted between two rows: the generator holds the mounts
                for row in rows:
                    self.rows.append(row)
                    self.meter.console.print(line_of(row), highlight=False, soft_wrap=True)
        if self.settings.scale:
            self.facts += self._memory_at_scale()
        return self.report()

    def report(self) -> Report:
        """The results so far, also of a run that was interrupted."""
        machine = {
            **machine_of(self.place.base),
            "load": f"{self._load:.1f} before, {os.getloadavg()[0]:.1f} after",
            "sessions": self._sessions,
            "rounds": self.settings.rounds,
            "cold": "caches dropped, fresh mount" if self.can_drop else "fresh mount only: caches may not be dropped",
        }
        return Report(self.rows, self.facts, machine, self.failures)

    def _check_tools(self) -> None:
        tools = [read.tool for read in self.settings.reads] + [c.tool for c in self.contenders]
        if missing := [tool for tool in dict.fromkeys(tools) if shutil.which(tool) is None]:
            raise Failed(f"{', '.join(missing)} not found; run scripts/setup --bench")

    # -- the files

    def _subject(self) -> Subject:
        planned = list(plan(self.settings.shape))
        files = [f"{p.directory}/session.json" for p in planned[: self.settings.jq_sessions]]
        return Subject(files, f"{planned[0].root}/{BIG}")

    @contextmanager
    def _big_file(self, planned: Planned) -> Iterator[None]:
        """A large attachment, present only while it is measured: it would dominate the other workloads."""
        path = self.place.home / "sessions" / planned.root / BIG
        path.parent.mkdir(mode=0o700)
        chance = random.Random(1)
        with path.open("wb") as file:
            for _ in range(self.settings.big_mb):
                file.write(chance.randbytes(MB))
        os.sync()
        try:
            yield
        finally:
            shutil.rmtree(path.parent)

    # -- mounts

    @contextmanager
    def _mounted(self, contenders: Sequence[Contender]) -> Iterator[None]:
        try:
            for contender in contenders:
                contender.mount()
            yield
        finally:
            with undisturbed():
                for contender in contenders:
                    contender.unmount()

    def _drop_caches(self) -> None:
        os.sync()
        if self.can_drop:
            try:
                DROP.write_text("3")
            except OSError:  # a container may show the file but forbid writing to it
                self.can_drop = False

    def _turns(self, number: int) -> list[Contender]:
        """All contenders, starting with another one in each round."""
        first = number % len(self.contenders)
        return self.contenders[first:] + self.contenders[:first]

    def _show(self, text: str) -> None:
        assert self._task is not None
        self.meter.update(self._task, advance=1, description=f"{text:34}")

    # -- reading

    def _read(self, subject: Subject) -> Rows:
        trees = [read for read in self.settings.reads if read is not CAT]
        yield from self._read_all(trees, subject, watch_idle=True)
        if CAT in self.settings.reads:
            with self._big_file(next(plan(self.settings.shape))):
                yield from self._read_all([CAT], subject)

    def _read_all(self, reads: list[Read], subject: Subject, *, watch_idle: bool = False) -> Rows:
        if not reads:
            return
        if "warm" in self.settings.caches:
            with self._mounted(self.contenders):
                for read in reads:
                    yield from self._attempt(partial(self._warm, read, subject))
                self.facts += [f for c in self.contenders for f in peak_of(c, reads)]
                if watch_idle:
                    self.facts += [f for c in self.contenders if c.name == GroveFS.name for f in self._idle(c)]
        for read in filter(self.settings.read_cold, reads):
            yield from self._attempt(partial(self._cold, read, subject))

    def _attempt(self, measure: Callable[[], Row]) -> Rows:
        """Record a workload that cannot be compared, and continue with the others."""
        try:
            row = measure()
        except Failed as error:
            self.failures.append(str(error))
            self.meter.console.print(f"not compared: {error}", highlight=False, soft_wrap=True)
        else:
            yield row

    def _warm(self, read: Read, subject: Subject) -> Row:
        samples = {contender.name: Samples() for contender in self.contenders}
        for contender in self.contenders:  # the first run reads from the disk
            self._show(f"{read.name}, warming up, {contender.name}")
            self._run(read, contender, subject, Samples())
        for number in range(self.settings.rounds):
            for contender in self._turns(number):
                self._show(f"{read.name}, warm, {contender.name}")
                self._run(read, contender, subject, samples[contender.name])
        return row_of(read.name, "warm", samples)

    def _cold(self, read: Read, subject: Subject) -> Row:
        samples = {contender.name: Samples() for contender in self.contenders}
        for number in range(self.settings.rounds):
            for contender in self._turns(number):
                self._show(f"{read.name}, cold, {contender.name}")
                with self._mounted([contender]):
                    self._run(read, contender, subject, samples[contender.name], cold=True)
        return row_of(read.name, "cold", samples)

    def _run(self, read: Read, contender: Contender, subject: Subject, samples: Samples, *, cold: bool = False) -> None:
        read.prepare(contender)
        if cold:
            self._drop_caches()
        counted, cpu_s = contender.counted(), contender.cpu_s()
        time_ms = read.run(contender, subject)
        used_s = contender.cpu_s() - cpu_s
        requests = contender.requests_since(counted)
        samples.add(time_ms, used_s, requests, read.proof(contender, subject))

    # -- writing

    def _write(self) -> Rows:
        if not self.settings.writes:
            return
        with (
            self._mounted(self.contenders),
            Store.open(self.place.home, durability=DURABILITY, background=False) as store,
        ):
            writers: list[Writer] = [Files(contender) for contender in self.contenders]
            writers.append(Itself(store))
            text = Text()
            for write in self.settings.writes:
                yield from self._attempt(partial(self._written, write, writers, text))
            self.facts += [f for c in self.contenders for f in peak_of(c, self.settings.writes)]
        self._check_home()

    def _written(self, write: Write, writers: list[Writer], text: Text) -> Row:
        samples = {writer.name: Samples() for writer in writers}
        for number in range(self.settings.rounds + 1):  # the first round is warm-up
            first = number % len(writers)
            for writer in writers[first:] + writers[:first]:
                self._show(f"{write.name}, {writer.name}")
                kept = samples[writer.name] if number else Samples()
                self._write_once(write, writer, text, number, kept)
        return row_of(write.name, "write", samples)

    def _write_once(self, write: Write, writer: Writer, text: Text, number: int, samples: Samples) -> None:
        contender = writer.contender if isinstance(writer, Files) else None
        os.sync()
        counted, cpu_s = (contender.counted(), contender.cpu_s()) if contender else (None, 0.0)
        time_ms, proof = write.run(writer, text, number)
        used_s = contender.cpu_s() - cpu_s if contender else 0.0
        requests = contender.requests_since(counted) if contender else None
        samples.add(time_ms, used_s, requests, proof)

    def _check_home(self) -> None:
        """Fail if the writes left damage in the home."""
        with Store.open(self.place.home, durability="normal") as store:
            damage = [finding for finding in store.check().findings if finding.is_damage]
        if damage:
            raise Failed(f"after the writes the home is damaged: {damage[0]}")

    # -- the idle daemon, and memory with many sessions

    def _idle(self, contender: Contender) -> list[Fact]:
        assert contender.pid is not None
        time.sleep(min(3.0, self.settings.idle_s))  # let deferred work finish
        cpu_s = contender.cpu_s()
        per_s = wakeups_during(contender.pid, self.settings.idle_s) / self.settings.idle_s
        used = (contender.cpu_s() - cpu_s) / self.settings.idle_s * 100
        return [
            Fact(f"{contender.name}: wake-ups when idle", per_s, "per second", WAKEUPS),
            Fact(f"{contender.name}: CPU when idle", used, "%", 0.5),
        ]

    def _memory_at_scale(self) -> list[Fact]:
        """The daemon's memory after everything was listed and read, and after doing the same again."""
        place = Place(self.place.base / "scale")
        place.make()
        shape = Shape(roots=round(self.settings.scale / (1 + Shape.with_child)), median_bytes=SCALE_BYTES)
        number = make_home(place.home, shape, self.meter)
        contender = GroveFS(place, self.settings.mount_options)
        reads = [read for read in READS if read.name in SCALE_READS]
        task = self.meter.add_task("reading everything twice", total=2 * len(reads))
        resident_mb = []
        with self._mounted([contender]):
            for _ in range(2):
                for read in reads:
                    read.run(contender, Subject([], ""))
                    self.meter.advance(task)
                resident_mb.append((contender.memory_bytes("VmRSS") or 0) / MB)
            peak = (contender.memory_bytes("VmHWM") or 0) / MB
        what = f"grovefs, {number:,} sessions"
        return [
            Fact(f"{what}: peak memory", peak, "MB", MEMORY_MB),
            Fact(f"{what}: memory after reading everything", resident_mb[0], "MB", MEMORY_MB),
            Fact(f"{what}: growth after repeating it", (resident_mb[1] / resident_mb[0] - 1) * 100, "%", 5),
        ]


def make_home(home: Path, shape: Shape, meter: Progress) -> int:
    """Write the files and have the store index them; returns the number of sessions."""
    wanted = sum(1 for _ in plan(shape))
    task = meter.add_task(f"writing {wanted:,} sessions", total=wanted)
    number = write_tree(home / "sessions", shape, lambda: meter.advance(task))
    task = meter.add_task(f"indexing {number:,} sessions", total=number)
    with Store.open(home, durability="normal", progress=lambda done, _: meter.update(task, completed=done)) as store:
        if store.count() != number:
            raise Failed(f"the store accepts only {store.count():,} of {number:,} generated sessions")
        task = meter.add_task("indexing them for grep", total=None)
        store.trigrams.rebuild(lambda done, total: meter.update(task, completed=done, total=total))
    os.sync()
    return number


def peak_of(contender: Contender, workloads: Sequence[Read] | Sequence[Write]) -> list[Fact]:
    peak = contender.memory_bytes("VmHWM")
    if peak is None:
        return []
    names = workloads[0].name if len(workloads) == 1 else f"{workloads[0].name} … {workloads[-1].name}"
    return [Fact(f"{contender.name}: peak memory, {names}", peak / MB, "MB")]
