"""Codex threads of newer versions: rewinds, forks, sub-agents, names, compressed files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from store import Session, Store
from tests.store.transfer.foreign import CODEX_ID, PNG_TEXT, codex_line, kept_metadata, write_lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OTHER = "019a2d7b-0000-7000-8000-00000000000f"


def meta(id: str = CODEX_ID, **more: Any) -> dict[str, Any]:
    return {**codex_line("session_meta", {"id": id, "cwd": "/home/me/sums", **more}), "ordinal": 0}


def said(role: str, text: str, ordinal: int, **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {**codex_line("response_item", payload, ordinal), "ordinal": ordinal, **more}


def called(output: Any, ordinal: int) -> list[dict[str, Any]]:
    id = f"call_{ordinal}"
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": id}
    result = {"type": "function_call_output", "call_id": id, "output": output}
    return [codex_line("response_item", call, ordinal), codex_line("response_item", result, ordinal + 1)]


def rollout(base: Path, name: str, *records: Any) -> Path:
    path = base / f"sessions/2026/03/01/rollout-2026-03-01T10-00-00-{name}.jsonl"
    write_lines(path, list(records))
    return path


def read(store: Store, tmp_path: Path, *records: Any) -> Session:
    rollout(tmp_path, CODEX_ID, *records)
    summary = store.imports.run(str(tmp_path))
    assert summary.problems == []
    session = store.load(CODEX_ID)
    assert session is not None
    return session


def test_thread_goes_on_after_a_rewind(store: Store, tmp_path: Path) -> None:
    """It continues in a second file. The abandoned part stays, marked."""
    base = {"thread_id": CODEX_ID, "end_ordinal_exclusive": 3}
    rollout(
        tmp_path,
        f"{CODEX_ID}_{OTHER}",
        {**meta(history_base=base), "ordinal": 3},
        said("user", "edited question", 4),
        said("assistant", "new answer", 5),
    )
    session = read(
        store,
        tmp_path,
        meta(),
        said("user", "first question", 1),
        said("assistant", "first answer", 2),
        said("user", "old question", 3),
        said("assistant", "old answer", 4),
    )
    marks = [(m.content, bool((m.metadata or {}).get("abandoned"))) for m in session.messages]
    assert marks == [
        ("first question", False),
        ("first answer", False),
        ("old question", True),
        ("old answer", True),
        ("edited question", False),
        ("new answer", False),
    ]
    assert len(store.search("edited")) == 1
    assert store.imports.run(str(tmp_path)).counts == {"unchanged": 1}


def test_fork_names_its_origin(store: Store, tmp_path: Path) -> None:
    rollout(tmp_path, OTHER, meta(OTHER, forked_from_id=CODEX_ID), said("user", "another way", 1))
    read(store, tmp_path, meta(), said("user", "one way", 1))
    fork = store.load(OTHER)
    assert fork is not None
    assert fork.metadata["forked_from"] == CODEX_ID


def test_messages_between_agents_are_imported(store: Store, tmp_path: Path) -> None:
    """The parent has the report of its sub-agent, the child its task, and each is linked to the call."""
    spawn = {"type": "function_call", "name": "spawn_agent", "call_id": "c1", "arguments": '{"task_name": "find_it"}'}
    report = {"type": "agent_message", "author": "/root/find_it", "recipient": "/root"}
    report["content"] = [{"type": "input_text", "text": "Message Type: FINAL_ANSWER\nPayload:\nFound it."}]  # type: ignore[assignment]
    task = {"type": "agent_message", "author": "/root", "recipient": "/root/find_it"}
    words = "Message Type: NEW_TASK\nTask name: /root/find_it\nPayload:\n"
    task["content"] = [{"type": "input_text", "text": words}, {"type": "encrypted_content", "encrypted_content": "gA"}]  # type: ignore[assignment]
    spawned = {"parent_thread_id": CODEX_ID, "depth": 1, "agent_path": "/root/find_it"}
    source = {"source": {"subagent": {"thread_spawn": spawned}}}
    rollout(tmp_path, OTHER, meta(OTHER, **source), codex_line("response_item", task, 3))
    records = [meta(), said("user", "find it", 1), codex_line("response_item", spawn, 2)]
    session = read(store, tmp_path, *records, codex_line("response_item", report, 9))
    assert session.messages[-1].content.endswith("Found it.")
    child = store.load(f"{CODEX_ID}/{OTHER}")
    assert child is not None
    assert child.messages[0].content == words
    assert kept_metadata(child.messages[0], "codex")["content"][1]["encrypted_content"] == "gA"
    assert child.title == "find_it"
    assert child.metadata["spawned_by"] == "c1"


@pytest.mark.parametrize(
    ("texts", "title"),
    [
        (["# AGENTS.md instructions for /home/me\n\n<INSTRUCTIONS>\nBe kind.", "Add it up"], "Add it up"),
        (["<environment_context><cwd>/x</cwd></environment_context>", "Add it up"], "Add it up"),
        (["<image name=[Image #1]>\n\n</image>\n\nWhat is this?"], "What is this?"),
    ],
)
def test_title_is_what_a_person_typed(store: Store, tmp_path: Path, texts: list[str], title: str) -> None:
    records = [said("user", text, number) for number, text in enumerate(texts, 1)]
    assert read(store, tmp_path, meta(), *records).title == title


def test_name_given_to_a_thread_is_its_title(store: Store, tmp_path: Path) -> None:
    names = [{"id": CODEX_ID, "thread_name": "Old"}, {"id": CODEX_ID, "thread_name": "My sums"}]
    write_lines(tmp_path / "session_index.jsonl", names)
    assert read(store, tmp_path, meta(), said("user", "add", 1)).title == "My sums"


def test_members_next_to_the_payload_are_kept(store: Store, tmp_path: Path) -> None:
    more = {"metadata": {"client_authored": False, "inherited_user_message": True}}
    session = read(store, tmp_path, meta(), said("user", "inherited", 1, **more), said("user", "mine", 2))
    assert kept_metadata(session.messages[0], "codex")["record"] == {"ordinal": 1, **more}
    assert session.messages[0].metadata is not None
    assert session.messages[0].metadata["inherited"] is True
    assert session.title == "mine"


def test_compressed_thread_is_imported(store: Store, tmp_path: Path) -> None:
    plain = rollout(tmp_path, CODEX_ID, meta(), said("user", "small", 1))
    plain.with_name(f"{plain.name}.zst").write_bytes(zstd.compress(plain.read_bytes()))
    plain.unlink()
    assert store.imports.run(str(tmp_path)).counts == {"new": 1}
    assert store.search("role:user small")


def test_damaged_compressed_thread_is_reported(store: Store, tmp_path: Path) -> None:
    rollout(tmp_path, CODEX_ID, meta(), said("user", "fine", 1))
    broken = rollout(tmp_path, OTHER, meta(OTHER), said("user", "gone", 1))
    broken.with_name(f"{broken.name}.zst").write_bytes(zstd.compress(broken.read_bytes())[:-4])
    broken.unlink()
    summary = store.imports.run(str(tmp_path))
    assert summary.counts == {"new": 1}
    assert "decompressed" in summary.problems[0].text


def test_first_generation_json_file_is_imported(store: Store, tmp_path: Path) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "ancient"}]}
    whole = {"session": {"id": CODEX_ID, "timestamp": "2025-04-20T10:00:00Z", "instructions": ""}, "items": [item]}
    path = tmp_path / f"sessions/rollout-2025-04-20-{CODEX_ID}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(whole))
    assert store.imports.run(str(tmp_path)).counts == {"new": 1}
    session = store.load(CODEX_ID)
    assert session is not None
    assert session.messages[0].content == "ancient"


def test_file_of_any_name_can_be_imported(store: Store, tmp_path: Path) -> None:
    path = rollout(tmp_path, CODEX_ID, meta(), said("user", "hello", 1)).rename(tmp_path / "saved.jsonl")
    assert store.imports.run(str(path)).counts == {"new": 1}


@pytest.mark.parametrize(
    ("output", "success"),
    [
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nno", False),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nProcess exited with code 3\n", True),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\n", False),
        ('{"output":"","metadata":{"exit_code":3,"duration_seconds":0.1}}', False),
        ('{"output":"","metadata":{"exit_code":0}}', True),
        ("just text", True),
    ],
)
def test_failed_command_is_not_a_success(store: Store, tmp_path: Path, output: str, success: bool) -> None:
    session = read(store, tmp_path, meta(), said("user", "run", 1), *called(output, 2))
    assert session.messages[-1].tool_success is success
    steps = store.trajectory.read(CODEX_ID)
    assert steps is not None
    assert steps[0].is_error is not success


def test_token_counts_become_usage(store: Store, tmp_path: Path) -> None:
    """A count that is repeated with the same total counts once. Cached tokens are not input."""

    def count(total: int, last: int) -> dict[str, Any]:
        usage = {"input_tokens": last, "cached_input_tokens": 5, "output_tokens": 2, "reasoning_output_tokens": 1}
        info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": usage}
        return codex_line("event_msg", {"type": "token_count", "info": info}, total)

    context = codex_line("turn_context", {"model": "gpt-5"})
    read(store, tmp_path, meta(), context, said("user", "go", 1), count(20, 20), count(20, 20), count(30, 10))
    used = store.usage.totals().by_model()["gpt-5"]
    assert used.calls == 2
    assert used.tokens == {
        "input_tokens": 20,
        "output_tokens": 4,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "thinking_tokens": 2,
    }


def test_usage_records_replace_token_counts(store: Store, tmp_path: Path) -> None:
    usage = {"input_tokens": 7, "cached_input_tokens": 0, "output_tokens": 2}
    info = {"total_token_usage": usage, "last_token_usage": usage}
    records = [
        codex_line("token_usage_record", {"response_id": "resp_1", "usage": usage}, 2),
        codex_line("event_msg", {"type": "token_count", "info": info}, 2),
    ]
    read(store, tmp_path, meta(), said("user", "go", 1), *records)
    assert store.usage.totals().total().calls == 1


def test_f17_messages_of_several_text_parts_are_shown_once(store: Store, tmp_path: Path) -> None:
    """The first system message of a thread, a prompt with an image, and a result of code mode have several."""

    def message(role: str, *texts: str, image: bool = False) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"type": "input_text", "text": text} for text in texts]
        if image:
            parts.insert(1, {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_TEXT}"})
        return codex_line("response_item", {"type": "message", "role": role, "content": parts}, 1)

    output = [{"type": "input_text", "text": text} for text in ("Script completed", "Output: 4 carts")]
    read(
        store,
        tmp_path,
        meta(),
        message("developer", "Permissions first.", "Then the style."),
        message("user", "<image name=[Image #1]>", "</image>", "What is in it?", image=True),
        *called(output, 3),
    )
    shown = store.transcript(CODEX_ID)
    assert shown is not None
    for said in ("Permissions first.", "Then the style.", "What is in it?", "Script completed", "Output: 4 carts"):
        assert shown.partition("\n## ")[2].count(said) == 1  # the title may repeat it
