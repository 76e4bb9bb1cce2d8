"""Attachments and state texts written by several processes: appends, creation, stale rewrites, pinned versions."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import make_document
from tests.mount.conftest import Mount

Open = Callable[..., int]
PLACES = ("sessions/root/attachments/file.log", "state/notes/file.md")
PROCESSES, APPENDS = 10, 30

APPENDER = """
import os, sys
path, number, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for i in range(times):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{number} {i}\\n".encode())
    os.close(fd)
"""
EXCLUSIVE = """
import os, sys
sys.stdin.read()
try:
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
except FileExistsError:
    sys.exit(3)
os.write(fd, sys.argv[2].encode())
os.close(fd)
"""


@pytest.fixture(params=PLACES)
def path(request: pytest.FixtureRequest, mounted: Mount) -> Path:
    """The path of a file that does not exist yet."""
    made = mounted.path / str(request.param)
    made.parent.mkdir(exist_ok=True)
    return made


def on_disk(path: Path, mounted: Mount) -> Path:
    return mounted.home / path.relative_to(mounted.path)


def closes_with(fd: int, number: int) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as raised:
        os.close(fd)
    assert raised.value.errno == number


# -- appends ---------------------------------------------------------------------------------------


def test_a4_appends_by_many_processes_all_arrive(path: Path, mounted: Mount) -> None:
    """Every line of every process, each once and whole, in the order in which its process wrote them."""
    commands = [[sys.executable, "-c", APPENDER, str(path), str(n), str(APPENDS)] for n in range(PROCESSES)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert not any(errors), errors
    lines = path.read_text().splitlines()
    assert sorted(lines) == sorted(f"{n} {i}" for n in range(PROCESSES) for i in range(APPENDS))
    for n in range(PROCESSES):
        assert [line for line in lines if line.split()[0] == str(n)] == [f"{n} {i}" for i in range(APPENDS)]
    assert on_disk(path, mounted).read_bytes() == path.read_bytes()


def test_a4_appends_through_two_descriptors_and_the_api(path: Path, mounted: Mount) -> None:
    path.write_bytes(b"first\n")
    one, two = (os.open(path, os.O_RDWR | os.O_APPEND) for _ in range(2))
    os.write(one, b"one\n")
    os.write(two, b"two\n")
    assert os.pread(one, 100, 0) == b"first\none\n"
    assert os.fstat(one).st_size == 10
    os.close(one)
    if path.suffix == ".md":
        with mounted.store() as store:
            text = store.state.load_markdown("notes", "file")
            assert text == "first\none\n"
            store.state.save_markdown("notes", "file", text + "api\n")
    os.write(two, b"more\n")
    os.close(two)
    api = b"api\n" if path.suffix == ".md" else b""
    assert path.read_bytes() == b"first\none\n" + api + b"two\nmore\n"


def test_a4_a_reader_sees_the_size_it_opened(path: Path) -> None:
    path.write_bytes(b"old\n")
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND):
        before = path.read_bytes()
        fd = os.open(path, flags)
        with path.open("ab") as file:
            file.write(b"new\n")
        assert os.pread(fd, 1000, 0) == before
        assert os.fstat(fd).st_size == len(before)
        os.close(fd)
        assert path.read_bytes() == before + b"new\n"


def test_a4_an_appender_that_truncates_replaces_the_file(path: Path) -> None:
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    os.write(fd, b"abc")
    os.ftruncate(fd, 11)
    os.write(fd, b"Z")
    assert os.pread(fd, 100, 0) == b"0123456789aZ"
    os.close(fd)
    assert path.read_bytes() == b"0123456789aZ"


def test_a4_an_outdated_rewrite_is_refused(path: Path, mounted: Mount) -> None:
    """The newer bytes stay, and the rejected ones are kept."""
    path.write_bytes(b"base")
    for flags in (os.O_WRONLY | os.O_TRUNC, os.O_RDWR):
        outdated = os.open(path, flags)
        path.write_bytes(b"newer")
        os.write(outdated, b"outdated")
        closes_with(outdated, errno.ESTALE)
        assert path.read_bytes() == b"newer"
        rejected = path.with_name(f"{path.name}.rejected")
        assert rejected.read_bytes() == b"outdated"
        assert "was changed by another writer" in path.with_name(f"{path.name}.error").read_text()
        path.write_bytes(b"base")
        assert not rejected.exists()


def test_a4_one_descriptor_saves_again_and_again(path: Path, mounted: Mount) -> None:
    """Its own commits do not make it outdated, nor does a change of mode."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(3):
        os.pwrite(fd, b"%d" % number, number)
        os.fsync(fd)
        path.chmod(0o640)
        assert on_disk(path, mounted).read_bytes() == b"012"[: number + 1]
    os.close(fd)
    assert path.read_bytes() == b"012"


def test_a4_a_descriptor_goes_on_after_a_change_of_mode_and_a_rename(path: Path, mounted: Mount) -> None:
    """The rename moves the version that it opened; the mode is not part of a version."""
    path.write_bytes(b"old text")
    fd = os.open(path, os.O_RDWR)
    os.fchmod(fd, 0o640)
    os.fsync(fd)
    moved = path.with_stem("moved")
    path.rename(moved)
    os.pwrite(fd, b"new", 0)
    os.close(fd)
    assert moved.read_bytes() == on_disk(moved, mounted).read_bytes() == b"new text"


def test_a7_a_renamed_file_can_be_written_at_once(path: Path) -> None:
    """Also a state text, which is another file on disk after a rename."""
    for number in range(20):
        path.write_bytes(b"old")
        moved = path.with_stem(f"moved-{number}")
        path.rename(moved)
        os.close(os.open(moved, os.O_WRONLY))
        assert moved.read_bytes() == b"old"


def test_a4_replaced_attachments_are_in_the_trash(mounted: Mount) -> None:
    path = mounted.sessions / "root/attachments/report.txt"
    path.write_bytes(b"first")
    path.write_bytes(b"second")
    path.with_name("new.txt").write_bytes(b"third")
    path.with_name("new.txt").rename(path)
    with mounted.store() as store:
        replaced = [slot for slot in store.trash.deleted() if slot.what == "attachment replaced"]
        kept = [(mounted.home / target).read_bytes() for slot in replaced for _, target in slot.moves]
        assert kept == [b"second", b"first"]
        store.trash.undelete(replaced[-1].name)
    assert path.read_bytes() == b"first"


# -- creation --------------------------------------------------------------------------------------


def test_a6_creation_without_write_access(path: Path, mounted: Mount) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o640))
    assert path.read_bytes() == b""
    assert on_disk(path, mounted).stat().st_mode & 0o777 == 0o640
    other = path.with_name(f"lock{path.suffix}")
    subprocess.run(["flock", other, "true"], check=True)
    assert other.exists()
    assert on_disk(other, mounted).exists()


def exclusive_winners(path: Path, text: str) -> list[int]:
    """The exit codes of eight processes that create a file with O_EXCL at once: 0 for a winner, 3 for EEXIST."""
    command = [sys.executable, "-c", EXCLUSIVE, str(path), text]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    for process in running:
        assert process.stdin is not None
        process.stdin.close()
    codes = sorted(process.wait(timeout=60) for process in running)
    for process in running:
        assert process.stderr is not None
        process.stderr.close()
    return codes


def test_a6_exclusive_creation_has_one_winner(path: Path) -> None:
    for _ in range(5):
        assert exclusive_winners(path, "mine") == [0] + [3] * 7
        assert path.read_bytes() == b"mine"
        path.unlink()


def test_a6_exclusive_creation_of_a_document_has_one_winner(mounted: Mount) -> None:
    """Its name exists only after close, because an empty document is not valid. It is taken all the same."""
    (mounted.path / "state/facts").mkdir(parents=True, exist_ok=True)
    for number in range(3):
        session = mounted.sessions / f"new{number}"
        session.mkdir()
        texts = {
            mounted.path / f"state/facts/new{number}.json": '{"mine": 1}',
            session / "session.json": make_document(session.name).decode(),
        }
        for path, text in texts.items():
            assert exclusive_winners(path, text) == [0] + [3] * 7
            assert path.read_text() == text


def test_a6_a_new_file_exists_before_it_is_written(path: Path, mounted: Mount) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    assert path.name in os.listdir(path.parent)
    assert on_disk(path, mounted).stat().st_size == 0
    with pytest.raises(FileExistsError):
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"bytes")
    os.close(fd)
    assert path.read_bytes() == b"bytes"


def test_a6_a_reader_of_a_new_file_does_not_commit_it(path: Path, mounted: Mount) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(b"half")
        assert path.read_bytes() == b"half"
        assert on_disk(path, mounted).read_bytes() == b""
        file.write(b" done")
    assert on_disk(path, mounted).read_bytes() == b"half done"


def test_a6_truncation_is_visible_after_close(path: Path) -> None:
    path.write_bytes(b"text")
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    assert path.stat().st_size == 0
    assert path.read_bytes() == b""


# -- pinned versions -------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND])
@pytest.mark.parametrize("change", ["unlink", "rename", "rewrite", "append"])
def test_a7_descriptors_are_pinned_to_their_version(path: Path, flags: int, change: str) -> None:
    content = b"pinned " * 1000
    path.write_bytes(content)
    fd = os.open(path, flags)
    if change == "unlink":
        path.unlink()
    elif change == "rename":
        path.with_name(f"other{path.suffix}").write_bytes(b"other")
        path.with_name(f"other{path.suffix}").rename(path)
    elif change == "rewrite":
        path.write_bytes(b"short")
    else:
        with path.open("ab") as file:
            file.write(b"more")
    assert os.fstat(fd).st_size == len(content)
    assert os.pread(fd, 1 << 20, 0) == content
    with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == content
    os.close(fd)


def test_a7_a_document_opened_for_reading_and_writing_is_pinned(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    content = path.read_bytes()
    fd = os.open(path, os.O_RDWR)
    with mounted.store() as store:
        session = store.load("root")
        assert session is not None
        session.title = "Other"
        store.save(session)
    assert path.read_bytes() != content
    assert os.pread(fd, 1 << 20, 0) == content
    with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == content
    os.close(fd)


def test_a7_bytes_read_after_an_fsync_are_those_written(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"written")
    os.fsync(fd)
    path.unlink()
    path.write_bytes(b"another file")
    assert os.pread(fd, 100, 0) == b"written"
    os.close(fd)
    assert path.read_bytes() == b"another file"


@pytest.mark.parametrize("name", ["state/facts/new.json", "sessions/new/session.json"])
def test_a6_a_json_document_begins_with_its_first_content(mounted: Mount, name: str) -> None:
    """An empty file is not JSON: `touch` creates none, and writing works afterwards."""
    path = mounted.path / name
    path.parent.mkdir(parents=True)
    subprocess.run(["touch", path], check=True)
    assert not path.exists()
    assert not (mounted.home / name).exists()
    path.write_bytes(make_document("new"))
    assert (mounted.home / name).read_bytes() == make_document("new")
