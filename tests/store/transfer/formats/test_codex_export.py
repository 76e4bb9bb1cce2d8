"""Export to Codex: what was imported comes out again, with repairs made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import Message, Session, Store
from tests.store.transfer.foreign import CLAUDE_ID, CODEX_ID, CODEX_OLD, codex_lines, make_claude, make_codex


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    store.imports.run(str(make_codex(tmp_path / "dot-codex")))
    return loaded(store, CODEX_ID)


def loaded(store: Store, id: str) -> Session:
    session = store.load(id)
    assert session is not None
    return session


def export(store: Store, dest: Path, id: str = CODEX_ID) -> list[dict[str, Any]]:
    """The records of the exported root."""
    found = [*store.exports.write_for_agent("codex", store.exports.select([id]), dest)]
    root = next(item for item in found if item.location.child is None)  # type: ignore[union-attr]
    return [json.loads(line) for line in root.path.read_text().splitlines()]  # type: ignore[union-attr]


def test_every_record_comes_out_as_it_came_in(store: Store, imported: Session, tmp_path: Path) -> None:
    assert export(store, tmp_path / "out") == codex_lines()
    day = tmp_path / "out/sessions/2026/03/01"
    assert (day / f"rollout-2026-03-01T10-00-00-{CODEX_ID}.jsonl").is_file()


@pytest.mark.parametrize("id", [CODEX_ID, CODEX_OLD])
def test_export_can_be_imported_again(store: Store, imported: Session, tmp_path: Path, id: str) -> None:
    """Also a file of the first generation, and with the children."""
    export(store, tmp_path / "out", id)
    with Store.open(tmp_path / "second", background=False) as other:
        assert other.imports.run(str(tmp_path / "out")).problems == []
        for location in store.exports.select([id]):
            before, after = loaded(store, str(location)), loaded(other, str(location))
            assert after.model_dump() == before.model_dump()
            files = {p.name: p.read_bytes() for p in (store.home / location.dir).rglob("*.jsonl")}
            again = {p.name: p.read_bytes() for p in (other.home / location.dir).rglob("*.jsonl")}
            assert again == files


def test_repairs_are_exported(store: Store, imported: Session, tmp_path: Path) -> None:
    asked = next(m for m in imported.messages if m.content == "what is 2+2?")
    asked.content = "what is 3+3?"
    thought = next(m for m in imported.messages if m.reasoning)
    thought.reasoning = "Adding again"
    result = next(m for m in imported.messages if m.tool_call_id == "call_1")
    result.content, result.tool_success = "6", False
    imported.messages.pop()
    imported.add_message(Message.assistant("6"))
    store.save(imported)
    payloads = [r["payload"] for r in export(store, tmp_path / "out") if r["type"] == "response_item"]
    assert payloads[1]["content"] == [{"type": "input_text", "text": "what is 3+3?"}]
    assert payloads[2]["summary"] == [{"type": "summary_text", "text": "Adding again"}]
    assert "encrypted_content" not in payloads[2]
    assert payloads[4]["output"] == {"content": "6", "success": False}
    assert payloads[-1] == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "6"}],
    }


def test_session_of_another_agent(store: Store, tmp_path: Path) -> None:
    """Calls are still linked to their results."""
    store.imports.run(str(make_claude(tmp_path / "dot-claude")))
    records = export(store, tmp_path / "out", CLAUDE_ID)
    assert records[0]["type"] == "session_meta"
    assert records[0]["payload"]["cwd"] == "/home/me/shop"
    payloads = [record["payload"] for record in records[1:]]
    calls = {payload["call_id"] for payload in payloads if payload["type"] == "function_call"}
    assert "toolu_1" in calls
    assert "toolu_1" in {payload["call_id"] for payload in payloads if payload["type"] == "function_call_output"}
    with Store.open(tmp_path / "second", background=False) as other:
        assert other.imports.run(str(tmp_path / "out")).problems == []
        texts = [m.content for m in loaded(store, CLAUDE_ID).messages if m.content]
        assert [m.content for m in loaded(other, CLAUDE_ID).messages if m.content] == texts
