"""Basic operations on a mount: list, edit, rejected edits, fork, rename, delete."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from store import Message
from tests.mount.conftest import Mount, grovefs, wait_until


def title(path: Path) -> str:
    return str(json.loads(path.read_bytes())["title"])


def edit(path: Path, old: str, new: str) -> None:
    """Rewrite a file in place, as many editors do."""
    text = path.read_text()
    assert old in text
    with path.open("w") as file:
        file.write(text.replace(old, new))


def test_tree_is_listed(mounted: Mount) -> None:
    shown = {".grovefs", "README.md", "projects", "sessions", "sessions.json", "state", "transcripts", "views", "html"}
    assert shown <= set(os.listdir(mounted.path))
    assert sorted(os.listdir(mounted.sessions / "root")) == ["attachments", "children", "runtime.json", "session.json"]
    assert sorted(os.listdir(mounted.sessions / "root/children")) == ["child", "grandchild"]
    listed = json.loads((mounted.path / "sessions.json").read_bytes())["sessions"]
    assert set(listed) == {"root", "child", "grandchild", "pinned"}
    assert json.loads((mounted.path / ".grovefs/status.json").read_bytes())["sessions"] == 4
    json.loads((mounted.path / ".grovefs/schema/session.schema.json").read_bytes())
    assert "sessions/" in (mounted.path / "README.md").read_text()


def test_sizes_are_exact_before_open(mounted: Mount) -> None:
    for name in ("sessions.json", "README.md", ".grovefs/status.json", "sessions/root/session.json"):
        path = mounted.path / name
        assert path.stat().st_size == len(path.read_bytes())


def test_valid_edit_updates_index_and_search(mounted: Mount) -> None:
    """Rule 7: index and sidecar are updated before close returns."""
    edit(mounted.sessions / "root/session.json", '"The root"', '"Edited"')
    assert title(mounted.sessions / "root/session.json") == "Edited"
    assert title(mounted.sessions / "root/runtime.json") == "Edited"
    assert json.loads((mounted.path / "sessions.json").read_bytes())["sessions"]["root"]["title"] == "Edited"
    with mounted.store() as store:
        entry = store.entry("root")
        assert entry is not None
        assert entry.title == "Edited"
        assert store.search("Edited")


def test_invalid_edit_is_rejected_and_changes_nothing(mounted: Mount) -> None:
    """Bytes, size and mtime are unchanged. The rejected text and the reason are shown until the next valid save."""
    path = mounted.sessions / "root/session.json"
    before, info = path.read_bytes(), path.stat()
    with pytest.raises(OSError, match="Bad message") as refused:
        edit(path, '"The root"', "5")
    assert refused.value.errno == errno.EBADMSG
    assert path.read_bytes() == before
    assert (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino) == (
        info.st_size,
        info.st_mtime_ns,
        info.st_ino,
    )
    reason = (mounted.sessions / "root/session.json.error").read_text()
    assert "title: expected a string, got a number" in reason
    assert ":3:12:" in reason
    assert b'"title": 5' in (mounted.sessions / "root/session.json.rejected").read_bytes()
    assert "session.json" in (mounted.path / ".grovefs/errors.jsonl").read_text()
    edit(path, '"The root"', '"Good"')
    assert sorted(os.listdir(path.parent)) == ["attachments", "children", "runtime.json", "session.json"]


def test_reader_keeps_its_version_until_close(mounted: Mount) -> None:
    """Rule 4."""
    path = mounted.sessions / "root/session.json"
    before = path.read_bytes()
    with path.open("rb") as reader:
        first = reader.read(10)
        edit(path, '"The root"', '"Something much longer than it was"')
        assert first + reader.read() == before
    assert title(path) == "Something much longer than it was"


def test_open_without_write_commits_nothing(mounted: Mount) -> None:
    """The session survives a shell that truncates it, and an editor that opens and closes it."""
    path = mounted.sessions / "root/session.json"
    before = path.read_bytes()
    subprocess.run(["sh", "-c", ": > session.json"], cwd=path.parent, check=True)
    assert path.read_bytes() == before
    with path.open("r+b"):
        pass
    assert path.read_bytes() == before


def test_document_can_be_filtered_onto_itself(mounted: Mount) -> None:
    """`jq . f > f` empties a file on other filesystems; here the reader still gets the committed version."""
    path = mounted.sessions / "root/session.json"
    subprocess.run(["sh", "-c", "jq '.title = \"new\"' session.json > session.json"], cwd=path.parent, check=True)
    assert title(path) == "new"


def test_identical_bytes_change_nothing(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    info = path.stat()
    path.write_bytes(path.read_bytes())
    assert path.stat().st_mtime_ns == info.st_mtime_ns


def test_several_commands_can_write_one_document(mounted: Mount) -> None:
    """Each child flushes incomplete content when it exits; only the last flush counts."""
    path = mounted.sessions / "root/session.json"
    text = path.read_text().replace("The root", "By a group")
    (mounted.sessions / "root/half1").write_text(text[:100])
    (mounted.sessions / "root/half2").write_text(text[100:])
    subprocess.run(["sh", "-c", "{ cat half1; cat half2; } > session.json"], cwd=path.parent, capture_output=True)
    assert title(path) == "By a group"
    (mounted.sessions / "root/half1").unlink()
    (mounted.sessions / "root/half2").unlink()


def test_synced_version_stays_after_a_later_invalid_write(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    text = path.read_text().replace("The root", "Synced")
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.write(fd, b"garbage")
    with pytest.raises(OSError, match="Bad message"):
        os.close(fd)
    assert title(path) == "Synced"


def test_copying_a_tree_forks_it(mounted: Mount) -> None:
    subprocess.run(["cp", "-r", "root", "forked"], cwd=mounted.sessions, check=True)
    with mounted.store() as store:
        root, child = store.load("forked"), store.load("forked/child")
    assert root is not None
    assert child is not None
    assert (root.id, child.root_session_id, child.parent_session_id) == ("forked", "forked", "forked")


def test_renaming_a_directory_renames_the_session(mounted: Mount) -> None:
    subprocess.run(["mv", "root", "renamed"], cwd=mounted.sessions, check=True)
    assert sorted(os.listdir(mounted.sessions)) == ["pinned", "renamed"]
    with mounted.store() as store:
        session, child = store.load("renamed"), store.load("child")
    assert session is not None
    assert child is not None
    assert child.root_session_id == "renamed"
    assert json.loads((mounted.sessions / "renamed/session.json").read_bytes())["id"] == "renamed"


def test_deleting_a_directory_deletes_the_session(mounted: Mount) -> None:
    subprocess.run(["rm", "-r", "root"], cwd=mounted.sessions, check=True)
    assert os.listdir(mounted.sessions) == ["pinned"]
    with mounted.store() as store:
        assert store.load("root") is None
        assert [e.id for e in store.entries()] == ["pinned"]
        assert {d.session_id for d in store.trash.deleted()} >= {"root"}


def test_lines_for_a_replaced_log_are_in_the_new_one(mounted: Mount) -> None:
    """An import or a restore replaces a log that an agent has open."""
    log = mounted.sessions / "root/token-usage.jsonl"
    log.write_text('{"line": 1}\n')
    with log.open("a") as writer:
        for number in (2, 3):
            (mounted.home / "new").write_text(f'{{"imported": {number}}}\n')
            os.replace(mounted.home / "new", mounted.home / "sessions/root/token-usage.jsonl")
            writer.write(f'{{"line": {number}}}\n')
            writer.flush()
            expected = f'{{"imported": {number}}}\n{{"line": {number}}}\n'
            assert (mounted.home / "sessions/root/token-usage.jsonl").read_text() == expected
        writer.write('{"line": 4}\n')
    assert (mounted.home / "sessions/root/token-usage.jsonl").read_text() == expected + '{"line": 4}\n'
    with log.open("a") as writer:
        (mounted.home / "sessions/root/token-usage.jsonl").unlink()
        writer.write('{"line": 5}\n')
    assert not (mounted.home / "sessions/root/token-usage.jsonl").exists()


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_files_below_attachments_come_back_with_the_session(mounted: Mount) -> None:
    """Also those in directories, hidden ones and names that look like backups."""
    attachments = mounted.sessions / "root/attachments"
    (attachments / "sub/deep").mkdir(parents=True)
    for name in ("top", ".env", "notes~", "sub/x", "sub/.env", "sub/deep/x"):
        (attachments / name).write_text(f"text of {name}")
    before = files_below(mounted.sessions / "root")
    subprocess.run(["rm", "-r", "root"], cwd=mounted.sessions, check=True)
    done = grovefs("undelete", "root", "--home", mounted.home)
    assert done.returncode == 0, done.stderr
    assert files_below(mounted.home / "sessions/root") == before
    assert files_below(mounted.sessions / "root") == before
    with mounted.store() as store:
        assert store.check().is_clean


def test_what_rm_takes_from_a_pinned_session_can_be_restored(mounted: Mount) -> None:
    """`rm -r` fails at the documents, but deletes foreign files before."""
    pinned = mounted.sessions / "pinned"
    (pinned / "attachments/shots").mkdir(parents=True)
    (pinned / "work").mkdir()
    for name in ("attachments/shots/1.png", "notes.txt", ".env", "work/notes.txt~"):
        (pinned / name).write_text(f"text of {name}")
    before = files_below(pinned)
    assert subprocess.run(["rm", "-r", "pinned"], cwd=mounted.sessions, capture_output=True).returncode == 1
    with mounted.store() as store:
        for slot in store.trash.deleted():
            store.trash.undelete(slot.name)
        assert store.check().is_clean
    assert files_below(mounted.home / "sessions/pinned") == before


def test_pinned_session_is_not_deleted(mounted: Mount) -> None:
    """Nothing of it is removed; editing it works."""
    result = subprocess.run(["rm", "-r", "pinned"], cwd=mounted.sessions, capture_output=True, text=True)
    assert result.returncode != 0
    assert "Operation not permitted" in result.stderr
    assert title(mounted.sessions / "pinned/session.json") == "Pinned"
    assert (mounted.sessions / "pinned/runtime.json").exists()
    edit(mounted.sessions / "pinned/session.json", '"Pinned"', '"Still pinned"')


def test_session_can_be_created_by_hand(mounted: Mount) -> None:
    directory = mounted.sessions / "by-hand"
    directory.mkdir()
    with mounted.store() as store:
        assert store.entry("by-hand") is None
    document = {
        "id": "by-hand",
        "messages": [],
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }
    (directory / "session.json").write_text(json.dumps(document))
    assert (directory / "session.json").read_text() == json.dumps(document)
    with mounted.store() as store:
        assert store.entry("by-hand") is not None


def test_api_changes_are_visible_within_a_second(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    title(path)
    with mounted.store() as store:
        store.update("root", lambda s: setattr(s, "title", "By the API"))
        store.append("root", [Message.user("more")])
    wait_until(lambda: title(path) == "By the API")


def test_generated_files_cannot_be_written(mounted: Mount) -> None:
    for name in ("sessions.json", "README.md", ".grovefs/status.json"):
        with pytest.raises(OSError, match="Read-only file system"):
            (mounted.path / name).open("a")
    with pytest.raises(OSError, match="Read-only file system"):
        (mounted.path / "new").mkdir()


def test_links_and_attributes(mounted: Mount) -> None:
    with pytest.raises(PermissionError):
        os.link(mounted.sessions / "root/session.json", mounted.sessions / "root/hard")
    os.symlink("session.json", mounted.sessions / "root/.#session.json")
    assert os.readlink(mounted.sessions / "root/.#session.json") == "session.json"
    os.unlink(mounted.sessions / "root/.#session.json")
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(mounted.sessions / "root/session.json", "user.x", b"y")


def test_mount_and_api_append_to_one_log(mounted: Mount) -> None:
    """O_APPEND writes to the file itself: nothing is overwritten."""
    path = mounted.sessions / "root/token-usage.jsonl"
    with mounted.store() as store:
        for i in range(20):
            with path.open("a") as log:
                log.write(f'{{"mount": {i}}}\n')
            store.usage.append("root", {"api": i})
    lines = (mounted.home / "sessions/root/token-usage.jsonl").read_text().splitlines()
    assert len(lines) == 40
    assert all(json.loads(line) for line in lines)


def test_oversized_document_is_rejected_at_once(mounted: Mount) -> None:
    """Neither truncate nor ftruncate reads it into memory first."""
    path = mounted.sessions / "root/session.json"
    before = path.read_bytes()
    with pytest.raises(OSError, match="File too large"):
        os.truncate(path, 1 << 40)
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 1 << 40)
    with pytest.raises(OSError, match="File too large"):
        os.close(fd)
    assert path.read_bytes() == before


def test_attachment_over_two_gigabytes_is_stored_completely(mounted: Mount) -> None:
    """One read(2) returns at most 2 GiB; a sparse file shows that all of it was copied."""
    path = mounted.sessions / "root/attachments/large.bin"
    size = (1 << 31) + 12_345
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 3)
        file.write(b"end")
    stored = mounted.home / "sessions/root/attachments/large.bin"
    assert stored.stat().st_size == path.stat().st_size == size
    with stored.open("rb") as file:
        file.seek(size - 3)
        assert file.read() == b"end"
    path.unlink()


def test_tree_removed_with_rm_r_can_be_restored(mounted: Mount) -> None:
    """rm removes documents, attachments and logs one by one; undelete restores them all at once."""
    with mounted.store() as store:
        store.usage.append("root", {"input_tokens": 1})
    root = mounted.sessions / "root"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {path.suffix for path in before} == {".json", ".jsonl", ".png"}
    subprocess.run(["rm", "-r", root], check=True)
    assert not root.exists()
    result = grovefs("undelete", "--home", mounted.home, "root")
    assert (result.returncode, result.stderr) == (0, "")
    assert "with 2 files" in result.stdout
    wait_until(lambda: all(path.exists() for path in before))
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_imported_session_removed_with_rm_r_still_knows_its_source(mounted: Mount) -> None:
    """Without its receipt it would never grow again from its source, nor be resumed."""
    receipt = mounted.home / "sessions/root/.import.json"
    receipt.write_text("{}")
    wait_until(lambda: (mounted.sessions / "root/.import.json").exists())
    subprocess.run(["rm", "-r", mounted.sessions / "root"], check=True)
    assert grovefs("undelete", "--home", mounted.home, "root").returncode == 0
    assert receipt.read_text() == "{}"
