"""Write a session as a Codex rollout, so that a conversation repaired here can be resumed there. Pure.

The id of an imported message is the number of its line, so messages and kept records get back their order. After a
rewind a thread has two files: only its current branch is written then. The records that Codex keeps for display
(`event_msg`) are written as they were; the model gets the response items, which have the content as it is here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from store import layout
from store.transfer.formats.codex_records import CALL_ARGUMENTS, NAME, has_failed
from store.transfer.formats.coerce import as_dict, as_list, as_str
from store.transfer.formats.exported_session import ExportedSession, FileToWrite
from store.transfer.formats.session_builder import RECORDS

Record = dict[str, Any]
_LINE = re.compile(r"line-(\d+)(?:~\d+)?")
_VERSION = "0.80.0"


def write_codex(session: ExportedSession) -> Iterator[FileToWrite]:
    """The rollout of a session, in the directory of its day below `sessions/`."""
    writer = _RolloutWriter(session)
    records = writer.records()
    meta = as_dict(writer.meta.get("payload")) or writer.meta
    at = as_str(session.members.get("created_at"))
    name = f"rollout-{at[:19].replace(':', '-')}-{as_str(meta.get('id')) or session.location.id}.jsonl"
    path = f"sessions/{at[:10].replace('-', '/')}/{name}"
    yield FileToWrite(path, b"".join(_line(record) + b"\n" for record in records))


class _RolloutWriter:
    def __init__(self, session: ExportedSession) -> None:
        self.session = session
        is_own = session.metadata.get("imported_from") == NAME
        self.raw = (session.read(f"{layout.ATTACHMENTS}/{RECORDS}.jsonl") or b"").split(b"\n") if is_own else []
        self.kept = [_parsed(line) for line in self.raw]
        self.meta = next((record for record in self.kept if _is_meta(record)), {}) or self._new_meta()
        self.is_first_generation = "payload" not in self.meta

    def _new_meta(self) -> Record:
        """The metadata of a session that did not come from Codex."""
        members = self.session.members
        payload = {
            "id": self.session.location.id,
            "timestamp": members.get("created_at"),
            "cwd": members.get("workspace") or "/",
            "originator": "codex_cli_rs",
            "cli_version": _VERSION,
            "source": "cli",
            "instructions": None,
        }
        return {"timestamp": members.get("created_at"), "type": "session_meta", "payload": payload}

    def records(self) -> list[Record | bytes]:
        messages = self.session.messages
        if any(":" in as_str(message.get("id")) for message in messages):  # it continued in another file
            current = [m for m in messages if as_dict(m.get("metadata")).get("abandoned") is not True]
            return [self.meta, *(record for message in current for record in self._items(message))]
        if not self.kept:
            return [self.meta, *(record for message in messages for record in self._items(message))]
        return [*self._in_order(messages)]

    def _in_order(self, messages: list[Record]) -> Iterator[Record | bytes]:
        """Messages at their lines, and the kept records in the lines between."""
        used = {as_dict(_rest(m)).get("record") for m in messages if "kept_in" in _rest(m)}
        others = iter([raw for number, raw in enumerate(self.raw, 1) if raw and number not in used])
        line = 1
        for message in messages:
            found = _LINE.fullmatch(as_str(message.get("id")))
            while found is not None and line < int(found[1]):
                line += 1
                raw = next(others, None)
                if raw is not None:
                    yield raw
            yield from self._items(message)
            line += found is not None
        yield from others

    # -- one message -------------------------------------------------------------------------------

    def _items(self, message: Record) -> Iterator[Record]:
        """The records of a message: one for an imported message, otherwise one for each of its parts."""
        rest = _rest(message)
        if "kept_in" in rest:
            whole = self.kept[rest["record"] - 1] if 0 < rest["record"] <= len(self.kept) else {}
            rest = as_dict(whole.get("payload")) or whole
            outer = {key: value for key, value in whole.items() if key not in ("timestamp", "type", "payload")}
            outer = outer if "payload" in whole else {}
        else:
            outer = as_dict(rest.get("record"))
            rest = {key: value for key, value in rest.items() if key != "record"}
        payloads = [self._payload(message, rest)] if rest or _is_plain(message) else [*self._new_payloads(message)]
        for payload in payloads:
            yield self._record(payload, message, outer)

    def _record(self, payload: Record, message: Record, outer: Record) -> Record:
        if self.is_first_generation:
            return payload
        at = {"timestamp": message["created_at"]} if message.get("created_at") else {}
        return {**at, **outer, "type": "response_item", "payload": payload}

    def _payload(self, message: Record, rest: Record) -> Record:
        kind = as_str(rest.get("type")) or "message"
        if kind == "reasoning":
            return _reasoning(message, rest)
        if kind in CALL_ARGUMENTS and message.get("tool_calls"):
            return _call(message["tool_calls"][0], kind, rest, as_str(message.get("id")))
        if kind.endswith("_output"):
            return self._output(message, rest)
        role = as_str(rest.get("role")) or message["role"]
        known = {} if kind == "agent_message" else {"role": role}
        return {"type": kind, **rest, **known, "content": self._content(message, rest, role)}

    def _new_payloads(self, message: Record) -> Iterator[Record]:
        if message["role"] == "tool":
            yield self._output(message, {"type": "function_call_output"})
            return
        if message.get("reasoning"):
            yield _reasoning(message, {"type": "reasoning"})
        if message["content"] or message.get("content_parts"):
            yield self._payload(message, {"type": "message"})
        for call in message.get("tool_calls") or ():
            yield _call(call, "function_call", {"type": "function_call"}, "")

    def _output(self, message: Record, rest: Record) -> Record:
        payload = {**rest, "call_id": message["tool_call_id"]}
        if "output" in rest and not isinstance(rest["output"], str | list):
            return payload  # of a kind that messages cannot hold, and kept whole
        if _kept_parts(rest.get("output"), message):
            return payload
        output: Any = self._parts(message, "input_text") if message.get("content_parts") else message["content"]
        success = message.get("tool_success") is not False
        if success == has_failed(message["content"]):  # the text alone would say the opposite
            output = {"content": output, "success": success}
        return {**payload, "output": output}

    def _content(self, message: Record, rest: Record, role: str) -> list[Record]:
        kept = _kept_parts(rest.get("content"), message)
        return kept or self._parts(message, "output_text" if role == "assistant" else "input_text")

    def _parts(self, message: Record, kind: str) -> list[Record]:
        parts = message.get("content_parts") or [{"text": message["content"]}]
        texts = [part["text"] for part in parts if part.get("text")]
        if message.get("content_parts") and "\n\n".join(texts) != message["content"]:  # the text was edited here
            parts = [{"text": message["content"]}, *(part for part in parts if part.get("image_url"))]
        return [
            {"type": "input_image", "image_url": self._url(part["image_url"]["url"])}
            if part.get("image_url")
            else {"type": kind, "text": as_str(part.get("text"))}
            for part in parts
        ]

    def _url(self, url: str) -> str:
        found = self.session.resolve(url)
        return f"data:{found[1]};base64,{base64.b64encode(found[0]).decode()}" if found else url


def _kept_parts(parts: Any, message: Record) -> list[Record]:
    """The parts of a record that messages cannot hold all of, if the text was not changed here; else empty."""
    texts = [as_dict(part)["text"] for part in as_list(parts) if isinstance(as_dict(part).get("text"), str)]
    return as_list(parts) if "\n\n".join(texts) == message["content"] else []


def _reasoning(message: Record, rest: Record) -> Record:
    parts = [*as_list(rest.get("summary")), *as_list(rest.get("content"))]
    was = "\n\n".join(as_str(as_dict(part).get("text")) for part in parts)
    if was == as_str(message.get("reasoning")):
        return {**rest, "summary": as_list(rest.get("summary"))}
    # Codex sends the encrypted original to the model: without it the changed text counts.
    own = {key: value for key, value in rest.items() if key not in ("content", "encrypted_content")}
    return {**own, "summary": [{"type": "summary_text", "text": as_str(message.get("reasoning"))}]}


def _call(call: Record, kind: str, rest: Record, id: str) -> Record:
    function, key = call["function"], CALL_ARGUMENTS[kind]
    payload = dict(rest)
    if call["id"] not in (rest.get("id"), f"call-{id.removeprefix('line-')}"):
        payload["call_id"] = call["id"]
    if kind in ("function_call", "custom_tool_call") or function["name"] != kind.removesuffix("_call"):
        payload["name"] = function["name"]
    arguments = function["arguments"]
    if arguments:
        payload[key] = _parsed(arguments.encode()) if key == "action" else arguments
    return payload


def _line(record: Record | bytes) -> bytes:
    return record if isinstance(record, bytes) else orjson.dumps(record)


def _is_meta(record: Record) -> bool:
    return record.get("type") == "session_meta" or ("type" not in record and "id" in record and "timestamp" in record)


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether one response item holds the message."""
    return message["role"] != "tool" and not message.get("tool_calls") and not message.get("reasoning")


def _rest(message: Mapping[str, Any]) -> Record:
    return as_dict(as_dict(message.get("metadata")).get(NAME))


def _parsed(line: bytes) -> Record:
    try:
        return as_dict(orjson.loads(line)) if line.strip() else {}
    except orjson.JSONDecodeError:
        return {}
