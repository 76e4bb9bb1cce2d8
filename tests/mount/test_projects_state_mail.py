"""Projects, state documents and mail through a real mount, with real tools."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from store import InboxMessage, ProjectSession, Store
from tests.mount.conftest import Mount, wait_until


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)


def number_of(call: Callable[[], object]) -> int | None:
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def letter(place: Path, name: str = "letter.json") -> Path:
    """A message in a file outside the mount."""
    path = place / name
    path.write_bytes(InboxMessage.new("me", "task", {"do": "it"}).render())
    return path


# -- mail ------------------------------------------------------------------------------------------------------


def test_message_is_delivered_by_cp_and_by_mv(mounted: Mount, place: Path) -> None:
    """It is delivered complete, and the session's owner receives it."""
    new = mounted.sessions / "root/mailbox/new"
    new.mkdir(parents=True)
    assert run("cp", letter(place), new / "a.json").returncode == 0
    assert run("mv", letter(place), new / "b.json").returncode == 0
    assert sorted(os.listdir(new)) == ["a.json", "b.json"]
    with mounted.store() as store:
        box = store.mail.at("root")
        claimed = box.drain()
        assert [delivered.message.body for delivered in claimed] == [{"do": "it"}] * 2
        wait_until(lambda: os.listdir(new) == [])
        assert run("rm", mounted.sessions / "root/mailbox/cur/a.json").returncode == 0  # acknowledges it
        assert [delivered.path for delivered in box.recover()] == ["sessions/root/mailbox/cur/b.json"]


def test_invalid_message_is_rejected_and_kept(mounted: Mount, place: Path) -> None:
    """By cp and by mv; the reason is shown next to the intended path, and nothing is delivered."""
    new = mounted.sessions / "root/mailbox/new"
    new.mkdir(parents=True)
    (place / "bad.json").write_text('{"id": "m1"}')
    result = run("cp", place / "bad.json", new / "bad.json")
    assert (result.returncode, "Bad message" in result.stderr) == (1, True)
    assert run("mv", place / "bad.json", new / "moved.json").returncode == 1
    assert (place / "bad.json").exists()
    assert (new / "bad.json.rejected").read_text() == '{"id": "m1"}'
    assert "required member is missing" in (new / "bad.json.error").read_text()
    assert not (new / "bad.json").exists()
    with mounted.store() as store:
        assert store.mail.at("root").is_empty()
    assert run("cp", letter(place), new / "bad.json").returncode == 0
    assert not (new / "bad.json.rejected").exists()


def test_message_is_delivered_on_close(mounted: Mount, place: Path) -> None:
    """A message written in parts is delivered complete when it is closed, not before."""
    new = mounted.sessions / "root/mailbox/new"
    new.mkdir(parents=True)
    raw = letter(place).read_bytes()
    with mounted.store() as store:
        box = store.mail.at("root")
        with open(new / "slow.json", "wb") as file:
            file.write(raw[:20])
            file.flush()
            assert box.is_empty()
            file.write(raw[20:])
        assert len(box.receive(10)) == 1


# -- state -----------------------------------------------------------------------------------------------------


def test_state_is_written_with_plain_tools(mounted: Mount) -> None:
    """JSON is validated, Markdown is not, and both are indexed."""
    facts = mounted.path / "state/memory/facts"
    facts.mkdir(parents=True)
    (facts / "f.json").write_text('["a needle"]\n')
    (facts / "f.md").write_bytes(b"also a needle \xff")
    (facts / "empty.md").touch()
    assert (facts / "empty.md").read_bytes() == b""
    assert number_of(lambda: (facts / "f.json").write_text("{")) == errno.EBADMSG
    assert (facts / "f.json").read_text() == '["a needle"]\n'
    assert (facts / "f.json.rejected").read_text() == "{"
    with mounted.store() as store:
        assert {hit.path for hit in store.search("needle")} == {
            "state/memory/facts/f.json",
            "state/memory/facts/f.md",
        }
        assert store.state.load_json("memory/facts", "f") == ["a needle"]
    assert run("rm", "-r", mounted.path / "state/memory").returncode == 0
    with mounted.store() as store:
        assert store.search("needle") == []


def test_older_document_moved_onto_a_newer_one_replaces_it(mounted: Mount) -> None:
    """It is not an edit of the document it replaces, so it cannot be stale."""
    facts = mounted.path / "state/facts"
    facts.mkdir(parents=True)
    (facts / "older.json").write_text('["older"]\n')
    (facts / "newer.json").write_text('["newer"]\n')
    (facts / "older.json").rename(facts / "newer.json")
    assert (facts / "newer.json").read_text() == '["older"]\n'
    assert not (facts / "older.json").exists()


def test_state_can_be_saved_the_way_vim_does(mounted: Mount) -> None:
    """Rename the old file to a backup, write a new one, remove the backup; or rename a temporary file onto it."""
    directory = mounted.path / "state/config"
    directory.mkdir(parents=True)
    document = directory / "x.json"
    document.write_text("1")
    document.rename(directory / "x.json~")
    document.write_text("2")
    (directory / "x.json~").unlink()
    assert document.read_text() == "2"
    temporary = directory / ".x.json.swap"
    temporary.write_text("3")
    temporary.rename(document)
    assert document.read_text() == "3"
    temporary.write_text("{ broken")
    assert number_of(lambda: temporary.rename(document)) == errno.EBADMSG
    assert document.read_text() == "3"
    assert (directory / "x.json.rejected").read_text() == "{ broken"
    temporary.unlink()
    with mounted.store() as store:
        assert store.state.load_json("config", "x") == 3


def test_vim_saves_a_state_document(mounted: Mount) -> None:
    directory = mounted.path / "state/config"
    directory.mkdir(parents=True)
    (directory / "x.json").write_text('{"a": 1}\n')
    result = run("vim", "-u", "NONE", "-es", "-c", "%s/1/2/", "-c", "wq", directory / "x.json")
    assert result.returncode == 0, result.stderr
    assert (directory / "x.json").read_text() == '{"a": 2}\n'


def test_state_saved_elsewhere_is_visible(mounted: Mount) -> None:
    """Within a second, even if the file is cached."""
    with mounted.store() as store:
        store.state.save_json("config", "x", 1)
        document = mounted.path / "state/config/x.json"
        assert document.read_text() == "1"
        store.state.save_json("config", "x", 22)
        wait_until(lambda: document.read_text() == "22" and document.stat().st_size == 2)
        store.state.delete("config", "x")
        wait_until(lambda: not document.exists())


# -- projects --------------------------------------------------------------------------------------------------


def titles(mounted: Mount) -> dict[str, str]:
    said = json.loads((mounted.path / "projects/k/sessions/p/children.json").read_text())
    return {entry["child_id"]: entry["title"] for entry in said["children"]}


def index(mounted: Mount) -> tuple[list[str], dict[str, str]]:
    said = json.loads((mounted.path / "projects/k/index.json").read_text())
    return [entry["session_id"] for entry in said["roots"]], said["child_lookup"]


def test_payload_written_by_hand_is_indexed(mounted: Mount) -> None:
    """The index files are current immediately after the write."""
    child = mounted.path / "projects/k/sessions/p/children/c"
    child.mkdir(parents=True)
    (child / "session.json").write_text('{"title": "one"}')
    assert titles(mounted) == {"c": "one"}
    assert index(mounted) == ([], {"c": "p"})
    (child / "session.json").write_text('{"title": "two"}')
    assert titles(mounted) == {"c": "two"}
    (child.parent.parent / "session.json").write_text("{}")
    assert index(mounted) == (["p"], {"c": "p"})
    assert number_of(lambda: (child / "session.json").write_text("[]")) == errno.EBADMSG
    assert (child / "session.json.rejected").read_text() == "[]"
    assert titles(mounted) == {"c": "two"}
    with mounted.store() as store:
        assert store.projects.resolve("k", "c") == ProjectSession("k", "p", "c")


def test_derived_files_are_read_only(mounted: Mount) -> None:
    """EROFS for every operation."""
    with mounted.store() as store:
        store.projects.save(ProjectSession("k", "p", "c"), {"title": "C"})
    base = mounted.path / "projects/k"
    for path in (base / "index.json", base / "sessions/p/children.json"):
        before = path.read_bytes()
        for call in (
            lambda path=path: path.write_text("{}"),
            lambda path=path: os.truncate(path, 0),
            lambda path=path: os.unlink(path),
            lambda path=path: os.rename(path, f"{path}~"),
            lambda path=path: os.chmod(path, 0o644),
            lambda path=path: os.rename(base / "sessions/p/children/c/session.json", path),
        ):
            assert number_of(call) == errno.EROFS
        assert path.read_bytes() == before
    fresh = mounted.path / "projects/new"
    fresh.mkdir()
    assert number_of(lambda: (fresh / "index.json").write_text("{}")) == errno.EROFS


def test_project_sessions_can_be_moved_and_removed(mounted: Mount) -> None:
    """mv of a child and of a parent; rm -r of a child, a parent and the project."""
    with mounted.store() as store:
        for child in ("a", "b"):
            store.projects.save(ProjectSession("k", "p", child), {"title": child})
        store.projects.save(ProjectSession("k", "p"), {"title": "P"})
    base = mounted.path / "projects/k/sessions"
    assert run("mv", base / "p/children/a", base / "p/children/z").returncode == 0
    assert titles(mounted) == {"z": "a", "b": "b"}
    assert run("rm", "-r", base / "p/children/b").returncode == 0
    assert titles(mounted) == {"z": "a"}
    assert run("mv", base / "p", base / "q").returncode == 0
    assert index(mounted) == (["q"], {"z": "q"})
    assert run("cp", "-r", base / "q", base / "p").returncode in (
        0,
        1,
    )  # 1: children.json is derived and cannot be copied
    assert titles(mounted) == {"z": "a"}
    result = run("rm", "-r", base / "q")
    assert (result.returncode, result.stderr) == (0, "")
    assert index(mounted) == (["p"], {"z": "p"})
    result = run("rm", "-r", mounted.path / "projects/k")
    assert (result.returncode, result.stderr) == (0, "")
    assert os.listdir(mounted.path / "projects") == []


def test_rsync_copies_projects_to_another_home(mounted: Mount, place: Path, mount_home: Callable[..., Mount]) -> None:
    """Byte for byte, without the derived files, which the other home generates itself."""
    with mounted.store() as store:
        store.projects.save(ProjectSession("k", "p"), {"title": "P"})
        store.projects.save(ProjectSession("k", "p", "c"), {"title": "C", "status": "running"})
        store.mail.at("projects/k/sessions/p").deliver(InboxMessage.new("me", "task", 1))
        store.state.save_json("memory/facts", "f", {"a": 1})
    backup = place / "backup"
    backup.mkdir()
    sources = [mounted.path / "projects", mounted.path / "state"]
    assert run("rsync", "-a", "--modify-window=-1", *sources, backup).returncode == 0
    with Store.open(place / "empty", background=False):
        pass
    other = mount_home(place / "empty")
    options = ["-a", "--modify-window=-1", "--exclude", "index.json", "--exclude", "children.json"]
    for part in ("projects", "state"):
        result = run("rsync", *options, f"{backup}/{part}/", other.path / part)
        assert (result.returncode, result.stderr) == (0, "")
    for path in ("index.json", "sessions/p/children.json", "sessions/p/session.json"):
        assert (other.path / "projects/k" / path).read_bytes() == (backup / "projects/k" / path).read_bytes()
    assert (other.path / "state/memory/facts/f.json").read_bytes() == (
        backup / "state/memory/facts/f.json"
    ).read_bytes()
    with other.store() as store:
        assert len(store.mail.at("projects/k/sessions/p").pending()) == 1
        assert store.check().is_clean
    again = run("rsync", *options, "-i", f"{backup}/projects/", other.path / "projects")
    assert [line for line in again.stdout.splitlines() if line.startswith(">f")] == []


def test_direct_edit_of_a_payload_is_indexed(mounted: Mount) -> None:
    """Directly in the home; within two seconds."""
    with mounted.store() as store:
        store.projects.save(ProjectSession("k", "p", "c"), {"title": "C"})
    assert titles(mounted) == {"c": "C"}
    assert (mounted.path / "projects/k/sessions/p/children/c/session.json").exists()
    (mounted.home / "projects/k/sessions/p/children/c/session.json").write_text('{"title": "behind"}')
    wait_until(lambda: titles(mounted) == {"c": "behind"})
