"""`scripts/bench search`: grep with an index against grep and ripgrep, what the index costs, and how it grows."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from benchmarks.finding import measure_upkeep, measure_words, text_bytes
from benchmarks.machine import MB, machine_of, workplace
from benchmarks.rows import Row, Target, compare, print_report, timed
from benchmarks.texts import write_sessions
from rich.console import Console
from rich.progress import Progress

from store import Message, Session, Store
from store.search.grep import grep, known_files
from store.search.grep.freshness import FreshnessServer
from store.search.grep.options import parse

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "from fusefs.cli import main; main()", "grep"]


@dataclass(frozen=True)
class Scale:
    large: int = 20_000
    small: int = 2_000
    rounds: int = 9
    saves: int = 200


QUICK = Scale(600, 200, 2, 20)


@dataclass(frozen=True)
class Question:
    name: str
    line: list[str]
    inside: float | None  # how many times faster than grep: in the process,
    command: float | None  # as a command,
    ripgrep: float | None  # as a command, than ripgrep,
    unvouched: float | None  # and when every file is looked at first


QUESTIONS = [
    Question("rare word", ["zyzzyva997"], 80, 12, 6, 3),
    Question("rare regular expression", ["-E", "zyz+yva(997|1994)[^0-9]"], 80, 12, 6, 3),
    Question("Chinese and Japanese", ["希少な単語"], 80, 12, 6, 3),
    Question("in no file", ["no such words as these"], 80, 12, 6, 3),
    Question("in every file", ["updated_at"], None, 1 / 1.2, None, None),
]


def bench_search(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small homes, no verdict.")] = False,
    parent: Annotated[Path | None, typer.Option("--dir", help="Where homes are made: a real disk.")] = None,
) -> None:
    """What finding costs, and whether the targets are met. Ratios are what counts."""
    scale = QUICK if quick else Scale()
    err = Console(stderr=True)
    with workplace(parent) as place, Progress(console=err, disable=not err.is_terminal, transient=True) as meter:
        rows = [row for measure in MEASUREMENTS for row in measure(place, scale, meter)]
        machine = machine_of(place)
    print_report(rows, machine, as_json=as_json)
    if not quick and any(row.met is False for row in rows):
        raise typer.Exit(1)


# -- grep ------------------------------------------------------------------------------------------------


def measure_grep(place: Path, scale: Scale, meter: Progress) -> list[Row]:
    rows = []
    for number in (scale.large, scale.small):
        home = place / f"home-{number}"
        size = write_sessions(home, number, meter)
        rows += measure_build(home, number, size, meter)
        rows += measure_words(home, f"{number:,}")
        rows += measure_questions(home, number, scale, meter)
    return rows


def measure_build(home: Path, number: int, size: int, meter: Progress) -> list[Row]:
    """The first opening makes index and search; then the trigrams of every file."""
    task = meter.add_task(f"indexing {number:,} sessions", total=2 * number)
    started = time.process_time()
    with Store.open(home, background=False, progress=lambda done, _: meter.update(task, completed=done)) as store:
        indexed = time.process_time() - started
        started = time.process_time()
        store.trigrams.rebuild(lambda done, _: meter.update(task, completed=number + done // 2))
        trigrams = time.process_time() - started
        # Not those in the directory that were merged into another: they are removed later.
        segments = sum(size for (size,) in store._core.db.reader.execute("SELECT bytes FROM grep_segments"))
    database = (home / ".grovefs/index.db").stat().st_size
    text = text_bytes(home)
    what = f"{number:,} sessions, {size / MB:,.0f} MB"
    return [
        Row(
            f"building all of the index, {what}",
            size / MB / (indexed + trigrams),
            "MB/s",
            target=Target(8, at_least=True),
        ),
        Row("… of it the trigrams", size / MB / trigrams, "MB/s"),
        Row(
            f"index and trigrams, times the {text / MB:,.0f} MB of text in messages",
            (segments + database) / text,
            "×",
            target=Target(1.6),
        ),
        Row("… of it the trigrams", segments / text, "×"),
    ]


def measure_questions(home: Path, number: int, scale: Scale, meter: Progress) -> list[Row]:
    task = meter.add_task(f"searching {number:,} sessions", total=2 * len(QUESTIONS))
    rows = []
    is_small = number == scale.small
    with Store.open(home, background=False) as store:
        warden = FreshnessServer(store.trigrams, start_s=0)
        wait_vouched(home)
        for question in QUESTIONS:
            rows += measure_vouched(home, number, question, scale.rounds, is_small=is_small)
            meter.advance(task)
        warden.stop()
        for question in QUESTIONS:
            if question.unvouched is not None:
                target = Target(1 if is_small else question.unvouched, at_least=True)
                rows.append(
                    against(
                        home,
                        f"{question.name}, every file looked at first",
                        question,
                        command(home, question),
                        target,
                        scale.rounds,
                    )
                )
            meter.advance(task)
    return [Row(**{**vars(row), "workload": f"{number:,}: {row.workload}"}) for row in rows]


def measure_vouched(home: Path, number: int, question: Question, rounds: int, *, is_small: bool) -> list[Row]:
    def wanted(bound: float | None) -> Target | None:
        return None if bound is None else Target(1 if is_small else bound, at_least=True)

    check_same(home, question)
    whole = command(home, question)
    rows = [
        against(
            home, f"{question.name}, in the process", question, inside(home, question), wanted(question.inside), rounds
        ),
        against(home, f"{question.name}, the command", question, whole, wanted(question.command), rounds),
    ]
    rg = ["rg", "-n", "--no-ignore", "--hidden", "-e", question.line[-1], "sessions"]
    theirs = timed(lambda: output(rg, home))
    target = wanted(question.ripgrep)
    rows.append(compare(f"{question.name}, the command", whole, "ripgrep", theirs, target, rounds, faster=True))
    return rows


def against(
    home: Path, name: str, question: Question, ours: Callable[[], float], target: Target | None, rounds: int
) -> Row:
    theirs = timed(lambda: output(["grep", "-rn", *question.line, "sessions"], home))
    return compare(name, ours, "grep -rn", theirs, target, rounds, faster=True)


def command(home: Path, question: Question) -> Callable[[], float]:
    return timed(lambda: output([*COMMAND, "--home", str(home), *question.line], ROOT))


def inside(home: Path, question: Question) -> Callable[[], float]:
    """All that the process does once it has started: choosing the files, and grep on those."""
    line = [os.fsencode(part) for part in question.line]

    def run() -> None:
        options = parse(line)
        for each in grep.commands(options, grep.choose(options)):
            output(each, home)

    def in_home() -> None:
        os.chdir(home)
        run()

    return timed(in_home)


def output(line: list[str] | list[bytes], where: Path) -> bytes:
    return subprocess.run(line, cwd=where, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout


def check_same(home: Path, question: Question) -> None:
    """A wrong answer is not worth measuring."""
    ours = output([*COMMAND, "--home", str(home), *question.line], ROOT)
    assert ours == output(["grep", "-rn", *question.line, "sessions"], home), question.name


def wait_vouched(home: Path) -> None:
    os.chdir(home)
    while known_files.ask_freshness(b"") is None:
        time.sleep(0.05)


# -- what keeping up costs a save ---------------------------------------------------------------------------


def measure_listing(place: Path, scale: Scale, meter: Progress) -> list[Row]:
    """A commit lists its files for grep: its share of a save of 40 KB, and of an append to a long session."""
    from store.index import changed_files

    def saving(store: Store, session: Session) -> Callable[[], float]:
        def save() -> None:
            session.title = f"Title {time.monotonic_ns()}"
            store.save(session)

        return timed(save)

    with Store.open(place / "saves", background=False) as store:
        session = Session.new("s", "m")
        for i in range(40):
            session.add_message(Message.user(f"{i} " + "some words " * 90))
        store.save(session)
        loaded = store.load("s")
        assert loaded is not None
        save, note = saving(store, loaded), changed_files.note
        with_list, without = [], []
        for _ in range(scale.saves):
            with_list.append(save())
            changed_files.note = lambda *_: None
            without.append(save())
            changed_files.note = note
    a, b = statistics.median(with_list), statistics.median(without)
    return [
        Row(
            "save of 40 KB, its files listed for grep",
            a,
            "ms",
            "not listed",
            b,
            a / b,
            Target(1.6),
            scale.saves,
        )
    ]


# What is measured, in order; each makes its own homes below the place it is given.
MEASUREMENTS: list[Callable[[Path, Scale, Progress], list[Row]]] = [
    measure_grep,
    measure_listing,
    lambda place, scale, meter: measure_upkeep(place, scale.saves, meter),
]
