"""Export into the directory of an agent: what the agent wrote there is not lost, and what we wrote is the next base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Store
from store.transfer.exports import AgentFormat
from store.transfer.formats.importer import ImportProblem
from tests.store.transfer.foreign import CLAUDE_ID, CODEX_ID, make_claude, make_codex

CASES: list[tuple[AgentFormat, str]] = [("claude-code", CLAUDE_ID), ("codex", CODEX_ID)]


def make_source(agent: AgentFormat, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The source, the destination of an export back into it, and the file of the session."""
    if agent == "claude-code":
        source = make_claude(tmp_path / "dot-claude")
        dest = source / "projects/-home-me-shop"
        return source, dest, dest / f"{CLAUDE_ID}.jsonl"
    source = make_codex(tmp_path / "dot-codex")
    return source, source, next(source.glob(f"sessions/**/rollout-*{CODEX_ID}.jsonl"))


def line_of(agent: AgentFormat, file: Path, text: str) -> str:
    """A line as the agent appends it."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    if agent == "claude-code":
        last = next(record for record in reversed(lines) if record.get("type") == "user")
        record = {**last, "uuid": f"new-{text}", "message": {"role": "user", "content": text}}
        record = {key: value for key, value in record.items() if key not in ("toolUseResult", "isSidechain")}
        return json.dumps({**record, "isSidechain": False}) + "\n"
    content = [{"type": "input_text", "text": text}]
    payload = {"type": "message", "role": "user", "content": content}
    record = {"timestamp": "2026-03-04T10:00:00.000Z", "type": "response_item", "payload": payload}
    return json.dumps(record) + "\n"


def export(store: Store, agent: AgentFormat, id: str, dest: Path, *, overwrite: bool = False) -> list[str]:
    """Export a session; the problems."""
    found = store.exports.write_for_agent(agent, store.exports.select([id]), dest, overwrite=overwrite)
    return [str(item) for item in found if isinstance(item, ImportProblem)]


def texts(store: Store, id: str) -> list[str]:
    session = store.load(id)
    assert session is not None
    return [message.content for message in session.messages]


@pytest.mark.parametrize(("agent", "id"), CASES)
def test_lines_that_were_not_imported_are_not_overwritten(
    store: Store, tmp_path: Path, agent: AgentFormat, id: str
) -> None:
    source, dest, file = make_source(agent, tmp_path)
    store.imports.run(str(source))
    with file.open("a") as opened:
        opened.write(line_of(agent, file, "written by the agent"))
    before = file.read_bytes()
    store.append(id, [{"id": "mine", "role": "user", "content": "my change"}])
    problems = export(store, agent, id, dest)
    assert [f"{file}: 1 message was not imported" in text for text in problems] == [True]
    assert f"grovefs import {dest}" in problems[0]
    assert file.read_bytes() == before
    assert store.imports.run(str(source)).problems == []
    assert export(store, agent, id, dest) == []
    assert b"written by the agent" in file.read_bytes()
    assert b"my change" in file.read_bytes()


@pytest.mark.parametrize(("agent", "id"), CASES)
def test_export_is_the_base_of_the_next_import(store: Store, tmp_path: Path, agent: AgentFormat, id: str) -> None:
    """The import after an export into the source finds nothing new, and then what the agent adds."""
    source, dest, file = make_source(agent, tmp_path)
    store.imports.run(str(source))
    session = store.load(id)
    assert session is not None
    session.messages[1].content = "edited here"
    store.save(session)
    store.append(id, [{"id": "mine", "role": "user", "content": "my change"}])
    here = texts(store, id)
    assert export(store, agent, id, dest) == []
    reported: list[object] = []
    summary = store.imports.run(str(source), report=reported.append)
    assert (set(summary.counts), summary.problems) == ({"unchanged"}, []), reported
    assert texts(store, id) == here
    with file.open("a") as opened:
        opened.write(line_of(agent, file, "added by the agent"))
    assert store.imports.run(str(source)).counts["updated"] == 1
    assert texts(store, id) == [*here, "added by the agent"]


@pytest.mark.parametrize(("agent", "id"), CASES)
def test_own_export_is_replaced(store: Store, tmp_path: Path, agent: AgentFormat, id: str) -> None:
    """An export to any directory can be repeated; a file there that somebody changed is kept."""
    source, _, _ = make_source(agent, tmp_path)
    store.imports.run(str(source))
    out = tmp_path / "out"
    for number in range(2):
        store.append(id, [{"id": f"mine-{number}", "role": "user", "content": f"change {number}"}])
        assert export(store, agent, id, out) == []
    file = next(path for path in out.rglob("*.jsonl") if b"change 1" in path.read_bytes())
    changed = file.read_bytes() + line_of(agent, file, "other").encode()
    file.write_bytes(changed)
    store.append(id, [{"id": "mine-2", "role": "user", "content": "change 2"}])
    assert len(export(store, agent, id, out)) == 1
    assert file.read_bytes() == changed
    assert export(store, agent, id, out, overwrite=True) == []
    assert b"change 2" in file.read_bytes()
    assert file.with_name(f"{file.name}.before-export").read_bytes() == changed


def test_export_elsewhere_is_not_the_base_of_an_import(store: Store, tmp_path: Path) -> None:
    """Otherwise the source would count as changed, and take back what was changed here."""
    source, _, _ = make_source("claude-code", tmp_path)
    store.imports.run(str(source))
    session = store.load(CLAUDE_ID)
    assert session is not None
    session.messages[1].content = "edited here"
    store.save(session)
    assert export(store, "claude-code", CLAUDE_ID, tmp_path / "out") == []
    store.imports.run(str(source))
    assert "edited here" in texts(store, CLAUDE_ID)
