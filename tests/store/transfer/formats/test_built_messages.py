"""Messages of an imported session: the same text and the same index as if the whole session were rendered at once."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from store.documents import json_text
from store.index import fulltext
from store.model.preview import Preview
from store.transfer.formats.built_messages import BuiltMessages
from store.transfer.import_receipts import digest_messages


def make_messages(count: int) -> list[dict[str, Any]]:
    texts = ["short", "line\nline", "Grüße 🌳 日本", "x" * 3000, "```\ncode\n```", "1e+16"]
    messages: list[dict[str, Any]] = []
    for number in range(count):
        message: dict[str, Any] = {"id": f"m{number}", "role": "user", "content": texts[number % len(texts)]}
        if number % 3 == 1:
            call = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": '{"a": 1}'}}
            message |= {"role": "assistant", "tool_calls": [call], "created_at": "2026-06-20T10:00:00Z"}
        if number % 3 == 2:
            message |= {"role": "tool", "tool_call_id": "c", "metadata": {"b": {"y": 1e22, "x": []}, "a": None}}
        if number % 5 == 4:
            image = {"type": "image_url", "image_url": {"url": f"bamboo-attachment://s/picture-{number}"}}
            message["content_parts"] = [{"type": "text", "text": message["content"]}, image, image]
        messages.append(message)
    return messages


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
def test_text_index_and_digests_are_those_of_the_whole_session(count: int) -> None:
    messages = make_messages(count)
    out, source = BytesIO(), list(messages)
    built = BuiltMessages(source, out)
    assert source == []  # the caller holds no message any more
    assert built.is_valid
    text = json_text.render({"id": "s", "messages": messages, "model": ""})
    assert text == b'{\n  "id": "s",\n  "messages": ' + out.getvalue() + b',\n  "model": ""\n}'
    assert built.digests() == digest_messages({"messages": messages})
    assert built.prepared.preview == Preview().with_messages(messages)
    expected = fulltext.texts_of("", "", messages)[1:]
    for row, (prepared, wanted) in enumerate(zip(built.prepared.rows, expected, strict=True), 1):
        assert prepared.digest == wanted.digest
        assert prepared.columns() == wanted.columns()
        assert prepared.indexed() == wanted.indexed()
        assert prepared.size(row) == wanted.size(row)


def test_invalid_message_is_noticed_and_still_rendered() -> None:
    """Parsing the text then reports it with its position."""
    messages = [*make_messages(40), {"role": "nobody", "content": 1}, *make_messages(3)]
    out = BytesIO()
    assert not BuiltMessages(list(messages), out).is_valid
    assert json_text.render({"messages": messages}) == b'{\n  "messages": ' + out.getvalue() + b"\n}"
