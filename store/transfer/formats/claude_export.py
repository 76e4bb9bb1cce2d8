"""Write a session as a Claude Code file, so that a conversation repaired here can be resumed there. Pure.

The records get back the ids, links and members they were imported with; the content is that of the messages here. A
record whose parent was deleted here continues from the record before it. Records that are not messages come first.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from store import layout
from store.transfer.formats.claude_records import NAME, RECORD_BLOCKS
from store.transfer.formats.coerce import as_dict, as_list, as_str
from store.transfer.formats.exported_session import ExportedSession, FileToWrite, Resolve
from store.transfer.formats.session_builder import RECORDS

Message = dict[str, Any]
# Of the kept members: not members of the record.
_OWN = ("message", "order", "blocks", RECORD_BLOCKS, "signatures", "timestamp")
_VERSION = "2.1.0"


def write_claude_code(session: ExportedSession) -> Iterator[FileToWrite]:
    """The file that `claude --resume` reads: `<root>.jsonl`, of a sub-agent `<root>/subagents/<child>.jsonl`."""
    root, child = session.location
    path = f"{root}.jsonl" if child is None else f"{root}/subagents/{child}.jsonl"
    kept = (session.read(f"{layout.ATTACHMENTS}/{RECORDS}.jsonl") or b"").splitlines()
    if child is not None and (meta := session.kept_text(NAME, "agent")):
        yield FileToWrite(f"{root}/subagents/{child}.meta.json", meta.encode())
    records = _ClaudeWriter(session.members, kept, session.resolve).records()
    yield FileToWrite(path, b"".join(orjson.dumps(record) + b"\n" for record in records))


class _ClaudeWriter:
    def __init__(self, session: dict[str, Any], kept: Sequence[bytes], resolve: Resolve) -> None:
        self.messages: list[Message] = session["messages"]
        self.resolve = resolve
        self.kept = [_parsed(line) for line in kept]
        self.used: set[int] = set()  # indexes in `kept` of records that are messages
        known = as_dict(_parsed(as_str(as_dict(session.get("metadata")).get(f"{NAME}.envelope")).encode()))
        self.envelope = {
            "isSidechain": False,
            "userType": "external",
            "cwd": session.get("workspace") or "/",
            "sessionId": session["id"],
            "version": _VERSION,
            **known,
        }

    def records(self) -> Iterator[dict[str, Any]]:
        written = [self._record([*group]) for _, group in groupby(self.messages, key=_record_id)]
        others = [record for index, record in enumerate(self.kept) if index not in self.used and record]
        uuids = {as_str(record.get("uuid")) for record in (*others, *written)}
        added = {_record_id(m) for m in self.messages if NAME not in as_dict(m.get("metadata"))}
        yield from others
        previous: str | None = None
        for record in written:
            if "uuid" in record:
                parent = record.get("parentUuid")
                if (parent is None and record["uuid"] in added) or (parent is not None and parent not in uuids):
                    record["parentUuid"] = previous
                previous = record["uuid"]
            yield record

    def _record(self, group: list[Message]) -> dict[str, Any]:
        first = group[0]
        rest = as_dict(as_dict(first.get("metadata")).get(NAME))
        base = self._base(rest)
        base |= {"uuid": _record_id(first)}
        if first.get("created_at"):
            base["timestamp"] = first["created_at"]
        if rest.get("operation") == "enqueue":
            return {**self._without_envelope(rest), "content": first["content"], "timestamp": first.get("created_at")}
        if "attachment" in rest:
            return {
                **base,
                "type": "attachment",
                "attachment": {**as_dict(rest["attachment"]), "prompt": first["content"]},
            }
        if first["role"] == "system":
            return {**base, "type": "system", "content": first["content"]}
        role = "assistant" if first["role"] == "assistant" else "user"
        inner = {"role": role, **as_dict(base.get("message") or rest.get("message"))}
        return {**base, "type": role, "message": {**inner, "content": self._content(group, rest)}}

    def _base(self, rest: dict[str, Any]) -> dict[str, Any]:
        """The members of the record other than its content."""
        number = rest.get("record")
        if isinstance(number, int) and "kept_in" in rest and 0 < number <= len(self.kept):
            self.used.add(number - 1)
            return dict(as_dict(self.kept[number - 1]))
        own = {key: value for key, value in rest.items() if key not in _OWN}
        return {"parentUuid": None, **self.envelope, **own}

    def _without_envelope(self, rest: dict[str, Any]) -> dict[str, Any]:
        for index, record in enumerate(self.kept):  # it was kept as a record too
            if record.get("operation") == "enqueue" and index not in self.used:
                self.used.add(index)
                return dict(record)
        return dict(rest)

    # -- content -----------------------------------------------------------------------------------

    def _content(self, group: list[Message], rest: dict[str, Any]) -> Any:
        blocks = [block for message in group for block in self._blocks(message, rest)]
        blocks = _with_unknown(blocks, rest.get(RECORD_BLOCKS if group[0]["role"] == "tool" else "blocks"))
        if len(blocks) == 1 and blocks[0]["type"] == "text" and group[0]["role"] == "user":
            return blocks[0]["text"]
        return blocks

    def _blocks(self, message: Message, rest: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if message["role"] == "tool":
            unknown = as_dict(as_dict(message.get("metadata")).get(NAME)).get("blocks")
            has_blocks = message.get("content_parts") or as_dict(unknown)
            content = _with_unknown([*self._parts(message)], unknown) if has_blocks else message["content"]
            failed = message.get("tool_success") is False
            yield {
                "tool_use_id": message["tool_call_id"],
                "type": "tool_result",
                "content": content,
                "is_error": failed,
            }
            return
        if message.get("reasoning"):
            signature = message.get("reasoning_signature") or next(iter(as_list(rest.get("signatures"))), "")
            yield {"type": "thinking", "thinking": message["reasoning"], "signature": signature}
        yield from self._parts(message)
        for call in message.get("tool_calls") or ():
            arguments = _parsed(call["function"]["arguments"].encode())
            yield {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}

    def _parts(self, message: Message) -> Iterator[dict[str, Any]]:
        parts = message.get("content_parts") or ([{"text": message["content"]}] if message["content"] else [])
        texts = [part["text"] for part in parts if part.get("text")]
        if message.get("content_parts") and "\n\n".join(texts) != message["content"]:  # the text was edited here
            parts = [{"text": message["content"]}, *(part for part in parts if not part.get("text"))]
        for part in parts:
            yield (
                self._image(part["image_url"]["url"])
                if part.get("image_url")
                else {"type": "text", "text": part["text"]}
            )

    def _image(self, url: str) -> dict[str, Any]:
        found = self.resolve(url)
        if found is None:
            return {"type": "image", "source": {"type": "url", "url": url}}
        data, mime = found
        source = {"type": "base64", "media_type": mime, "data": base64.b64encode(data).decode()}
        return {"type": "image", "source": source}


def _record_id(message: Message) -> str:
    """The id of the record a message came from: several results of one record are `id`, `id:1`, …"""
    id = as_str(message.get("id"))
    stem, colon, number = id.rpartition(":")
    return stem if colon and number.isdigit() and message["role"] == "tool" else id


def _with_unknown(blocks: list[dict[str, Any]], unknown: Any) -> list[dict[str, Any]]:
    """Put back the blocks that a message has no place for, by position."""
    positions = {int(position): block for position, block in as_dict(unknown).items() if position.isdigit()}
    for position, block in sorted(positions.items()):
        blocks = _with_block(blocks, position, block)
    return blocks


def _with_block(blocks: list[dict[str, Any]], position: int, block: Any) -> list[dict[str, Any]]:
    """Put back a block as it was; one with unknown members replaces the plain block of its kind."""
    if position < len(blocks) and as_dict(block).get("type") == blocks[position]["type"]:
        return [*blocks[:position], {**block, **blocks[position]}, *blocks[position + 1 :]]
    return [*blocks[:position], block, *blocks[position:]]


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        return as_dict(orjson.loads(line)) if line.strip() else {}
    except orjson.JSONDecodeError:
        return {}
