"""ChatGPT exports: the current path becomes the session, every branch a child, and nothing is lost."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import Session, Store
from store.transfer.formats.conversation_tree import ConversationNodes
from store.transfer.formats.json_array_stream import BrokenArray, iter_elements
from tests.store.transfer.foreign import CHAT_ID, PNG, chat_conversation, chat_node, kept_metadata, make_chatgpt


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    summary = store.imports.run(str(make_chatgpt(tmp_path / "export")))
    assert (summary.format, summary.problems) == ("chatgpt", [])
    assert summary.counts == {"new": 4}
    session = store.load(CHAT_ID)
    assert session is not None
    return session


def contents(store: Store) -> dict[str, list[str | None]]:
    return {
        e.id: [m.id for m in s.messages]
        for e in store.entries()
        if (s := store.load(f"{e.root_session_id}/{e.id}" if e.kind == "child" else e.id))
    }


def test_current_path_becomes_the_session(imported: Session) -> None:
    assert [m.id for m in imported.messages] == ["q", "t2", "a2"]
    ask, thought, answer = imported.messages
    assert (ask.role, ask.content) == ("user", "What is this?")
    assert (thought.content, thought.reasoning) == ("", "Look\nA dot.")
    assert (answer.role, answer.content) == ("assistant", "A pixel.")
    assert answer.created_at == "2023-11-14T22:13:22Z"


def test_branches_become_children_with_all_other_messages(imported: Session, store: Store) -> None:
    found = contents(store)
    assert found["branch-a1"] == ["a1"]
    assert found["branch-q'"] == ["q'", "a5"]
    assert found["branch-a4"] == ["a4"]
    inner = store.load(f"{CHAT_ID}/branch-a4")
    assert inner is not None
    assert (inner.parent_session_id, inner.spawn_depth) == ("branch-q'", 2)
    assert inner.messages[0].content == "print(1)"
    assert kept_metadata(inner.messages[0], "chatgpt")["content"] == {"content_type": "code", "language": "python"}
    assert inner.messages[0].created_at == "2023-11-14T22:13:24.123456Z"


def test_session_members_are_imported(imported: Session) -> None:
    assert (imported.title, imported.model) == ("A picture", "gpt-4o")
    assert imported.created_at == "2023-11-14T22:13:20.250Z"
    assert imported.updated_at == "2023-11-14T22:13:29Z"
    assert imported.metadata["chatgpt.is_archived"] == "true"
    assert kept_metadata(imported.messages[2], "chatgpt")["status"] == "finished_successfully"
    assert kept_metadata(imported.messages[2], "chatgpt")["parent"] == "t2"


def test_files_of_the_export_become_attachments(imported: Session, store: Store) -> None:
    parts = imported.messages[0].content_parts
    assert parts is not None
    assert parts[0].image_url is not None
    assert store.attachments.resolve(parts[0].image_url.url) == (PNG, "image/png")
    assert kept_metadata(imported.messages[0], "chatgpt")["content"]["parts"][0]["width"] == 1


def test_messages_move_with_the_current_path(store: Store, tmp_path: Path) -> None:
    """The user switched to another answer and exported again."""
    base = make_chatgpt(tmp_path / "export")
    store.imports.run(str(base))
    before = {id for ids in contents(store).values() for id in ids}
    make_chatgpt(base, chat_conversation(current="a1"))
    summary = store.imports.run(str(base))
    assert summary.counts["kept"] == 0
    assert contents(store)[CHAT_ID] == ["q", "a1"]
    assert contents(store)["branch-t2"] == ["t2", "a2"]
    assert {id for ids in contents(store).values() for id in ids} == before
    assert store.imports.run(str(base)).counts["updated"] == 0


def test_invalid_conversation_does_not_affect_others(store: Store, tmp_path: Path) -> None:
    export = tmp_path / "export"
    bad: list[Any] = ["text", 5, {"id": "x"}, {"mapping": {}}, {"id": "no-map", "mapping": [1]}]
    make_chatgpt(export, *bad, chat_conversation())
    summary = store.imports.run(str(export))
    assert [p.line for p in summary.problems] == [2, 3, 4, 7, 10]
    assert summary.counts == {"new": 4}


def test_invalid_nodes_are_reported_and_kept(store: Store, tmp_path: Path) -> None:
    conversation = chat_conversation()
    conversation["mapping"] |= {"odd": 5, "odder": {"id": "odder", "message": "text", "parent": "a2", "children": []}}
    summary = store.imports.run(str(make_chatgpt(tmp_path / "export", conversation)))
    assert ["odd" in p.text for p in summary.problems] == [True, True]
    kept = store.attachments.read(CHAT_ID, "records")
    assert kept is not None
    assert json.loads(kept[0].splitlines()[0]) == {"odd": 5}


def test_truncated_array_yields_its_complete_elements(store: Store, tmp_path: Path) -> None:
    export = make_chatgpt(tmp_path / "export", chat_conversation("c1"), chat_conversation("c2"))
    text = (export / "conversations.json").read_text()
    (export / "conversations.json").write_text(text[: len(text) * 3 // 4])
    summary = store.imports.run(str(export))
    assert summary.counts == {"new": 4}
    assert "not closed" in summary.problems[0].text


def test_duplicate_conversation_is_imported_once(store: Store, tmp_path: Path) -> None:
    export = make_chatgpt(tmp_path / "export", chat_conversation(), chat_conversation(current="a1"))
    for counts in ({"new": 4}, {"unchanged": 4}):
        summary = store.imports.run(str(export))
        assert summary.counts == counts
        assert all("already" in p.text or "its root" in p.text for p in summary.problems)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=6), st.integers(1, 7), st.sampled_from([None, 1]), st.booleans())
def test_array_elements_are_split_correctly(values: list[Any], size: int, indent: int | None, escape: bool) -> None:
    """The result does not depend on chunk boundaries."""
    text = json.dumps(values, indent=indent, ensure_ascii=escape).encode(errors="surrogatepass")
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    found = list(iter_elements(pieces))
    assert [json.loads(element.data.decode(errors="surrogatepass")) for element in found] == values
    lines = text.split(b"\n")
    assert all(e.data.split(b"\n")[0] in lines[e.line - 1] for e in found)


@given(st.binary(max_size=60), st.integers(1, 9))
def test_input_that_is_not_an_array_is_rejected(raw: bytes, size: int) -> None:
    with suppress(BrokenArray):
        list(iter_elements(raw[i : i + size] for i in range(0, len(raw), size)))


IDS = st.sampled_from("abcdefgh")
NODE = st.fixed_dictionaries(
    {}, optional={"parent": IDS | st.none() | st.just(5), "children": st.lists(IDS) | st.just("x")}
)


@given(st.dictionaries(IDS, NODE), IDS | st.none() | st.just([]))
def test_every_node_is_in_exactly_one_chain(mapping: dict[str, dict[str, Any]], current: Any) -> None:
    """This holds for cycles, orphans, and children that their parents do not list."""
    chains = ConversationNodes(mapping).chains(current)
    assert sorted(node for chain in chains for node in chain.nodes) == sorted(mapping)
    assert all(chain.parent in chains[:i] for i, chain in enumerate(chains) if i)
    if isinstance(current, str) and current in mapping:
        assert chains[0].nodes[-1] == current


def test_files_named_anywhere_in_a_message_are_attached(store: Store, tmp_path: Path) -> None:
    """Uploads, one's own voice, and plots of the code interpreter are not in the parts of a message."""
    conversation = chat_conversation()
    upload = {"attachments": [{"id": "file-Pdf1", "name": "plan.pdf", "mime_type": "application/pdf"}]}
    plot = {"aggregate_result": {"messages": [{"message_type": "image", "image_url": "file-service://file-Plot1"}]}}
    conversation["mapping"]["q"]["message"]["metadata"] = upload
    conversation["mapping"]["a2"]["message"]["metadata"] = plot
    voice = {"content_type": "real_time_user_audio_video_asset_pointer"}
    voice["audio_asset_pointer"] = {"asset_pointer": "sediment://file_00ab", "format": "wav"}  # type: ignore[assignment]
    conversation["mapping"]["t2"]["message"]["content"] = {"content_type": "multimodal_text", "parts": [voice]}
    export = make_chatgpt(tmp_path / "export", conversation)
    (export / "file-Pdf1-plan.pdf").write_bytes(b"%PDF-1.7")
    (export / "file-Plot1.png").write_bytes(PNG)
    (export / "audio").mkdir()
    (export / "audio/file_00ab.wav").write_bytes(b"RIFF0000WAVE")
    assert store.imports.run(str(export)).problems == []
    session = store.load(CHAT_ID)
    assert session is not None

    def mime(url: str) -> str:
        attached = store.attachments.resolve(url)
        assert attached is not None
        return attached[1]

    found = {
        m.id: [mime(part.image_url.url) for part in m.content_parts or () if part.image_url is not None]
        for m in session.messages
    }
    assert found == {"q": ["image/png", "application/pdf"], "t2": ["audio/x-wav"], "a2": ["image/png"]}
    shown = store.transcript(CHAT_ID)
    assert shown is not None
    assert shown.count("![") == 2
    assert shown.count(".pdf)") == shown.count("wav)") == 1


def test_custom_instructions_are_text(store: Store, tmp_path: Path) -> None:
    conversation = chat_conversation()
    content = {"content_type": "user_editable_context", "user_profile": "I bake", "user_instructions": "Be brief"}
    conversation["mapping"]["q"]["message"]["content"] = content
    store.imports.run(str(make_chatgpt(tmp_path / "export", conversation)))
    assert len(store.search("bake")) == len(store.search("brief")) == 1


def test_tools_are_named_in_the_transcript(store: Store, tmp_path: Path) -> None:
    """A message to a tool is its call, and one by a tool is its result."""
    conversation = chat_conversation()
    conversation["mapping"]["a2"]["message"]["recipient"] = "python"
    conversation["mapping"]["q"]["message"]["recipient"] = "all"
    conversation["mapping"]["t2"]["message"]["author"] = {"role": "tool", "name": "dalle.text2im"}
    store.imports.run(str(make_chatgpt(tmp_path / "export", conversation)))
    shown = store.transcript(CHAT_ID)
    assert shown is not None
    assert shown.count(" · to python\n") == 1
    assert shown.count(" · dalle.text2im\n") == 1
    assert "to all" not in shown


def test_single_conversation_can_be_imported(store: Store, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(chat_conversation()))
    assert store.imports.run(str(tmp_path / "one.json")).counts == {"new": 4}


def test_branch_that_became_the_current_path_is_removed(store: Store, tmp_path: Path) -> None:
    """Each message is in exactly one session, as after a first import of the same export."""
    export = make_chatgpt(tmp_path / "export")
    store.imports.run(str(export))
    for current in ("a5", "a2", "a5"):
        make_chatgpt(export, chat_conversation(current=current))
        store.imports.run(str(export))
        ids = [id for found in contents(store).values() for id in found]
        assert sorted(map(str, ids)) == ["a1", "a2", "a4", "a5", "q", "q'", "t2"]


def test_changed_branch_is_not_removed(store: Store, tmp_path: Path) -> None:
    export = make_chatgpt(tmp_path / "export")
    store.imports.run(str(export))
    branch = store.load(f"{CHAT_ID}/branch-q'")
    assert branch is not None
    branch.title = "Mine"
    store.save(branch)
    make_chatgpt(export, chat_conversation(current="a5"))
    store.imports.run(str(export))
    assert store.load(f"{CHAT_ID}/branch-q'") is not None


def test_empty_system_message_is_kept_as_raw_text(store: Store, tmp_path: Path) -> None:
    """It would be a heading without a text."""
    conversation = chat_conversation()
    blank = chat_node("s0", "root", ["q"], "system", {"content_type": "text", "parts": [""]}, 0.0)
    conversation["mapping"]["s0"] = blank
    conversation["mapping"]["q"]["parent"] = "s0"
    store.imports.run(str(make_chatgpt(tmp_path / "export", conversation)))
    session = store.load(CHAT_ID)
    assert session is not None
    assert "s0" not in [message.id for message in session.messages]
    records = (store.home / f"sessions/{CHAT_ID}/attachments/records.jsonl").read_text()
    assert json.loads(records)["s0"]["message"]["author"]["role"] == "system"
