"""Cost of keeping versions: the same changes with and without a history, its size, and reading from it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.machine import DURABILITY, KB, MB
from benchmarks.rows import Row, Target, compare, timed
from store import Message, Session, Store

WALL_TARGET = Target(1.10)
CPU_TARGET_MS = Target(0.4)
BYTES_TARGET = Target(800)
READ_TARGET_MS = Target(60)
MESSAGE_BYTES = 800
ROUNDS = 7

Text = Callable[[int], str]
Change = Callable[[Store, int], None]


def measure_keeping(place: Path, session: Callable[[str, int], Session], text: Text, rounds: int) -> list[Row]:
    """Appends, saves and puts with a history, compared with the same without."""

    def append(store: Store, number: int) -> None:
        store.append("benched", [Message.user(text(MESSAGE_BYTES))])

    def save(store: Store, number: int) -> None:
        found = store.load("benched")
        assert found is not None
        found.title = f"title {number}"
        store.save(found)

    def put(store: Store, number: int) -> None:
        raw = store.get_document("benched", "session.json")
        assert raw is not None
        old, new = (b" e", b" E") if number % 2 else (b" E", b" e")
        store.put_document("benched", "session.json", raw.replace(old, new, 100) + b" " * (number % 3))

    rows: list[Row] = []
    for name, size, change in (
        ("append to 40 KB", 40 * KB, append),
        ("append to 10 MB", 10 * MB, append),
        ("save of 40 KB", 40 * KB, save),
        ("put of 40 KB", 40 * KB, put),
    ):
        rows += _compare(place / name, name, session("benched", size), change, rounds)
    return rows


def _compare(place: Path, name: str, session: Session, change: Change, rounds: int) -> list[Row]:
    with (
        Store.open(place / "with", durability=DURABILITY, background=False) as kept,
        Store.open(place / "without", durability=DURABILITY, background=False, history=False) as plain,
    ):
        sides = []
        for store in (kept, plain):
            store.save(session.model_copy(deep=True))
            sides.append(_Side(store, change))
        row = compare(f"10 {name}, with history", sides[0], "without", sides[1], WALL_TARGET, rounds)
        cpu_ms = [side.cpu_ms() for side in sides]
    added = Row("10 … CPU time added", cpu_ms[0] - cpu_ms[1], target=CPU_TARGET_MS, samples=rounds)
    return [row, added]


class _Side:
    """One store whose changes are timed, in wall-clock and CPU time."""

    def __init__(self, store: Store, change: Change) -> None:
        self._store = store
        self._change = change
        self._numbers = count()
        self._cpu: list[float] = []

    def __call__(self) -> float:
        wall, cpu = time.perf_counter(), time.process_time()
        self._change(self._store, next(self._numbers))
        self._cpu.append(time.process_time() - cpu)
        return (time.perf_counter() - wall) * 1e3

    def cpu_ms(self) -> float:
        return statistics.median(self._cpu) * 1e3


def measure_size(place: Path, text: Text, commits: int) -> list[Row]:
    """Bytes of history for a commit, with all indexes; sessions grow by appends of 0.8 KB."""
    number = max(1, commits // 100)
    with Store.open(place, durability="normal", background=False) as store:
        for each in range(number):
            store.save(Session.new(f"s{each}", "some-model"))
        for _ in range(commits // number):
            for each in range(number):
                store.append(f"s{each}", [Message.user(text(MESSAGE_BYTES))])
    size = (place / ".grovefs/history.db").stat().st_size / commits  # closing wrote the log into it
    return [Row("11 history of an append of 0.8 KB", size, "bytes", target=BYTES_TARGET, samples=commits)]


def measure_reading(place: Path, session: Session, text: Text, versions: int) -> list[Row]:
    """A version in the middle of a session of 10 MB, without the decompression of its whole text."""
    with Store.open(place, durability="normal", background=False) as store:
        store.save(session)
        for _ in range(versions):
            store.append(session.id, [Message.user(text(MESSAGE_BYTES))])
        first, middle = (store.history.find(session.id, number) for number in (1, versions // 2))
        assert first is not None
        assert middle is not None
        whole = statistics.median(timed(lambda: store.history.read(first))() for _ in range(ROUNDS))
        read = statistics.median(timed(lambda: store.history.read(middle))() for _ in range(ROUNDS))
    added = Row("11 version of 10 MB, beyond its whole text", max(0.0, read - whole), target=READ_TARGET_MS)
    return [added, Row("11 … the whole text", whole, samples=ROUNDS)]
