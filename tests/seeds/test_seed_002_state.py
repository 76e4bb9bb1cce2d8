"""Seed 002, oxios-kernel `StateStore`: the part that keeps plain documents.

The seed's own tests are about its sessions (test_seed_002.py). For its documents there is one test here for each
function that it offers, and one for what FORMATS F.1 reports of its integration test.

| seed function | ours |
|---|---|
| save_markdown, load_markdown | same |
| save_json, load_json | same, and the bytes are exact; NaN is refused, where the seed writes null |
| list_category | same: stems, sorted, a name that is both appears twice |
| delete_file | same: JSON first, else markdown; what is deleted goes to the trash rather than for good |
| validate_category | same refusals; also a part that is `.`, which would be another name for the same place |
| validate_name | same refusals; also NUL and what is too long for a file, which the seed leaves to the disk |
"""

from __future__ import annotations

from pathlib import Path

import pytest

from store import Corrupt, InvalidContent, InvalidName, Store


def test_save_markdown_load_markdown(store: Store, home: Path) -> None:
    """A text is its file; one that was never saved is None."""
    store.state.save_markdown("notes", "plan", "# Plan\n")
    assert (home / "state/notes/plan.md").read_text() == "# Plan\n"
    assert store.state.load_markdown("notes", "plan") == "# Plan\n"
    assert store.state.load_markdown("notes", "other") is None


def test_save_json_load_json(store: Store, home: Path) -> None:
    """Pretty, without a final newline; a file that cannot be parsed is an error, not None."""
    store.state.save_json("cron", "jobs", [{"id": "j1", "priority": "Normal"}])
    path = home / "state/cron/jobs.json"
    assert path.read_text() == '[\n  {\n    "id": "j1",\n    "priority": "Normal"\n  }\n]'
    assert store.state.load_json("cron", "jobs") == [{"id": "j1", "priority": "Normal"}]
    assert store.state.load_json("cron", "other") is None
    with pytest.raises(InvalidContent):
        store.state.save_json("cron", "jobs", float("nan"))
    path.write_text("[")
    with pytest.raises(Corrupt):
        store.state.load_json("cron", "jobs")
    store.state.save_json("cron", "jobs", [])


def test_list_category(store: Store) -> None:
    """A category that does not exist is empty."""
    store.state.save_json("agents", "b", {})
    store.state.save_json("agents", "a", {})
    store.state.save_markdown("agents", "b", "")
    assert store.state.names("agents") == ["a", "b", "b"]
    assert store.state.names("nobody") == []


def test_delete_file(store: Store) -> None:
    """One file at a time, and True while there was one."""
    store.state.save_json("agents", "b", {})
    store.state.save_markdown("agents", "b", "")
    assert [store.state.delete("agents", "b") for _ in range(3)] == [True, True, False]


def test_validate_category(store: Store) -> None:
    """The integration test's own examples."""
    store.state.save_json("foo/bar", "x", 1)
    assert store.state.load_json("foo/bar", "x") == 1
    for bad in ("../etc", "foo\\bar", "", "/foo", "foo/", "foo//bar"):
        with pytest.raises(InvalidName):
            store.state.save_json(bad, "x", 1)


def test_validate_name(store: Store) -> None:
    """No way out of the category; an empty name is one."""
    for bad in ("..", "a/b", "a\\b"):
        with pytest.raises(InvalidName):
            store.state.load_json("foo", bad)
    store.state.save_json("foo", "", "nameless")
    assert store.state.load_json("foo", "") == "nameless"
