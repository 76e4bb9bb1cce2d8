"""Export to Claude Code: what was imported comes out again, with repairs made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import Session, Store
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, write_lines


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    store.imports.run(str(make_claude(tmp_path / "dot-claude")))
    session = store.load(CLAUDE_ID)
    assert session is not None
    return session


def export(store: Store, dest: Path) -> list[dict[str, Any]]:
    found = [*store.exports.write_for_agent("claude-code", store.exports.select([CLAUDE_ID]), dest)]
    assert len(found) == 4
    return [json.loads(line) for line in (dest / f"{CLAUDE_ID}.jsonl").read_text().splitlines()]


def conversation(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["type"] in ("user", "assistant", "system")]


def test_records_keep_their_ids_links_and_members(store: Store, imported: Session, tmp_path: Path) -> None:
    original = conversation(
        [
            json.loads(line)
            for line in (tmp_path / f"dot-claude/projects/-home-me-shop/{CLAUDE_ID}.jsonl").read_text().splitlines()
        ]
    )
    records = conversation(export(store, tmp_path / "out"))
    main = [record for record in original if not record["isSidechain"]]
    assert [record["uuid"] for record in records] == [record["uuid"] for record in main]
    for record, was in zip(records, main, strict=True):
        for key in ("parentUuid", "sessionId", "cwd", "version", "gitBranch", "timestamp", "type", "toolUseResult"):
            assert record.get(key) == was.get(key), key
        if was.get("message"):
            for key in ("role", "model", "id", "usage", "stop_reason"):
                assert record["message"].get(key) == was["message"].get(key), key
    assert records[1]["message"]["content"] == main[1]["message"]["content"]
    assert records[0]["message"]["content"] == main[0]["message"]["content"]  # the image too


def test_export_can_be_imported_again(store: Store, imported: Session, tmp_path: Path) -> None:
    export(store, tmp_path / "out")
    with Store.open(tmp_path / "second", background=False) as other:
        assert other.imports.run(str(tmp_path / "out")).problems == []
        again = other.load(CLAUDE_ID)
        assert again is not None
        assert again.messages == imported.messages
        assert (again.title, again.model, again.workspace_path) == (imported.title, imported.model, "/home/me/shop")


def test_sub_agents_are_the_same_after_an_export_and_an_import(store: Store, imported: Session, tmp_path: Path) -> None:
    """Those in a file of their own, those in the file of the session, and what Claude Code notes of them."""
    export(store, tmp_path / "out")
    with Store.open(tmp_path / "second", background=False) as other:
        assert other.imports.run(str(tmp_path / "out")).problems == []
        assert sorted(other.ids()) == sorted(store.ids())
        for name in store.ids():
            found, was = other.load(name), store.load(name)
            assert found is not None
            assert was is not None
            assert (found.messages, found.title) == (was.messages, was.title)
            assert (found.parent_session_id, found.spawn_depth) == (was.parent_session_id, was.spawn_depth)
            assert found.subagent_type == was.subagent_type


def test_sub_agents_stay_what_they_are_after_an_export_to_their_source(
    store: Store, imported: Session, tmp_path: Path
) -> None:
    dest = tmp_path / "dot-claude"
    found = [*store.exports.write_for_agent("claude-code", store.exports.select([CLAUDE_ID]), dest)]
    assert len(found) == 4
    ids = store.ids()
    summary = store.imports.run(str(dest))
    assert (summary.problems, summary.counts["new"], summary.counts["kept"]) == ([], 0, 0)
    assert store.ids() == ids


def test_repaired_conversation_is_one_chain(store: Store, imported: Session, tmp_path: Path) -> None:
    """A deleted message leaves no gap, an edited one has its new text, and an added one continues the chain."""
    del imported.messages[3]
    imported.messages[3].content = "Repaired"
    store.save(imported, shorten=True)
    store.append(CLAUDE_ID, [{"id": "mine", "role": "user", "content": "go on"}])
    records = conversation(export(store, tmp_path / "out"))
    assert [record["uuid"] for record in records] == ["u1", "u2", "u3", "u5", "u6", "mine"]
    assert records[3]["parentUuid"] == "u3"
    assert records[3]["message"]["content"] == [{"type": "text", "text": "Repaired"}]
    assert (records[5]["parentUuid"], records[5]["message"]["content"]) == ("u6", "go on")


def test_unknown_blocks_of_a_tool_result_stay_inside_it(store: Store, tmp_path: Path) -> None:
    """Two results in one record, one with a block that a message has no place for, and a text next to them."""
    reference = {"type": "tool_reference", "tool_name": "Grep"}
    marked = {"type": "text", "text": "found", "cache_control": {"type": "ephemeral"}}
    note = {"type": "text", "text": "next to them", "cache_control": {"type": "ephemeral"}}
    content = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [reference], "is_error": False},
        {"type": "tool_result", "tool_use_id": "t2", "content": [marked, reference], "is_error": False},
        note,
    ]
    calls: list[dict[str, Any]] = [
        {"type": "tool_use", "id": id, "name": "ToolSearch", "input": {}} for id in ("t1", "t2")
    ]
    asked = claude_line("assistant", "u1", {"role": "assistant", "content": calls}, "00:00")
    answered = claude_line("user", "u2", {"role": "user", "content": content}, "00:01", parentUuid="u1")
    write_lines(tmp_path / "p/s1.jsonl", [asked, answered])
    store.imports.run(str(tmp_path / "p"))
    assert len([*store.exports.write_for_agent("claude-code", store.exports.select(["s1"]), tmp_path / "out")]) == 1
    records = [json.loads(line) for line in (tmp_path / "out/s1.jsonl").read_text().splitlines()]
    assert records[1]["message"]["content"] == content
