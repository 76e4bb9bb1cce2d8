"""Messages: what they accept, what they write, and truncated tool output."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.model.message import (
    TOOL_OUTPUT_HEAD_BYTES,
    TOOL_OUTPUT_LIMIT_BYTES,
    TOOL_OUTPUT_TAIL_BYTES,
    FunctionCall,
    Message,
    MessagePart,
    ToolCall,
    truncate_tool_output,
)
from store.model.session import Session
from store.model.timestamp import Timestamp
from tests.store.model.samples import MINIMAL, U64_MAX, errors_of, make_message


def test_loading_adds_no_identity_to_a_message() -> None:
    """An id or time generated on load would differ at every load."""
    message = make_message()
    assert (message.id, message.created_at) == (None, None)
    assert message.model_dump() == {"role": "user", "content": "hi"}


def test_empty_id_is_not_written() -> None:
    """serde omits an empty id."""
    assert "id" not in make_message(id="").model_dump()


def test_null_identity_of_a_message_is_rejected() -> None:
    """id and created_at may be absent, but not null."""
    assert errors_of(Message, {"role": "user", "content": "", "id": None}) == [("id",)]
    assert errors_of(Message, {"role": "user", "content": "", "created_at": None}) == [("created_at",)]


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "developer"},
        {"content": None},
        {"phase": "final"},
        {"compression_level": 256},
        {"compression_level": -1},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "n", "arguments": {}}}]},
        {"tool_calls": [{"id": "1", "function": {"name": "n", "arguments": ""}}]},
        {"image_ocr": [{"image_url": "u", "lines": [{"text": "t", "left": 2**31}]}]},
    ],
)
def test_invalid_messages_are_rejected(bad: dict[str, Any]) -> None:
    """Rule 6, inside a message."""
    assert errors_of(Message, {"role": "user", "content": "hi", **bad})


def test_empty_lists_of_a_message_are_written() -> None:
    """content_parts, image_ocr and tool_calls are Options: an empty list differs from an absent one."""
    document = {"role": "user", "content": "", "content_parts": [], "image_ocr": [], "tool_calls": []}
    assert Message.model_validate(document).model_dump() == document


def test_ocr_results_omit_empty_members() -> None:
    """Empty lines and error are omitted; coordinates may be negative."""
    line = {"text": "t", "left": -1, "top": 0, "width": 1, "height": 2**31 - 1}
    document = {
        "role": "user",
        "content": "",
        "image_ocr": [{"image_url": "u"}, {"image_url": "v", "lines": [line]}],
    }
    assert Message.model_validate(document).model_dump() == document


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "image_url", "text": "x"},
        {"type": "audio", "audio": "x"},
        {"text": "x"},
    ],
)
def test_part_requires_the_member_of_its_type(part: dict[str, Any]) -> None:
    """The path of the error contains no union tag."""
    message = {"role": "user", "content": "", "content_parts": [{"type": "text", "text": "ok"}, part]}
    path = errors_of(Session, {**MINIMAL, "messages": [message]})[0]
    assert path[:4] == ("messages", 0, "content_parts", 1)
    assert path[4:] in ((), ("type",))


def test_part_may_contain_a_data_url() -> None:
    """The URL may contain the image itself."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}}
    assert MessagePart.model_validate(part).model_dump() == part


def test_constructors_set_identity_and_phase() -> None:
    """Every new message has a unique id and a time; assistant messages have a phase."""
    call = ToolCall(id="c", type="function", function=FunctionCall(name="Read", arguments="{}"))
    made = [
        Message.user("u"),
        Message.system("s"),
        Message.assistant("a"),
        Message.assistant("a", []),
        Message.assistant("a", [call]),
        Message.tool_result("c", "out"),
        Message.tool_result("c", "out", success=False),
    ]
    assert [m.role for m in made] == ["user", "system", *["assistant"] * 3, "tool", "tool"]
    assert [m.phase for m in made] == [None, None, "final_answer", "final_answer", "commentary", None, None]
    assert [m.tool_success for m in made[5:]] == [True, False]
    assert len({m.id for m in made}) == len(made)
    assert all(m.created_at is not None for m in made)


def test_images_of_a_tool_become_data_urls() -> None:
    """Each image is a part; without images there are no parts."""
    message = Message.tool_result_with_images("c", "out", [("image/png", "QUJD")], success=False)
    assert message.model_dump()["content_parts"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    ]
    assert message.tool_success is False
    assert Message.tool_result_with_images("c", "out", []).content_parts is None


def test_tool_output_at_the_limit_is_kept() -> None:
    """262144 bytes are kept, 262145 are truncated."""
    whole = "a" * TOOL_OUTPUT_LIMIT_BYTES
    assert truncate_tool_output(whole) is whole
    cut = truncate_tool_output(whole + "b")
    assert cut == (
        "a" * 163840
        + "\n\n[... tool output truncated ...] original=262145 bytes"
        + " omitted=32769 bytes kept=229376 bytes\n\n"
        + "a" * 65535
        + "b"
    )


def test_tool_output_limit_counts_bytes() -> None:
    """131072 two-byte characters fit exactly; 131073 do not."""
    assert truncate_tool_output("é" * 131_072) == "é" * 131_072
    assert "truncated" in truncate_tool_output("é" * 131_073)


@pytest.mark.parametrize("character", ["é", "€", "🌳"])
@pytest.mark.parametrize("shift", range(4))
def test_truncation_does_not_split_characters(character: str, shift: int) -> None:
    """The head ends earlier and the tail starts later rather than splitting a character."""
    content = "x" * shift + character * 140_000 + "y" * shift
    data = content.encode()
    head, marker, tail = truncate_tool_output(content).split("\n\n")
    head_bytes, tail_bytes = len(head.encode()), len(tail.encode())
    width = len(character.encode())
    assert TOOL_OUTPUT_HEAD_BYTES - width < head_bytes <= TOOL_OUTPUT_HEAD_BYTES
    assert TOOL_OUTPUT_TAIL_BYTES - width < tail_bytes <= TOOL_OUTPUT_TAIL_BYTES
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    kept = head_bytes + tail_bytes
    numbers = f"original={len(data)} bytes omitted={len(data) - kept} bytes kept={kept} bytes"
    assert marker == f"[... tool output truncated ...] {numbers}"


def test_only_tool_messages_are_truncated_and_in_a_copy() -> None:
    """User messages are never truncated; the caller's message object is unchanged."""
    session, long = Session.new("s"), "x" * 300_000
    user, tool = Message.user(long), Message.tool_result("c", long)
    session.add_message(user)
    session.add_message(tool)
    assert session.messages[0] is user
    assert session.messages[1].id == tool.id
    assert len(session.messages[1].content) < 262_144
    assert (len(user.content), len(tool.content)) == (300_000, 300_000)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), U64_MAX) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.text()},
        optional={
            "id": st.text(min_size=1),
            "reasoning": st.text(),
            "phase": st.sampled_from(["commentary", "final_answer"]),
            "tool_call_id": st.text(),
            "tool_success": st.booleans(),
            "compressed": st.just(True),
            "compression_level": st.integers(1, 255),
            "content_parts": st.lists(st.builds(lambda text: {"type": "text", "text": text}, st.text()), max_size=3),
            "created_at": st.integers(0, 4 * 10**18).map(lambda ns: str(Timestamp.from_ns(ns))),
            "metadata": json_values.filter(lambda value: value is not None),
            "from_the_future": json_values,
        },
    )
)
def test_messages_round_trip(document: dict[str, Any]) -> None:
    """Any message, with known or unknown members, dumps unchanged."""
    assert Message.model_validate(document).model_dump() == document
