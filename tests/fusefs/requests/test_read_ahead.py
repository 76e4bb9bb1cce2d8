"""Directories are read ahead of a program that walks a tree, in each order that programs use."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fusefs import _fast
from fusefs.requests import read_ahead
from fusefs.requests.read_ahead import _MAX_WALKS, WINDOW, ReadAhead
from fusefs.requests.threads import Threads
from fusefs.tree.nodes import Listing, Node

NAMES = [f"s{number:04}" for number in range(300)]

# find reads directories in the order of the listing, tar in that of their inode numbers, rg backwards.
ORDERS: dict[str, Callable[[Iterable[Node]], list[Node]]] = {
    "listing": lambda nodes: sorted(nodes, key=lambda node: node.name),
    "inodes": lambda nodes: sorted(nodes, key=lambda node: node.inode),
    "backwards": lambda nodes: sorted(nodes, key=lambda node: node.name, reverse=True),
}


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
        parent.add_child(name, Node(number, parent, name, f"sessions/{name}", None, info=info))
    parent.listing = Listing(list(NAMES), dict.fromkeys(NAMES, info))
    return parent


def ahead(tmp_path: Path, list_directory: Callable[[Node], object] = lambda node: None) -> ReadAhead:
    return ReadAhead(tmp_path, Threads(), lambda: 0, list_directory, lambda node: [], lambda node: None, lambda: False)


@pytest.mark.parametrize("order", ORDERS)
def test_a_walk_is_read_ahead_once(tmp_path: Path, started: list[str], order: str) -> None:
    """All but the first directories are read ahead, each once, and never far ahead."""
    parent = directory(tmp_path)
    nodes = ORDERS[order](parent.children.values())
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
    parent.add_child("new", Node(9999, parent, "new", "sessions/new", None))
    for name in (NAMES[0], "new", NAMES[1]):
        reader.directory_read(parent.children[name])
    assert started == []


# -- the next listing ------------------------------------------------------------------------------


def tree(tmp_path: Path, text: str) -> dict[str, Node]:
    """Watched directories by path; their inode numbers are in the reverse order of their names."""
    info = tmp_path.stat()
    nodes: dict[str, Node] = {"": Node(1, None, "", "", None, info=info)}
    for number, path in enumerate(reversed(text.split()), 100):
        nodes[path] = Node(number, None, path.rpartition("/")[2], path, None, info=info, is_watched=True)
    for path in text.split():
        node, parent = nodes[path], nodes[path.rpartition("/")[0]]
        node.parent = parent
        parent.add_child(node.name, node)
    return nodes


def walk(reader: ReadAhead, nodes: dict[str, Node], paths: list[str]) -> None:
    """Read directories as the mount does: list one unless it is listed, answer, use the time until the next."""
    for path in paths:
        node = nodes[path]
        if node.listing is None:
            list_names(node)
        assert node.listing is not None
        reader.directory_read(node)
        reader.directory_listed(node, node.listing)
        reader.list_next()


def list_names(node: Node) -> None:
    node.listing = Listing(sorted(node.children))


TREE = "s s/a s/a/children s/a/children/x s/a/children/y s/b s/c s/c/files t"


def test_the_next_directory_of_a_walk_is_listed(tmp_path: Path) -> None:
    """Down into a directory first, then the one after it, then the one after its parent."""
    listed: list[str] = []

    def list_directory(node: Node) -> None:
        listed.append(node.path)
        list_names(node)

    nodes = tree(tmp_path, TREE)
    list_names(nodes[""])
    walk(ahead(tmp_path, list_directory), nodes, TREE.split()[:-1])
    # The walk is known from its second directory on.
    assert listed == TREE.split()[2:]


@pytest.mark.parametrize("order", ORDERS)
def test_a_walk_in_each_order_is_listed_ahead(tmp_path: Path, started: list[str], order: str) -> None:
    listed: list[str] = []

    def list_directory(node: Node) -> None:
        listed.append(node.name)
        list_names(node)

    parent = directory(tmp_path)
    nodes = ORDERS[order](parent.children.values())
    for node in nodes:
        node.is_watched = True
    reader = ahead(tmp_path, list_directory)
    assert parent.listing is not None
    reader.directory_listed(parent, parent.listing)
    walk(reader, {node.name: node for node in nodes}, [node.name for node in nodes[:-1]])
    assert set(listed) >= {node.name for node in nodes[3:]}
    assert len(listed) <= len(nodes) + 1


def test_single_directories_are_not_listed_ahead(tmp_path: Path) -> None:
    listed: list[Node] = []
    nodes = tree(tmp_path, TREE)
    walk(ahead(tmp_path, listed.append), nodes, ["s/b", "t", "s/a/children", "s/c"])
    assert listed == []


def test_only_watched_directories_are_listed_ahead(tmp_path: Path) -> None:
    """Nothing would drop the listing of another one after a change."""
    listed: list[Node] = []
    nodes = tree(tmp_path, TREE)
    nodes["s/a/children"].is_watched = False
    walk(ahead(tmp_path, listed.append), nodes, ["s", "s/a"])
    assert listed == []


def test_a_directory_that_cannot_be_listed_is_left_to_its_request(tmp_path: Path) -> None:
    def fail(node: Node) -> None:
        failed.append(node.path)
        raise PermissionError(13, "Permission denied")

    failed: list[str] = []
    nodes = tree(tmp_path, TREE)
    walk(ahead(tmp_path, fail), nodes, ["s", "s/a"])
    assert failed == ["s/a/children"]
    assert nodes["s/a/children"].listing is None


def test_nodes_made_ahead_are_dropped_if_their_directory_is_not_read(tmp_path: Path) -> None:
    """The kernel does not know them, so it will not forget them."""
    nodes, dropped = tree(tmp_path, TREE), list[str]()
    reader = ahead(tmp_path, list_names)
    reader.make_nodes = lambda node: [node]
    reader.drop_node = lambda node: dropped.append(node.path)
    list_names(nodes[""])
    for node in list(nodes.values())[1:]:
        reader._next = node
        reader.between_requests()
        reader.between_requests()
    made = TREE.split()[::-1]
    assert dropped == made[: len(made) - _MAX_WALKS]
    last = nodes[made[-1]]
    assert last.listing is not None
    reader.directory_listed(last, last.listing)
    assert dropped[-1] == last.path


def test_a_directory_is_listed_before_the_end_of_the_last_listing_and_its_nodes_are_made_after_it(
    tmp_path: Path,
) -> None:
    """A program asks for the end before it opens the next directory, and must not wait for the nodes."""
    nodes, work = tree(tmp_path, TREE), list[str]()
    reader = ahead(tmp_path, lambda node: work.append(f"list {node.path}"))

    def make_nodes(node: Node) -> list[Node]:
        work.append(f"make {node.path}")
        return []

    reader.make_nodes = make_nodes
    reader.pause_after_end = lambda: True
    for path in ("s", "s/a"):
        list_names(nodes[path])
        listing = nodes[path].listing
        assert listing is not None
        reader.directory_listed(nodes[path], listing)
    assert [reader.between_requests() for _ in range(3)] == [True, False, False]
    assert work == ["list s/a/children", "make s/a/children"]


def test_nodes_are_not_made_in_a_directory_that_was_read_meanwhile(tmp_path: Path) -> None:
    nodes, made = tree(tmp_path, TREE), list[Node]()
    reader = ahead(tmp_path, list_names)

    def make_nodes(node: Node) -> list[Node]:
        made.append(node)
        return []

    reader.make_nodes = make_nodes
    walk(reader, nodes, ["s", "s/a"])
    listing = nodes["s/a/children"].listing
    assert listing is not None
    reader.directory_listed(nodes["s/a/children"], listing)
    reader.make_next()
    assert made == []


# -- the kernel's caches -----------------------------------------------------------------------------


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


def test_subdirectories_are_read_ahead_too(tmp_path: Path) -> None:
    """The documents of a child are three directories below sessions/."""
    deep = tmp_path / "one/children/two/file"
    deep.parent.mkdir(parents=True)
    deep.write_bytes(b"x" * 4096)
    (tmp_path / "one/loop").symlink_to(tmp_path / "one")
    os.mkfifo(tmp_path / "one/children/pipe")
    if not _evict(deep):
        pytest.skip("this filesystem keeps its files in memory")
    before = len(os.listdir("/proc/self/fd"))
    _fast.prefetch(os.fsencode(tmp_path), (b"one",), False)
    assert not _is_in_memory(deep)
    _fast.prefetch(os.fsencode(tmp_path), (b"one",), True)
    _wait_until(lambda: _is_in_memory(deep))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_directory_is_not_read_ahead_as_a_whole(tmp_path: Path) -> None:
    """A walk may never come to the end of it."""
    large = tmp_path / "one/attachments"
    large.mkdir(parents=True)
    files = [large / str(number) for number in range(400)]
    for file in files:
        file.write_bytes(b"x")
    if not all(map(_evict, files)):
        pytest.skip("this filesystem keeps its files in memory")
    _fast.prefetch(os.fsencode(tmp_path), (b"one",), True)
    _wait_until(lambda: sum(map(_is_in_memory, files)) > 200)
    assert sum(map(_is_in_memory, files)) < 300


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _evict(file: Path) -> bool:
    """Write a file to disk and drop it from the page cache. Whether that worked."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return not _is_in_memory(file)


def _is_in_memory(file: Path) -> bool:
    """Whether the first page of a file is in the page cache."""
    resident = ctypes.create_string_buffer(1)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 1, flags=mmap.MAP_PRIVATE) as mapped:
        page = ctypes.c_char.from_buffer(mapped)
        assert ctypes.CDLL(None).mincore(ctypes.byref(page), 1, resident) == 0
        del page  # or the mapping cannot be closed
    return bool(resident.raw[0] & 1)
