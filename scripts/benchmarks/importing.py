"""bench import: CPU time and memory of a first import, and the cost of following one new line.

The time is compared with parsing the same lines, both in CPU time, which a busy machine disturbs least. Memory is the
peak above that of an open store, measured in a fresh process.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import orjson
import typer

from benchmarks.agent_logs import LogWriter
from benchmarks.machine import DURABILITY, MB
from benchmarks.rows import Row, Target
from fusefs.cli.commands.imports import GC_THRESHOLD
from store import Store
from store.transfer.import_follow import ImportFollower

_BENCH = Path(__file__).parents[1] / "bench.py"


class ImportScale(NamedTuple):
    sessions: int = 100
    session_bytes: int = 1 * MB
    large_bytes: int = 60 * MB
    followed_sessions: int = 200
    lines: int = 9
    rounds: int = 3

    @classmethod
    def quick(cls) -> Self:
        return cls(6, MB // 4, 2 * MB, 6, 3, 1)


class _Measured(NamedTuple):
    """What one import in a fresh process took."""

    cpu_s: float
    peak_bytes: int
    sessions: int


def measure_import(place: Path, scale: ImportScale) -> list[Row]:
    writer = LogWriter()
    many, few, large = (place / name / "projects/-home-ada-work" for name in ("many", "few", "large"))
    size = writer.write(many, scale.sessions, scale.session_bytes)
    writer.write(few, max(1, scale.sessions // 10), scale.session_bytes)
    largest = writer.write(large, 1, scale.large_bytes)
    return [
        *_measure_speed(place, many, size, scale),
        _measure_growth(place, scale),
        _measure_largest(place, largest),
        *_measure_following(place, writer, scale),
    ]


def _measure_speed(place: Path, logs: Path, size: int, scale: ImportScale) -> list[Row]:
    imported, parsed = [], []
    for number in range(scale.rounds):
        parsed.append(_parse(logs))
        imported.append(_import(place, "many", f"speed-{number}").cpu_s)
    ours, theirs = statistics.median(imported), statistics.median(parsed)
    what = f"1  first import of {size / MB:,.0f} MB, {scale.sessions} sessions"
    return [
        Row(what, size / MB / ours, "MB/s/core", target=Target(20, at_least=True), samples=scale.rounds),
        Row("1  … its CPU time", ours * 1e3, "ms", "orjson.loads", theirs * 1e3, ours / theirs, Target(6)),
    ]


def _measure_growth(place: Path, scale: ImportScale) -> Row:
    few, many = (_import(place, name, f"memory-{name}").peak_bytes / MB for name in ("few", "many"))
    what = f"2  peak memory, {scale.sessions} sessions"
    return Row(what, many, "MB", "a tenth of them", few, many / few, Target(1.3))


def _measure_largest(place: Path, largest: int) -> Row:
    peak = _import(place, "large", "memory-large").peak_bytes / MB
    return Row("2  peak memory, one session", peak, "MB", "its file", largest / MB, peak / (largest / MB), Target(3))


def _parse(logs: Path) -> float:
    """The CPU seconds that parsing all lines takes."""
    start = time.process_time()
    for path in logs.glob("*.jsonl"):
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)
    return time.process_time() - start


def _import(place: Path, source: str, home: str) -> _Measured:
    command = [sys.executable, str(_BENCH), "import-once", str(place / source), str(place / home)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return _Measured(*json.loads(out))


def import_once(source: Path, home: Annotated[Path, typer.Argument()]) -> None:
    """Import a source as the command does, and print CPU seconds, peak memory and the number of sessions."""

    with Store.open(home, durability=DURABILITY, background=False) as store:
        store.entries(limit=1)
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current value
        before, start = _memory_bytes("VmRSS"), time.process_time()
        summary = store.imports.run(str(source))
        cpu_s = time.process_time() - start
        print(json.dumps([cpu_s, _memory_bytes("VmHWM") - before, sum(summary.counts.values())]))


def _memory_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


# -- following -------------------------------------------------------------------------------------------


def _measure_following(place: Path, writer: LogWriter, scale: ImportScale) -> list[Row]:
    project = place / "followed/projects/-home-ada-work"
    size = writer.write(project, scale.followed_sessions, scale.session_bytes)
    path = sorted(project.glob("*.jsonl"))[scale.followed_sessions // 2]
    with Store.open(place / "followed-home", durability=DURABILITY, background=False) as store:
        items: list[object] = []
        ready, arrived = threading.Event(), threading.Semaphore(0)

        def report(item: object) -> None:
            items.append(item)
            if ready.is_set():
                arrived.release()

        found = store.imports.find(str(place / "followed")).found
        follower = ImportFollower(store.imports, found, report, on_ready=ready.set)
        thread = threading.Thread(target=follower.run)
        thread.start()
        ready.wait()
        samples = [_follow_line(path, line, arrived) for line in islice(writer.iter_lines("x"), scale.lines)]
        follower.stop.set()
        thread.join()
    cpu, wall = (statistics.median(sample[i] for sample in samples) for i in (0, 1))
    what = f"3  one new line after {size / MB:,.0f} MB"
    return [
        Row(f"{what}, CPU", cpu * 1e3, "ms", target=Target(50), samples=len(samples)),
        Row(f"{what}, until it is in the session", wall * 1e3, "ms", target=Target(2_000), samples=len(samples)),
    ]


def _follow_line(path: Path, line: bytes, arrived: threading.Semaphore) -> tuple[float, float]:
    """CPU and wall seconds from writing a line until its session is saved."""
    cpu, wall = time.process_time(), time.perf_counter()
    with path.open("ab") as file:
        file.write(line)
    arrived.acquire()
    return time.process_time() - cpu, time.perf_counter() - wall
