"""Concurrency: readers with writers, writers with writers, and load."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from store import Location, Store
from tests.builders import make_document, make_session
from tests.mount.conftest import Mount, daemons_of, wait_until
from tests.mount.test_basics import edit, title

MountHome = Callable[..., Mount]

# Every version contains its number in its title and its last message: a torn one would differ, or not be JSON.
COMMON = """
import errno, json, os, sys, time
from datetime import datetime, timezone
path, home, stop, wanted = *sys.argv[1:4], int(sys.argv[4])
done, seen = 0, set()

data = json.load(open(path))

def changed():
    number = os.getpid() * 100000 + done
    data["title"] = data["messages"][-1]["content"] = str(number)
    data["messages"][1]["content"] = "y" * (number % 977)
    data["updated_at"] = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"
    return json.dumps(data, indent=2)

def check(text):
    data = json.loads(text)
    assert data["title"] == data["messages"][-1]["content"], (data["title"], data["messages"][-1]["content"])
    seen.add(data["title"])

def is_needed():
    return done < wanted or not os.path.exists(stop)
"""
IN_PLACE = """
while done < wanted:
    with open(path, "w") as file:
        file.write(changed())
    done += 1
"""
BY_RENAME = """
temporary = f"{path}.{os.getpid()}"
while done < wanted:
    with open(temporary, "w") as file:
        file.write(changed())
    os.rename(temporary, path)
    done += 1
"""
BY_API = """
from store import Store
def change(session):
    session.title = session.messages[-1].content = str(os.getpid() * 100000 + done)
with Store.open(home, background=False) as store:
    while done < wanted:
        store.update("big", change)
        done += 1
"""
REFUSED = """
while is_needed():
    try:
        with open(path, "w") as file:
            file.write('{"title": "cut')
    except OSError as error:
        if error.errno != errno.EBADMSG: raise
        done += 1
    else:
        raise AssertionError("it was not refused")
"""
READER_THAT_COULD_WRITE = """
while is_needed():
    with open(path, "r+") as file:
        text = file.read(1000)
        time.sleep(0.05)
        check(text + file.read())
    done += 1
"""
READER = """
while is_needed():
    check(open(path).read())
    done += 1
"""
HANG_S = 800.0  # detects hangs; not a speed limit


@dataclass
class Company:
    """Concurrent processes on one session: writers run a fixed number of times, others until those end."""

    mount: Mount
    path: Path
    stop: Path  # the processes end once this file exists
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, program: str, wanted: int = 10) -> subprocess.Popen[str]:
        code = f"{COMMON}{program}\nprint(done, len(seen))"
        command = [sys.executable, "-c", code, *map(str, (self.path, self.mount.home, self.stop, wanted))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def __enter__(self) -> Company:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes in any case."""
        for process in self.started:
            process.kill()
            process.communicate()


def result_of(process: subprocess.Popen[str]) -> tuple[int, int]:
    """The number of iterations, and of distinct versions seen."""
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    done, seen = map(int, out.split())
    return done, seen


@pytest.mark.timeout(900)
def test_readers_see_only_complete_versions(filled: Path, mount_home: MountHome, place: Path) -> None:
    """Rule 4, over a thousand commits of a megabyte: in place, by rename, by the API, and with rejected writes.

    Conflict checks are off, so every writer succeeds, however fast the others are.
    """
    mounted = mount_home(filled, "--on-conflict", "overwrite")
    with mounted.store() as store:
        session = make_session("big", messages=3, title="0")
        session.messages[0].content = "x" * 1_000_000
        session.messages[-1].content = "0"
        store.save(session)
        cursor = store.feed.since().cursor
    path, stop = mounted.sessions / "big/session.json", place / "stop"
    wait_until(path.exists)
    counts = {IN_PLACE: 400, BY_RENAME: 400, BY_API: 200}
    with Company(mounted, path, stop) as company:
        others = [company.start(program) for program in (REFUSED, READER, READER, READER_THAT_COULD_WRITE)]
        writers = [company.start(program, count) for program, count in counts.items()]
        assert [result_of(writer)[0] for writer in writers] == list(counts.values())
        stop.touch()
        results = [result_of(other) for other in others]
    assert all(seen > 1 for _, seen in results[1:]), results  # otherwise no reader ran during the writes
    with mounted.store() as store:
        committed = [change for change in store.feed.since(cursor).items if change.location == Location("big")]
        assert len(committed) >= sum(counts.values())
        assert store.check().is_clean


def test_writer_reads_its_own_write_after_close(mounted: Mount, place: Path) -> None:
    """In place and by rename, by content and by stat, while another process reads continuously."""
    path = mounted.sessions / "root/session.json"
    first = json.loads(path.read_text())
    with Company(mounted, path, place / "stop") as company:
        reader = company.start("while is_needed(): json.load(open(path)); done += 1")
        for number in range(150):
            first["title"] = f"{number:0{number % 50 + 3}}"
            text = json.dumps(first)
            if number % 2:
                path.write_text(text)
            else:
                temporary = path.with_name("temporary")
                temporary.write_text(text)
                temporary.rename(path)
            assert path.stat().st_size == len(text)
            assert path.read_text() == text
            assert title(path.with_name("runtime.json")) == first["title"]
        company.stop.touch()
        assert result_of(reader)[0] >= 10


# -- concurrent writers ------------------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run all of them at once; a hang fails after a minute."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(timeout=60) for future in [pool.submit(run, n) for n in range(count)]]


def test_fifty_writers_of_fifty_sessions(mounted: Mount) -> None:
    """All commit several times; the index has all of them."""

    def write(number: int) -> None:
        directory = mounted.sessions / f"s{number}"
        directory.mkdir()
        for turn in range(3):
            document = make_document(f"s{number}", title=f"Title {number} {turn}")
            (directory / "session.json").write_bytes(document)
            assert (directory / "session.json").read_bytes() == document

    in_threads(50, write)
    with mounted.store() as store:
        titles = {entry.id: entry.title for entry in store.entries(limit=-1)}
    assert all(titles[f"s{number}"] == f"Title {number} 2" for number in range(50))


def test_fifty_writers_of_one_session(mounted: Mount) -> None:
    """Each commits or gets ESTALE; the final version is one whose writer got success."""
    path = mounted.sessions / "root/session.json"
    text = path.read_text()

    def write(number: int) -> int:
        try:
            with path.open("w") as file:
                file.write(text.replace("The root", f"By {number}"))
        except OSError as error:
            return error.errno or -1
        return 0

    answers = in_threads(50, write)
    counted = Counter(answers)
    assert set(counted) <= {0, errno.ESTALE}, counted
    assert counted[0] >= 1
    winner = int(title(path).removeprefix("By "))
    assert answers[winner] == 0
    assert title(path.with_name("runtime.json")) == f"By {winner}"


def test_writers_that_retry_lose_nothing(mounted: Mount) -> None:
    """Open, read, change, write, and retry on ESTALE: every change is saved."""
    path = mounted.sessions / "root/session.json"

    def add(number: int) -> None:
        for _ in range(500):
            try:
                with path.open("r+") as file:
                    document = json.load(file)
                    document.setdefault("metadata", {})[f"writer-{number}"] = "was here"
                    file.seek(0)
                    file.write(json.dumps(document, indent=2))
                return
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
        raise AssertionError("never had its turn")

    in_threads(12, add)
    assert len([key for key in json.loads(path.read_text())["metadata"] if key.startswith("writer-")]) == 12


# -- load --------------------------------------------------------------------------------------------


def test_five_hundred_open_files(mounted: Mount) -> None:
    """Readers and writers; all are still valid when the last one is open."""
    with Store.open(mounted.home, background=False, durability="normal") as store:
        for number in range(250):
            store.save(make_session(f"s{number}", messages=1, title="Before"))
    with ExitStack() as stack:
        paths = [mounted.sessions / f"s{number}/session.json" for number in range(250)]
        readers = [stack.enter_context(path.open()) for path in paths]
        writers = [stack.enter_context(path.open("r+")) for path in paths]
        for writer in writers:
            text = writer.read()
            writer.seek(0)
            writer.write(text.replace("Before", "After!"))
        assert {json.load(reader)["title"] for reader in readers} == {"Before"}
    assert {title(path) for path in paths} == {"After!"}


def stats(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mount.path / ".grovefs/stats.json").read_bytes())
    return found


def memory_kb(mount: Mount) -> int:
    (pid,) = daemons_of(mount.path)
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def drop_caches() -> None:
    """Make the kernel drop unused dentries and inodes."""
    Path("/proc/sys/vm/drop_caches").write_text("2")


def times_dropped() -> str:
    """How often anybody has made the kernel do that."""
    return next(line for line in Path("/proc/vmstat").read_text().splitlines() if line.startswith("drop_slab "))


def test_memory_stays_flat_when_everything_is_listed(filled: Path, mount_home: MountHome) -> None:
    """forget frees nodes, and a repeated find adds none."""
    for number in range(2000):
        directory = filled / f"sessions/s{number}"
        directory.mkdir()
        (directory / "session.json").write_bytes(make_document(f"s{number}"))
    mount = mount_home(filled)
    measured: list[tuple[int, int]] = []
    while len(measured) < 3:
        before = times_dropped()
        found = subprocess.run(["find", mount.sessions, "-size", "+0"], check=True, capture_output=True).stdout
        assert found.count(b"/session.json\n") == 2004
        measured.append((stats(mount)["nodes"], memory_kb(mount)))
        if times_dropped() != before:  # by another test
            measured.pop()
    (first_nodes, first_kb), *_, (last_nodes, last_kb) = measured
    assert 4000 < first_nodes < 4100
    assert last_nodes < first_nodes + 10, measured
    assert last_kb < first_kb + 4096, measured
    drop_caches()
    wait_until(lambda: stats(mount)["nodes"] < 100)


def test_writers_leave_no_nodes_or_descriptors(mounted: Mount) -> None:
    """No node, descriptor or write buffer is left after many valid and invalid edits."""
    path = mounted.sessions / "root/session.json"
    (pid,) = daemons_of(mounted.path)

    def turn(number: int) -> None:
        edit(path, title(path), f"Title {number}")
        with pytest.raises(OSError, match="Bad message"):
            path.write_text("{")
        temporary = path.with_name("temporary")
        temporary.write_text(path.read_text().replace("Title", "title"))
        temporary.rename(path)

    def left() -> tuple[int, int]:
        drop_caches()
        return stats(mounted)["nodes"], len(os.listdir(f"/proc/{pid}/fd"))

    turn(0)
    nodes, descriptors = left()
    for number in range(1, 100):
        turn(number)
    wait_until(lambda: left()[0] <= nodes + 3)
    assert left()[1] <= descriptors + 40  # each of up to sixteen threads has its own database connection
    assert not list((mounted.home / ".grovefs/tmp").iterdir())


# -- names -----------------------------------------------------------------------------------------------------


def entry_ids(mount: Mount) -> set[str]:
    with mount.store() as store:
        return {entry.id for entry in store.entries(limit=-1)}


def test_renamed_session_keeps_its_open_files(mounted: Mount) -> None:
    """A file open during the rename can still be read and saved; old and new name are current at once."""
    path = mounted.sessions / "root/session.json"
    with path.open() as reader:
        os.rename(mounted.sessions / "root", mounted.sessions / "renamed")
        assert json.load(reader)["id"] == "root"
    assert not path.exists()
    moved = mounted.sessions / "renamed/session.json"
    assert json.loads(moved.read_text())["id"] == "renamed"
    assert json.loads((mounted.sessions / "renamed/children/child/session.json").read_text())["root_session_id"] == (
        "renamed"
    )
    edit(moved, "The root", "Edited")
    os.rename(mounted.sessions / "renamed", mounted.sessions / "root")
    assert title(path) == "Edited"
    assert entry_ids(mounted) == {"root", "child", "grandchild", "pinned"}


def test_child_can_move_to_another_root(mounted: Mount) -> None:
    """It gets that root as parent, depth 1; its own descendants stay and become children of the old root."""
    (mounted.sessions / "other/children").mkdir(parents=True)
    (mounted.sessions / "other/session.json").write_bytes(make_document("other"))
    subprocess.run(["mv", "root/children/child", "other/children/"], cwd=mounted.sessions, check=True)
    with mounted.store() as store:
        child, grandchild = store.load("child"), store.load("grandchild")
    assert child is not None
    assert grandchild is not None
    assert (child.root_session_id, child.parent_session_id, child.spawn_depth) == ("other", "other", 1)
    assert (grandchild.root_session_id, grandchild.parent_session_id, grandchild.spawn_depth) == ("root", "root", 1)
    assert os.listdir(mounted.sessions / "other/children") == ["child"]
    assert os.listdir(mounted.sessions / "root/children") == ["grandchild"]


def test_child_becomes_a_root_and_a_root_a_child(mounted: Mount) -> None:
    subprocess.run(["mv", "root/children/grandchild", "free"], cwd=mounted.sessions, check=True)
    assert json.loads((mounted.sessions / "free/session.json").read_text())["kind"] == "root"
    subprocess.run(["mv", "free", "root/children/back"], cwd=mounted.sessions, check=True)
    back = json.loads((mounted.sessions / "root/children/back/session.json").read_text())
    assert (back["id"], back["kind"], back["parent_session_id"]) == ("back", "child", "root")
    assert entry_ids(mounted) == {"root", "child", "back", "pinned"}


def test_invalid_moves_are_rejected(mounted: Mount) -> None:
    """None of them changes anything; source and target still exist."""
    sessions = mounted.sessions
    (sessions / "other/children").mkdir(parents=True)
    (sessions / "other/session.json").write_bytes(make_document("other"))

    def refused(number: int, source: str, target: str) -> None:
        with pytest.raises(OSError, match=r".") as error:
            os.rename(sessions / source, sessions / target)
        assert error.value.errno == number, error.value

    refused(errno.ENOTEMPTY, "root", "other/children/root")
    refused(errno.EEXIST, "other", "root")
    refused(errno.EPERM, "pinned", "unpinned")
    refused(errno.EPERM, "root/children", "other/kids")
    refused(errno.EPERM, "other", ".other")
    refused(errno.EPERM, "other", "root/subdirectory")
    refused(errno.EINVAL, "other", "other/children/other")
    with pytest.raises(PermissionError):
        (sessions / "root/children/child/children").mkdir()
    assert sorted(os.listdir(sessions)) == ["other", "pinned", "root"]
    assert title(sessions / "root/session.json") == "The root"
    (sessions / "other/children").rmdir()


def test_unusual_names_are_valid(mounted: Mount) -> None:
    """They can be created, listed, indexed, renamed and deleted."""
    for name in ("-rf", "mit Leerzeichen", "żółć", "文字", "🌳", "a" * 255, "semi;colon", "$(x)", "#x", "~"):
        directory = mounted.sessions / name
        directory.mkdir()
        (directory / "session.json").write_bytes(make_document(name))
        assert name in os.listdir(mounted.sessions)
        assert name in entry_ids(mounted)
        assert name in json.loads((mounted.path / "sessions.json").read_bytes())["sessions"]
        subprocess.run(["mv", "--", name, "plain"], cwd=mounted.sessions, check=True)
        subprocess.run(["mv", "--", "plain", name], cwd=mounted.sessions, check=True)
        subprocess.run(["rm", "-r", "--", name], cwd=mounted.sessions, check=True)
        assert name not in entry_ids(mounted)


def test_invalid_names_are_rejected(mounted: Mount) -> None:
    """Too long, control characters, hidden, not Unicode: each has its errno; some are valid for foreign files."""
    with pytest.raises(OSError, match="File name too long"):
        (mounted.sessions / ("a" * 256)).mkdir()
    with pytest.raises(OSError, match="File name too long"):
        (mounted.sessions / "root" / ("ü" * 128)).touch()
    with pytest.raises(OSError, match="File name too long"):
        os.rename(mounted.sessions / "root", mounted.sessions / ("a" * 256))
    with pytest.raises(OSError, match="Invalid argument"):
        (mounted.sessions / "new\nline").mkdir()
    with pytest.raises(OSError, match="Invalid argument"):
        os.rename(mounted.sessions / "root", mounted.sessions / "new\nline")
    for name in (b"not \xff unicode", b"new\nline", b"-n"):
        foreign = os.fsencode(mounted.sessions / "root") + b"/" + name
        with open(foreign, "wb") as file:
            file.write(b"bytes")
        assert name in os.listdir(os.fsencode(mounted.sessions / "root"))
        os.unlink(foreign)
    odd = os.fsencode(mounted.sessions) + b"/\xff"
    os.mkdir(odd)
    os.rmdir(odd)
    assert title(mounted.sessions / "root/session.json") == "The root"


def test_rename_with_non_unicode_names_works_or_fails_clearly(mounted: Mount) -> None:
    """Such a directory in children/ is not a child; neither a session nor a project can have such a name."""
    children = os.fsencode(mounted.sessions) + b"/root/children"
    os.mkdir(children + b"/\xff")
    os.rename(children + b"/child", children + b"/renamed")
    assert sorted(os.listdir(children)) == [b"grandchild", b"renamed", b"\xff"]
    with pytest.raises(PermissionError):
        os.rename(children + b"/renamed", children + b"/\xc3")
    projects = os.fsencode(mounted.path) + b"/views/projects/none/"
    link = os.listdir(projects)[0]
    for source, target in ((link, b"\xff"), (b"\xff", link), (link, b"../\xff/" + link)):
        with pytest.raises(FileNotFoundError):
            os.rename(projects + source, projects + target)
