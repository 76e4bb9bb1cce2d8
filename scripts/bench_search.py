"""`scripts/bench search`: indexed grep against grep and ripgrep, and the cost and size of the index."""

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
from benchmarks.finding import measure_updates, measure_words, text_bytes
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
    # Targets: how many times faster
    inside: float | None  # than grep, inside the process
    command: float | None  # than grep, as a command
    ripgrep: float | None  # than ripgrep, as a command
    unserved: float | None  # than grep, as a command without a freshness server


QUESTIONS = [
    Question("rare word", ["zyzzyva997"], 80, 12, 6, 3),
    Question("rare regular expression", ["-E", "zyz+yva(997|1994)[^0-9]"], 80, 12, 6, 3),
    Question("Chinese and Japanese", ["希少な単語"], 80, 12, 6, 3),
    Question("in no file", ["no such words as these"], 80, 12, 6, 3),
    Question("in every file", ["updated_at"], None, 1 / 1.2, None, None),
]


def bench_search(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small homes; targets are not checked.")] = False,
    parent: Annotated[Path | None, typer.Option("--dir", help="Directory for the homes, on a real disk.")] = None,
) -> None:
    """Measure search and check the targets. Only the ratios matter."""
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
    """The first opening builds index and search; then the trigrams of every file are indexed."""
    task = meter.add_task(f"indexing {number:,} sessions", total=2 * number)
    started = time.process_time()
    with Store.open(home, background=False, progress=lambda done, _: meter.update(task, completed=done)) as store:
        indexed = time.process_time() - started
        started = time.process_time()
        store.trigrams.rebuild(lambda done, _: meter.update(task, completed=number + done // 2))
        trigrams = time.process_time() - started
        # Not from the directory: segments merged into another are removed later.
        segments = sum(size for (size,) in store._core.db.reader.execute("SELECT bytes FROM grep_segments"))
    database = (home / ".grovefs/index.db").stat().st_size
    text = text_bytes(home)
    what = f"{number:,} sessions, {size / MB:,.0f} MB"
    return [
        Row(
            f"building the whole index, {what}",
            size / MB / (indexed + trigrams),
            "MB/s",
            target=Target(8, at_least=True),
        ),
        Row("… of that, the trigrams", size / MB / trigrams, "MB/s"),
        Row(
            f"index and trigrams, times the {text / MB:,.0f} MB of text in messages",
            (segments + database) / text,
            "×",
            target=Target(1.6),
        ),
        Row("… of that, the trigrams", segments / text, "×"),
    ]


def measure_questions(home: Path, number: int, scale: Scale, meter: Progress) -> list[Row]:
    task = meter.add_task(f"searching {number:,} sessions", total=2 * len(QUESTIONS))
    rows = []
    is_small = number == scale.small
    with Store.open(home, background=False) as store:
        server = FreshnessServer(store.trigrams, start_s=0)
        wait_served(home)
        for question in QUESTIONS:
            rows += measure_served(home, number, question, scale.rounds, is_small=is_small)
            meter.advance(task)
        server.stop()
        for question in QUESTIONS:
            if question.unserved is not None:
                target = Target(1 if is_small else question.unserved, at_least=True)
                rows.append(
                    against(
                        home,
                        f"{question.name}, without a freshness server",
                        question,
                        command(home, question),
                        target,
                        scale.rounds,
                    )
                )
            meter.advance(task)
    return [Row(**{**vars(row), "workload": f"{number:,}: {row.workload}"}) for row in rows]


def measure_served(home: Path, number: int, question: Question, rounds: int, *, is_small: bool) -> list[Row]:
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
    """The work of the process after start-up: select the files and run grep on them."""
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
    """Check the result before measuring."""
    ours = output([*COMMAND, "--home", str(home), *question.line], ROOT)
    assert ours == output(["grep", "-rn", *question.line, "sessions"], home), question.name


def wait_served(home: Path) -> None:
    os.chdir(home)
    while known_files.ask_freshness(b"") is None:
        time.sleep(0.05)


# -- the cost of listing changed files ----------------------------------------------------------------------


def measure_listing(place: Path, scale: Scale, meter: Progress) -> list[Row]:
    """A commit lists its files for grep: the cost in a save of 40 KB."""
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
            "save of 40 KB, files listed for grep",
            a,
            "ms",
            "not listed",
            b,
            a / b,
            Target(1.6),
            scale.saves,
        )
    ]


# In order; each creates its own homes below the given directory.
MEASUREMENTS: list[Callable[[Path, Scale, Progress], list[Row]]] = [
    measure_grep,
    measure_listing,
    lambda place, scale, meter: measure_updates(place, scale.saves, meter),
]
