"""Deadlines: a database that stands still keeps no lock and no reader waiting for longer than the deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import Message, Session, Store
from store.errors import Unreachable, Unsure
from store.grove.agreeing import GroveAgreement
from store.grove.private_server import PrivateServer
from tests.grove.conftest import new_database
from tests.grove.homes import agreement_of, assert_same_and_clean, texts, unfollowed_hosts
from tests.grove.test_unreachable import wait_writable


@contextmanager
def standing_still(server: PrivateServer) -> Iterator[None]:
    """All processes of a server are stopped: connections stay open, and nothing answers."""
    assert server._process is not None
    main = server._process.pid
    stopped = [main, *_children(main)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def test_a_database_that_stands_still_holds_no_lock_past_the_deadline(
    tmp_path: Path, own_server: PrivateServer
) -> None:
    """The first writer is refused after the deadline, the next at once; reading never waits; then all work again."""
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        agreement_of(a).server.deadline_s = 2.0
        with standing_still(own_server):
            failed: list[Exception] = []

            def write() -> None:
                try:
                    a.append("s", [Message.user("perhaps")])
                except (Unsure, Unreachable) as error:
                    failed.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            while writer.is_alive():
                assert texts(a, "s") == []
                time.sleep(0.01)
            writer.join()
            assert failed
            with a._core.locked(a._core.locate("s"), timeout_s=0):  # type: ignore[arg-type]
                pass
            began = time.monotonic()
            with pytest.raises(Unreachable):
                a.append("s", [Message.user("no")])
            assert time.monotonic() - began < 2.0  # at once: less than the deadline
        wait_writable(a)
        a.append("s", [Message.user("yes")])
        assert texts(a, "s") in (["yes"], ["perhaps", "yes"])
        assert_same_and_clean(a)


def test_an_attempt_that_may_have_succeeded_is_never_called_unchanged(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and the second attempt fails for another reason: the outcome is unknown."""
    real = GroveAgreement._send
    errors: list[Exception] = [psycopg.OperationalError("lost"), psycopg.errors.LockNotAvailable("busy")]

    def send(self: GroveAgreement, *args: Any, **kwargs: Any) -> int | None:
        if len(errors) == 2:
            real(self, *args, **kwargs)
        if errors:
            raise errors.pop(0)
        return real(self, *args, **kwargs)

    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        monkeypatch.setattr(GroveAgreement, "_send", send)
        with pytest.raises(Unsure):
            a.append("s", [Message.user("stored")])
        a.append("s", [Message.user("then")])
        assert texts(a, "s") == ["stored", "then"]
        assert_same_and_clean(a)


def test_a_store_closes_while_the_database_stands_still(tmp_path: Path, own_server: PrivateServer) -> None:
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        with standing_still(own_server):
            a.close()
    with Store.open(tmp_path / "a", background=False) as again:
        assert_same_and_clean(again)
