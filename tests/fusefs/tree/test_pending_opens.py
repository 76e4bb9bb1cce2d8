"""Pending opens: the retry after ESTALE finds what was reserved for its thread."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from fusefs.tree import pending_opens
from fusefs.tree.nodes import Node
from fusefs.tree.pending_opens import PendingOpens
from fusefs.tree.write_buffers import WriteBuffer
from store import Store
from store.path_kinds import classify_path

PATH = "sessions/s/session.json"


@pytest.fixture
def directory() -> Node:
    return Node(10, None, "s", "sessions/s", classify_path("sessions/s"))


@pytest.fixture
def private(store: Store, directory: Node) -> Node:
    buffer = WriteBuffer(store, classify_path(PATH), None, None)
    return Node(11, directory, "session.json", PATH, classify_path(PATH), buffer=buffer)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("fusefs.tree.pending_opens.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def open_null(_: Node) -> int:
    return os.open("/dev/null", os.O_RDONLY)


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_private_node_is_reserved_for_one_thread_and_name(directory: Node, private: Node) -> None:
    pending = PendingOpens()
    pending.reserve(1, directory, "session.json", private)
    assert pending.reserved_for(1, directory, "session.json") is private
    assert pending.reserved_for(2, directory, "session.json") is None
    assert pending.reserved_for(1, directory, "runtime.json") is None


def test_second_try_of_an_open_is_known_by_thread_and_node(directory: Node, private: Node) -> None:
    """Threads of another pid namespace all have pid 0, so it is not known of them."""
    pending = PendingOpens()
    for pid in (0, 1):
        pending.reserve(pid, directory, "session.json", private)
    readers = Node(12, directory, "session.json", PATH, classify_path(PATH))
    assert pending.is_retry(1, private)
    assert not pending.is_retry(1, readers)
    assert not pending.is_retry(2, private)
    assert not pending.is_retry(0, private)
    pending.claimed(1, private)
    assert not pending.is_retry(1, private)


def test_claimed_node_is_no_longer_awaited(directory: Node, private: Node) -> None:
    """The buffer remembers its opener, and lives by its handles from then on."""
    pending, buffer = PendingOpens(), private.buffer
    assert buffer is not None
    pending.reserve(1, directory, "session.json", private)
    assert not buffer.is_idle
    pending.claimed(1, private)
    assert buffer.is_idle
    assert buffer.opener == 1
    assert pending.reserved_for(1, directory, "session.json") is None


@pytest.mark.parametrize(("pid", "seconds"), [(1, pending_opens.RETRY_S), (0, pending_opens.UNKNOWN_PID_S)])
def test_reservation_expires(directory: Node, private: Node, clock: list[float], pid: int, seconds: float) -> None:
    """Callers without a pid look alike, so their reservations are short."""
    pending = PendingOpens()
    pending.reserve(pid, directory, "session.json", private)
    clock[0] += seconds - 0.1
    assert pending.expire() == []
    assert pending.reserved_for(pid, directory, "session.json") is private
    clock[0] += 0.2
    assert pending.reserved_for(pid, directory, "session.json") is None
    assert pending.expire() == [private]
    assert private.buffer is not None
    assert private.buffer.is_idle


def test_reader_and_writer_without_a_pid_keep_their_own_entries(directory: Node, private: Node) -> None:
    """Both have pid 0, and wait for the same name."""
    pending = PendingOpens()
    pending.reserve(0, directory, "session.json", private)
    pending.expect_reader(0, private)
    assert pending.reserved_for(0, directory, "session.json") is private
    assert pending.expects_reader(0, directory, "session.json")


def test_pinned_descriptor_is_taken_once_and_by_its_thread(directory: Node, private: Node) -> None:
    pending = PendingOpens()
    pending.expect_reader(1, private)
    assert pending.expects_reader(1, directory, "session.json")
    assert pending.pin(1, lambda: private, open_null) is private
    assert pending.take_pinned(2, private) is None
    fd = pending.take_pinned(1, private)
    assert fd is not None
    assert is_open(fd)
    os.close(fd)
    assert pending.take_pinned(1, private) is None
    assert not pending.expects_reader(1, directory, "session.json")


def test_pin_looks_again_until_a_version_can_be_opened(private: Node) -> None:
    """A commit may replace the version between lookup and open, also here."""
    pending, results = PendingOpens(), [None, None, open_null(private)]

    def open_version(_: Node) -> Any:
        return results.pop(0)

    pending.pin(1, lambda: private, open_version)
    assert results == []
    fd = pending.take_pinned(1, private)
    assert fd is not None
    os.close(fd)


def test_pin_gives_up_after_many_tries(private: Node) -> None:
    pending = PendingOpens()
    assert pending.pin(1, lambda: private, lambda _: None) is private
    assert pending.take_pinned(1, private) is None


def test_unused_pins_are_closed(private: Node, clock: list[float]) -> None:
    """A second pin replaces the first; the deadline closes the last."""
    pending, fds = PendingOpens(), []

    def open_version(node: Node) -> int:
        fds.append(open_null(node))
        return fds[-1]

    pending.pin(1, lambda: private, open_version)
    pending.pin(1, lambda: private, open_version)
    assert [is_open(fd) for fd in fds] == [False, True]
    clock[0] += pending_opens.PINNED_S + 0.1
    pending.expire()
    assert not is_open(fds[1])
