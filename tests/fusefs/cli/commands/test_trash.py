"""`grovefs trash` and `grovefs undelete`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from store.path_kinds import classify_path
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs


@pytest.fixture
def emptied(home: Path) -> Path:
    """A root with a child was deleted; one session is left."""
    with Store.open(home, background=False) as store:
        for id in ("first", "second"):
            store.save(make_session(id, title="About trees" if id == "first" else "Another"))
        store.save(Session.new_child("kid", "first", "m", "A child"))
        store.delete("first")
    return home


def ids(home: Path) -> list[str]:
    with Store.open(home, background=False) as store:
        return store.ids()


def test_deletions_are_listed(emptied: Path) -> None:
    (line,) = grovefs(emptied, "trash").stdout.splitlines()
    assert line.split("\t")[3:] == ["first", "deleted", "About trees"]
    (found,) = json.loads(grovefs(emptied, "trash", "--json").stdout)
    assert (found["id"], found["paths"]) == ("first", ["sessions/first"])
    kept = emptied / f".grovefs/trash/{found['name']}/0"
    assert found["size_bytes"] == sum(path.stat().st_size for path in kept.rglob("*.json*"))


@pytest.mark.parametrize("called", ["first", "fir", "about TREES", ""])
def test_undelete_restores_a_session(emptied: Path, called: str) -> None:
    """By id, prefix, title, or name in the trash; with its children."""
    name = called or grovefs(emptied, "trash").stdout.split("\t")[0]
    result = grovefs(emptied, "undelete", name)
    assert result.stdout == "restored: first, first/kid\n"
    assert ids(emptied) == ["first", "first/kid", "second"]
    assert grovefs(emptied, "trash").stdout == "no deletions in the last 7 days\n"


def test_unknown_name_is_one_line_with_a_hint(emptied: Path) -> None:
    result = grovefs(emptied, "undelete", "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "grovefs: there is no 'nobody' in the trash; `grovefs trash` lists its contents\n"


def test_undelete_does_not_replace_a_new_session(emptied: Path) -> None:
    with Store.open(emptied, background=False) as store:
        store.save(make_session("first", title="A new one"))
    result = grovefs(emptied, "undelete", "first")
    assert result.returncode == 1
    assert "exists again" in result.stderr
    assert ids(emptied) == ["first", "second"]


def test_undelete_restores_everything_deleted_together(emptied: Path) -> None:
    """`rm -r` in a mount deletes child by child. A child deleted long before stays deleted."""
    with Store.open(emptied, background=False) as store:
        for kid in ("old", "young"):
            store.save(Session.new_child(kid, "second", "m", "A child"))
            store.delete(f"second/{kid}")
        [slot] = [slot for slot in store.trash.deleted() if slot.session_id == "second/old"]
        info = emptied / f".grovefs/trash/{slot.name}/info.json"
        info.write_text(info.read_text().replace(str(slot.deleted_at_ns), str(slot.deleted_at_ns - 3600 * 10**9)))
        store.delete("second")
    assert grovefs(emptied, "undelete", "second").stdout == "restored: second, second/young\n"
    assert ids(emptied) == ["second", "second/young"]


def test_ambiguous_prefix_lists_candidates(emptied: Path) -> None:
    with Store.open(emptied, background=False) as store:
        store.save(make_session("fire"))
        store.delete("fire")
    result = grovefs(emptied, "undelete", "fir")
    assert (result.returncode, result.stderr) == (1, "grovefs: 'fir' is ambiguous; candidates: fire, first\n")
    assert ids(emptied) == ["second"]


def test_tree_deleted_file_by_file_is_one_deletion(emptied: Path) -> None:
    """`rm -r` in a mount deletes file by file; attachments and logs are restored too."""
    with Store.open(emptied, background=False) as store:
        attached = store.attach("second", b"\x89PNG", "image/png")
        store.usage.append("second", {"input_tokens": 1})
        for name in (f"attachments/{attached.id}.png", "runtime.json", "token-usage.jsonl"):
            store.names.remove_file(classify_path(f"sessions/second/{name}"))
        for name in ("attachments", "children"):
            store.names.remove_dir(classify_path(f"sessions/second/{name}"))
        store.names.remove_dir(classify_path("sessions/second"), ["session.json"])
    lines = [line.split("\t") for line in grovefs(emptied, "trash").stdout.splitlines()]
    assert [line[3:5] for line in lines] == [["second", "deleted, with 2 files"], ["first", "deleted"]]
    assert grovefs(emptied, "undelete", "sec").stdout == "restored: second, with 2 files\n"
    with Store.open(emptied, background=False) as store:
        assert store.attachments.read("second", attached.id) == (b"\x89PNG", "image/png")
        assert store.usage.totals().total().tokens["input_tokens"] == 1
        assert store.check().is_clean


def test_undelete_names_a_single_file_and_counts_those_of_a_session(emptied: Path) -> None:
    with Store.open(emptied, background=False) as store:
        store.usage.append("second", {"input_tokens": 1})
        log = classify_path("sessions/second/token-usage.jsonl")
        store.names.remove_file(log)
    assert grovefs(emptied, "undelete", "second").stdout == f"restored: second ({log.path})\n"
    with Store.open(emptied, background=False) as store:
        for name in ("token-usage.jsonl", "runtime.json"):
            store.names.remove_file(classify_path(f"sessions/second/{name}"))
        for name in ("attachments", "children"):
            store.names.remove_dir(classify_path(f"sessions/second/{name}"))
        store.names.remove_dir(classify_path("sessions/second"), ["session.json"])
    assert grovefs(emptied, "undelete", "second").stdout == "restored: second, with 1 file\n"
    assert (emptied / log.path).is_file()


def test_undelete_does_not_mix_two_sessions_of_one_name(emptied: Path) -> None:
    """A session is deleted by `rm -r`, created again and deleted again within seconds."""
    with Store.open(emptied, background=False) as store:
        for text in ("old", "new"):
            names = ("attachments/report.txt", f"attachments/{text}.txt", "runtime.json")
            if text == "new":
                store.save(make_session("second", title="The new one"))
            for name in names[:2]:
                place = classify_path(f"sessions/second/{name}")
                store.names.write_copy(place, text.encode(), (emptied / "sessions/second/session.json").stat())
            if text == "new":
                runtime = (emptied / "sessions/second/runtime.json").read_bytes()
                store.delete("second")
                continue
            for name in names:
                store.names.remove_file(classify_path(f"sessions/second/{name}"))
            for directory in ("attachments", "children"):
                store.names.remove_dir(classify_path(f"sessions/second/{directory}"))
            store.names.remove_dir(classify_path("sessions/second"), ["session.json"])
    assert grovefs(emptied, "undelete", "second").stdout == "restored: second\n"
    attachments = emptied / "sessions/second/attachments"
    assert {file.name: file.read_text() for file in attachments.iterdir()} == {"report.txt": "new", "new.txt": "new"}
    assert (emptied / "sessions/second/runtime.json").read_bytes() == runtime
    with Store.open(emptied, background=False) as store:
        assert store.check().is_clean


def test_undelete_of_a_session_leaves_older_versions_of_its_files_in_the_trash(emptied: Path) -> None:
    """A file was deleted and written again, then its session was deleted with the new file."""
    with Store.open(emptied, background=False) as store:
        place, like = classify_path("sessions/second/attachments/x"), (emptied / "sessions/second/session.json").stat()
        store.names.write_copy(place, b"old", like)
        store.names.remove_file(place)
        store.names.write_copy(place, b"new", like)
        store.save(Session.new_child("kid", "second", "m", "The old child"))
        store.names.write_copy(classify_path("sessions/second/children/kid/attachments/y"), b"old", like)
        store.names.remove_file(classify_path("sessions/second/children/kid/attachments/y"))
        store.delete("second/kid")
        store.save(Session.new_child("kid", "second", "m", "The new child"))
        store.delete("second")
    result = grovefs(emptied, "undelete", "second")
    assert (result.returncode, result.stdout) == (0, "restored: second, second/kid\n")
    assert (emptied / "sessions/second/attachments/x").read_bytes() == b"new"
    assert not (emptied / "sessions/second/children/kid/attachments/y").exists()
    paths = {path for each in json.loads(grovefs(emptied, "trash", "--json").stdout) for path in each["paths"]}
    assert {place.path, "sessions/second/children/kid"} <= paths


def test_emptying_the_trash_needs_confirmation(emptied: Path) -> None:
    refused = grovefs(emptied, "trash", "--empty")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert grovefs(emptied, "undelete", "first").returncode == 0
    grovefs(emptied, "rm", "first")
    assert grovefs(emptied, "trash", "--empty", "--yes").stdout == "erased 1 deletion\n"
    assert grovefs(emptied, "undelete", "first").returncode == 1
