"""Gemini CLI chats: the last line of a message counts, and tool results are messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from store import Store
from tests.store.transfer.foreign import write_lines

HEADER = {"sessionId": "gem-1", "projectHash": "e8b9", "startTime": "2026-03-01T10:00:00Z", "kind": "main"}
AT = "2026-03-01T10:00:0"


def messages() -> list[dict[str, Any]]:
    response = {"functionResponse": {"id": "c1", "name": "shell", "response": {"output": "a b"}}}
    call = {"id": "c1", "name": "shell", "args": {"command": "ls"}, "result": [response], "status": "success"}
    said: dict[str, Any] = {
        "id": "m2",
        "timestamp": f"{AT}2Z",
        "type": "gemini",
        "content": "I list.",
        "model": "gemini-2.5-pro",
    }
    said["thoughts"] = [{"subject": "Listing", "description": "With ls."}]
    said["tokens"] = {"input": 800, "output": 40, "cached": 100, "thoughts": 11, "total": 851}
    return [
        {"id": "m0", "timestamp": f"{AT}0Z", "type": "user", "content": [{"text": "<session_context>\nToday"}]},
        {"id": "m1", "timestamp": f"{AT}1Z", "type": "user", "content": [{"text": "List the files"}]},
        said,
        {**said, "toolCalls": [{**call, "timestamp": f"{AT}3Z"}]},
        {"id": "m3", "timestamp": f"{AT}3Z", "type": "user", "content": [response]},
        {"id": "m4", "timestamp": f"{AT}4Z", "type": "gemini", "content": "Two files.", "model": "gemini-2.5-pro"},
        {"id": "m5", "timestamp": f"{AT}5Z", "type": "error", "content": "Quota exceeded"},
    ]


def check_imported(store: Store, source: Path) -> None:
    summary = store.imports.run(str(source))
    assert (summary.format, summary.problems, summary.counts) == ("gemini-cli", [], {"new": 1})
    session = store.load("gem-1")
    assert session is not None
    assert [(m.role, m.content) for m in session.messages[1:]] == [
        ("user", "List the files"),
        ("assistant", "I list."),
        ("tool", "a b"),
        ("assistant", "Two files."),
        ("system", "Quota exceeded"),
    ]
    assert session.title == "List the files"
    assert session.messages[2].reasoning == "Listing\nWith ls."
    assert store.trajectory.count("gem-1") == 1
    used = store.usage.totals().by_model()["gemini-2.5-pro"]
    assert (used.calls, used.tokens["input_tokens"], used.tokens["output_tokens"]) == (1, 700, 51)
    assert store.imports.run(str(source)).counts == {"unchanged": 1}


def test_lines_of_a_chat_are_imported(store: Store, tmp_path: Path) -> None:
    first, *others = messages()
    set_line = {"$set": {"messages": [first], "lastUpdated": f"{AT}9Z"}}
    write_lines(tmp_path / "tmp/work/chats/session-2026-gem.jsonl", [HEADER, set_line, *others])
    check_imported(store, tmp_path)


def test_earlier_json_file_is_imported(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "tmp/work/chats/session-2026-gem.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**HEADER, "messages": messages()}))
    check_imported(store, tmp_path)


def test_broken_line_is_reported_and_kept(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "tmp/work/chats/session-1.jsonl"
    write_lines(path, [HEADER, *messages()])
    path.write_bytes(path.read_bytes() + b'{"id": "m6", "ty')
    problems = store.imports.run(str(tmp_path)).problems
    assert [problem.line for problem in problems] == [9]
    kept = store.attachments.read("gem-1", "records")
    assert kept is not None
    assert b'{"id": "m6", "ty' in kept[0]


def test_project_becomes_the_workspace(store: Store, tmp_path: Path) -> None:
    """Gemini CLI notes the directory of a project in its own directory below tmp/."""
    write_lines(tmp_path / "tmp/work/chats/session-2026-gem.jsonl", [HEADER, *messages()])
    store.imports.run(str(tmp_path))
    (tmp_path / "tmp/work/.project_root").write_text("/home/me/shop\n")
    assert store.imports.run(str(tmp_path)).counts == {"updated": 1}
    session = store.load("gem-1")
    assert session is not None
    assert (session.workspace_path, session.project_id) == ("/home/me/shop", "shop")


def test_sub_agents_become_children(store: Store, tmp_path: Path) -> None:
    chats = tmp_path / "tmp/work/chats"
    call = {"id": "c1", "name": "codebase_investigator", "args": {}, "agentId": "agent-7", "status": "success"}
    asked = {"id": "m1", "timestamp": f"{AT}1Z", "type": "user", "content": "Where is the cart?"}
    spawn = {"id": "m2", "timestamp": f"{AT}2Z", "type": "gemini", "content": "", "toolCalls": [call]}
    write_lines(chats / "session-2026-gem.jsonl", [HEADER, asked, spawn])
    inner = {**HEADER, "sessionId": "agent-7", "kind": "subagent", "directories": ["/home/me/shop"]}
    write_lines(chats / "gem-1/agent-7.jsonl", [inner, {**asked, "content": "Find it"}])
    write_lines(chats / "deleted/agent-8.jsonl", [{**inner, "sessionId": "agent-8"}, asked])
    summary = store.imports.run(str(tmp_path))
    assert (summary.problems, summary.counts) == ([], {"new": 3})
    child, lone = store.load("gem-1/agent-7"), store.load("agent-8")
    assert child is not None
    assert lone is not None
    assert (child.parent_session_id, child.metadata["spawned_by"]) == ("gem-1", "c1")
    assert [m.content for m in child.messages] == ["Find it"]
    assert (child.workspace_path, lone.kind) == ("/home/me/shop", "root")


def test_messages_abandoned_by_a_rewind_are_marked(store: Store, tmp_path: Path) -> None:
    again = {"id": "m6", "timestamp": f"{AT}6Z", "type": "user", "content": "List the hidden files"}
    lines = [HEADER, *messages(), {"$rewindTo": "m1"}, again]
    write_lines(tmp_path / "tmp/work/chats/session-2026-gem.jsonl", lines)
    assert store.imports.run(str(tmp_path)).problems == []
    session = store.load("gem-1")
    assert session is not None
    marked = [(m.content, bool((m.metadata or {}).get("abandoned"))) for m in session.messages]
    assert marked[1:3] == [("List the files", True), ("I list.", True)]
    assert marked[-1] == ("List the hidden files", False)
    assert not marked[0][1]


def test_continued_json_file_is_read_once(store: Store, tmp_path: Path) -> None:
    """Resuming a session of an earlier version copies it to a .jsonl file and leaves the .json file there."""
    old = tmp_path / "tmp/work/chats/session-2026-gem.json"
    old.parent.mkdir(parents=True)
    old.write_text(json.dumps({**HEADER, "messages": messages()}))
    store.imports.run(str(tmp_path))
    more = {"id": "m6", "timestamp": f"{AT}6Z", "type": "user", "content": "And now?"}
    write_lines(old.with_suffix(".jsonl"), [HEADER, *messages(), more])
    summary = store.imports.run(str(tmp_path))
    assert (summary.problems, summary.counts) == ([], {"updated": 1})
    session = store.load("gem-1")
    assert session is not None
    assert session.messages[-1].content == "And now?"
