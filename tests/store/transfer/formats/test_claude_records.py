"""Records of newer and older Claude Code versions: nothing a person or an agent said is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import Session, Store, TrajectoryStep
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, write_lines


def user(uuid: str, text: Any, at: str, **more: Any) -> dict[str, Any]:
    return claude_line("user", uuid, {"role": "user", "content": text}, at, **more)


def answer(uuid: str, at: str, *blocks: dict[str, Any], id: str = "msg_1", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 700, "cache_creation_input_tokens": 30}
    message = {"id": id, "role": "assistant", "model": "claude-opus-4-5", "content": list(blocks), "usage": usage}
    return claude_line("assistant", uuid, message, at, **more)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def read(store: Store, tmp_path: Path, *records: Any, name: str = "s1") -> Session:
    write_lines(tmp_path / f"p/{name}.jsonl", list(records))
    store.imports.run(str(tmp_path / "p"))
    session = store.load(name)
    assert session is not None
    return session


# -- finding the sessions ------------------------------------------------------------------------------


def test_history_file_does_not_hide_the_projects(store: Store, tmp_path: Path) -> None:
    """Claude Code writes ~/.claude/history.jsonl at the first prompt typed in a terminal."""
    claude = make_claude(tmp_path / "dot-claude")
    typed = {"display": "first", "pastedContents": {}, "timestamp": 1794865164447, "sessionId": CLAUDE_ID}
    write_lines(claude / "history.jsonl", [typed])
    summary = store.imports.run(str(claude))
    assert (summary.counts, summary.problems) == ({"new": 4}, [])
    assert store.load("history") is None


def test_logs_of_other_agents_are_not_claude_sessions(store: Store, tmp_path: Path) -> None:
    """Several agents use the member sessionId, and one of them parentUuid too."""
    project = tmp_path / "projects/-p"
    write_lines(project / "mine.jsonl", [user("u1", "hello", "00:00")])
    gemini = [{"sessionId": "g", "projectHash": "e8", "kind": "main"}, {"id": "1", "type": "user", "content": []}]
    qwen = {"uuid": "1", "parentUuid": None, "sessionId": "q", "type": "user", "message": {"role": "user", "parts": []}}
    write_lines(project / "gemini.jsonl", gemini)
    write_lines(project / "qwen.jsonl", [qwen])
    (project / "junk.jsonl").write_text("junk\n")
    summary = store.imports.run(str(tmp_path))
    assert summary.counts == {"new": 1}
    assert {Path(p.path).name for p in summary.problems} == {"gemini.jsonl", "qwen.jsonl", "junk.jsonl"}
    assert all("not a Claude Code session" in p.text for p in summary.problems)


def test_sessions_without_a_prompt_are_passed_over(store: Store, tmp_path: Path) -> None:
    """Opening Claude Code and leaving it writes such files. They are not problems."""
    write_lines(tmp_path / "p/s1.jsonl", [user("u1", "hello", "00:00")])
    (tmp_path / "p/empty.jsonl").write_text("")
    write_lines(tmp_path / "p/mode.jsonl", [{"type": "mode", "mode": "normal", "sessionId": "mode"}])
    summary = store.imports.run(str(tmp_path / "p"))
    assert (summary.counts, summary.problems) == ({"new": 1}, [])


def test_sub_agents_of_an_empty_session_are_imported(store: Store, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / f"p/{CLAUDE_ID}.jsonl").write_text("")
    write_lines(tmp_path / "p/agent-a1.jsonl", [user("a1", "Warm up", "00:00", isSidechain=True, agentId="a1")])
    assert store.imports.run(str(tmp_path / "p")).counts == {"new": 2}
    assert store.load(f"{CLAUDE_ID}/agent-a1") is not None


def test_two_records_on_one_line_are_both_imported(store: Store, tmp_path: Path) -> None:
    first, second = (json.dumps(user(f"u{n}", f"prompt {n}", f"00:0{n}")) for n in (1, 2))
    (tmp_path / "p").mkdir()
    (tmp_path / "p/s1.jsonl").write_text(f"{first}{second}\n")
    summary = store.imports.run(str(tmp_path / "p"))
    session = store.load("s1")
    assert session is not None
    assert summary.problems == []
    assert [m.content for m in session.messages] == ["prompt 1", "prompt 2"]


# -- what a person typed while the agent worked --------------------------------------------------------


def queue(operation: str, at: str, content: str | None = None) -> dict[str, Any]:
    more = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "timestamp": f"2026-02-18T09:{at}Z", **more}


def test_queued_prompt_is_a_message(store: Store, tmp_path: Path) -> None:
    """The newest versions store it as an attachment record."""
    queued = {"type": "queued_command", "prompt": "also rename it", "commandMode": "prompt", "humanTurn": True}
    record = {**claude_line("attachment", "q1", None, "00:02", parentUuid="u1"), "attachment": queued}
    session = read(
        store,
        tmp_path,
        user("u1", "fix it", "00:00"),
        queue("enqueue", "00:01", "also rename it"),
        queue("remove", "00:02", "also rename it"),
        record,
        answer("u2", "00:03", text("Both done."), parentUuid="q1"),
    )
    assert [m.content for m in session.messages] == ["fix it", "also rename it", "Both done."]
    assert session.messages[1].role == "user"
    assert len(store.search("rename")) == 1


def test_prompt_known_only_from_the_queue_is_a_message(store: Store, tmp_path: Path) -> None:
    """In its place. One that follows as a record, or that its author took back, is not repeated."""
    session = read(
        store,
        tmp_path,
        user("u1", "fix it", "00:00"),
        queue("enqueue", "00:01", "commit first"),
        queue("remove", "00:02"),
        answer("u2", "00:03", text("Committed.")),
        queue("enqueue", "00:04", "then push"),
        queue("dequeue", "00:05"),
        user("u3", "then push", "00:05"),
        queue("enqueue", "00:06", "no, wait"),
        queue("popAll", "00:07"),
    )
    assert [m.content for m in session.messages] == ["fix it", "commit first", "Committed.", "then push"]


def test_queued_prompt_that_arrives_later_is_not_a_lost_message(store: Store, tmp_path: Path) -> None:
    records = [user("u1", "fix it", "00:00"), queue("enqueue", "00:01", "then push")]
    assert [m.content for m in read(store, tmp_path, *records).messages] == ["fix it", "then push"]
    session = read(store, tmp_path, *records, queue("dequeue", "00:05"), user("u3", "then push", "00:05"))
    assert [m.id for m in session.messages] == ["u1", "u3"]


# -- rewinds, compaction, forks --------------------------------------------------------------------------


def test_messages_abandoned_by_a_rewind_are_marked(store: Store, tmp_path: Path) -> None:
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}} for n in (1, 2)]
    results = [[{"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"}] for n in (1, 2)]
    session = read(
        store,
        tmp_path,
        user("u1", "first", "00:00"),
        answer("a1", "00:01", calls[0], parentUuid="u1"),
        answer("a2", "00:01", calls[1], parentUuid="a1"),
        user("r1", results[0], "00:02", parentUuid="a1"),
        user("r2", results[1], "00:02", parentUuid="a2"),
        answer("a3", "00:03", text("Read."), parentUuid="r2", id="msg_2"),
        user("u2", "wrong way", "00:04", parentUuid="a3"),
        answer("a4", "00:05", text("Wrong."), parentUuid="u2", id="msg_3"),
        user("u3", "right way", "00:06", parentUuid="a3"),
        answer("a5", "00:07", text("Right."), parentUuid="u3", id="msg_4"),
    )
    marked = [m.id for m in session.messages if (m.metadata or {}).get("abandoned")]
    assert marked == ["u2", "a4"]
    shown = store.transcript("s1")
    assert shown is not None
    assert shown.count("· abandoned") == 2


def test_compaction_keeps_the_messages_before_it(store: Store, tmp_path: Path) -> None:
    boundary = {**claude_line("system", "b", None, "00:02"), "content": "Compacted", "subtype": "compact_boundary"}
    summary = "This session is being continued from a previous conversation. We fixed it."
    session = read(
        store,
        tmp_path,
        user("u1", "fix it", "00:00"),
        answer("a1", "00:01", text("Fixed."), parentUuid="u1"),
        boundary,
        user("u2", summary, "00:03", parentUuid="b", isCompactSummary=True),
        user("u3", "go on", "00:04", parentUuid="u2"),
    )
    assert [m.id for m in session.messages] == ["u1", "a1", "b", "u2", "u3"]
    assert not [m for m in session.messages if (m.metadata or {}).get("abandoned")]
    assert session.title == "fix it"


def test_fork_and_resumed_copy_name_their_origin(store: Store, tmp_path: Path) -> None:
    """Versions before 2.0 copy all records at a resume: the ids of the answers stay the same."""
    write_lines(tmp_path / "p/one.jsonl", [user("u1", "go", "00:00"), answer("a1", "00:01", text("Gone."))])
    write_lines(tmp_path / "p/two.jsonl", [user("v1", "go", "10:00"), answer("b1", "10:00", text("Gone."))])
    fork = user("w1", "go", "20:00", forkedFrom={"sessionId": "one", "messageUuid": "u1"})
    write_lines(tmp_path / "p/three.jsonl", [fork])
    store.imports.run(str(tmp_path / "p"))
    one, two, three = (store.load(name) for name in ("one", "two", "three"))
    assert one is not None
    assert two is not None
    assert three is not None
    assert "resumed_from" not in one.metadata
    assert two.metadata["resumed_from"] == "one"
    assert three.metadata["forked_from"] == "one"
    assert store.usage.totals().total().calls == 1  # the answer that both files hold


# -- titles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "title"),
    [
        ([user("u1", "Base directory for this skill: /x", "00:00", isMeta=True), user("u2", "Plan", "00:01")], "Plan"),
        ([user("u1", "You are an expert reviewer", "00:00", isMeta=True), user("u2", "Review", "00:01")], "Review"),
        ([user("u1", "[Request interrupted by user for tool use]", "00:00"), user("u2", "Stop", "00:01")], "Stop"),
        ([user("u1", "Implement the following plan:\n\n# Move the cart\n\nSteps", "00:00")], "Move the cart"),
        ([user("u1", "<ide_opened_file>x.py</ide_opened_file>\nWhy is it slow?", "00:00")], "Why is it slow?"),
        ([user("u1", "<command-name>/review</command-name><command-args>12</command-args>", "00:00")], "/review 12"),
        ([user("u1", "go", "00:00"), {"type": "custom-title", "customTitle": "By hand"}], "By hand"),
        ([{"type": "custom-title", "customTitle": "By hand"}, user("u1", "go", "00:00"),
          {"type": "ai-title", "aiTitle": "Generated"}], "By hand"),
    ],
)  # fmt: skip
def test_title_is_what_a_person_typed(store: Store, tmp_path: Path, records: list[Any], title: str) -> None:
    assert read(store, tmp_path, *records).title == title


# -- tokens, steps, status ---------------------------------------------------------------------------------


def test_usage_of_an_answer_counts_once(store: Store, tmp_path: Path) -> None:
    """Each block of a streamed answer is a line with the same usage; the last line has the final count."""
    last = answer("a3", "00:03", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}})
    last["message"]["usage"]["output_tokens"] = 40
    read(
        store,
        tmp_path,
        user("u1", "go", "00:00"),
        answer("a1", "00:01", {"type": "thinking", "thinking": "Hm"}),
        answer("a2", "00:02", text("I will.")),
        last,
        answer("a4", "00:05", text("Done."), id="msg_2"),
    )
    usage = store.usage.totals().by_model()["claude-opus-4-5"]
    assert usage.calls == 2
    assert usage.tokens["input_tokens"] == 20
    assert usage.tokens["output_tokens"] == 45
    assert usage.tokens["cache_read_input_tokens"] == 1400
    assert usage.tokens["cache_creation_input_tokens"] == 60


def test_tool_calls_become_steps(store: Store, tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "false"}}
    failed = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "exit 1"}
    read(store, tmp_path, user("u1", "go", "00:00"), answer("a1", "00:01", call), user("r1", [failed], "00:03.500"))
    steps = store.trajectory.read("s1")
    assert steps == [
        TrajectoryStep(
            tool_name="Bash",
            tool_args={"command": "false"},
            output_summary="exit 1",
            duration_ms=2500,
            is_error=True,
            tool_call_id="t1",
            timestamp=steps[0].timestamp,  # type: ignore[index]
        )
    ]


QUESTION = {"type": "tool_use", "id": "q1", "name": "AskUserQuestion", "input": {"questions": [{"question": "Red?"}]}}
ANSWER = [{"type": "tool_result", "tool_use_id": "q1", "content": "Red"}]


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ([user("u1", "go", "00:00"), answer("a1", "00:01", text("Done."))], "completed"),
        ([user("u1", "go", "00:00")], "running"),
        ([user("u1", "go", "00:00"), answer("a1", "00:01", text("API Error"), isApiErrorMessage=True)], "error"),
        ([user("u1", "go", "00:00"), user("u2", "[Request interrupted by user]", "00:01")], "cancelled"),
        ([user("u1", "go", "00:00"), answer("a1", "00:01", QUESTION)], "suspended"),
        ([user("u1", "go", "00:00"), answer("a1", "00:01", QUESTION), user("u2", ANSWER, "00:02")], "running"),
    ],
)
def test_status_of_the_last_run(store: Store, tmp_path: Path, records: list[Any], status: str) -> None:
    session = read(store, tmp_path, *records)
    assert session.last_run_status == status
    assert [entry.id for entry in store.entries(waiting=True)] == (["s1"] if status == "suspended" else [])
    assert session.project_id == "shop"
    assert session.metadata["git_branch"] == "main"


def test_sub_agent_is_linked_to_its_call(store: Store, tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Agent", "input": {"prompt": "Dig"}}
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "launched"}]
    records = [
        user("u1", "go", "00:00"),
        answer("a1", "00:01", call),
        user("r1", result, "00:02", toolUseResult={"agentId": "cafe", "status": "async_launched"}),
    ]
    inner = user("c1", "Dig", "00:02", isSidechain=True, agentId="cafe")
    write_lines(tmp_path / "p/s1/subagents/agent-cafe.jsonl", [inner])
    session = read(store, tmp_path, *records)
    child = store.load("s1/agent-cafe")
    assert child is not None
    assert child.metadata["spawned_by"] == "t1"
    assert session.messages[2].metadata is not None
    assert session.messages[2].metadata["child_session_id"] == "agent-cafe"


# -- what `show` prints --------------------------------------------------------------------------------


def test_f17_result_of_several_text_parts_is_shown_once(store: Store, tmp_path: Path) -> None:
    """The report of a sub-agent has two: its text, and how to continue the agent."""
    call = {"type": "tool_use", "id": "t1", "name": "Agent", "input": {"prompt": "Dig"}}
    parts = [text("The report: two carts."), text("agentId: a1 (to resume it)")]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": parts}]
    prompt = [text("First words."), text("Second words.")]
    read(store, tmp_path, user("u1", prompt, "00:00"), answer("a1", "00:01", call), user("r1", result, "00:02"))
    shown = store.transcript("s1")
    assert shown is not None
    for said in ("First words.", "Second words.", "The report: two carts.", "agentId: a1"):
        assert shown.partition("\n## ")[2].count(said) == 1  # the title may repeat it
