"""Records of a Codex thread: each line becomes a message, a part of the session's logs, or a kept record.

There are two generations: lines of `{timestamp, type, payload}`, and older files with bare items after a first line of
session metadata. Response items become messages in file order, messages between agents too. Events (which repeat them
for display), turn contexts and everything else are kept in records.jsonl.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from store.documents import attachment_names
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import as_dict, as_list, as_str, make_title, parse_time, to_text
from store.transfer.formats.importer import ResumedFile
from store.transfer.formats.resuming import NeedsWholeFile
from store.transfer.formats.session_builder import ParsedLine, SessionBuilder, parse_line
from store.transfer.formats.source import Line

NAME = "codex"
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "tool"}
CALL_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
CALL_ARGUMENTS |= {"web_search_call": "action", "tool_search_call": "arguments"}
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (\d+)$", re.MULTILINE)
_TASK = re.compile(r"^Task name: (.+)$", re.MULTILINE)
_ENVELOPE = ("timestamp", "type", "payload")
_STATUSES = {"task_started": "running", "task_complete": "completed", "turn_aborted": "cancelled", "error": "error"}


class CodexReader:
    """Read the lines of one thread, which may continue in further files, into one session."""

    def __init__(self, builder: SessionBuilder) -> None:
        self.builder = builder
        self.prefix = ""  # of the message ids of a further file
        self.lines = 0
        self.spawned: dict[str, str] = {}  # id or task name of a sub-agent → the tool call that started it
        self._ordinals: list[tuple[int, int]] = []  # (ordinal, number of messages before it)
        self._tasks: dict[str, str] = {}  # spawning call → task name
        self._total: dict[str, Any] = {}  # tokens of the thread so far
        self._has_usage_records = False
        self._is_resumed = False

    def read_line(self, line: Line) -> None:
        for parsed in parse_line(self.builder, line):
            self.lines += 1
            self._read_record(parsed, line)

    def rewind(self, ordinal: int) -> None:
        """Mark the messages from this ordinal on as abandoned: the thread continues before them."""
        for known, place in self._ordinals:
            if known >= ordinal:
                for message in self.builder.messages[place:]:
                    self.builder.note(message, "abandoned", True)
                return

    def _read_record(self, parsed: ParsedLine, line: Line) -> None:
        record = parsed.record
        at = parse_time(record.get("timestamp"))
        self.builder.add_time(at)
        ordinal = record.get("ordinal")
        if isinstance(ordinal, int):
            self._ordinals.append((ordinal, len(self.builder.messages)))
        payload = record.get("payload")
        if isinstance(payload, dict) and record.get("type") != "response_item":
            self._read_event(as_str(record.get("type")), payload, at, line)
            self.builder.keep_raw(parsed.raw)
            return
        item, outer = record, {}
        if isinstance(payload, dict):
            item, outer = payload, {key: value for key, value in record.items() if key not in _ENVELOPE}
        if not CodexItem(self, item, outer, at, line).add() or not parsed.exact:
            self.builder.keep_raw(parsed.raw)

    # -- events ------------------------------------------------------------------------------------

    def _read_event(self, kind: str, payload: dict[str, Any], at: Timestamp | None, line: Line) -> None:
        if kind == "turn_context":
            self.builder.model = as_str(payload.get("model")) or self.builder.model
        elif kind == "token_usage_record":
            self._add_usage_record(payload, at, line)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._add_token_count(as_dict(payload.get("info")), at, line)
        elif kind == "event_msg":
            self.builder.status = _STATUSES.get(as_str(payload.get("type")), self.builder.status)

    def _add_usage_record(self, payload: dict[str, Any], at: Timestamp | None, line: Line) -> None:
        """The newest versions store one record per API answer, in addition to the token counts."""
        if not self._has_usage_records:
            if self._is_resumed and self.builder.logs.usage:
                raise NeedsWholeFile("the first record that replaces the token counts")
            self._has_usage_records = True
            self.builder.logs.usage.clear()
        answer = as_str(payload.get("response_id")) or self._answer_id(line)
        self.builder.logs.add_usage(answer, at, self.builder.model, _counts(as_dict(payload.get("usage"))))

    def _add_token_count(self, info: dict[str, Any], at: Timestamp | None, line: Line) -> None:
        """A count is written again when nothing was used, for example with new rate limits: the total tells."""
        total, last = as_dict(info.get("total_token_usage")), as_dict(info.get("last_token_usage"))
        if self._has_usage_records or not total or total == self._total:
            return
        if not last:
            last = {key: count_of(value) - count_of(self._total.get(key)) for key, value in total.items()}
        self._total = total
        self.builder.logs.add_usage(self._answer_id(line), at, self.builder.model, _counts(last))

    def _answer_id(self, line: Line) -> str:
        return f"{self.builder.source_id}:{self.prefix}line-{line.number}"

    # -- sub-agents --------------------------------------------------------------------------------

    def note_call(self, call: dict[str, Any]) -> None:
        """Remember a call that starts a sub-agent."""
        if call["function"]["name"] == "spawn_agent":
            self._check_link()
            name = as_str(_json_object(call["function"]["arguments"]).get("task_name"))
            self._tasks[call["id"]] = name
            self.spawned[name or call["id"]] = call["id"]

    def note_result(self, call_id: str, text: str) -> None:
        agent = as_str(_json_object(text).get("agent_id"))
        if call_id in self._tasks and agent:
            self._check_link()
            self.spawned[agent] = call_id

    def _check_link(self) -> None:
        if self._is_resumed:
            raise NeedsWholeFile("a sub-agent, whose session is linked to the call")

    # -- reading on ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing is left to do after the last line."""

    def dump(self) -> dict[str, Any]:
        return {
            "prefix": self.prefix,
            "total": self._total,
            "has_usage_records": self._has_usage_records,
            "tasks": self._tasks,
        }

    def restore(self, known: dict[str, Any]) -> None:
        self._is_resumed = True
        self.prefix, self._total, self._tasks = known["prefix"], known["total"], known["tasks"]
        self._has_usage_records = known["has_usage_records"]


def resume(file: ResumedFile) -> CodexReader:
    path = file.source.display_path(file.path)
    reader = CodexReader(SessionBuilder(NAME, file.location, path, file.source_id))
    reader.restore(file.state)
    return reader


class CodexItem:
    """One response item."""

    def __init__(
        self, reader: CodexReader, item: dict[str, Any], outer: dict[str, Any], at: Timestamp | None, line: Line
    ) -> None:
        self.reader = reader
        self.builder = reader.builder
        self.item = item
        self.outer = outer  # members of the record next to the item
        self.at = at
        self.line = line

    def add(self) -> bool:
        """Add it as a message; False if it is not one."""
        kind = as_str(self.item.get("type"))
        if kind == "message":
            return self._add_message()
        if kind == "agent_message":
            return self._add_agent_message()
        if kind == "reasoning":
            return self._add_reasoning()
        if kind in CALL_ARGUMENTS:
            return self._add_call(kind)
        if kind.endswith("_output") and isinstance(self.item.get("call_id"), str):
            return self._add_output()
        return False

    def _add(self, role: str, content: str, *mapped: str, is_generated: bool = False, **members: Any) -> bool:
        rest = {key: value for key, value in self.item.items() if key not in mapped}
        if rest == {"type": "message"}:
            rest = {}
        if self.outer:
            rest["record"] = self.outer
        id = f"{self.reader.prefix}line-{self.line.number}"
        is_inherited = as_dict(self.outer.get("metadata")).get("inherited_user_message") is True
        self.builder.add_message(
            role,
            content,
            id=id,
            at=self.at,
            rest=rest,
            raw=self.line.data,
            is_generated=is_generated or is_inherited,
            **members,
        )
        if is_inherited:
            self.builder.note(self.builder.messages[-1], "inherited", True)
        return True

    def _add_message(self) -> bool:
        role = _ROLES.get(as_str(self.item.get("role")))
        if role is None or not isinstance(self.item.get("content"), list | str):
            return False
        parsed = _CodexContent(self.builder, self.item["content"])
        mapped = ["content"] if parsed.is_complete else []
        if self.item["role"] == role:
            mapped.append("role")
        return self._add(role, parsed.text, *mapped, content_parts=parsed.content_parts)

    def _add_agent_message(self) -> bool:
        """A message from another agent: a task for this one, or the report of a sub-agent."""
        content = self.item.get("content")
        if not isinstance(content, list | str):
            return False
        parsed = _CodexContent(self.builder, content)
        mapped = ["content"] if parsed.is_complete else []
        task = _TASK.search(parsed.text)
        if "NEW_TASK" in parsed.text[:100] and not self.builder.title:
            payload = parsed.text.partition("Payload:\n")[2]
            self.builder.title = make_title(payload) or make_title(task[1].rpartition("/")[2] if task else "")
        return self._add("user", parsed.text, *mapped, is_generated=True, content_parts=parsed.content_parts)

    def _add_reasoning(self) -> bool:
        parts = [*as_list(self.item.get("summary")), *as_list(self.item.get("content"))]
        text = "\n\n".join(as_str(as_dict(part).get("text")) for part in parts)
        return self._add("assistant", "", reasoning=text or None)

    def _add_call(self, kind: str) -> bool:
        item = self.item
        id = as_str(item.get("call_id")) or as_str(item.get("id")) or f"call-{self.line.number}"
        call = make_call(id, as_str(item.get("name")) or kind.removesuffix("_call"), item.get(CALL_ARGUMENTS[kind], ""))
        self.reader.note_call(call)
        return self._add("assistant", "", "call_id", "name", CALL_ARGUMENTS[kind], tool_calls=[call])

    def _add_output(self) -> bool:
        output = self.item.get("output")
        inner = as_dict(output)
        content = inner.get("content", output)
        parsed = _CodexContent(self.builder, content) if isinstance(content, list | str) else None
        text = parsed.text if parsed else to_text(content) if content is not None else ""
        success = inner.get("success")
        is_complete = parsed is not None and parsed.is_complete and set(inner) <= {"content", "success"}
        self.reader.note_result(self.item["call_id"], text)
        return self._add(
            "tool",
            text,
            "call_id",
            *(["output"] if is_complete else []),
            tool_call_id=self.item["call_id"],
            tool_success=success if isinstance(success, bool) else not has_failed(text),
            content_parts=parsed.content_parts if parsed else None,
        )


def has_failed(text: str) -> bool:
    """Whether the output of a command states an exit code other than 0. Its header ends at `Output:`."""
    if text.startswith("{"):
        code = as_dict(_json_object(text).get("metadata")).get("exit_code")
        return isinstance(code, int) and code != 0
    header = text[:2_000].partition("\nOutput:\n")
    found = _EXIT_CODE.search(header[0]) if header[1] else None
    return (found is not None and found[1] != "0") or text.startswith("Script failed")


def _json_object(text: str) -> dict[str, Any]:
    try:
        return as_dict(orjson.loads(text)) if text.lstrip().startswith("{") else {}
    except orjson.JSONDecodeError:
        return {}


def _counts(usage: dict[str, Any]) -> TokenCounts:
    """Codex counts cached tokens as input too."""
    cached, written = count_of(usage.get("cached_input_tokens")), count_of(usage.get("cache_write_input_tokens"))
    return TokenCounts(
        input=max(0, count_of(usage.get("input_tokens")) - cached - written),
        output=count_of(usage.get("output_tokens")),
        cache_read=cached,
        cache_write=written,
        reasoning=count_of(usage.get("reasoning_output_tokens")),
    )


class _CodexContent:
    """A list of typed parts: texts and images. `is_complete` is False if there is anything else."""

    def __init__(self, builder: SessionBuilder, content: list[Any] | str) -> None:
        self.parts: list[dict[str, Any]] = []
        self.is_complete = True
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            self.is_complete &= self._add_part(builder, as_dict(part))

    def _add_part(self, builder: SessionBuilder, part: dict[str, Any]) -> bool:
        if isinstance(part.get("text"), str):
            self.parts.append({"type": "text", "text": part["text"]})
            return set(part) <= {"type", "text"}
        url = part.get("image_url")
        if not isinstance(url, str):
            return False
        self.parts.append({"type": "image_url", "image_url": {"url": store_image(builder, url)}})
        return set(part) <= {"type", "image_url"}

    @property
    def text(self) -> str:
        return "\n\n".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def content_parts(self) -> list[dict[str, Any]] | None:
        is_plain = len(self.parts) < 2 and all(part["type"] == "text" for part in self.parts)
        return None if is_plain else self.parts


def store_image(builder: SessionBuilder, url: str) -> str:
    """Store a `data:` URL as an attachment and return its reference; return any other URL unchanged."""
    header, comma, data = url.partition(",")
    if not (comma and header.lower().startswith("data:") and ";base64" in header.lower()):
        return url
    return builder.attach_base64(data, header[5:].partition(";")[0] or attachment_names.OCTET_STREAM) or url
