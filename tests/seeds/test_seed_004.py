"""Seed 004, bamboo-subagent 2026.6.21 `store.rs`: each of its tests, for our projects.

The names are those of the seed, with the prefix `test_`. "same" means that our test asserts what the seed asserts, or
more. Otherwise the difference and its reason follow.

| seed test | ours |
|---|---|
| session_round_trips | same, with exactly the bytes that the seed writes |
| upsert_list_and_resolve_child | same; an upsert without a payload writes one, so a rebuild finds the child too |
| upsert_replaces_in_place | same |
| remove_child_clears_index_and_lookup | same; the payload is kept, and a rebuild does not restore the child |
| rebuild_matches_incremental | same, with the seed's extractor and with ours |
| project_key_distinguishes_colliding_folds_and_is_deterministic | same, and the keys are exact |
| rebuild_converges_after_partial_write | same after a rebuild; before it, a lost index.json is detected and rebuilt on first use, where the seed misses the child. After a crash between our two writes, recovery completes them (tests/crash) |
| concurrent_upserts_do_not_lose_children | same, with threads; and with processes, which the seed does not allow |
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store import ChildEntry, ChildFields, Extractor, ProjectSession, RootEntry, RootFields, Store, Timestamp
from store.workspace.projects import project_key
from tests.builders import read_json

KEY = "proj"
AT = Timestamp("2026-01-01T00:00:00Z")
processes = multiprocessing.get_context("fork")
DEADLINE_S = 60.0


def child(child_id: str = "c1", **members: Any) -> ChildEntry:
    given = {"subagent_type": "x", "status": "pending", "title": "t", "responsibility": "r", **members}
    return ChildEntry(child_id=child_id, updated_at=AT, **given)


def child_payload(title: str, kind: str, status: str) -> dict[str, Any]:
    return {
        "title": title,
        "subagent_type": kind,
        "status": status,
        "responsibility": f"do {title}",
        "updated_at": "2026-01-01T00:00:00+00:00",
    }


class Extract:
    """The seed's test extractor: an absent value is an empty string."""

    def root(self, session_id: str, payload: Mapping[str, Any]) -> RootFields:
        return RootFields(payload.get("title", ""), AT)

    def child(self, child_id: str, payload: Mapping[str, Any]) -> ChildFields:
        names = ("subagent_type", "status", "title", "responsibility")
        agent_type, status, title, responsibility = (payload.get(name, "") for name in names)
        return ChildFields(agent_type, status, title, responsibility, AT)


def test_session_round_trips(store: Store, home: Path) -> None:
    """A payload is any JSON object and is loaded unchanged."""
    member, payload = ProjectSession(KEY, "p1"), {"hello": "world", "n": 42}
    assert not store.projects.exists(member)
    store.projects.save(member, payload)
    assert store.projects.exists(member)
    assert store.projects.load(member) == payload
    raw = (home / "projects/proj/sessions/p1/session.json").read_bytes()
    assert raw == b'{\n  "hello": "world",\n  "n": 42\n}'


def test_upsert_list_and_resolve_child(store: Store, home: Path) -> None:
    """A child is listed after an upsert, and found by its id alone."""
    entry = child(subagent_type="researcher", status="running")
    store.projects.upsert_child(KEY, "p1", entry)
    assert store.projects.children(KEY, "p1") == [entry]
    assert store.projects.resolve(KEY, "c1") == ProjectSession(KEY, "p1", "c1")
    assert store.projects.resolve(KEY, "missing") is None
    assert read_json(home / "projects/proj/sessions/p1/children/c1/session.json")["subagent_type"] == "researcher"


def test_upsert_replaces_in_place(store: Store) -> None:
    """A second upsert of the same id is an update."""
    store.projects.upsert_child(KEY, "p1", child())
    store.projects.upsert_child(KEY, "p1", child(status="completed"))
    assert [entry.status for entry in store.projects.children(KEY, "p1")] == ["completed"]


def test_remove_child_clears_index_and_lookup(store: Store) -> None:
    """It is removed from both indexes; its payload stays on disk."""
    store.projects.upsert_child(KEY, "p1", child())
    store.projects.remove_child(KEY, "p1", "c1")
    assert store.projects.children(KEY, "p1") == []
    assert store.projects.resolve(KEY, "c1") is None
    assert store.projects.exists(ProjectSession(KEY, "p1", "c1"))
    store.projects.rebuild(KEY)
    assert store.projects.resolve(KEY, "c1") is None


def test_rebuild_matches_incremental(store: Store, home: Path) -> None:
    """Rule 1: both indexes can be deleted and are rebuilt identically."""
    projects = store.projects
    projects.save(ProjectSession(KEY, "p1"), {"title": "Parent", "updated_at": "2026-01-01T00:00:00+00:00"})
    projects.upsert_root(KEY, RootEntry(session_id="p1", title="Parent", updated_at=AT))
    for child_id, kind in (("c1", "researcher"), ("c2", "coder")):
        projects.save(ProjectSession(KEY, "p1", child_id), child_payload(child_id, kind, "running"))
        entry = child(child_id, subagent_type=kind, status="running", title=child_id, responsibility=f"do {child_id}")
        projects.upsert_child(KEY, "p1", entry)
    paths = [home / "projects/proj/index.json", home / "projects/proj/sessions/p1/children.json"]
    before = [path.read_bytes() for path in paths]
    extractors: list[Extractor | None] = [Extract(), None]
    for extractor in extractors:
        for path in paths:
            path.unlink()
        projects.rebuild(KEY, extractor)
        assert [path.read_bytes() for path in paths] == before


def test_project_key_distinguishes_colliding_folds_and_is_deterministic() -> None:
    """Two paths with the same folded form have different keys."""
    one, other = project_key("/nonexistent/a/b"), project_key("/nonexistent/a-b")
    assert one != other
    assert one == project_key("/nonexistent/a/b")
    assert one[:-8] == other[:-8] == "-nonexistent-a-b-"


def test_rebuild_converges_after_partial_write(store: Store, home: Path) -> None:
    """children.json was written, index.json was not."""
    store.projects.save(ProjectSession(KEY, "p1", "c1"), child_payload("c1", "researcher", "running"))
    children = (home / "projects/proj/sessions/p1/children.json").read_bytes()
    (home / "projects/proj/index.json").unlink()
    assert store.projects.resolve(KEY, "c1") == ProjectSession(KEY, "p1", "c1")
    (home / "projects/proj/index.json").unlink()
    store.projects.rebuild(KEY, Extract())
    assert store.projects.resolve(KEY, "c1") == ProjectSession(KEY, "p1", "c1")
    assert (home / "projects/proj/sessions/p1/children.json").read_bytes() == children


def test_concurrent_upserts_do_not_lose_children(store: Store, home: Path) -> None:
    """Sixteen at once: four threads in each of four processes."""

    def work(who: int) -> None:
        with Store.open(home, background=False) as mine:
            names = [f"c{who * 4 + i}" for i in range(4)]
            threads = [
                threading.Thread(target=mine.projects.upsert_child, args=(KEY, "p1", child(name, title=name)))
                for name in names
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    running = [processes.Process(target=work, args=(who,)) for who in range(4)]
    for process in running:
        process.start()
    for process in running:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in running] == [0] * 4
    assert sorted(entry.child_id for entry in store.projects.children(KEY, "p1")) == sorted(f"c{i}" for i in range(16))
    assert all(store.projects.resolve(KEY, f"c{i}") == ProjectSession(KEY, "p1", f"c{i}") for i in range(16))
