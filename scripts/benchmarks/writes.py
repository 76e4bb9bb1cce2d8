"""Write workloads of `bench mount`: through files, as editors and agents do, and through the store's API.

All writers give the same guarantee: each write is followed by fsync, to survive a power cut. Times are per
operation, measured in batches; the files on disk afterwards are the proof.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from store import Store

from .contenders import Contender
from .reads import Proof
from .tree import Planned, Prose, control_plane, render

T = TypeVar("T")

SIZE_BYTES = 40_000
USAGE = '{"model":"some-model","input_tokens":1200,"output_tokens":90,"total_tokens":1290}'


class Writer(ABC):
    """Writes sessions; `name` keeps those of several writers apart."""

    name: str
    on_disk: Path

    @abstractmethod
    def edit(self, session: str, raw: bytes) -> None:
        """Overwrite a session.json in place."""

    @abstractmethod
    def replace(self, session: str, raw: bytes) -> None:
        """Write a temporary file and rename it."""

    @abstractmethod
    def create(self, session: str, raw: bytes) -> None:
        """Create a session."""

    @abstractmethod
    def append(self, session: str) -> None:
        """Append a line to token-usage.jsonl."""


class Files(Writer):
    def __init__(self, contender: Contender) -> None:
        self.name = contender.name
        self.contender = contender
        self.on_disk = contender.writable_on_disk

    def _path(self, session: str, name: str) -> str:
        return f"{self.contender.writable}/{session}/{name}"

    def edit(self, session: str, raw: bytes) -> None:
        _write(self._path(session, "session.json"), os.O_WRONLY | os.O_TRUNC, raw)

    def replace(self, session: str, raw: bytes) -> None:
        temporary = self._path(session, "session.json.tmp")
        _write(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, raw)
        os.rename(temporary, self._path(session, "session.json"))

    def create(self, session: str, raw: bytes) -> None:
        os.mkdir(f"{self.contender.writable}/{session}", 0o700)
        _write(self._path(session, "session.json"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, raw)

    def append(self, session: str) -> None:
        line = f"{USAGE}\n".encode()
        _write(self._path(session, "token-usage.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, line)


class Itself(Writer):
    """The store in this process, on the mounted home: the cost of a commit without the mount."""

    name = "store"

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on_disk = store.home / "sessions"

    def edit(self, session: str, raw: bytes) -> None:
        self._store.put_document(session, "session.json", raw)

    replace = create = edit

    def append(self, session: str) -> None:
        self._store.usage.append(session, USAGE)


def _write(path: str, flags: int, raw: bytes) -> None:
    fd = os.open(path, flags, 0o600)
    try:
        written = os.write(fd, raw)
        assert written == len(raw)
        os.fsync(fd)
    finally:
        os.close(fd)


class Text:
    """Versions of a 40 KB session, all different and of the same length."""

    def __init__(self) -> None:
        self._messages = Prose(1, paragraphs=100).messages(SIZE_BYTES)
        self._number = 0

    def next(self, session: str) -> bytes:
        self._number += 1
        control = control_plane(Planned(session, None, SIZE_BYTES, is_rare=False), f"Version {self._number:08}")
        return render({**control, "messages": self._messages})


@dataclass(frozen=True)
class Write:
    name: str
    batch: int
    work: Callable[[Writer, Text, int, int], tuple[float, Proof]]

    def run(self, writer: Writer, text: Text, turn: int) -> tuple[float, Proof]:
        """Run a batch; returns milliseconds per operation, and the proof."""
        elapsed, proof = self.work(writer, text, turn, self.batch)
        return elapsed * 1e3 / self.batch, proof


def _rewriting(operation: str) -> Callable[[Writer, Text, int, int], tuple[float, Proof]]:
    def work(writer: Writer, text: Text, turn: int, batch: int) -> tuple[float, Proof]:
        session = _session(operation, writer)
        if turn == 0:
            writer.create(session, text.next(session))
        versions = [text.next(session) for _ in range(batch)]
        act = getattr(writer, operation)
        elapsed = timed(lambda raw: act(session, raw), versions)
        found = (writer.on_disk / session / "session.json").read_bytes()
        return elapsed, Proof(int(found == versions[-1]), len(found))

    return work


def _session(operation: str, writer: Writer) -> str:
    """An id per writer, all of the same length, because it is part of the document."""
    return f"{operation}-{writer.name:x<11}"


def _new_sessions(writer: Writer, turn: int, batch: int) -> list[str]:
    return [f"{_session('create', writer)}-{turn:03}-{i:05}" for i in range(batch)]


def _creating(writer: Writer, text: Text, turn: int, batch: int) -> tuple[float, Proof]:
    sessions = {name: text.next(name) for name in _new_sessions(writer, turn, batch)}
    elapsed = timed(lambda item: writer.create(*item), list(sessions.items()))
    found = {name: (writer.on_disk / name / "session.json").read_bytes() for name in sessions}
    same = sum(found[name] == raw for name, raw in sessions.items())
    return elapsed, Proof(same, sum(map(len, found.values())))


def _appending(writer: Writer, text: Text, turn: int, batch: int) -> tuple[float, Proof]:
    session = _session("append", writer)
    if turn == 0:
        writer.create(session, text.next(session))
    elapsed = timed(lambda _: writer.append(session), range(batch))
    found = (writer.on_disk / session / "token-usage.jsonl").read_bytes()
    return elapsed, Proof(found.count(b"\n"), len(found))


def timed(act: Callable[[T], object], items: Iterable[T]) -> float:
    start = time.perf_counter()
    for item in items:
        act(item)
    return time.perf_counter() - start


def writes(*, quick: bool) -> list[Write]:
    few = 5 if quick else 20
    return [
        Write("edit in place", few, _rewriting("edit")),
        Write("temp and rename", few, _rewriting("replace")),
        Write("create", 50 if quick else 500, _creating),
        Write("append", few * 5, _appending),
    ]
