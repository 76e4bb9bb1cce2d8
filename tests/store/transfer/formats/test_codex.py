"""Codex rollouts of both generations, with threads that spawned others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from tests.store.transfer.foreign import (
    CODEX_CHILD,
    CODEX_GRANDCHILD,
    CODEX_ID,
    CODEX_OLD,
    PNG,
    codex_child,
    codex_lines,
    kept_metadata,
    make_codex,
    write_lines,
)


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    summary = store.imports.run(str(make_codex(tmp_path / "dot-codex")))
    assert summary.format == "codex"
    assert summary.problems == []
    assert summary.counts == {"new": 4}
    session = store.load(CODEX_ID)
    assert session is not None
    return session


def test_messages_are_imported(imported: Session) -> None:
    said = [(m.role, m.content) for m in imported.messages if m.content]
    assert said == [
        ("user", "<environment_context/>"),
        ("user", "what is 2+2?"),
        ("tool", "4"),
        ("tool", "bad"),
        ("user", "and this?"),
        ("assistant", "4"),
    ]
    thought, called, answered, patched, failed = imported.messages[2:7]
    assert thought.reasoning == "**Adding**"
    assert kept_metadata(thought, "codex")["encrypted_content"] == "gAAAA"
    assert called.tool_calls is not None
    assert (called.tool_calls[0].id, called.tool_calls[0].function.name) == ("call_1", "shell")
    assert called.tool_calls[0].function.arguments == '{"command":["bc"]}'
    assert (answered.tool_call_id, answered.tool_success) == ("call_1", True)
    assert patched.tool_calls is not None
    assert patched.tool_calls[0].function.arguments == "*** Begin"
    assert kept_metadata(patched, "codex")["status"] == "done"
    assert failed.tool_success is False


def test_session_members_are_imported(imported: Session) -> None:
    assert imported.title == "what is 2+2?"
    assert imported.model == "gpt-5-codex"
    assert imported.workspace_path == "/home/me/sums"
    assert imported.created_at == "2026-03-01T10:00:00.308Z"
    assert json.loads(imported.metadata["codex.git"]) == {"branch": "main"}


def test_records_that_are_not_messages_are_kept(imported: Session, store: Store) -> None:
    kept = store.attachments.read(CODEX_ID, "records")
    assert kept is not None
    assert [json.loads(line) for line in kept[0].splitlines()] == [
        line for line in codex_lines() if line["type"] != "response_item"
    ]


def test_images_become_attachments(imported: Session, store: Store) -> None:
    parts = next(m.content_parts for m in imported.messages if m.content_parts)
    assert parts[1].image_url is not None
    assert store.attachments.resolve(parts[1].image_url.url) == (PNG, "image/png")


def test_spawned_threads_become_children_of_one_root(imported: Session, store: Store) -> None:
    child, inner = (store.load(f"{CODEX_ID}/{id}") for id in (CODEX_CHILD, CODEX_GRANDCHILD))
    assert child is not None
    assert inner is not None
    assert (child.parent_session_id, child.spawn_depth, child.subagent_type) == (CODEX_ID, 1, "explorer")
    assert (inner.parent_session_id, inner.spawn_depth) == (CODEX_CHILD, 2)


def test_first_generation_is_imported(imported: Session, store: Store) -> None:
    old = store.load(CODEX_OLD)
    assert old is not None
    assert [(m.role, m.content) for m in old.messages] == [
        ("user", "hello codex"),
        ("assistant", ""),
        ("assistant", "hello"),
    ]
    assert old.created_at == "2025-09-02T17:17:41.762Z"


def test_thread_with_missing_or_cyclic_parent_is_a_root(store: Store, tmp_path: Path) -> None:
    write_lines(tmp_path / "s/rollout-a.jsonl", codex_child("lonely", "gone", 1))
    write_lines(tmp_path / "s/rollout-b.jsonl", codex_child("circle", "circle", 1))
    write_lines(tmp_path / "s/rollout-c.jsonl", codex_child("egg", "hen", 1))
    write_lines(tmp_path / "s/rollout-d.jsonl", codex_child("hen", "egg", 1))
    assert store.imports.run(str(tmp_path / "s")).counts == {"new": 4}
    assert {entry.kind for entry in store.entries()} == {"root"}


def test_repeated_import_updates_only_grown_sessions(store: Store, tmp_path: Path) -> None:
    base = make_codex(tmp_path / "dot-codex")
    store.imports.run(str(base))
    assert store.imports.run(str(base)).counts == {"unchanged": 4}
    path = next(base.rglob(f"*{CODEX_ID}.jsonl"))
    with path.open("a") as file:
        file.write(json.dumps(codex_lines()[3]) + "\n")
    assert store.imports.run(str(base)).counts == {"updated": 1, "unchanged": 3}
    session = store.load(CODEX_ID)
    assert session is not None
    assert session.messages[-1].content == "what is 2+2?"
