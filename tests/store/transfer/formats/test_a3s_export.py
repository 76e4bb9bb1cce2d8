"""Export to A3S: unchanged sessions come back with the same bytes, changed ones with the changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from store import Message, Store
from store.layout import Location
from store.model.session import ProviderModelRef
from store.transfer.formats.a3s import _add_messages
from store.transfer.formats.a3s_blocks import render_messages
from store.transfer.formats.a3s_records import (
    DEFAULT_AUTO_COMPACT_THRESHOLD,
    ContextUsage,
    LlmConfigData,
    SessionConfig,
    SessionData,
)
from store.transfer.formats.session_builder import SessionBuilder
from tests.builders import make_session, read_json
from tests.store.transfer.foreign import PNG_TEXT, a3s_artifact, a3s_report, a3s_trace, canonical_a3s, make_a3s


def serde(value: object) -> bytes:
    """As serde_json writes it."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def make_store(base: Path) -> Path:
    """A store in the words of A3S: a session, its child, and the records of the first."""
    files = {
        "a3-1.json": canonical_a3s(),
        "a3-2.json": canonical_a3s("a3-2", parent_id="a3-1", tasks=[], state="Completed"),
        "artifacts/a3-1/artifacts.json": {"artifacts": [a3s_artifact()]},
        "traces/a3-1.json": [a3s_trace()],
        "verification/a3-1.json": [a3s_report()],
    }
    for name, value in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(serde(value))
    return base


def tree_of(base: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    assert found
    return found


def export(store: Store, dest: Path, *ids: str) -> dict[str, bytes]:
    found = [*store.exports.write_for_agent("a3s", store.exports.select(ids or None), dest)]
    assert all(hasattr(item, "location") for item in found), found
    return tree_of(dest)


def test_unchanged_sessions_are_the_same_to_the_byte(store: Store, tmp_path: Path) -> None:
    base = make_store(tmp_path / "a3s")
    assert store.imports.run(str(base)).problems == []
    assert export(store, tmp_path / "out") == tree_of(base)


def test_an_import_of_an_export_gives_the_same_sessions(store: Store, tmp_path: Path) -> None:
    """Also for a store of the first layout that lacks members which have defaults."""
    store.imports.run(str(make_a3s(tmp_path / "a3s")))
    first = export(store, tmp_path / "first")
    with Store.open(tmp_path / "second-home", background=False) as other:
        assert other.imports.run(str(tmp_path / "first")).problems == []
        for id in ("a3-1", "a3-1/a3-2"):
            ours, theirs = store.load(id), other.load(id)
            assert ours is not None
            assert theirs is not None
            assert ours.messages == theirs.messages
            assert (ours.title, ours.task_list, ours.last_run_status) == (
                theirs.title,
                theirs.task_list,
                theirs.last_run_status,
            )
        assert export(other, tmp_path / "second") == first


def test_changes_made_here_are_exported(store: Store, tmp_path: Path) -> None:
    store.imports.run(str(make_store(tmp_path / "a3s")))

    def change(session: Any) -> None:
        session.title = "Other name"
        session.messages[0].content = "hello"
        session.task_list.items[0].move_to("in_progress")
        session.last_run_status = "completed"

    store.update("a3-1", change)
    store.append("a3-1", [Message.assistant("Done.")])
    export(store, tmp_path / "out", "a3-1")
    found = read_json(tmp_path / "out/a3-1.json")
    assert (found["config"]["name"], found["state"]) == ("Other name", "Completed")
    kinds = [block["type"] for block in found["messages"][0]["content"]]
    assert (kinds, found["messages"][0]["content"][0]["text"]) == (["text", "image"], "hello")
    assert found["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    assert found["tasks"][0] == {"id": "1", "content": "do", "status": "in_progress", "priority": "high"}
    assert found["updated_at"] > found["created_at"]
    SessionData.model_validate(found)


def test_sessions_of_other_agents_load_in_a3s(store: Store, tmp_path: Path) -> None:
    session = make_session("s1", messages=3, title="Fix it")
    session.model_ref = ProviderModelRef(provider="p", model="m")
    store.save(session)
    store.usage.append("s1", {"model": "m", "input_tokens": 3, "output_tokens": 2, "cost_usd": 0.5})
    export(store, tmp_path / "out")
    found = SessionData.model_validate(read_json(tmp_path / "out/s1.json"))
    assert (found.config.name, found.total_usage.total_tokens, found.total_cost) == ("Fix it", 5, 0.5)
    assert len(found.messages) == 3
    assert found.llm_config is not None
    assert (found.llm_config.provider, found.llm_config.model) == ("p", "m")


# -- C10: what A3S stores is understood ------------------------------------------------------------


def test_c10_the_records_of_a3s_have_types_and_defaults() -> None:
    config = SessionConfig()
    assert config.auto_compact_threshold == DEFAULT_AUTO_COMPACT_THRESHOLD == 0.8
    assert ContextUsage().model_dump() == {"used_tokens": 0, "max_tokens": 200_000, "percent": 0.0, "turns": 0}
    assert LlmConfigData(provider="p", model="m").base_url is None
    assert SessionData.tool_names_from_definitions([{"name": "read"}, {"name": "bash"}]) == ["read", "bash"]
    assert SessionData.model_validate(canonical_a3s()).state == "Active"


def test_c10_state_tasks_and_costs_are_imported(store: Store, tmp_path: Path) -> None:
    store.imports.run(str(make_store(tmp_path / "a3s")))
    assert {entry.id: entry.last_run_status for entry in store.entries()} == {"a3-1": "running", "a3-2": "completed"}
    session = store.load("a3-1")
    assert session is not None
    assert session.task_list is not None
    (task,) = session.task_list.items
    assert (task.description, task.status, task.priority, task.notes) == ("do", "blocked", "high", "failed")
    total = store.usage.totals().total()
    assert (total.calls, total.tokens["input_tokens"], total.tokens["output_tokens"], total.cost) == (2, 10, 10, 0.5)


def test_c10_totals_count_if_there_are_no_cost_records(store: Store, tmp_path: Path) -> None:
    store.imports.run(str(make_a3s(tmp_path / "a3s")))
    total = store.usage.totals().total()
    assert (total.calls, total.tokens["input_tokens"], total.cost) == (2, 10, 0.5)


# -- any message -----------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=6)
values = st.recursive(st.none() | st.booleans() | st.integers(-5, 2**40) | texts, lambda inner: st.lists(inner))
text_blocks = st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"cited": values})
sources = st.fixed_dictionaries(
    {
        "type": st.just("base64"),
        "media_type": st.sampled_from(["image/png", "image/x-odd", "image/jpeg"]),
        "data": st.sampled_from([PNG_TEXT, "not base64!"]),
    }
)
images = st.fixed_dictionaries({"type": st.just("image"), "source": sources})
arguments = st.dictionaries(texts, values, max_size=2)
calls = st.fixed_dictionaries({"type": st.just("tool_use"), "id": texts, "name": texts, "input": arguments})
results = st.fixed_dictionaries(
    {
        "type": st.just("tool_result"),
        "tool_use_id": texts,
        "content": texts | st.lists(text_blocks | images, max_size=2),
        "is_error": st.none() | st.booleans(),
    },
    optional={"trust": st.just("external")},
)
unknown = st.fixed_dictionaries({"type": st.just("hologram"), "data": values})
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "robot"]),
        "content": st.lists(text_blocks | images | calls | results | unknown, max_size=4),
    },
    optional={"reasoning_content": texts, "odd": values},
)


@given(st.lists(messages, max_size=3))
@settings(max_examples=300, deadline=None)
def test_any_message_comes_back(given: list[dict[str, Any]]) -> None:
    builder = SessionBuilder("a3s", Location("s"), "s.json", "s")
    assert _add_messages(builder, given) is None
    assert render_messages(builder.messages, builder.resolve) == given
