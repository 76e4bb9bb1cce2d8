"""The quick check of messages: it never accepts what a message record rejects, and it accepts what imports write."""

from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.model.message import Message
from store.model.message_shape import is_usual
from store.model.timestamp import Timestamp

_CALL = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
_TIMES = ["2026-06-20T10:00:00Z", "2026-02-30T10:00:00Z", "2026-06-20T10:00:00Z\n", "yesterday", None, 3]
# For each member values of the right type, and some of a wrong one.
_VALUES: dict[str, list[Any]] = {
    "role": ["user", "assistant", "system", "tool", "developer", None],
    "content": ["", "text", None, 1],
    "id": ["m1", "", None, 5],
    "reasoning": ["because", None, []],
    "reasoning_signature": ["c2ln", None, 1],
    "content_parts": [
        None,
        [],
        [{"type": "text", "text": "a"}],
        [{"type": "text", "text": None}],
        [{"type": "text", "text": "a", "image_url": 5}],
        [{"type": "image_url", "image_url": {"url": "u", "detail": None}, "media_type": "image/png"}],
        [{"type": "image_url"}],
        [{"type": "video", "text": "a"}],
        "parts",
    ],
    "image_ocr": [None, [], [{"image_url": "u"}], [{"image_url": 1}]],
    "phase": ["commentary", "final_answer", None, "final"],
    "tool_calls": [None, [], [_CALL], [{**_CALL, "id": 1}], [{"id": "c", "type": "function"}], [{**_CALL, "x": 1}]],
    "tool_call_id": ["c", None, 2],
    "tool_success": [True, False, None, 1, "yes"],
    "compressed": [True, False, None, 0],
    "compressed_by_event_id": ["e", None, 1],
    "never_compress": [True, None],
    "compression_level": [0, 255, 256, -1, True, 1.0, None],
    "created_at": [*_TIMES, Timestamp("2026-06-20T10:00:00.123456789Z")],
    "metadata": [None, {"a": [1]}, "text"],
    "unknown": [1, None, {"role": 3}],
}


@given(st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in _VALUES.items()}))
@settings(max_examples=1500, deadline=None)
def test_accepted_messages_are_valid(message: dict[str, Any]) -> None:
    """Rule 6: a message that passes the quick check is not looked at again."""
    if is_usual(message):
        Message.model_validate(message)


@pytest.mark.parametrize("key", _VALUES)
def test_every_wrong_value_alone_is_left_to_the_record(key: str) -> None:
    """Each value is judged alone, so that no other wrong value hides it."""
    for value in _VALUES[key]:
        message = {"role": "user", "content": "hi", key: value}
        try:
            Message.model_validate(message)
        except pydantic.ValidationError:
            assert not is_usual(message)


def test_usual_messages_are_accepted() -> None:
    """Otherwise the check would be correct, and of no use."""
    at = Timestamp("2026-06-20T10:00:00.123Z")
    usual: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"id": "1", "role": "assistant", "content": "", "tool_calls": [_CALL], "phase": "commentary", "created_at": at},
        {"id": "2", "role": "tool", "content": "x", "tool_call_id": "c", "tool_success": False, "metadata": {"a": 1}},
        {"role": "assistant", "content": "x", "reasoning": "y", "content_parts": [{"type": "text", "text": "x"}]},
    ]
    assert all(map(is_usual, usual))
    assert not is_usual("text")
    assert not is_usual({"role": "user"})
