"""A host as a process: it opens its home, does what it is asked through a pipe, and can be killed at any moment."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from store import Store
from store.errors import Conflict, StoreError, Unsure
from tests.torture.hosts.deeds import Deed, Worker

processes = multiprocessing.get_context("fork")
ANSWER_S = 90.0  # an operation gives up after ten seconds; the machine may be busy


class Answer(NamedTuple):
    """What became of a deed. `how` is done, refused, conflict, unsure, killed or failed."""

    how: str
    value: Any = None
    error: str = ""

    @property
    def is_unknown(self) -> bool:
        return self.how in ("unsure", "killed")


def _live(home: Path, log: Path, line: Connection) -> None:
    """The process of a host."""
    logging.basicConfig(filename=log, level=logging.INFO, force=True, format="%(asctime)s %(process)d %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the attack, which ends its hosts
    try:
        with Store.open(home, author=home.name, durability="normal") as store:
            worker = Worker(store)
            line.send("open")
            while (deed := line.recv()) is not None:
                line.send(_answer(worker, deed))
    except Exception:
        logging.exception("the host ends")
        raise


def _answer(worker: Worker, deed: Deed) -> Answer:
    try:
        return Answer("done", worker.do(deed))
    except Unsure as error:
        return Answer("unsure", error=_text(error))
    except Conflict as error:
        return Answer("conflict", error=_text(error))
    except StoreError as error:
        return Answer("refused", error=_text(error))
    except Exception as error:  # a bug; the attack reports it
        logging.exception("%s failed", deed)
        return Answer("failed", error=_text(error))


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Host:
    """A host, as the attack sees it."""

    def __init__(self, home: Path, log: Path) -> None:
        self.home, self.log = home, log
        self._process: Any = None
        self._line: Connection | None = None

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    def start(self) -> None:
        ours, theirs = processes.Pipe()
        self._process = processes.Process(target=_live, args=(self.home, self.log, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._line = ours
        assert self._receive() == "open", f"{self.name} cannot be opened: {self.log.read_text()[-2000:]}"

    def ask(self, deed: Deed) -> None:
        """Begin a deed; `answer` waits for its end."""
        assert self._line is not None
        self._line.send(deed)

    def answer(self) -> Answer:
        found: Answer = self._receive()
        return found

    def do(self, deed: Deed) -> Answer:
        self.ask(deed)
        return self.answer()

    def kill(self) -> Answer:
        """Kill -9. Returns the answer that was given before, if any."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join(ANSWER_S)
        assert self._line is not None
        try:
            found = self._line.recv() if self._line.poll() else None
        except (EOFError, OSError):  # nothing, or a part of an answer
            found = None
        self._forget()
        return found if isinstance(found, Answer) else Answer("killed")

    def stop(self) -> None:
        """Close the home and end."""
        assert self._line is not None
        self._line.send(None)
        self._process.join(ANSWER_S)
        code = self._process.exitcode
        self._forget()
        assert code == 0, f"{self.name} ended with {code}: {self.log.read_text()[-2000:]}"

    def _forget(self) -> None:
        assert self._line is not None
        self._line.close()
        self._process.close()
        self._process = self._line = None

    def _receive(self) -> Any:
        assert self._line is not None
        until = time.monotonic() + ANSWER_S
        while not self._line.poll(0.5):
            assert self._process.is_alive(), f"{self.name} died: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"{self.name} gives no answer: {self.log.read_text()[-2000:]}"
        try:
            return self._line.recv()
        except EOFError:
            raise AssertionError(f"{self.name} died: {self.log.read_text()[-2000:]}") from None
