"""Projects: payloads are the source of truth; every write updates both indices, and lost ones are rebuilt."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import (
    ChildEntry,
    ChildFields,
    Conflict,
    Corrupt,
    Generated,
    InvalidContent,
    InvalidName,
    NotEmpty,
    Projects,
    ProjectSession,
    Protected,
    RootEntry,
    RootFields,
    Store,
    Timestamp,
)
from store.commit.write_request import WriteRequest
from store.path_kinds import classify_path
from tests.builders import files_below, read_json

KEY = "proj"
AT = Timestamp("2026-01-01T00:00:00Z")
PARENT, CHILD = ProjectSession(KEY, "p"), ProjectSession(KEY, "p", "c")
INDEX, CHILDREN = "projects/proj/index.json", "projects/proj/sessions/p/children.json"
processes = multiprocessing.get_context("fork")


@pytest.fixture
def projects(store: Store) -> Projects:
    return store.projects


def payload(title: str = "T", **members: Any) -> dict[str, Any]:
    return {"title": title, "updated_at": AT, **members}


def rendered(title: str = "T", **members: Any) -> bytes:
    return json.dumps(payload(title, **members)).encode()


def titles(projects: Projects, parent: str = "p") -> dict[str, str]:
    return {entry.child_id: entry.title for entry in projects.children(KEY, parent)}


def test_every_save_updates_the_indices(projects: Projects, home: Path) -> None:
    """Indented JSON, no final newline, version 0."""
    projects.save(PARENT, payload("Parent"))
    projects.save(CHILD, payload("Child", status="running", subagent_type="coder"))
    entry = {"session_id": "p", "title": "Parent", "updated_at": AT}
    index = {"version": 0, "roots": [entry], "child_lookup": {"c": "p"}}
    assert (home / INDEX).read_text() == json.dumps(index, indent=2)
    [child] = read_json(home / CHILDREN)["children"]
    assert child == {
        "child_id": "c",
        "subagent_type": "coder",
        "status": "running",
        "title": "Child",
        "responsibility": "",
        "updated_at": AT,
    }
    assert projects.all_keys() == [KEY]
    assert list(projects.members(KEY)) == [PARENT, CHILD]


def test_a_payload_must_be_a_json_object(projects: Projects) -> None:
    projects.save(PARENT, {})
    assert projects.load(PARENT) == {}
    for bad in ({"x": float("nan")}, {"x": object()}, {1: 2}):
        with pytest.raises(InvalidContent):
            projects.save(PARENT, bad)  # type: ignore[arg-type]
    assert projects.load(PARENT) == {}
    assert projects.load(CHILD) is None
    for name in ("", "a/b", "..", ".hidden"):
        with pytest.raises(InvalidName):
            projects.save(ProjectSession(KEY, name), {})
        with pytest.raises(InvalidName):
            projects.save(ProjectSession(KEY, "p", name), {})


def test_c3_an_upsert_leaves_the_payload_alone(projects: Projects, store: Store, home: Path) -> None:
    """Its members mean something to the program that owns it. The entry survives a rebuild (rule 1)."""
    raw = b'{"mine":  [1, 2],\n "title": "old", "status": 7, "updated_at": "2026-01-01T00:00:00Z"}'
    for member, entry in (
        (PARENT, RootEntry(session_id="p", title="new", updated_at=AT)),
        (CHILD, ChildEntry(child_id="c", title="new", status="idle", updated_at=AT)),
    ):
        path = home / member.payload
        path.parent.mkdir(parents=True)
        path.write_bytes(raw)
        for title in ("new", "newer"):
            changed = entry.model_copy(update={"title": title})
            if isinstance(changed, RootEntry):
                projects.upsert_root(KEY, changed)
            else:
                projects.upsert_child(KEY, "p", changed)
        assert path.read_bytes() == raw
    listed = projects.roots(KEY), projects.children(KEY, "p")
    assert [entry.title for entry in listed[0]] == [entry.title for entry in listed[1]] == ["newer"]
    for path in (home / INDEX, home / CHILDREN):
        path.unlink()
    store.maintenance.rebuild()
    assert (projects.roots(KEY), projects.children(KEY, "p")) == listed
    projects.delete(CHILD)
    assert list((home / CHILD.payload).parent.iterdir()) == []
    projects.save(CHILD, payload("From the payload"))
    assert titles(projects) == {"c": "From the payload"}


def test_c12_a_payload_that_is_not_an_object_is_named(projects: Projects) -> None:
    with pytest.raises(TypeError, match="expected a JSON object as a dict, got list"):
        projects.save(PARENT, [1])  # type: ignore[arg-type]


def test_c12_the_key_of_no_path_is_an_error(projects: Projects) -> None:
    """It was that of the working directory."""
    with pytest.raises(InvalidName, match="must not be empty"):
        projects.key_of("")


def test_a_removed_child_stays_removed_until_upserted(projects: Projects, store: Store, home: Path) -> None:
    """Also after writes and rebuilds; its payload is kept."""
    projects.save(CHILD, payload("Child"))
    assert projects.remove_child(KEY, "p", "c") is True
    assert projects.remove_child(KEY, "p", "c") is False
    projects.save(CHILD, payload("Again"))
    projects.rebuild(KEY)
    store.maintenance.rebuild()
    assert projects.children(KEY, "p") == []
    assert projects.load(CHILD) == payload("Again")
    projects.upsert_child(KEY, "p", ChildEntry(child_id="c", title="Back", updated_at=AT))
    assert titles(projects) == {"c": "Back"}
    assert not (home / CHILD.removed_marker).exists()


def test_lost_or_corrupt_indices_are_rebuilt_when_read(projects: Projects, store: Store, home: Path) -> None:
    """Rule 1."""
    projects.save(PARENT, payload("Parent"))
    projects.save(CHILD, payload("Child"))
    before = files_below(home)
    damages: tuple[Callable[[Path], object], ...] = (Path.unlink, lambda path: path.write_bytes(b"{ broken"))
    for damage in damages:
        damage(home / INDEX)
        damage(home / CHILDREN)
        assert {f.path for f in store.check().findings if f.kind == "derived"} == {INDEX, CHILDREN}
        assert projects.resolve(KEY, "c") == CHILD
        assert titles(projects) == {"c": "Child"}
        assert files_below(home) == before


def test_check_repairs_stale_indices(projects: Projects, store: Store, home: Path) -> None:
    """After direct edits on disk. An unreadable payload keeps its entry and is reported."""
    projects.save(PARENT, payload("Parent"))
    projects.save(CHILD, payload("Child"))
    (home / CHILD.payload).write_bytes(rendered("Edited"))
    found = [(f.kind, f.path) for f in store.check().findings]
    assert found == [("derived", CHILDREN), ("history-behind", CHILD.payload)]
    assert store.check(repair=True).exit_code == 1
    assert titles(projects) == {"c": "Edited"}
    (home / CHILD.payload).write_bytes(b"{")
    found = [(f.kind, f.path) for f in store.check().findings]
    assert found == [("unparsable", CHILD.payload), ("history-behind", CHILD.payload)]
    with pytest.raises(Corrupt, match=CHILD.payload):
        projects.load(CHILD)
    projects.rebuild_all()
    assert titles(projects) == {"c": "Edited"}
    projects.save(CHILD, payload("Repaired"))


def test_a_sweep_finds_direct_edits(projects: Projects, store: Store, home: Path) -> None:
    """Added, changed and deleted payloads. It reads nothing if no payload is newer than its index."""
    projects.save(PARENT, payload("Parent"))
    projects.save(CHILD, payload("Child"))
    assert projects._derived.looks_current(KEY)
    other = home / "projects/proj/sessions/p/children/d/session.json"
    other.parent.mkdir()
    other.write_bytes(rendered("By hand"))
    assert not projects._derived.looks_current(KEY)
    store.maintenance.sweep()
    assert titles(projects) == {"c": "Child", "d": "By hand"}
    other.unlink()
    (home / PARENT.payload).write_bytes(rendered("Renamed"))
    store.maintenance.sweep()
    assert titles(projects) == {"c": "Child"}
    assert [entry.title for entry in projects.roots(KEY)] == ["Renamed"]
    (home / "elsewhere").mkdir()
    (home / "projects/elsewhere/sessions/x").mkdir(parents=True)
    (home / "projects/elsewhere/sessions/x/session.json").write_bytes(rendered("X"))
    store.maintenance.sweep()
    assert [entry.title for entry in projects.roots("elsewhere")] == ["X"]


def test_resolving_reads_the_index_once(projects: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cached in memory until index.json changes."""
    for i in range(20):
        projects.save(ProjectSession(KEY, "p", f"c{i}"), payload(str(i)))
    assert projects.resolve(KEY, "c7") == ProjectSession(KEY, "p", "c7")
    reads: list[str] = []
    read = projects.core.disk.read

    def recorded(path: str, *rest: Any) -> object:
        reads.append(path)
        return read(path, *rest)

    monkeypatch.setattr(projects.core.disk, "read", recorded)
    assert [projects.resolve(KEY, f"c{i}") for i in range(20)] == [ProjectSession(KEY, "p", f"c{i}") for i in range(20)]
    assert reads == []
    projects.save(ProjectSession(KEY, "q", "c7"), payload())
    assert projects.resolve(KEY, "c7") == ProjectSession(KEY, "q", "c7")


def test_a_child_id_with_two_parents_resolves_to_the_newer_one(projects: Projects) -> None:
    projects.save(ProjectSession(KEY, "a", "c"), payload())
    projects.save(ProjectSession(KEY, "b", "c"), payload())
    assert projects.resolve(KEY, "c") == ProjectSession(KEY, "b", "c")
    projects.delete(ProjectSession(KEY, "b", "c"))
    assert projects.resolve(KEY, "c") == ProjectSession(KEY, "a", "c")
    projects.delete(ProjectSession(KEY, "a", "c"))
    assert projects.resolve(KEY, "c") is None


class Nested:
    """An extractor for payloads with their fields one level down."""

    def root(self, session_id: str, payload: Any) -> RootFields:
        return RootFields(payload["meta"]["name"])

    def child(self, child_id: str, payload: Any) -> ChildFields:
        return ChildFields(title=payload["meta"]["name"], status=payload["meta"]["state"])


def test_a_custom_extractor(projects: Projects, store: Store) -> None:
    """Fields only it can read stay in the indices when others rebuild or repair them."""
    mine = projects.with_extractor(Nested())
    mine.save(PARENT, {"meta": {"name": "P"}})
    mine.save(CHILD, {"meta": {"name": "C", "state": "error"}})
    before = mine.load(CHILD)
    assert [(e.title, e.status) for e in mine.children(KEY, "p")] == [("C", "error")]
    assert store.check().is_clean
    store.maintenance.rebuild()
    assert [(e.title, e.status) for e in projects.children(KEY, "p")] == [("C", "error")]
    [entry] = mine.children(KEY, "p")
    mine.upsert_child(KEY, "p", entry)
    assert mine.load(CHILD) == before  # no difference
    projects.rebuild(KEY)
    assert titles(projects) == {"c": ""}
    projects.rebuild(KEY, Nested())
    assert titles(projects) == {"c": "C"}


def test_updates_run_under_the_lock(projects: Projects, store: Store, home: Path) -> None:
    """Four processes increment one member of a payload."""
    projects.save(PARENT, payload(n=0))

    def count(members: dict[str, Any]) -> None:
        members["n"] += 1

    def work() -> None:
        with Store.open(home, background=False) as mine:
            for _ in range(20):
                mine.projects.update(PARENT, count)

    running = [processes.Process(target=work) for _ in range(4)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0] * 4
    assert (projects.load(PARENT) or {})["n"] == 80
    assert projects.update(CHILD, count) is None


def test_changes_are_in_the_change_feed(projects: Projects, store: Store) -> None:
    """Rule 7."""
    cursor = store.feed.since().cursor
    projects.save(CHILD, payload())
    projects.save(CHILD, payload())
    projects.delete(CHILD)
    assert [(c.location.dir, c.what) for c in store.feed.since(cursor).items] == [(CHILD.location.dir, "project")] * 2


def test_a_deleted_payload_can_be_restored(projects: Projects, store: Store) -> None:
    projects.save(CHILD, payload("Child"))
    assert projects.delete(CHILD)
    assert not projects.delete(CHILD)
    assert titles(projects) == {}
    store.trash.undelete(store.trash.deleted()[0].name)
    assert titles(projects) == {"c": "Child"}
    assert projects.resolve(KEY, "c") == CHILD


@pytest.mark.parametrize("attempt", range(4))
def test_indices_match_the_payloads_after_kill_9(home: Path, attempt: int) -> None:
    """During upserts and removals; the next open recovers."""

    def work() -> None:
        with Store.open(home, background=False) as mine:
            for i in range(10_000):
                entry = ChildEntry(child_id=f"c{i % 7}", title=str(i), updated_at=AT)
                mine.projects.upsert_child(KEY, f"p{i % 3}", entry)
                mine.projects.upsert_root(KEY, RootEntry(session_id=f"p{i % 3}", title=str(i), updated_at=AT))
                if i % 5 == 0:
                    mine.projects.remove_child(KEY, f"p{i % 3}", f"c{i % 7}")

    process = processes.Process(target=work)
    process.start()
    deadline = time.monotonic() + 60
    while not (home / "projects/proj/sessions/p2/children.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.037 * attempt)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with Store.open(home, background=False) as store:
        assert store.check().findings == []
        assert store.projects.stale_files(KEY) == []


# -- through the mount -----------------------------------------------------------------------------


def test_a_payload_written_through_the_mount_updates_the_indices(projects: Projects, store: Store, home: Path) -> None:
    """Bytes unchanged (rule 5); what is not an object is rejected and kept (rule 3)."""
    place = classify_path(CHILD.payload)
    raw = b' {"title": "By hand",\n"x":1e3}\n'
    assert store.names.commit(WriteRequest(place, raw, mtime_ns=1_000_000_000)).is_changed
    assert (home / CHILD.payload).read_bytes() == raw
    assert [(e.title, e.updated_at) for e in projects.children(KEY, "p")] == [("By hand", "1970-01-01T00:00:01Z")]
    assert not store.names.commit(WriteRequest(place, raw)).is_changed
    for bad in (b"[]", b"{", b'{"a":1,"a":2}', b""):
        with pytest.raises(InvalidContent):
            store.names.commit(WriteRequest(place, bad))
    assert set(store.names.rejects.names(CHILD.location)) == {"session.json.rejected", "session.json.error"}
    store.names.set_attributes(place, times_ns=(2_000_000_000, 2_000_000_000))
    assert [e.updated_at for e in projects.children(KEY, "p")] == ["1970-01-01T00:00:02Z"]


def test_a_stale_write_is_rejected(projects: Projects, store: Store) -> None:
    """Rule 8."""
    projects.save(PARENT, payload("one"))
    base = store.names.version(classify_path(PARENT.payload))
    projects.save(PARENT, payload("two"))
    with pytest.raises(Conflict):
        store.names.commit(WriteRequest(classify_path(PARENT.payload), rendered("three"), base=base))


def test_index_files_cannot_be_written_or_removed(projects: Projects, store: Store) -> None:
    """Empty ones can be removed: otherwise `rm -r` of a project would fail."""
    projects.save(CHILD, payload())
    for path in (INDEX, CHILDREN):
        place = classify_path(path)
        for call in (
            lambda place=place: store.names.open(place, os.O_WRONLY),
            lambda place=place: store.names.commit(WriteRequest(place, b"{}")),
            lambda place=place: store.names.remove_file(place),
            lambda place=place: store.moves.move(place, classify_path("projects/proj/x")),
            lambda place=place: store.moves.move(classify_path(CHILD.payload), place),
            lambda place=place: store.names.set_attributes(place, mode=0o644),
        ):
            with pytest.raises(Generated):
                call()
    store.names.remove_file(classify_path(CHILD.payload))
    for path in (CHILDREN, INDEX):
        store.names.remove_file(classify_path(path))
    for path in ("sessions/p/children/c", "sessions/p/children", "sessions/p", "sessions", ""):
        store.names.remove_dir(classify_path(f"projects/proj/{path}".rstrip("/")))
    assert projects.all_keys() == []


def test_renaming_directories_updates_the_indices(projects: Projects, store: Store, home: Path) -> None:
    """A session, a child to another parent and project, a whole project."""
    projects.save(PARENT, payload("P"))
    projects.save(CHILD, payload("C"))

    def move(source: str, target: str) -> None:
        store.moves.move(classify_path(f"projects/{source}"), classify_path(f"projects/{target}"))

    move("proj/sessions/p", "proj/sessions/q")
    assert [entry.session_id for entry in projects.roots(KEY)] == ["q"]
    assert projects.resolve(KEY, "c") == ProjectSession(KEY, "q", "c")
    with pytest.raises(NotEmpty):
        move("proj/sessions/q", "proj/sessions/r/children/q")
    projects.save(ProjectSession("other", "x"), payload("X"))
    (home / "projects/other/sessions/x/children").mkdir()
    move("proj/sessions/q/children/c", "other/sessions/x/children/d")
    assert projects.resolve(KEY, "c") is None
    assert projects.children(KEY, "q") == []
    assert projects.resolve("other", "d") == ProjectSession("other", "x", "d")
    move("other", "third")
    assert projects.all_keys() == [KEY, "third"]
    assert projects.resolve("third", "d") == ProjectSession("third", "x", "d")
    for source, target in (
        ("third", "proj/sessions/third"),
        ("third/sessions/x", "third/notes"),
        ("third/sessions", "s"),
    ):
        with pytest.raises(Protected):
            move(source, target)
    assert projects.resolve("third", "d") == ProjectSession("third", "x", "d")


def test_a_payload_can_be_renamed_to_a_foreign_file_and_back(projects: Projects, store: Store) -> None:
    projects.save(CHILD, payload("old"))
    backup = classify_path(f"{CHILD.payload}~")
    store.moves.move(classify_path(CHILD.payload), backup)
    assert titles(projects) == {}
    store.moves.move(backup, classify_path(CHILD.payload))
    assert titles(projects) == {"c": "old"}
    assert store.trash.deleted() == []


def test_deleting_the_removed_marker_restores_the_child(projects: Projects, store: Store) -> None:
    projects.save(CHILD, payload("Child"))
    projects.remove_child(KEY, "p", "c")
    store.names.remove_file(classify_path(CHILD.removed_marker))
    assert titles(projects) == {"c": "Child"}


def test_a_key_is_a_single_name(store: Store, home: Path) -> None:
    """A trailing slash once created a directory that was never listed."""
    for key in ("k/", "k//", "a/b"):
        with pytest.raises(InvalidName, match="not a valid project key"):
            store.projects.save(ProjectSession(key, "p"), {"title": "t"})
    assert not (home / "projects").exists()


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:60Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00Z"])
def test_a_time_outside_the_years_1_to_9999_is_clamped(store: Store, moment: str) -> None:
    """The payload is stored unchanged; the index has the nearest valid time."""
    raw = b'{"updated_at": "%s"}' % moment.encode()
    store.names.commit(WriteRequest(classify_path("projects/k/sessions/p/session.json"), raw))
    assert store.projects.load(ProjectSession("k", "p")) == {"updated_at": moment}
