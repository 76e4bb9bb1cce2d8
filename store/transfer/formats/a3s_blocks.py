"""Messages as A3S stores them: lists of content blocks. Pure.

One message of A3S can be several here: each tool result is a message of its own. Their ids share
the number in `message-<number>`. What the import noted in their metadata brings back the order of
the blocks, and what has no place in a message here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from store.transfer.formats.anthropic_blocks import UNMAPPED
from store.transfer.formats.coerce import as_dict, as_list, as_str
from store.transfer.formats.exported_session import JsonObject, Resolve

NAME = "a3s"
WHOLE = "message"  # the note with what belongs to a message with tool results as a whole
ORIGINAL, RENDERED = "original", "rendered"  # notes: the message of the source, and the digest of ours
_PART_OF = re.compile(r"(message-\d+)(:\d+)?(~\d+)?")
_NOTES = {"order", "blocks", "signatures", "role", "content", "is_error", WHOLE, ORIGINAL, RENDERED}


def render_messages(messages: Sequence[JsonObject], resolve: Resolve) -> list[JsonObject]:
    """All messages of a session. Tool results that follow each other and were made here become one."""
    numbered = enumerate(messages)
    groups = groupby(numbered, key=lambda pair: _group_key(*pair))
    return [render_message([message for _, message in group], resolve) for _, group in groups]


def _group_key(number: int, message: JsonObject) -> str:
    part = _PART_OF.fullmatch(as_str(message.get("id")))
    if part is not None:
        return part[1]
    return "results" if _is_result(message) else str(number)


def render_message(group: Sequence[JsonObject], resolve: Resolve) -> JsonObject:
    """The messages that came from one message of A3S, as that message."""
    first = as_dict(as_dict(group[0].get("metadata")).get(NAME))
    rendered = _render(group, as_dict(first.get(WHOLE)) if _is_result(group[0]) else first, resolve)
    if ORIGINAL in first and first.get(RENDERED) == digest_of(rendered):
        return as_dict(first[ORIGINAL])
    return rendered


def digest_of(message: JsonObject) -> str:
    return hashlib.sha256(orjson.dumps(message)).hexdigest()[:16]


def _is_result(message: JsonObject) -> bool:
    return message["role"] == "tool" and "tool_call_id" in message


def _render(group: Sequence[JsonObject], notes: JsonObject, resolve: Resolve) -> JsonObject:
    spoken = next((message for message in group if not _is_result(message)), None)
    role = as_str(notes.get("role")) or ("user" if spoken is None else spoken["role"])
    rendered = {"role": role, "content": _blocks(group, spoken, notes, resolve)}
    reasoning = spoken.get("reasoning") if spoken is not None else notes.get("reasoning_content")
    if reasoning is not None:
        rendered["reasoning_content"] = reasoning
    return rendered | {key: value for key, value in notes.items() if key not in _NOTES and key not in rendered}


# -- blocks ----------------------------------------------------------------------------------------


def _blocks(
    group: Sequence[JsonObject], spoken: JsonObject | None, notes: JsonObject, resolve: Resolve
) -> list[JsonObject]:
    waiting: dict[str, list[JsonObject]] = {"tool_result": [], "text": [], "image": [], "tool_use": []}
    plain = [_result(message, resolve) for message in group if _is_result(message)]
    if spoken is not None:
        plain += [*_parts(spoken, resolve), *map(_call, spoken.get("tool_calls") or ())]
    for block in plain:
        waiting[block["type"]].append(block)
    order = as_list(notes.get("order"))
    blocks = plain
    if order:
        blocks = [waiting[kind].pop(0) for kind in order if waiting.get(kind)]
        blocks += [block for left in waiting.values() for block in left]  # added here
        if "text" in order and not any(block["type"] == "text" for block in blocks):  # an empty one
            blocks.insert(min(order.index("text"), len(blocks)), {"type": "text", "text": ""})
    return _with_unknown(blocks, as_dict(notes.get("blocks")), order)


def _with_unknown(blocks: list[JsonObject], unknown: JsonObject, order: list[str]) -> list[JsonObject]:
    """Put back blocks of unknown kinds, and unknown members of the others."""
    for position, block in sorted((int(key), value) for key, value in unknown.items() if key.isdigit()):
        is_known = position < len(blocks) and as_dict(block).get("type") == blocks[position]["type"]
        if is_known and order[position : position + 1] != [UNMAPPED]:
            blocks[position] = {**block, **blocks[position]}
        else:
            blocks.insert(position, block)
    return blocks


def _result(message: JsonObject, resolve: Resolve) -> JsonObject:
    notes = as_dict(as_dict(message.get("metadata")).get(NAME))
    has_failed = message.get("tool_success") is False
    content: Any = message["content"]
    if message.get("content_parts") or notes.get("content") == "blocks":
        content = _with_unknown([*_parts(message, resolve)], as_dict(notes.get("blocks")), [])
    block: JsonObject = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
    block["is_error"] = None if "is_error" in notes and not has_failed else has_failed
    return block | {key: value for key, value in notes.items() if key not in _NOTES}


def _call(call: JsonObject) -> JsonObject:
    function = call["function"]
    try:
        given = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        given = function["arguments"]
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _parts(message: JsonObject, resolve: Resolve) -> Iterator[JsonObject]:
    content, parts = message["content"], message.get("content_parts") or ()
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if content != "\n\n".join(texts):  # the message has no parts, or its text was changed here
        yield {"type": "text", "text": content}
        parts = [part for part in parts if part["type"] != "text"]
    for part in parts:
        yield _image(part, resolve) if part["type"] == "image_url" else {"type": "text", "text": part["text"]}


def _image(part: JsonObject, resolve: Resolve) -> JsonObject:
    """An image with its data. A3S has no images at an address: such a one becomes text."""
    url = part["image_url"]["url"]
    found = resolve(url)
    if found is None:
        return {"type": "text", "text": url}
    data, mime = found
    encoded = base64.b64encode(data).decode()
    mime = as_str(part.get("media_type")) or mime
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": encoded}}
