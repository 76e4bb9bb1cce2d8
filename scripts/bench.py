"""Benchmarks of the store, the mount and search, each compared with an alternative on the same machine.

Machines are shared and noisy, so both sides of a comparison take turns, many times, and only medians and their
ratio are reported. A row without a target is informational. Every benchmark is a subcommand; it creates its homes
in --dir and removes them afterwards.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from bench_mount import bench_mount
from bench_search import bench_search
from benchmarks.importing import ImportScale, import_once, measure_import
from benchmarks.keeping import measure_keeping, measure_reading, measure_size
from benchmarks.logs import measure_logs
from benchmarks.machine import DURABILITY, KB, MB, machine_of, workplace
from benchmarks.merging import putting
from benchmarks.pages import measure_pages
from benchmarks.past import measure_listing, measure_log
from benchmarks.rows import Row, Target, compare, print_report, timed
from benchmarks.sharing import GroveScale, measure_grove
from benchmarks.starting import measure_starting
from rich.console import Console
from rich.progress import Progress

from store import Message, Session, Store
from store.disk.disk import Durability

STAMP = "2026-06-20T08:15:30.123456789Z"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure GroveFS. Compare the ratios; the milliseconds depend on this machine and its load."""


app.command("mount")(bench_mount)
app.command("search")(bench_search)


# -- homes and sessions ----------------------------------------------------------------------------------


class Writer:
    """Generates prose with few common and many rare words, as a search index meets it. Deterministic."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "etaoinshrdlucmfwyp"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(2, 10))) for _ in range(8_000)]
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(len(self._words))))

    def text(self, size: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=size // 6 + 2))[:size]

    def session(self, name: str, size: int) -> Session:
        """A session whose session.json has about `size` bytes."""
        session = Session.new(name, "some-model")
        for i in range(max(1, size // 1_000)):
            content = self.text(790)
            session.add_message(Message.assistant(content) if i % 2 else Message.user(content))
        return session


def write_small_sessions(home: Path, number: int, meter: Progress) -> None:
    """Write sessions of about 1 KB directly to disk, as an agent would; every fifth is a child."""
    task = meter.add_task(f"writing {number:,} sessions", total=number)
    writer = Writer()
    texts = [writer.text(420) for _ in range(500)]
    root = ""
    for i in range(number):
        is_child = i % 5 == 4
        name = f"{i:08x}-session"
        root = root if is_child else name
        directory = f"{home}/sessions/{root}/children/{name}" if is_child else f"{home}/sessions/{name}"
        os.makedirs(directory)
        control: dict[str, Any] = {
            "id": name,
            "title": f"Session {i} about {texts[i % 500][:20]}",
            "kind": "child" if is_child else "root",
            **({"parent_session_id": root} if is_child else {}),
            "root_session_id": root,
            "spawn_depth": int(is_child),
            "messages": [],
            "created_at": STAMP,
            "updated_at": f"2026-06-{1 + i % 28:02}T{i % 24:02}:{i % 60:02}:{i % 59:02}.{i:09}Z",
            "model": "some-model",
        }
        message = {"id": f"m{i}", "role": "user", "content": texts[i % 500], "created_at": STAMP}
        for file, document in (("runtime", control), ("session", {**control, "messages": [message]})):
            with open(f"{directory}/{file}.json", "wb", buffering=0) as out:
                out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        meter.advance(task)
    os.sync()  # otherwise the write-back would slow down a measurement


def first_opening(home: Path, number: int, meter: Progress) -> float:
    """Create a home and have the store index it; returns the seconds that indexing took."""
    write_small_sessions(home, number, meter)
    task = meter.add_task(f"indexing {number:,} sessions", total=number)
    start = time.perf_counter()
    with Store.open(home, durability=DURABILITY, progress=lambda done, _: meter.update(task, completed=done)) as store:
        elapsed = time.perf_counter() - start
        assert store.count() == number
    os.sync()
    return elapsed


def loaded(store: Store, session: Session) -> Session:
    store.save(session)
    again = store.load(session.id)
    assert again is not None
    return again


def saving(store: Store, session: Session) -> Callable[[], float]:
    numbers = count()

    def save() -> None:
        session.title = f"Title {next(numbers)}"
        store.save(session)

    return timed(save)


def saving_runtime(store: Store, session: Session) -> Callable[[], float]:
    numbers = count()

    def save() -> None:
        session.title = f"Title {next(numbers)}"
        store.save_runtime(session)

    return timed(save)


def replace_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Write a temporary file and rename it, in the simplest way."""
    temp = path.with_name(path.name + ".tmp")
    with temp.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temp.rename(path)


class Reference:
    """The algorithm GroveFS replaces: rewrite the whole index at each save."""

    def __init__(self, directory: Path, session: Session, index: dict[str, Any], *, sync: bool) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._sync = sync
        self._session = session.model_dump()
        self._entry = index["sessions"][session.id]
        self._index = index
        self._numbers = count()

    def saving(self, dump_index: Callable[[Any], bytes]) -> Callable[[], float]:
        def save() -> None:
            self._session["title"] = self._entry["title"] = f"Title {next(self._numbers)}"
            for name, document in (
                ("session.json", self._session),
                ("runtime.json", {**self._session, "messages": []}),
            ):
                replace_file(self._directory / name, json.dumps(document, indent=2).encode(), sync=self._sync)
            replace_file(self._directory / "sessions.json", dump_index(self._index), sync=self._sync)

        return timed(save)


def dump_plainly(index: Any) -> bytes:
    return json.dumps(index, indent=2).encode()


def dump_fast(index: Any) -> bytes:
    return orjson.dumps(index, option=orjson.OPT_INDENT_2)


# -- bench store -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    large: int = 100_000
    small: int = 1_000
    reference: int = 10_000
    rebuilt: int = 2_000
    saves: int = 300
    references: int = 9
    appends: int = 60
    openings: int = 15
    rebuilds: int = 3
    versions: int = 1_000


QUICK = Scale(10_000, 500, 10_000, 150, saves=40, references=3, appends=12, openings=5, rebuilds=1, versions=60)


@app.command("store")
def bench_store(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use smaller homes; takes under a minute and judges no targets.")
    ] = False,
    parent: Annotated[
        Path | None, typer.Option("--dir", help="Directory for temporary homes; must be on a real disk.")
    ] = None,
) -> None:
    """Measure saving, appending, opening and rebuilding, and check the targets."""
    scale = QUICK if quick else Scale()
    err = Console(stderr=True)

    def measure(place: Path) -> list[Row]:
        with Progress(console=err, disable=not err.is_terminal, transient=True) as meter:
            return measure_store(place, scale, meter)

    report(measure, parent, as_json=as_json, judges=not quick)


def report(measure: Callable[[Path], list[Row]], parent: Path | None, *, as_json: bool, judges: bool = True) -> None:
    """Measure in a temporary directory and print the rows. With `judges`, exit with 1 if a target is missed."""
    with workplace(parent) as place:
        rows = measure(place)
        machine = machine_of(place)
    print_report(rows, machine, as_json=as_json)
    if judges and any(row.met is False for row in rows):
        raise typer.Exit(1)


@app.command("logs")
def bench_logs(
    lines: Annotated[int, typer.Option(help="Lines per writer and round.")] = 40,
    rounds: Annotated[int, typer.Option(help="Rounds of each side.")] = 9,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for the homes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what durable logs cost: mode "full" against mode "normal", through mounts."""
    report(lambda place: measure_logs(place, lines, rounds), parent, as_json=as_json)


@app.command("grove")
def bench_grove(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less; judges no targets.")] = False,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for the homes.")] = None,
) -> None:
    """Measure what sharing costs: hosts of a grove, with PostgreSQL on this machine, against homes of their own."""
    scale = GroveScale.quick() if quick else GroveScale()
    report(lambda place: measure_grove(place, scale), parent, as_json=as_json, judges=not quick)


@app.command("pages")
def bench_pages(
    messages: Annotated[int, typer.Option(min=1, help="Messages in the conversation.")] = 5_000,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each side.")] = 7,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for the home.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how soon a long conversation can be read in a browser (chromium), opened from a mount."""
    report(lambda place: measure_pages(place, messages, rounds), parent, as_json=as_json)


@app.command("start")
def bench_start(
    sessions: Annotated[int, typer.Option(min=1, help="Sessions in the home.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each side.")] = 7,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for the home.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how soon commands and a mount start."""
    report(lambda place: measure_starting(place, sessions, rounds), parent, as_json=as_json)


@app.command("import")
def bench_import(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Use smaller logs; judges no targets.")] = False,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for logs and homes.")] = None,
) -> None:
    """Measure the import of generated logs: CPU time, memory, and what following one new line costs."""
    scale = ImportScale.quick() if quick else ImportScale()
    report(lambda place: measure_import(place, scale), parent, as_json=as_json, judges=not quick)


app.command("import-once", hidden=True)(import_once)


def measure_store(place: Path, scale: Scale, meter: Progress) -> list[Row]:
    homes = {number: place / f"home-{number}" for number in {scale.large, scale.small, scale.reference}}
    seconds = {number: first_opening(homes[number], number, meter) for number in sorted(homes)}
    task = meter.add_task("measuring", total=12)

    def done(rows: list[Row]) -> list[Row]:
        meter.advance(task)
        return rows

    return [
        *done(measure_growth(homes[scale.large], homes[scale.small], scale)),
        *done(measure_reference(homes[scale.reference], place / "reference", scale)),
        *done(measure_runtime(place / "runtime", scale)),
        *done(measure_append(place / "append", scale)),
        *done(measure_opening(homes[scale.large], scale, seconds[scale.large])),
        *done(measure_rebuild(place / "rebuild", scale, meter)),
        *done(measure_merge(place / "merge", scale)),
        *done(measure_past_log(place / "log", scale)),
        *done(measure_listing(place / "past", scale.small if scale is QUICK else scale.reference)),
        *done(measure_keeping(place / "keeping", Writer().session, Writer().text, scale.appends)),
        *done(measure_size(place / "size", Writer().text, scale.reference // 10)),
        *done(measure_reading(place / "reading", Writer().session("large", 10 * MB), Writer().text, scale.versions)),
    ]


def measure_growth(large: Path, small: Path, scale: Scale) -> list[Row]:
    with Store.open(large, durability=DURABILITY) as one, Store.open(small, durability=DURABILITY) as other:
        row = compare(
            f"1  save of 40 KB among {scale.large:,} sessions",
            saving(one, loaded(one, Writer().session("benched", 40 * KB))),
            f"among {scale.small:,}",
            saving(other, loaded(other, Writer().session("benched", 40 * KB))),
            Target(1.3),
            scale.saves,
        )
    return [row, measure_export(large, scale)]


def measure_export(home: Path, scale: Scale) -> Row:
    """The deferred work of a save: sessions.json is rewritten half a second after the last save, and at close."""
    with Store.open(home, durability=DURABILITY, background=False) as store:
        session = store.load("benched")
        assert session is not None
        save, export = saving(store, session), timed(store.maintenance.export_sessions_json)
        samples = [(save(), export())[1] for _ in range(5)]
    return Row(
        f"1  … and its deferred export of {scale.large:,} entries", statistics.median(samples), samples=len(samples)
    )


def measure_reference(home: Path, directory: Path, scale: Scale) -> list[Row]:
    """Neither side syncs, both do, or only GroveFS. The last is not a fair comparison, but the one of the defaults."""
    rows = []
    fifty = Target(50, at_least=True)
    cases: list[tuple[Durability, bool, Target | None]] = [
        ("normal", False, fifty),
        ("full", True, None),
        ("full", False, None),
    ]
    for durability, sync, target in cases:
        with Store.open(home, durability=durability) as store:
            session = store.load("benched") or loaded(store, Writer().session("benched", 40 * KB))
            store.maintenance.export_sessions_json()
            index = json.loads((home / "sessions.json").read_bytes())
            reference = Reference(directory / f"{durability}-{sync}", session, index, sync=sync)
            ours, theirs = ("fsync" if does else "no fsync" for does in (durability == "full", sync))
            for parser, dump, wanted in (("json", dump_plainly, target), ("orjson", dump_fast, None)):
                rows.append(
                    compare(
                        f"2  save of 40 KB among {scale.reference:,} sessions, {ours}",
                        saving(store, session),
                        f"reference, index by {parser}, {theirs}",
                        reference.saving(dump),
                        wanted,
                        scale.references,
                        faster=True,
                        burst=5,
                    )
                )
    return rows


def measure_runtime(home: Path, scale: Scale) -> list[Row]:
    writer = Writer()
    with Store.open(home, durability=DURABILITY) as store:
        large = loaded(store, writer.session("large", 10 * MB))
        small = loaded(store, writer.session("small", 10 * KB))
        return [
            compare(
                "3  save_runtime of a session of 10 MB",
                saving_runtime(store, large),
                "of 10 KB",
                saving_runtime(store, small),
                Target(1.3),
                scale.saves,
            )
        ]


def measure_append(home: Path, scale: Scale) -> list[Row]:
    writer = Writer()
    with Store.open(home, durability=DURABILITY) as store:
        store.save(writer.session("large", 10 * MB))
        document = (home / "sessions/large/session.json").read_bytes()
        row = compare(
            "4  append of a message to 10 MB",
            timed(lambda: store.append("large", [Message.user("one more thing")])),
            "writing 10 MB, fsync, rename",
            timed(lambda: replace_file(home.with_name("plain.json"), document, sync=True)),
            Target(2.5),
            scale.appends,
        )
    peaks = [peak_of_append(home) for _ in range(3)]
    size = len(document) / MB
    peak = max(peaks) / MB
    memory = Row("4  … its peak memory", peak, "MB", "the document", size, peak / size, Target(6), samples=len(peaks))
    return [row, memory]


def peak_of_append(home: Path) -> int:
    """Peak memory of an append in bytes, measured in a fresh process."""
    command = [sys.executable, __file__, "append-once", str(home)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@app.command("append-once", hidden=True)
def append_once(home: Path) -> None:
    with Store.open(home, durability=DURABILITY, background=False) as store:
        store.entries(limit=1)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current value
        before = memory_bytes("VmRSS")
        store.append("large", [Message.user("one more thing")])
        print(memory_bytes("VmHWM") - before)


def memory_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def measure_merge(home: Path, scale: Scale) -> list[Row]:
    writer = Writer()
    with Store.open(home, durability=DURABILITY) as store:
        for name in ("stale", "fresh"):
            store.save(writer.session(name, 40 * KB))
        return [
            compare(
                "7  put of 40 KB, merged",
                putting(store, "stale", stale=True),
                "put of 40 KB, stored as typed",
                putting(store, "fresh", stale=False),
                Target(3.5),
                scale.appends,
            )
        ]


def measure_past_log(home: Path, scale: Scale) -> list[Row]:
    writer = Writer()
    return measure_log(home, writer.session("benched", 40 * KB), scale.versions, writer.text)


def measure_opening(home: Path, scale: Scale, first_s: float) -> list[Row]:
    def opening() -> float:
        start = time.perf_counter()
        store = Store.open(home, durability=DURABILITY)
        newest = store.entries(limit=50)
        elapsed = (time.perf_counter() - start) * 1e3
        assert len(newest) == 50
        store.close()
        return elapsed

    def loading() -> None:
        with (home / "sessions.json").open() as file:
            json.load(file)

    what = f"{scale.large:,} sessions"
    return [
        compare(
            f"5  opening a home of {what}, 50 newest",
            opening,
            "json.load of its sessions.json",
            timed(loading),
            Target(1 / 20),
            scale.openings,
        ),
        Row("5  … its first opening, indexing 1 KB each", scale.large / first_s * 60, "sessions/min"),
    ]


def measure_rebuild(home: Path, scale: Scale, meter: Progress) -> list[Row]:
    task = meter.add_task("rebuilding", total=scale.rebuilt * scale.rebuilds)
    writer = Writer()
    with Store.open(home, durability="normal") as store:  # only to create the home; the rebuild does not fsync
        for i in range(scale.rebuilt):
            store.save(writer.session(f"s{i}", 40 * KB))
    os.sync()
    size = sum(path.stat().st_size for path in home.glob("sessions/*/*.json"))
    core_s: list[float] = []
    with Store.open(home, durability=DURABILITY) as store:
        for _ in range(scale.rebuilds):
            wall, cpu = time.perf_counter(), time.process_time()
            store.maintenance.rebuild(lambda *_: meter.advance(task))
            # The store's threads may use a second core; a minute on two cores counts as two.
            core_s.append(max(time.perf_counter() - wall, time.process_time() - cpu))
    median_s = statistics.median(core_s)
    per_minute = scale.rebuilt / median_s * 60
    what = f"6  rebuild of {scale.rebuilt:,} sessions of 40 KB"
    return [
        Row(what, per_minute, "sessions/min/core", target=Target(2_000, at_least=True), samples=scale.rebuilds),
        Row("6  … the same", size / MB / median_s, "MB/s", samples=scale.rebuilds),
    ]


if __name__ == "__main__":
    app()
