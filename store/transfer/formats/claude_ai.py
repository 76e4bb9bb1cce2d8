"""Claude.ai exports: `conversations.json`, an array of conversations with `chat_messages`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import add_results, read_blocks
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, make_id, make_title, parse, parse_time
from store.transfer.formats.importer import Format, ImportProblem, SessionTree, read_problem
from store.transfer.formats.json_array_stream import BrokenArray, Element, iter_elements
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

NAME = "claude-ai"
_FILE = "conversations.json"
_ROLES = {"human": "user", "assistant": "assistant"}
_MAPPED = ("uuid", "text", "content", "sender", "created_at")


def _exports(source: Source) -> list[str]:
    if source.name is not None:
        return [source.name] if source.name.endswith(".json") else []
    return [_FILE] if source.is_file(_FILE) else []


def recognise(source: Source) -> int | None:
    for name in _exports(source):
        head = source.head(name).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head.startswith(b"[") and b'"chat_messages"' in head:
            return 95
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    for name in _exports(source):
        path = source.display_path(name)
        try:
            for element in iter_elements(source.iter_chunks(name)):
                source.done_bytes += len(element.data)
                yield from _read(path, element)
        except BrokenArray as error:
            yield ImportProblem(path, error.line, f"{error}; the rest of the file is skipped")
        except OSError as error:
            yield read_problem(source, name, error)


def _read(path: str, element: Element) -> Iterator[SessionTree | ImportProblem]:
    try:
        record = as_dict(parse(element.data).value)
        name = as_str(record.get("uuid"))
        if not name or not isinstance(record.get("chat_messages"), list):
            raise BadRecord("not a conversation: expected an object with uuid and chat_messages")
    except BadRecord as error:
        yield ImportProblem(path, element.line + (error.line or 1) - 1, f"{error}; skipped")
        return
    builder = SessionBuilder(NAME, Location(make_id(NAME, name)), path, name)
    builder.title = make_title(as_str(record.get("name")))
    builder.model = as_str(record.get("model"))
    for key in ("created_at", "updated_at"):
        builder.add_time(parse_time(record.get(key)))
    for key, value in record.items():
        if key not in ("chat_messages", "name", "created_at", "updated_at", "uuid") and value not in (None, [], {}, ""):
            builder.add_metadata(key, value)
    for number, message in enumerate(record["chat_messages"]):
        _add_message(builder, as_dict(message), number)
    if builder.messages:
        fallback = parse_time(record.get("created_at")) or Timestamp.from_ns(0)
        yield SessionTree(builder.build(fallback=fallback))


def _add_message(builder: SessionBuilder, message: dict[str, Any], number: int) -> None:
    role = _ROLES.get(as_str(message.get("sender")), "user")
    at, id = parse_time(message.get("created_at")), as_str(message.get("uuid")) or f"message-{number}"
    blocks = read_blocks(_plain_blocks(message), builder)
    rest: dict[str, Any] = {
        key: value for key, value in message.items() if key not in _MAPPED and value not in (None, [], "")
    }
    rest |= blocks.unmapped()
    builder.add_message(role, _text(message, blocks.content), id=id, at=at, rest=rest, **blocks.members())
    add_results(builder, blocks, f"{id}:result", at, rest={}, raw=b"")


def _plain_blocks(message: dict[str, Any]) -> Any:
    """The blocks with the members of the API; the export adds times and flags, which are kept if they say anything."""
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return as_str(message.get("text"))
    return [
        {key: value for key, value in block.items() if value not in (None, [], False)}
        if isinstance(block, dict)
        else block
        for block in content
    ]


def _text(message: dict[str, Any], content: str) -> str:
    """The text, with what was extracted from attached files: the export has no files."""
    files = [as_dict(file) for file in as_list(message.get("attachments"))]
    extracted = [
        f"[{as_str(file.get('file_name'))}]\n{file['extracted_content']}"
        for file in files
        if as_str(file.get("extracted_content"))
    ]
    return "\n\n".join([content, *extracted]) if content else "\n\n".join(extracted)


FORMAT = Format(NAME, "an unpacked Claude.ai export, or its conversations.json", recognise, iter_records)
