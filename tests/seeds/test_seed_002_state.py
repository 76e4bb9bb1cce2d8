"""Seed 002, oxios-kernel `StateStore`: its state documents.

The seed's own tests are about sessions (test_seed_002.py). Here is one test for each of its functions for state
documents, and one for the examples of its integration test.

| seed function | ours |
|---|---|
| save_markdown, load_markdown | same |
| save_json, load_json | same, and the bytes are exact; NaN is rejected, where the seed writes null |
| list_category | same: stems, sorted; a name with both extensions is listed twice |
| delete_file | same: JSON first, else markdown; the file is moved to the trash |
| validate_category | rejects the same, and also a part `.`, which would be another name for the same category |
| validate_name | rejects the same, and also NUL and names too long for a file, which fail on disk in the seed |
"""

from __future__ import annotations

from pathlib import Path

import pytest

from store import Corrupt, InvalidContent, InvalidName, Store


def test_save_markdown_load_markdown(store: Store, home: Path) -> None:
    """A document is a file; one that was never saved loads as None."""
    store.state.save_markdown("notes", "plan", "# Plan\n")
    assert (home / "state/notes/plan.md").read_text() == "# Plan\n"
    assert store.state.load_markdown("notes", "plan") == "# Plan\n"
    assert store.state.load_markdown("notes", "other") is None


def test_save_json_load_json(store: Store, home: Path) -> None:
    """Indented, without a final newline. An invalid file raises Corrupt and does not load as None."""
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
    assert store.state.names("unknown") == []


def test_delete_file(store: Store) -> None:
    """One file per call; True if a file was deleted."""
    store.state.save_json("agents", "b", {})
    store.state.save_markdown("agents", "b", "")
    assert [store.state.delete("agents", "b") for _ in range(3)] == [True, True, False]


def test_validate_category(store: Store) -> None:
    """The examples of the seed's integration test."""
    store.state.save_json("foo/bar", "x", 1)
    assert store.state.load_json("foo/bar", "x") == 1
    for bad in ("../etc", "foo\\bar", "", "/foo", "foo/", "foo//bar"):
        with pytest.raises(InvalidName):
            store.state.save_json(bad, "x", 1)


def test_validate_name(store: Store) -> None:
    """A name cannot leave its category; an empty name is valid."""
    for bad in ("..", "a/b", "a\\b"):
        with pytest.raises(InvalidName):
            store.state.load_json("foo", bad)
    store.state.save_json("foo", "", "nameless")
    assert store.state.load_json("foo", "") == "nameless"
