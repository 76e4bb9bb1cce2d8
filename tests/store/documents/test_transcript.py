"""Transcript: rendered content, and sizes that add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import IndexEntry, Session
from store.commit.session_reader import entry_of
from store.documents import transcript
from store.layout import Location
from tests.builders import NINE_DIGITS

LINE = {"text": "seen", "left": 0, "top": 0, "width": 1, "height": 1}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(
    [
        "```py\nopen",
        "~~~\nx\n~~~",
        "a\r\nb\rc",
        "\x1b[31mred\x1b[0m \x07\x9b",
        "# not a heading",
        '{"a": "b\\nc"}',
        "字字😀",
    ]
)
urls = st.sampled_from(
    [
        "bamboo-attachment://s1/a1",
        "bamboo-attachment://s1/b 2",
        "bamboo-attachment://other/(x)",
        "data:image/png;base64,AAAA",
        "https://example.org/a b(1).png",
    ]
)
parts = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t}, texts),
    st.builds(lambda u: {"type": "image_url", "image_url": {"url": u}}, urls),
)
calls = st.builds(
    lambda name, arguments: {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}},
    texts,
    texts | st.builds(json.dumps, st.dictionaries(texts, texts | st.integers() | st.lists(texts), max_size=3)),
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": texts},
    optional={
        "id": texts,
        "created_at": st.sampled_from([NINE_DIGITS, "2026-06-20T08:15:30+08:00"]),
        "reasoning": texts,
        "content_parts": st.lists(parts, max_size=3),
        "tool_calls": st.lists(calls, max_size=2),
        "tool_call_id": texts,
        "tool_success": st.booleans(),
        "compressed": st.booleans(),
        "metadata": st.none() | st.just({"hidden_from_ui": True, "tool_name": "read"}) | st.just(["odd"]),
        "image_ocr": st.just(
            [{"image_url": "x", "lines": [{"text": "seen", "left": 0, "top": 0, "width": 1, "height": 1}]}]
        ),
    },
)


def entry(**fields: Any) -> IndexEntry:
    session = Session.new("s1", "test-model")
    for name, value in fields.items():
        setattr(session, name, value)
    return entry_of(session, Location("s1"), 0, has_attachments=False)


def piece(**members: Any) -> str:
    return transcript.render_message({"role": "user", "content": "", **members}, 0, lambda url: f"<{url}>")


@given(st.lists(messages, max_size=4), texts, texts)
def test_piece_sizes_add_up_to_the_transcript_size(found: list[dict[str, Any]], title: str, summary: str) -> None:
    """Header, summary, pieces and link targets."""
    whole = transcript.render(entry(title=title), summary, found, lambda url: f"<{url}>")
    size = transcript.length(transcript.render_header(entry(title=title)))
    size += transcript.length(transcript.render_summary(summary))
    for index, message in enumerate(found):
        measured = transcript.measure(message, index)
        size += measured.size_bytes + sum(n * len(f"<{url}>") for url, n in measured.links.items())
    assert size == len(transcript.encode(whole))


@given(messages, texts)
def test_transcript_has_no_control_characters(message: dict[str, Any], title: str) -> None:
    """Except tab and line feed, whatever a tool printed."""
    whole = transcript.render(entry(title=title), "", [message], lambda url: "")
    assert not {c for c in whole if (ord(c) < 32 or 127 <= ord(c) < 160) and c not in "\n\t"}
    assert whole.endswith("\n")


@given(st.lists(messages, max_size=4), texts, texts)
def test_marked_transcript_has_the_same_size(found: list[dict[str, Any]], title: str, summary: str) -> None:
    """A web page therefore knows its size from the index. Only spaces and line breaks are replaced."""
    head = entry(title=title)
    plain = transcript.render(head, summary, found, lambda url: f"<{url}>")
    marked = transcript.render(head, summary, found, lambda url: f"<{url}>", marked=True)
    assert len(transcript.encode(marked)) == len(transcript.encode(plain))
    assert all(a in " \n" and ord(b) < 0x20 for a, b in zip(plain, marked, strict=True) if a != b)


@given(st.lists(messages, max_size=4), texts)
def test_marks_cannot_be_forged(found: list[dict[str, Any]], summary: str) -> None:
    """Splitting at the marks gives one piece per message and one block per part, whatever the texts contain."""
    marked = transcript.render(entry(), summary, found, lambda url: "", marked=True)
    _, *pieces = marked.split(f"\n##{transcript.PIECE_MARK}")
    pieces = pieces[1:] if summary.strip() else pieces
    assert [piece.partition("]")[0] for piece in pieces] == [f"[{index}" for index in range(len(found))]
    for piece, message in zip(pieces, found, strict=True):
        assert piece.partition("] ")[2].startswith(message["role"])
        marks = [kind for c in piece for kind, mark in transcript.BLOCK_MARKS.items() if c == mark]
        assert marks.count("call") == len(message.get("tool_calls") or ())
        assert marks.count("reasoning") == bool(message.get("reasoning"))
        assert marks.count("result") == (message["role"] == "tool")


@given(messages)
def test_message_is_one_section(message: dict[str, Any]) -> None:
    """It starts with its heading, and open code blocks are closed."""
    text = transcript.render_message(message, 7, lambda url: "")
    assert text.startswith(f"\n## [7] {message['role']}")
    assert "".join(text.split("\n")[-1:]) == ""


def test_header_has_title_model_and_times() -> None:
    text = transcript.render_header(entry(title="Fix\nthe login", pinned=True))
    assert text.startswith("# Fix the login\n\n- session: s1\n- model: test-model\n- created: 20")
    assert "- pinned: yes\n" in text


def test_empty_title_is_untitled() -> None:
    assert transcript.render_header(entry(title=" ")).startswith("# Untitled\n")


def test_heading_has_role_and_time() -> None:
    assert piece(created_at=NINE_DIGITS).startswith("\n## [0] user · 2026-06-20 08:15:30 UTC\n")
    assert piece(created_at="2026-06-20T08:15:30+08:00").startswith("\n## [0] user · 2026-06-20 08:15:30 +08:00\n")


def test_heading_of_a_failed_tool() -> None:
    text = piece(role="tool", content="no", tool_call_id="c1", tool_success=False, metadata={"tool_name": "bash"})
    assert text == "\n## [0] tool · bash · answers c1 · failed\n\n```\nno\n```\n"


def test_reasoning_is_marked() -> None:
    assert "> *Reasoning*\n>\n> one\n>\n> two\n" in piece(reasoning="one\n\ntwo")


def test_arguments_are_unescaped() -> None:
    """So they can be read and searched line by line."""
    arguments = json.dumps({"path": "src/a b.py", "text": 'first "line"\nsecond', "count": 3, "deep": {"a": [1]}})
    call = {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": arguments}}
    assert piece(role="assistant", tool_calls=[call]) == (
        "\n## [0] assistant\n\n**→ edit** c1\n\n- path: src/a b.py\n- text:\n\n"
        '```\nfirst "line"\nsecond\n```\n\n- count: 3\n- deep: {"a":[1]}\n'
    )


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_call_without_arguments_is_one_line(arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    assert piece(role="assistant", tool_calls=[call]) == "\n## [0] assistant\n\n**→ now** c1\n"


def test_arguments_that_are_not_json_are_shown_unchanged() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"a": '}}
    assert '```\n{"a":\n```\n' in piece(role="assistant", tool_calls=[call])


def test_fence_is_longer_than_any_in_the_output() -> None:
    assert "\n`````\na\n````\nb\n`````\n" in piece(role="tool", content="a\n````\nb")
    for run in (0, 2, 3, 7, 8, 9, 500):
        fence = "`" * max(3, run + 1)
        content = f"a ``` b {'`' * run} c" if run >= 3 else f"a {'`' * run} c"
        assert f"\n\n{fence}\n{content}\n{fence}\n" in piece(role="tool", content=content)


def test_open_code_block_is_closed() -> None:
    assert piece(content="see\n~~~~py\nx\n```") == "\n## [0] user\n\nsee\n~~~~py\nx\n```\n~~~~\n"
    assert piece(content="```\nx\n```") == "\n## [0] user\n\n```\nx\n```\n"


def test_images_are_links_and_base64_is_not_rendered() -> None:
    found = ["bamboo-attachment://s1/a1", "data:image/png;base64,AAAA", "https://e.org/a(1).png"]
    text = piece(content_parts=[{"type": "image_url", "image_url": {"url": url}} for url in found])
    assert "![a1](<bamboo-attachment://s1/a1>)\n" in text
    assert "*embedded image: image/png, 3 bytes*\n" in text
    assert "![image](https://e.org/a%281%29.png)\n" in text


def test_text_of_parts_is_not_repeated() -> None:
    assert piece(content="one", content_parts=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]) == (
        "\n## [0] user\n\none\n\ntwo\n"
    )


def test_text_in_images_is_rendered() -> None:
    assert "> *Text in the image*\n>\n> seen\n" in piece(image_ocr=[{"image_url": "x", "lines": [LINE]}])


def test_one_line_object_in_tool_output_is_formatted() -> None:
    assert piece(role="tool", content='{"ok": true, "out": "a\\nb"}') == (
        "\n## [0] tool\n\n- ok: true\n- out:\n\n```\na\nb\n```\n"
    )
    assert piece(role="tool", content=" ") == "\n## [0] tool\n\n*(no output)*\n"


def test_text_parts_that_the_content_joins_are_shown_once() -> None:
    """An importer joins several text parts as the content, and keeps the parts."""
    parts = [{"type": "text", "text": "first part"}, {"type": "text", "text": "second part"}]
    message = {"role": "tool", "content": "first part\n\nsecond part", "content_parts": parts}
    shown = transcript.render_message(message, 0, str)
    assert shown.count("first part") == shown.count("second part") == 1
