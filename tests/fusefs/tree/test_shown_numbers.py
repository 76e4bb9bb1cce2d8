"""Numbers that documents show: inherited from version to version, reserved, and not shown for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fusefs.tree import shown_numbers
from fusefs.tree.nodes import ROOT_INODE, Node, Nodes
from fusefs.tree.processes import Process
from fusefs.tree.shown_numbers import ShownNumbers, number_for
from store.path_kinds import classify_path

PATH = "sessions/root/session.json"
VIM, TAIL = Process(10, 1), Process(20, 1)


@pytest.fixture
def numbers() -> ShownNumbers:
    return ShownNumbers()


@pytest.fixture
def info(tmp_path: Path) -> os.stat_result:
    (tmp_path / "file").touch()
    return (tmp_path / "file").stat()


def version(inode: int, info: os.stat_result, path: str = PATH) -> Node:
    return Node(inode, None, "session.json", path, classify_path(path), info)


def test_next_versions_show_the_number_of_the_first(numbers: ShownNumbers, info: os.stat_result) -> None:
    """Their ctime grows even if the clock of the disk is too coarse to tell them apart."""
    numbers.replaced(version(100, info))
    second, third = version(200, info), version(300, info)
    numbers.inherit(second)
    numbers.replaced(second)
    numbers.inherit(third)
    assert (second.shown_inode, third.shown_inode) == (100, 100)
    assert info.st_ctime_ns < second.min_ctime_ns < third.min_ctime_ns


def test_same_version_shows_the_same_after_the_kernel_forgot_it(numbers: ShownNumbers, info: os.stat_result) -> None:
    """git would take a later ctime for a change."""
    first = version(100, info)
    for _ in range(2):
        numbers.replaced(first)
        first = version(100, info)
        numbers.inherit(first)
        assert (first.shown_inode, max(first.min_ctime_ns, info.st_ctime_ns)) == (None, info.st_ctime_ns)
    numbers.replaced(first)
    for _ in range(2):
        second = version(200, info)
        numbers.inherit(second)
        numbers.replaced(second)
        assert (second.shown_inode, second.min_ctime_ns) == (100, info.st_ctime_ns + 1)


def test_numbers_of_a_large_home_are_limited(
    numbers: ShownNumbers, info: os.stat_result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_numbers, "MAX_KEPT", 2)
    for number in range(4):
        numbers.replaced(version(100 + number, info, f"sessions/{number}/session.json"))
    numbers.replaced(version(102, info, "sessions/2/session.json"))
    assert [numbers.find(f"sessions/{number}/session.json") for number in range(4)] == [None, None, 102, 103]


def test_number_is_forgotten_after_a_minute(
    numbers: ShownNumbers, info: os.stat_result, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers.replaced(version(100, info))
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert numbers.find(PATH) is None
    second = version(200, info)
    numbers.inherit(second)
    assert second.shown_inode is None
    numbers.expire()
    assert not numbers._replaced


def test_attachments_show_their_own_numbers(numbers: ShownNumbers, info: os.stat_result) -> None:
    """SQLite detects by the number that its database was replaced."""
    path = "sessions/root/attachments/data.db"
    numbers.replaced(version(100, info, path))
    second = version(200, info, path)
    numbers.inherit(second)
    assert second.shown_inode is None


def test_shown_number_is_reserved_until_the_node_is_dropped(numbers: ShownNumbers, info: os.stat_result) -> None:
    nodes = Nodes()
    nodes.is_reserved = numbers.is_reserved  # type: ignore[method-assign]
    nodes.add(Node(ROOT_INODE, None, "", "", None))
    taken = nodes.number(PATH, "first")
    node = version(200, info)
    numbers.show(node, taken)
    assert nodes.number(PATH, "first") != taken
    numbers.show(node, 300)
    assert nodes.number(PATH, "first") == taken
    numbers.dropped(node)
    assert not numbers.is_reserved(300)


def test_reader_of_an_older_version_sees_the_own_number(info: os.stat_result) -> None:
    """It still sees it after it has closed the older version: one file never shows it two numbers."""
    node = version(200, info)
    node.shown_inode = 100
    assert number_for(node, VIM, [TAIL]) == 100
    assert number_for(node, TAIL, [TAIL]) == 200
    assert number_for(node, TAIL, []) == 200
    assert number_for(node, VIM, []) == 100
