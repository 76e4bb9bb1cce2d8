"""`grovefs tail`: the last messages, and following a session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from store import Message, Session, Store
from tests.builders import make_session
from tests.fusefs.cli.commands.test_modify import run

TIMEOUT_S = 60


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("one", messages=4))
    return home


class Following:
    """A running `tail -f` and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.out, self.err = bytearray(), bytearray()
        pipes = ((process.stdout, self.out), (process.stderr, self.err))
        self.readers = [threading.Thread(target=self._read, args=pair) for pair in pipes]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(pipe: IO[bytes], text: bytearray) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 65536):
                text.extend(chunk)

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, (self.out, self.err)
            time.sleep(0.02)


@contextmanager
def following(home: Path, *arguments: str) -> Iterator[Following]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from fusefs.cli import main; main()", "tail", "-f", *arguments],
        env={**os.environ, "GROVEFS_HOME": str(home), "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    tail = Following(process)
    try:
        yield tail
    finally:
        process.kill()
        process.wait()
        for reader in tail.readers:
            reader.join()


def test_last_messages_are_printed(filled: Path) -> None:
    shown = run(filled, "tail", "one", "-n", "2").stdout
    assert [line[:5] for line in shown.splitlines() if line.startswith("## ")] == ["## [2", "## [3"]
    assert "msg-2" in shown
    assert "msg-1" not in shown
    lines = [json.loads(line) for line in run(filled, "tail", "one", "--json", "-n", "1").stdout.splitlines()]
    assert [(line["index"], line["content"]) for line in lines] == [(3, "msg-3")]
    assert run(filled, "tail", "one", "-n", "0").stdout == ""


def test_follow_prints_new_messages_until_interrupted(filled: Path) -> None:
    def finish(session: Session) -> None:
        session.last_run_status = "completed"

    with following(filled, "one", "-n", "1") as tail:
        tail.until(lambda: b"msg-3" in tail.out)
        with Store.open(filled, background=False) as store:
            store.append("one", [Message.assistant("a new thought")])
            tail.until(lambda: b"## [4] assistant" in tail.out and b"a new thought" in tail.out)
            store.update("one", finish)
            tail.until(lambda: b"run status: completed" in tail.err)
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(TIMEOUT_S) == 0
        assert tail.out.count(b"a new thought") == 1


def test_follow_notices_direct_edits_of_the_files(filled: Path) -> None:
    """An edit of printed messages is noted on standard error."""
    path = filled / "sessions/one/session.json"
    with following(filled, "one") as tail:
        tail.until(lambda: b"msg-3" in tail.out)
        new = path.with_name("new")
        new.write_bytes(path.read_bytes().replace(b"msg-3", b"rewritten"))
        new.replace(path)
        tail.until(lambda: b"rewritten" in tail.out)
        tail.until(lambda: b"earlier messages were edited" in tail.err)
        assert tail.out.count(b"msg-2") == 1


def test_follow_ends_when_the_session_is_deleted(filled: Path) -> None:
    with following(filled, "one") as tail:
        tail.until(lambda: b"msg-3" in tail.out)
        with Store.open(filled, background=False) as store:
            store.delete("one")
        assert tail.process.wait(TIMEOUT_S) == 1
        tail.until(lambda: b"session one was deleted; `grovefs trash` lists deletions" in tail.err)
