"""A3S stores of both layouts: blocks become messages, records become files, API keys are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from tests.builders import files_below, read_json
from tests.store.transfer.foreign import (
    PNG,
    a3s_artifact,
    a3s_report,
    a3s_session,
    a3s_trace,
    kept_metadata,
    make_a3s,
    make_a3s_v1,
)


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    summary = store.imports.run(str(make_a3s(tmp_path / "a3s")))
    assert summary.format == "a3s"
    assert summary.counts == {"new": 2}
    assert ["API key" in p.text for p in summary.problems] == [True]
    session = store.load("a3-1")
    assert session is not None
    return session


def test_messages_are_imported(imported: Session, store: Store) -> None:
    ask, call, result, failed = imported.messages
    assert (ask.role, ask.content) == ("user", "hi")
    assert ask.content_parts is not None
    assert ask.content_parts[1].image_url is not None
    assert store.attachments.resolve(ask.content_parts[1].image_url.url) == (PNG, "image/png")
    assert call.tool_calls is not None
    assert call.tool_calls[0].function.name == "read"
    assert call.reasoning == "Read it."
    assert (result.role, result.tool_call_id, result.tool_success, result.content) == ("tool", "t1", True, "text")
    assert (failed.tool_call_id, failed.tool_success, failed.content) == ("t2", False, "no")


def test_other_members_are_kept_except_api_keys(imported: Session, store: Store) -> None:
    source = a3s_session()
    for key in ("config", "state", "context_usage", "total_usage", "total_cost", "tool_names", "tasks"):
        value = imported.metadata[f"a3s.{key}"]
        assert (value if isinstance(source[key], str) else json.loads(value)) == source[key]
    assert json.loads(imported.metadata["a3s.llm_config"]) == {"provider": "p", "model": "m", "base_url": None}
    assert not any(b"sk-very-secret" in data for data in files_below(store.home).values())
    assert (imported.title, imported.model, imported.workspace_path) == ("demo", "some-model", "/w")
    assert (imported.created_at, imported.updated_at) == ("2023-11-14T22:13:20Z", "2023-11-14T22:15:00Z")


def test_records_become_record_files(imported: Session, store: Store) -> None:
    base = store.home / "sessions/a3-1"
    assert read_json(base / "artifacts.json") == {"artifacts": [a3s_artifact()]}
    assert read_json(base / "traces.json") == [a3s_trace()]
    assert read_json(base / "verification.json") == [a3s_report()]


def test_descendants_become_children(imported: Session, store: Store) -> None:
    child = store.load("a3-1/a3-2")
    assert child is not None
    assert child.parent_session_id == "a3-1"


def test_the_v1_layout(store: Store, tmp_path: Path) -> None:
    """Invalid ids are replaced; encrypted sessions are reported and skipped."""
    base = make_a3s_v1(tmp_path / "a3s")
    summary = store.imports.run(str(base))
    assert summary.counts == {"new": 1}
    assert any("encrypted" in p.text for p in summary.problems)
    entry = store.entries()[0]
    assert entry.id.startswith("a3s-")
    home = store.home / f"sessions/{entry.id}"
    assert read_json(home / "artifacts.json")["artifacts"] == [a3s_artifact()]
    assert read_json(home / "traces.json") == [a3s_trace()]
    assert read_json(home / "verification.json") == [a3s_report()]
    assert read_json(home / "attachments/run_records.json") == [{"run": 1}]
    assert store.imports.run(str(base)).counts == {"unchanged": 1}


def test_invalid_message_skips_the_session_and_reports_its_line(store: Store, tmp_path: Path) -> None:
    base = make_a3s(tmp_path / "a3s")
    broken = a3s_session("a3-3", llm_config=None, parent_id=None)
    broken["messages"][1] = "no message"
    (base / "a3-3.json").write_text(json.dumps(broken, indent=2))
    (base / "traces/a3-2.json").write_text("[")
    summary = store.imports.run(str(base))
    assert summary.counts == {"new": 2}
    problem = next(p for p in summary.problems if p.path.endswith("a3-3.json"))
    assert problem.line is not None
    assert "no message" in (base / "a3-3.json").read_text().splitlines()[problem.line - 1]
    assert any(p.path.endswith("traces/a3-2.json") for p in summary.problems)
    assert store.load("a3-3") is None


def test_unknown_blocks_are_kept(store: Store, tmp_path: Path) -> None:
    base = tmp_path / "a3s"
    base.mkdir()
    block = {"type": "hologram", "data": [1, 2]}
    session = a3s_session("x", llm_config=None, messages=[{"role": "robot", "content": [block]}])
    (base / "x.json").write_text(json.dumps(session))
    assert store.imports.run(str(base)).problems == []
    found = store.load("x")
    assert found is not None
    assert kept_metadata(found.messages[0], "a3s") == {"role": "robot", "blocks": {"0": block}}
