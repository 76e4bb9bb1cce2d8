"""Directories are read ahead of a program that walks a tree, in either order that programs use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusefs import _fast
from fusefs.requests import read_ahead
from fusefs.requests.read_ahead import WINDOW, ReadAhead
from fusefs.requests.threads import Threads
from fusefs.tree.nodes import Listing, Node

NAMES = [f"s{number:04}" for number in range(300)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are read ahead."""
    names: list[str] = []
    monkeypatch.setattr(read_ahead, "EXTENSION", object())
    monkeypatch.setattr(ReadAhead, "_start", lambda self, parent, listing, found: names.extend(found))
    return names


def directory(tmp_path: Path) -> Node:
    """A directory with subdirectories whose inode numbers are in another order than their names."""
    info = tmp_path.stat()
    top = Node(1, None, "", "", None)
    parent = Node(2, top, "sessions", "sessions", None)
    for place, name in enumerate(NAMES):
        number = 1000 + place * 7919 % len(NAMES)
        parent.children[name] = Node(number, parent, name, f"sessions/{name}", None, info=info)
    parent.listing = Listing(list(NAMES), dict.fromkeys(NAMES, info))
    return parent


def ahead(tmp_path: Path) -> ReadAhead:
    return ReadAhead(tmp_path, Threads(), lambda: 0)


@pytest.mark.parametrize("by", ["name", "inode"])
def test_a_walk_is_read_ahead_once(tmp_path: Path, started: list[str], by: str) -> None:
    """All but the first directories are read ahead, each once, and never far ahead."""
    parent = directory(tmp_path)
    nodes = sorted(parent.children.values(), key=lambda node: getattr(node, by))
    reader = ahead(tmp_path)
    for place, node in enumerate(nodes):
        reader.directory_read(node)
        assert len(started) <= place + WINDOW
    assert started == [node.name for node in nodes[2:]]


def test_single_directories_are_not_read_ahead(tmp_path: Path, started: list[str]) -> None:
    """A program that opens some sessions must not make the disk read the others."""
    parent, reader = directory(tmp_path), ahead(tmp_path)
    for place in (0, 50, 20, 200, 100):
        reader.directory_read(parent.children[NAMES[place]])
    assert started == []


def test_a_new_directory_is_not_in_the_listing(tmp_path: Path, started: list[str]) -> None:
    parent, reader = directory(tmp_path), ahead(tmp_path)
    parent.children["new"] = Node(9999, parent, "new", "sessions/new", None)
    for name in (NAMES[0], "new", NAMES[1]):
        reader.directory_read(parent.children[name])
    assert started == []


def test_files_are_read_only_below_the_home(tmp_path: Path) -> None:
    """Missing directories, links and names that lead out of the home are skipped without an error."""
    (tmp_path / "home/one").mkdir(parents=True)
    (tmp_path / "home/one/file").write_text("text")
    (tmp_path / "home/link").symlink_to(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    _fast.prefetch(os.fsencode(tmp_path / "home"), (b"one", b"missing", b"link", b"..", b"one/file"), True)
    _fast.prefetch(b"/no/such/home", (b"one",), False)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(TypeError):
        _fast.prefetch(os.fsencode(tmp_path), ("text",), False)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _fast.prefetch(os.fsencode(tmp_path), [b"list"], False)  # type: ignore[arg-type]
