"""Links and other unexpected files that `check` reports. tests/torture/hostile_files.py tests how they are handled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store import Store
from store.commit.write_request import WriteRequest
from store.path_kinds import classify_path
from tests.builders import make_session


@pytest.mark.parametrize("name", ["session.json", "runtime.json", "token-usage.jsonl", "attachments/a.bin"])
def test_hard_link_to_a_file_is_reported(store: Store, home: Path, tmp_path: Path, name: str) -> None:
    """`cp -al` makes them. They are reported, but not damage."""
    store.save(make_session("s1"))
    store.usage.append("s1", {"n": 1})
    store.names.commit(WriteRequest(classify_path("sessions/s1/attachments/a.bin"), b"bytes"))
    os.link(home / "sessions/s1" / name, tmp_path / "other")
    (found,) = store.check().findings
    assert (found.kind, found.path, found.is_damage) == ("hard-link", f"sessions/s1/{name}", False)
    (tmp_path / "other").unlink()
    assert store.check().findings == []


@pytest.mark.parametrize("name", [".sessions-index.lock", ".session-lifecycle.lock"])
def test_hard_link_to_a_lock_file_is_reported(store: Store, home: Path, tmp_path: Path, name: str) -> None:
    """A lock taken through the other name blocks us here."""
    (tmp_path / "other").touch()
    (home / name).unlink(missing_ok=True)
    os.link(tmp_path / "other", home / name)
    (found,) = store.check().findings
    assert (found.kind, found.path, found.is_damage) == ("hard-link", name, False)
    (home / name).unlink()


def test_category_may_have_the_name_of_a_document(store: Store, home: Path) -> None:
    """Its documents are indexed. An empty directory is in the way of a document and is reported."""
    store.state.save_json("notes/today.json", "first", {"x": 1})
    assert store.check().findings == []
    (home / "state/notes/other.json").mkdir()
    (found,) = store.check().findings
    assert (found.kind, found.path) == ("not-plain", "state/notes/other.json")
    (home / "state/notes/other.json").rmdir()


@pytest.mark.parametrize("name", ["projects", "state", "state/facts", "projects/k", ".sessions-index.lock"])
def test_symbolic_link_is_reported(store: Store, home: Path, tmp_path: Path, name: str) -> None:
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).unlink(missing_ok=True)
    (home / name).symlink_to(tmp_path)
    (found,) = store.check().findings
    assert (found.kind, found.path) == ("not-plain", name)
    (home / name).unlink()
