"""What a grove costs: the same operations on a home of its own and on a host of a grove, in turn.

The database is a private PostgreSQL server on the same machine, with its own settings for durability.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store import Message, Session, Store
from store.grove import administration
from store.grove.private_server import PrivateServer

from .machine import KB, MB
from .rows import Row, Target, compare, timed

WRITERS, HOSTS = 8, 4
APPENDER = """
import sys
from store import Message, Store
with Store.open(sys.argv[1], author="bench") as store:
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        store.append(sys.argv[2], [Message.user(f"message {number}")])
"""


@dataclass(frozen=True)
class GroveScale:
    saves: int = 60
    appends: int = 20
    each: int = 20  # appends of each of the eight writers
    rounds: int = 3
    seen: int = 40
    sessions: int = 300  # of 20 KB, for a new host

    @classmethod
    def quick(cls) -> GroveScale:
        return cls(saves=10, appends=4, each=5, rounds=2, seen=5, sessions=40)


@contextmanager
def private_server() -> Iterator[PrivateServer]:
    """A server in a directory that its user can enter."""
    directory = Path(tempfile.mkdtemp(prefix="grovefs-bench-pg-"))
    server = PrivateServer(directory)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def session_of(name: str, size_bytes: int) -> Session:
    """A session whose session.json has about this size; its words do not compress well."""
    chance = random.Random(name)
    words = [f"{chance.randrange(1 << 40):x}" for _ in range(2_000)]
    session = Session.new(name, "some-model")
    for number in range(max(1, size_bytes // 1_000)):
        content = " ".join(chance.choices(words, k=78))[:790]
        session.add_message(Message.assistant(content) if number % 2 else Message.user(content))
    return session


def measure_grove(place: Path, scale: GroveScale) -> list[Row]:
    with private_server() as server:
        url = server.url()
        administration.create(url)
        local, shared = place / "local", place / "shared"
        for home in (local, shared):
            _fill(home)
        administration.join(shared, url, "shared")
        rows = [*_measure_changes(local, shared, scale), *_measure_wire(shared)]
        rows.append(_measure_writers(place, url, scale))
        rows += _measure_visibility(place, url, shared, scale)
        rows.append(_measure_new_host(place, server, scale))
    return rows


def _fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for name, size in (("save", 40 * KB), ("append", 40 * KB), ("large", 10 * MB), ("seen", 40 * KB)):
            store.save(session_of(name, size))
        for number in range(WRITERS):
            store.save(session_of(f"writer{number}", 4 * KB))


# -- one change ----------------------------------------------------------------------------------------


def _measure_changes(local: Path, shared: Path, scale: GroveScale) -> list[Row]:
    with Store.open(local) as alone, Store.open(shared) as joined:
        sides = [
            ("append to 40 KB", _appending, "append", Target(1.4), scale.saves),
            ("save of 40 KB", _saving, "save", Target(1.4), scale.saves),
            ("append to 10 MB", _appending, "large", Target(1.5), scale.appends),
        ]
        return [
            compare(what, make(joined, name), "a home of its own", make(alone, name), target, rounds)
            for what, make, name, target, rounds in sides
        ]


def _appending(store: Store, name: str) -> Callable[[], float]:
    return timed(lambda: store.append(name, [Message.user("one more thing")]))


def _saving(store: Store, name: str) -> Callable[[], float]:
    session = store.load(name)
    assert session is not None
    numbers = iter(range(1 << 30))

    def save() -> None:
        session.title = f"Title {next(numbers)}"
        store.save(session)

    return timed(save)


def _measure_wire(shared: Path) -> list[Row]:
    """What an append to 10 MB sends, and how often it waits for the database, as libpq traces it."""
    with Store.open(shared, background=False) as store:
        store.append("large", [Message.user("the statement is prepared")])
        store.append("large", [Message.user("and sent once more")])
        lines = _traced(store, lambda: store.append("large", [Message.user("one more thing")]))
    sent = sum(int(line.split("\t")[1]) + 1 for line in lines if line.startswith("F"))
    sides = [line[0] for line in lines]
    trips = sum(1 for before, now in zip(["B", *sides], sides, strict=False) if (before, now) == ("B", "F"))
    return [
        Row("bytes sent for an append to 10 MB", sent, "bytes", target=Target(1_024)),
        Row("round trips of a commit", trips, "", target=Target(1)),
    ]


def _traced(store: Store, work: Callable[[], object]) -> list[str]:
    """The messages of all idle connections during some work, one line each."""
    agreement: Any = store._core.agreement
    with tempfile.TemporaryFile("w+") as file:
        for connection in agreement.server._idle:
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(1)  # without times
        work()
        for connection in agreement.server._idle:
            connection.pgconn.untrace()
        file.seek(0)
        return [line for line in file if line[:1] in "FB"]


# -- many writers ----------------------------------------------------------------------------------------


def _measure_writers(place: Path, url: str, scale: GroveScale) -> Row:
    """Eight processes, eight sessions: on one home of its own, and on four hosts."""
    alone = place / "writers"
    _fill_writers(alone)
    hosts = [place / f"host{number}" for number in range(HOSTS)]
    for home in hosts:
        administration.join(home, url, home.name)
    mine = [(hosts[number % HOSTS], f"writer{number}") for number in range(WRITERS)]
    theirs = [(alone, f"writer{number}") for number in range(WRITERS)]
    row = compare(
        f"{WRITERS} writers on {HOSTS} hosts, {scale.each} appends each",
        lambda: _write(mine, scale.each),
        "on one home of its own",
        lambda: _write(theirs, scale.each),
        Target(0.7, at_least=True),
        scale.rounds,
        faster=True,
    )
    return row


def _fill_writers(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for number in range(WRITERS):
            store.save(session_of(f"writer{number}", 4 * KB))


def _write(writers: Sequence[tuple[Path, str]], each: int) -> float:
    """Returns the milliseconds from the common start to the end of the last writer."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(home), name, str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)},
        )
        for home, name in writers
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    began = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    codes = []
    for process in running:
        process.communicate()
        codes.append(process.returncode)
    assert not any(codes), codes
    return (time.perf_counter() - began) * 1e3


# -- other hosts -------------------------------------------------------------------------------------------


def _measure_visibility(place: Path, url: str, shared: Path, scale: GroveScale) -> list[Row]:
    """From the end of a call on one host to its text in a file of another host's mount."""
    other, mountpoint = place / "other", place / "mnt"
    administration.join(other, url, "other")
    with _mounted(other, mountpoint, place / "log"), Store.open(shared) as store:
        path = mountpoint / "sessions/seen/session.json"
        times = [_seen_after(store, path, f"word{number}") for number in range(scale.seen + 2)][2:]
    deciles = statistics.quantiles(times, n=10)
    row = Row(
        "a commit is seen in another host's mount",
        statistics.median(times),
        target=Target(50),
        samples=len(times),
        spread=(deciles[0], deciles[-1]),
    )
    return [row, Row("… slowest of ten", deciles[-1])]


def _seen_after(store: Store, path: Path, word: str) -> float:
    wanted = word.encode()
    store.append("seen", [Message.user(word)])
    began = time.perf_counter()
    while True:
        with suppress(OSError):
            if wanted in path.read_bytes():
                return (time.perf_counter() - began) * 1e3
        time.sleep(0.001)


@contextmanager
def _mounted(home: Path, mountpoint: Path, log: Path) -> Iterator[None]:
    mountpoint.mkdir()
    words = ["mount", "--home", home, "--log-file", log, mountpoint]
    code = "from fusefs.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fusermount3", "-u", mountpoint], check=True)


def _measure_new_host(place: Path, server: PrivateServer, scale: GroveScale) -> Row:
    """An empty home joins a grove with sessions of 20 KB; the same sessions are indexed again locally."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE many")
    url, origin = server.url("many"), place / "origin"
    with Store.open(origin, background=False) as store:
        for number in range(scale.sessions):
            store.save(session_of(f"s{number}", 20 * KB))
    administration.create(url)
    administration.join(origin, url, "origin")
    numbers = iter(range(1 << 30))

    def join() -> None:
        administration.join(place / f"new{next(numbers)}", url)

    with Store.open(origin, background=False) as store:
        return compare(
            f"a new host, {scale.sessions:,} sessions of 20 KB",
            timed(join),
            "a local rebuild of the index",
            timed(store.maintenance.rebuild),
            Target(0.9, at_least=True),
            2,
            faster=True,
        )
