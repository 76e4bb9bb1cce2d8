"""Mounts whose opens and listings the C extension and the kernel answer: exact, and the same as without it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Message
from tests.builders import make_session
from tests.mount.conftest import Mount, wait_until
from tests.mount.listing_changes import ListingChanges

MountHome = Callable[..., Mount]

SOON_S = 60.0  # a second on an idle machine
CHANGES = 400  # scripts/torture makes 10,000


def mode(mount: Mount) -> str:
    return str(json.loads((mount.path / ".grovefs/status.json").read_bytes())["opens_answered_by"])


def counter(mount: Mount, name: str) -> int:
    return int(json.loads((mount.path / ".grovefs/stats.json").read_bytes())["fast_path"][name])


def opens(mount: Mount) -> int:
    return counter(mount, "opens")


def test_status_names_the_mode(filled: Path, mount_home: MountHome, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = mount_home(filled)
    os.listdir(mounted.sessions)
    assert mode(mounted) == "the C extension"
    monkeypatch.setenv("GROVEFS_WITHOUT", "fast")
    slow = mount_home(filled)
    assert mode(slow) == "Python: disabled by GROVEFS_WITHOUT"
    assert "slower than it could be, because Python answers every open: disabled" in slow.log.read_text()
    path = "root/session.json"
    assert (slow.sessions / path).read_bytes() == (mounted.sessions / path).read_bytes()


def test_missing_extension_is_named_once(filled: Path, mount_home: MountHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation without a compiler."""
    blocked = filled.parent / "blocked/fusefs"
    blocked.mkdir(parents=True)
    (blocked.parent / "sitecustomize.py").write_text(
        "import sys\nsys.modules['fusefs._fast'] = None  # importing it raises ImportError\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(blocked.parent))
    mounted = mount_home(filled)
    assert os.listdir(mounted.sessions / "root")
    assert mounted.log.read_text().count("Python answers every open: the C extension cannot be loaded") == 1


def test_opened_version_stays_readable_after_it_is_replaced(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    before = path.read_bytes()
    path.read_bytes()
    before_open = opens(mounted)
    with path.open("rb", buffering=0) as reader:
        assert opens(mounted) == before_open + 1
        with mounted.store() as store:
            store.append("root", [Message.user("new")])
        wait_until(lambda: path.read_bytes() != before, SOON_S)
        assert reader.read() == before
        os.fsync(reader.fileno())
        assert os.pread(reader.fileno(), 100, len(before)) == b""


def test_on_one_cpu_the_daemon_sleeps_and_lets_its_reader_run(filled: Path, mount_home: MountHome) -> None:
    """It looks for the next request before it sleeps only while that finds one."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # inherited by the daemon
    try:
        mounted = mount_home(filled)
        for _ in range(3000):
            (mounted.sessions / "root/session.json").read_bytes()
        assert opens(mounted) > 2000
        assert counter(mounted, "vain_spins") < 600
    finally:
        os.sched_setaffinity(0, allowed)


def test_descriptor_of_a_removed_version_changes_no_other_file(mounted: Mount) -> None:
    """fchmod and futimens reach the file that was opened, not the one that has its name now."""
    path = mounted.sessions / "root/attachments/note.txt"
    path.write_text("old")
    path.read_bytes()
    before = opens(mounted)
    with path.open("rb", buffering=0) as reader:
        assert opens(mounted) == before + 1
        stored = mounted.home / "sessions/root/attachments/note.txt"
        new = stored.with_name("note.new")
        new.write_text("new text")
        new.chmod(0o644)
        os.utime(new, ns=(5, 5))
        new.rename(stored)
        wait_until(lambda: path.read_bytes() == b"new text", SOON_S)
        os.fchmod(reader.fileno(), 0o600)
        os.utime(reader.fileno(), ns=(7, 7))
        found = stored.stat()
        assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o644, 5)
        assert reader.read() == b"old"


def test_save_is_merged_with_a_version_that_an_ended_process_had_opened_in_c(mounted: Mount, place: Path) -> None:
    """cat opens one file through Python and the next one through the extension, and has ended when cp saves."""
    document, other = mounted.sessions / "root/session.json", mounted.sessions / "root/runtime.json"
    first = document.read_text()
    document.write_text(first.replace('  "id":', '  "extra": 1,\n  "id":', 1))
    document.read_bytes()
    before, gate = opens(mounted), place / "gate"
    os.mkfifo(gate)
    # What cp writes is equal to the first version, but was made from the second one.
    script = "cat $OTHER $F > all; tail -c +$((SKIP + 1)) all | grep -v extra > new; read -r go < gate; cp new $F"
    environment = {**os.environ, "F": str(document), "OTHER": str(other), "SKIP": str(other.stat().st_size)}
    # A session of its own: what this process has read must not count.
    with subprocess.Popen(["bash", "-ec", script], env=environment, cwd=place, start_new_session=True) as process:
        with gate.open("w") as go:  # opened once cat has ended
            assert opens(mounted) == before + 1
            with mounted.store() as store:
                store.append("root", [Message.user("meanwhile")])
            go.write("\n")
        assert process.wait(60) == 0
    saved = json.loads(document.read_bytes())
    assert "extra" not in saved
    assert saved["messages"][-1]["content"] == "meanwhile"


def test_time_of_an_open_is_known_although_it_is_reported_later(mounted: Mount, place: Path) -> None:
    """A title set in runtime.json after a program opened session.json in C: the program has not seen it."""
    document, side = mounted.sessions / "root/session.json", mounted.home / "sessions/root/runtime.json"
    document.read_bytes()
    before, gate = opens(mounted), place / "gate"
    os.mkfifo(gate)
    script = "cat $OTHER $F > all; tail -c +$((SKIP + 1)) all | sed 's/The root/By the program/' > new; "
    script += "read -r go < gate; ! cp new $F"
    other = mounted.sessions / "root/runtime.json"
    environment = {**os.environ, "F": str(document), "OTHER": str(other), "SKIP": str(other.stat().st_size)}
    with subprocess.Popen(["bash", "-ec", script], env=environment, cwd=place, start_new_session=True) as process:
        with gate.open("w") as go:  # opened once cat has ended
            new = side.with_name("runtime.new")
            new.write_text(side.read_text().replace("The root", "By hand"))
            new.rename(side)
            go.write("\n")
        assert process.wait(60) == 0, "cp has overwritten a title that it has not seen"
    assert opens(mounted) >= before + 1
    assert json.loads(side.read_bytes())["title"] == "By hand"
    with mounted.store() as store:
        wait_until(lambda: bool(store.search("title:hand")), SOON_S)  # the edit on disk is indexed


def test_file_replaced_by_a_pipe_or_link_is_not_opened(mounted: Mount, place: Path) -> None:
    """A granted path may be anything by the time it is opened."""
    path, stored = mounted.sessions / "root/session.json", mounted.home / "sessions/root/session.json"
    text = path.read_bytes()
    path.read_bytes()
    secret = place / "secret"
    secret.write_text("not yours")
    plants: list[Callable[[], None]] = [lambda: os.mkfifo(stored), lambda: stored.symlink_to(secret)]
    for plant in plants:
        stored.unlink()
        plant()
        with pytest.raises(OSError, match=r"No such file|Stale|Input/output"):
            path.read_bytes()
        stored.unlink()
        stored.write_bytes(text)
        wait_until(lambda: path.exists() and path.read_bytes() == text, SOON_S)
    with mounted.store() as store:  # the index follows a change on disk within a second
        wait_until(lambda: store.check().is_clean)


def test_large_directory_is_read_in_parts(filled: Path, mount_home: MountHome) -> None:
    """Without a handle, each part names the listing it belongs to."""
    notes = filled / "sessions/root/notes"
    notes.mkdir()
    names = {f"{number:05}-{'x' * 100}" for number in range(3000)}
    for name in names:
        (notes / name).touch()
    mounted = mount_home(filled)
    listed: list[set[str]] = []
    readers = [
        threading.Thread(target=lambda: listed.append(set(os.listdir(mounted.sessions / "root/notes"))))
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert listed == [names] * 4
    with os.scandir(mounted.sessions / "root/notes") as entries:
        some = {next(entries).name for _ in range(100)}
        (notes / "zzz-new").touch()
        rest = {entry.name for entry in entries}
    assert some | rest >= names
    wait_until(lambda: set(os.listdir(mounted.sessions / "root/notes")) == {*names, "zzz-new"}, SOON_S)


def test_listings_are_exact_while_everything_changes(filled: Path, mount_home: MountHome) -> None:
    """Through this mount at once; by another mount, the API and the disk soon."""
    mounted, other = mount_home(filled), mount_home(filled)
    with ListingChanges(mounted, other, random.Random(1)) as changes:
        for _ in range(CHANGES):
            changes.change()
        changes.settle()


def test_generated_directories_are_read_again(mounted: Mount) -> None:
    """They change without an event: the kernel forgets them soon after it listed them."""
    with mounted.store() as store:
        for number in range(3):
            assert f"new{number}.md" not in os.listdir(mounted.path / "transcripts")
            store.save(make_session(f"new{number}", messages=1))
            name = f"new{number}.md"
            wait_until(lambda name=name: name in os.listdir(mounted.path / "transcripts"), SOON_S)  # type: ignore[misc]


def test_rejected_rename_is_listed_at_once(mounted: Mount) -> None:
    """The kernel does not know that a failed rename adds names."""
    directory = mounted.sessions / "root"
    for number in range(20):
        assert "session.json.error" not in os.listdir(directory)
        (directory / "new").write_text("not JSON")
        assert "new" in os.listdir(directory)
        with pytest.raises(OSError, match="Bad message"):
            (directory / "new").rename(directory / "session.json")
        assert "session.json.error" in os.listdir(directory), number
        (directory / "session.json").write_bytes((mounted.home / "sessions/root/session.json").read_bytes() + b" ")


def test_rejected_truncate_is_listed_at_once(mounted: Mount) -> None:
    """It adds names to a directory, though the request is one of the file."""
    directory = mounted.sessions / "root"
    for number in range(20):
        assert "session.json.error" not in os.listdir(directory)
        with pytest.raises(OSError, match="Bad message"):
            os.truncate(directory / "session.json", 10)
        assert "session.json.error" in os.listdir(directory), number
        (directory / "session.json").write_bytes((mounted.home / "sessions/root/session.json").read_bytes() + b" ")
