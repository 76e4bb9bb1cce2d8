"""Claude Code projects: every record is kept, and sub-agents become children."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from tests.store.transfer.foreign import (
    CLAUDE_ID,
    PNG,
    claude_line,
    claude_lines,
    kept_metadata,
    make_claude,
    write_lines,
)


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    store.imports.run(str(make_claude(tmp_path / "dot-claude")))
    session = store.load(CLAUDE_ID)
    assert session is not None
    return session


def test_messages_are_imported(imported: Session) -> None:
    assert [m.role for m in imported.messages] == ["user", "assistant", "tool", "tool", "assistant", "system"]
    assert [m.id for m in imported.messages] == ["u1", "u2", "u3", "u4", "u5", "u6"]
    ask, look, seen, failed, done, boundary = imported.messages
    assert ask.content == "Why is the cart empty?"
    assert ask.created_at == "2026-02-18T09:00:00.100Z"
    assert look.reasoning == "The cookie, perhaps."
    assert look.reasoning_signature == "EqQB"
    assert look.tool_calls is not None
    assert look.tool_calls[0].function.arguments == '{"file_path":"cart.py"}'
    assert (seen.tool_call_id, seen.tool_success, seen.content) == ("toolu_1", True, "def cart():\n    return []")
    assert (failed.tool_success, failed.content) == (False, "no such file")
    assert done.content == "Fixed: 漢字 ✓"
    assert boundary.content == "Compacted"


def test_session_members_are_imported(imported: Session) -> None:
    assert imported.title == "Fix the cart"
    assert imported.model == "claude-sonnet-4-5"
    assert imported.workspace_path == "/home/me/shop"
    assert imported.created_at == "2026-02-18T09:00:00.100Z"
    assert imported.updated_at == "2026-02-18T09:00:10Z"


def test_every_member_of_a_record_is_kept(imported: Session, store: Store) -> None:
    """Each member of each line is in the message, in its metadata, in the session's, or in records.jsonl."""
    look, seen, failed = imported.messages[1:4]
    assert kept_metadata(look, "claude-code")["message"]["usage"]["service_tier"] == "standard"
    assert kept_metadata(look, "claude-code")["requestId"] == "req_1"
    assert kept_metadata(seen, "claude-code")["toolUseResult"] == {"type": "text", "file": {"n": 1}}
    assert kept_metadata(failed, "claude-code")["gitBranch"] == "fix/cart"
    assert json.loads(imported.metadata["claude-code.envelope"])["version"] == "2.1.12"
    kept = store.attachments.read(CLAUDE_ID, "records")
    assert kept is not None
    assert [json.loads(line) for line in kept[0].splitlines()] == [
        line for line in claude_lines() if line["type"] in ("summary", "file-history-snapshot")
    ]


def test_images_become_attachments(imported: Session, store: Store) -> None:
    parts = imported.messages[0].content_parts
    assert parts is not None
    assert parts[1].image_url is not None
    assert store.attachments.resolve(parts[1].image_url.url) == (PNG, "image/png")


def test_long_tool_results_become_attachments(imported: Session, store: Store) -> None:
    names = [path.name for path in (store.home / f"sessions/{CLAUDE_ID}/attachments").iterdir()]
    name = next(name for name in names if name.startswith("tool-results-toolu_9"))
    assert (store.home / f"sessions/{CLAUDE_ID}/attachments/{name}").read_text() == "a long output\n" * 1000


def test_sub_agents_become_children(imported: Session, store: Store) -> None:
    """In the session file itself, next to it, and below it."""
    inline, sibling, below = (
        store.load(f"{CLAUDE_ID}/{id}") for id in ("sidechain-s1", "agent-beef01", "agent-cafe02")
    )
    assert inline is not None
    assert sibling is not None
    assert below is not None
    assert [m.content for m in inline.messages] == ["Find all carts", "Two."]
    assert inline.parent_session_id == sibling.parent_session_id == CLAUDE_ID
    assert (below.parent_session_id, below.spawn_depth) == ("agent-beef01", 2)
    assert (below.title, below.subagent_type) == ("Dig for carts", "explorer")
    assert below.root_session_id == CLAUDE_ID


def test_sub_agent_without_a_session_becomes_a_root(store: Store, tmp_path: Path) -> None:
    line = claude_line("user", "b1", {"role": "user", "content": "Count"}, "01:00", isSidechain=True, agentId="beef01")
    write_lines(tmp_path / "p/agent-beef01.jsonl", [line])
    assert store.imports.run(str(tmp_path / "p")).counts == {"new": 1}
    session = store.load("agent-beef01")
    assert session is not None
    assert session.kind == "root"
    assert [m.content for m in session.messages] == ["Count"]


def test_single_file_can_be_imported(store: Store, tmp_path: Path) -> None:
    base = make_claude(tmp_path / "dot-claude")
    assert store.imports.run(str(base / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl")).counts["new"] >= 1
    assert store.load(CLAUDE_ID) is not None


def test_lone_surrogates_are_replaced_and_the_line_is_kept(store: Store, tmp_path: Path) -> None:
    """JavaScript writes a string cut within an emoji with a lone surrogate."""
    line = json.dumps(claude_line("user", "u1", {"role": "user", "content": "cut \ud83d"}, "00:00"))
    (tmp_path / "p").mkdir()
    (tmp_path / "p/s1.jsonl").write_text(line + "\n")
    assert store.imports.run(str(tmp_path / "p")).problems == []
    session = store.load("s1")
    assert session is not None
    assert session.messages[0].content == "cut \ufffd"
    kept = store.attachments.read("s1", "records")
    assert kept is not None
    assert kept[0].decode().strip() == line


def test_large_unmapped_members_are_kept_in_records(store: Store, tmp_path: Path) -> None:
    content = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
    big = claude_line("user", "u1", {"role": "user", "content": content}, "00:00", toolUseResult={"f": "x" * 100_000})
    write_lines(tmp_path / "p/s1.jsonl", [big])
    store.imports.run(str(tmp_path / "p"))
    assert (store.home / "sessions/s1/session.json").stat().st_size < 10_000
    kept = store.attachments.read("s1", "records")
    assert kept is not None
    assert json.loads(kept[0]) == big
