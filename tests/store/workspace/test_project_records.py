"""Keys, entries and extractors of projects, in their exact format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import ChildEntry, InvalidName, RootEntry, Timestamp
from store.workspace.project_records import (
    ChildrenIndex,
    ProjectIndex,
    TopLevelExtractor,
    child_entry,
    newest_parent,
    payload_members,
    render_key,
    root_entry,
)
from store.workspace.projects import check_key, project_key

AT = Timestamp("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("", "-84222325"),  # FNV-1a's own test vectors
        ("a", "a-8601ec8c"),
        ("foobar", "foobar-f73967e8"),
    ],
)
def test_keys_end_in_the_low_half_of_fnv_1a(path: str, key: str) -> None:
    assert render_key(path) == key


def test_other_characters_become_one_dash_each() -> None:
    """Per character, not per byte."""
    assert render_key("/a/b.c_d é/漢")[:-9] == "-a-b-c-d----"


@given(st.text())
def test_a_key_is_ascii(path: str) -> None:
    key = render_key(path.encode(errors="replace").decode())
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in key)


def test_the_key_of_a_workspace_depends_on_its_real_path(tmp_path: Path) -> None:
    """Of a missing workspace on the given path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert project_key(tmp_path / "link") == project_key(f"{tmp_path}/real/../real") == render_key(f"{tmp_path}/real")
    assert project_key("/nowhere/../x") == render_key("/nowhere/../x")
    assert project_key(os.fsdecode(b"/nowhere/\xff")) == render_key("/nowhere/\ufffd")


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", ".git", "nul\0", "x" * 256])
def test_invalid_keys_are_rejected(key: str) -> None:
    with pytest.raises(InvalidName):
        check_key(key)


def test_the_default_extractor_reads_the_top_level() -> None:
    payload = {"title": "T", "subagent_type": "coder", "status": "idle", "responsibility": "R", "updated_at": AT}
    entry = child_entry("c", TopLevelExtractor().child("c", payload), 5, None)
    assert entry == ChildEntry(
        child_id="c", updated_at=AT, title="T", subagent_type="coder", status="idle", responsibility="R"
    )
    assert root_entry("p", TopLevelExtractor().root("p", payload), 5, None) == RootEntry(
        session_id="p", title="T", updated_at=AT
    )


@pytest.mark.parametrize(
    "odd", [{}, {"title": 5, "status": ["x"], "updated_at": "yesterday"}, {"status": "unheard_of"}]
)
def test_missing_fields_keep_their_indexed_value(odd: dict[str, Any]) -> None:
    """Otherwise they are empty; the time is that of the file."""
    fresh = child_entry("c", TopLevelExtractor().child("c", odd), 1_000_000_000, None)
    assert (fresh.title, fresh.status, fresh.updated_at) == ("", "pending", "1970-01-01T00:00:01Z")
    known = ChildEntry(child_id="c", title="known", subagent_type="coder", updated_at=AT)
    kept = child_entry("c", TopLevelExtractor().child("c", odd), 0, known)
    assert (kept.title, kept.subagent_type) == ("known", "coder")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.100Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z"),
    ],
)
def test_times_are_in_utc_with_0_3_6_or_9_digits(text: str, written: str) -> None:
    assert root_entry("p", TopLevelExtractor().root("p", {"updated_at": text}), 0, None).updated_at == written


def test_indices_are_sorted_and_have_a_fixed_order_of_members() -> None:
    index, children = ProjectIndex(), ChildrenIndex()
    for name in ("b", "a", "b"):
        index.put(name, RootEntry(session_id=name, updated_at=AT))
        children.put(name, ChildEntry(child_id=name, updated_at=AT))
        index.child_lookup[name] = "p"
    assert list(index.dump()) == ["version", "roots", "child_lookup"]
    assert list(index.dump()["child_lookup"]) == ["a", "b"]
    assert [next(iter(entry.values())) for entry in index.dump()["roots"]] == ["a", "b"]
    [first, _] = children.dump()["children"]
    assert list(first) == ["child_id", "subagent_type", "status", "title", "responsibility", "updated_at"]
    children.put("a", None)
    children.put("b", None)
    assert children.is_empty


@given(st.text(), st.text(), st.sampled_from(["pending", "running", "idle", "completed", "error", "cancelled"]))
def test_a_payload_made_from_an_entry_yields_the_entry(title: str, kind: str, status: Any) -> None:
    entry = ChildEntry(child_id="c", title=title, subagent_type=kind, status=status, updated_at=AT)
    assert child_entry("c", TopLevelExtractor().child("c", payload_members(entry)), 0, None) == entry


def test_the_parent_with_the_newest_child_wins() -> None:
    old, new = ChildEntry(child_id="c", updated_at=AT), ChildEntry(child_id="c", updated_at=Timestamp.now())
    assert newest_parent([("a", new), ("b", old)]) == "a"
    assert newest_parent([("a", old), ("b", old)]) == "b"
    assert newest_parent([]) is None
