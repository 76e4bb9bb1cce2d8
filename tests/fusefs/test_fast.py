"""The C extension by itself: its grants, its parser, its threads. tests/mount/test_fast_path.py mounts with it."""

from __future__ import annotations

import os
import struct
import subprocess
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs import _fast
from fusefs.fast import FAST_HANDLE, LAST_POSITION, NODE_HANDLE, PROBED_NAMES

SOURCE = Path(__file__).parent.parent.parent / "fusefs/_fast.c"

# From linux/fuse.h: opcode → size of the body that the extension reads.
BODIES = {14: 8, 15: 40, 18: 24, 25: 24, 26: 16, 27: 8, 28: 40, 30: 16, 44: 40}
LOOKUP = 1  # its body is a name that ends with a zero byte
HEADER = struct.Struct("=IIQQIIIHH")


def request(opcode: int, body: bytes, node: int = 7, length: int | None = None) -> bytes:
    size = HEADER.size + len(body) if length is None else length
    return HEADER.pack(size, opcode, 1, node, 0, 0, 0, 0, 0) + body


@pytest.fixture
def started(tmp_path: Path) -> Iterator[None]:
    fd = os.open(tmp_path, os.O_PATH)
    _fast.start(fd, True)
    os.close(fd)
    yield
    _fast.stop()


def test_source_compiles_without_warnings() -> None:
    include = sysconfig.get_path("include")
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-O2", f"-I{include}", "-c", "-o", "/dev/null"]
    done = subprocess.run([*command, "-Wno-sign-conversion", str(SOURCE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- listing a directory -------------------------------------------------------------------------------


@pytest.mark.usefixtures("started")
def test_scan_returns_what_lstat_returns(tmp_path: Path) -> None:
    directory = tmp_path / "one/two"
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(b"x" * 5000)
    (directory / "below").mkdir()
    (directory / "link").symlink_to("nowhere")
    os.mkfifo(directory / "pipe")
    (directory / os.fsdecode(b"\xff\xfe")).touch()
    os.utime(directory / "file", ns=(1_234_567_890_123_456_789, -1_500_000_000))
    os.chmod(directory / "file", 0o640)
    found = _fast.scan(b"one/two")
    assert found is not None
    assert sorted(name for name, _ in found) == sorted(os.listdir(directory))
    for name, info in found:
        expected = (directory / name).lstat()
        fields = [field for field in dir(expected) if field.startswith("st_")]
        assert {field: getattr(info, field) for field in fields} == {
            field: getattr(expected, field) for field in fields
        }
        assert tuple(info) == tuple(expected)


@pytest.mark.usefixtures("started")
def test_scan_leaves_the_rest_to_the_store(tmp_path: Path) -> None:
    """Large directories, missing ones, links, and what is outside of the home."""
    (tmp_path / "large").mkdir()
    for number in range(200):
        (tmp_path / f"large/{number}").touch()
    (tmp_path / "long").mkdir()
    for number in range(120):
        (tmp_path / "long" / f"{number:0200}").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "file").touch()
    before = len(os.listdir("/proc/self/fd"))
    assert _fast.scan(b"empty") == []
    assert len(_fast.scan(b"long") or []) == 120
    for path in (b"large", b"missing", b"link", b"link/.", b"file", b"..", b"/", b""):
        assert _fast.scan(path) is None
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(TypeError):
        _fast.scan("text")  # type: ignore[arg-type]


def test_scan_needs_the_serving_thread() -> None:
    with pytest.raises(RuntimeError):
        _fast.scan(b"x")
    with pytest.raises(RuntimeError):
        _fast.pause_after_end()


# -- requests ----------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=80), st.integers(1, 2**63 - 1))
def test_request_is_understood_if_its_body_is_complete(opcode: int, body: bytes, node: int) -> None:
    expected = (opcode, node) if len(body) >= BODIES[opcode] else None
    assert _fast.parse(request(opcode, body, node)) == expected


@given(st.binary(max_size=80))
def test_lookup_is_understood_if_its_name_ends_with_the_request(body: bytes) -> None:
    is_name = body.find(0) == len(body) - 1 and body != b""
    assert _fast.parse(request(LOOKUP, body)) == ((LOOKUP, 7) if is_name else None)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_parsed(data: bytes) -> None:
    found = _fast.parse(data)
    assert found is None or found[0] in {LOOKUP, *BODIES}


@given(st.sampled_from(sorted(BODIES)), st.integers(0, 2**32 - 1))
def test_request_of_inconsistent_length_is_left_to_libfuse(opcode: int, length: int) -> None:
    data = request(opcode, bytes(48), length=length)
    assert (_fast.parse(data) is None) == (length != len(data))


@given(st.integers(0, 2**32 - 1))
def test_other_requests_are_left_to_libfuse(opcode: int) -> None:
    assert (_fast.parse(request(opcode, bytes(64))) is None) == (opcode not in BODIES)


# -- grants ------------------------------------------------------------------------------------------


def test_constants_agree() -> None:
    assert (_fast.FAST_HANDLE, _fast.NODE_HANDLE) == (FAST_HANDLE, NODE_HANDLE)
    assert _fast.LAST_POSITION == LAST_POSITION
    assert set(_fast.PROBED_NAMES) == PROBED_NAMES


@pytest.mark.usefixtures("started")
def test_many_grants_come_and_go() -> None:
    """The table grows, and reuses what was revoked."""
    for number in range(1, 20_001):
        _fast.grant(number, b"some/path", number, 1, 1, 1, True)
        if number > 5_000:
            assert _fast.revoke(number - 5_000)
            assert not _fast.revoke(number - 5_000)
    assert _fast.state()["grants"] == 5_000


@pytest.mark.usefixtures("started")
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=200))
def test_grants_are_a_set(changes: list[tuple[bool, int]]) -> None:
    present: set[int] = set()
    for is_granted, node in changes:
        if is_granted:
            _fast.grant(node, b"path", 1, 1, 1, 1, False)
            present.add(node)
        else:
            assert _fast.revoke(node) == (node in present)
            present.discard(node)
        assert _fast.state()["grants"] == len(present)
    for node in present:
        _fast.revoke(node)


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("node", "path", "size"),
    [(0, b"p", 1), (NODE_HANDLE + 1, b"p", 1), (5, b"a\0b", 1), (5, b"x" * 5000, 1), (5, b"p", -1)],
)
def test_impossible_grants_are_rejected(node: int, path: bytes, size: int) -> None:
    with pytest.raises(ValueError, match="not a node"):
        _fast.grant(node, path, 1, size, 1, 1, False)
    if size > 0:
        with pytest.raises(ValueError, match="not a node"):
            _fast.grant_directory(node, path)


@pytest.mark.usefixtures("started")
def test_a_node_has_one_grant() -> None:
    _fast.grant(5, b"path", 1, 1, 1, 1, False)
    _fast.grant_directory(5, b"path")
    _fast.grant_directory(5, b"other")
    assert _fast.state()["grants"] == 1
    assert _fast.revoke(5)
    assert not _fast.revoke(5)


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("handle", [0, 5, FAST_HANDLE, FAST_HANDLE + 3, FAST_HANDLE + 2**40, NODE_HANDLE | FAST_HANDLE])
def test_unknown_handles_are_not_open(handle: int) -> None:
    assert _fast.opened(handle) is None


@pytest.mark.usefixtures("started")
@given(st.lists(st.integers(0, 2**32 - 1), max_size=400))
def test_any_thread_can_be_admitted(threads: list[int]) -> None:
    for thread in threads:
        _fast.admit(thread, 10**9)
    _fast.dismiss()
    assert _fast.drain() == []
    assert _fast.open_files() == []


# -- threads and processes ---------------------------------------------------------------------------


@pytest.mark.usefixtures("started")
def test_other_threads_are_rejected() -> None:
    """All state belongs to the serving thread."""
    errors: list[Exception] = []

    def call() -> None:
        for work in (lambda: _fast.grant(1, b"p", 1, 1, 1, 1, False), lambda: _fast.revoke(1), _fast.drain, _fast.stop):
            try:
                work()
            except RuntimeError as error:
                errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(errors) == 4


@pytest.mark.usefixtures("started")
def test_forked_child_serves_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            _fast.drain()
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.usefixtures("started")
def test_only_one_mount_is_served_at_a_time(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    with pytest.raises(OSError, match="busy"):
        _fast.start(fd, True)
    os.close(fd)


def test_calls_without_a_mount_are_rejected() -> None:
    with pytest.raises(RuntimeError, match="between start"):
        _fast.drain()
