"""Cline, Roo Code and Kilo Code tasks: `tasks/<id>/api_conversation_history.json` in the storage of VS Code.

The file is an array of messages with the content blocks of the Anthropic API. `ui_messages.json` next to it has times
and token counts, and becomes an attachment too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import orjson

from store.errors import InvalidContent
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import add_results, read_blocks
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, make_title, parse, parse_time
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    Place,
    SessionTree,
    SourceUnit,
    read_problem,
    read_units,
)
from store.transfer.formats.prompt_title import title_of_prompt
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import built, new_builder
from store.transfer.formats.source import Source

NAME = "cline"
_HISTORY, _UI = "api_conversation_history.json", "ui_messages.json"
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")


def _tasks(source: Source) -> list[str]:
    """The directories of tasks: the source itself, or those below tasks/ or below the source."""
    if source.name is not None:
        return [""] if source.name == _HISTORY else []
    if source.is_file(_HISTORY):
        return [""]
    base = "tasks/" if source.is_dir("tasks") else ""
    names = [f"{base}{name}" for name in source.directories(base.rstrip("/"))]
    return [name for name in names if source.is_file(f"{name}/{_HISTORY}")]


def recognise(source: Source) -> int | None:
    return 93 if _tasks(source) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    for task in _tasks(source):
        base = f"{task}/" if task else ""
        files = tuple(f"{base}{name}" for name in (_HISTORY, _UI) if source.is_file(f"{base}{name}"))
        yield SourceUnit(files[0], files, partial(_read, source, base))


def _read(source: Source, base: str) -> Iterator[SessionTree | ImportProblem]:
    path = f"{base}{_HISTORY}"
    id = base.strip("/").rpartition("/")[2] or source.root.name
    builder = new_builder(NAME, source, path, id)
    try:
        messages = parse(source.read(path)).value
        if not isinstance(messages, list):
            raise BadRecord("expected an array of messages")
    except (OSError, BadRecord, InvalidContent) as error:
        yield read_problem(source, path, error)
        return
    if id.isdigit():  # the id of a task is the time it began
        builder.add_time(Timestamp.from_ns(int(id) * 1_000_000) if len(id) < 16 else None)
    for number, message in enumerate(messages):
        _add_message(builder, as_dict(message), number)
    _read_ui(source, f"{base}{_UI}", builder)
    yield from built(source, path, builder)


def _add_message(builder: SessionBuilder, message: dict[str, Any], number: int) -> None:
    role = "assistant" if message.get("role") == "assistant" else "user"
    at = _milliseconds(message.get("ts"))
    blocks = read_blocks(message.get("content"), builder)
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "ts")} | blocks.unmapped()
    id, raw = f"message-{number}", orjson.dumps(message)
    add_results(builder, blocks, id, at, rest=rest, raw=raw)
    if blocks.results and not (blocks.texts or blocks.parts or blocks.calls or blocks.thinking):
        return
    own = {} if blocks.results else rest
    builder.add_message(
        role, blocks.content, id=f"{id}:text" if blocks.results else id, at=at, rest=own, raw=raw, **blocks.members()
    )
    if not builder.title and role == "user" and "<task>" in blocks.content:
        builder.title = title_of_prompt(blocks.content.partition("<task>")[2].partition("</task>")[0])


def _read_ui(source: Source, path: str, builder: SessionBuilder) -> None:
    """Times and token counts. The file repeats the conversation for display, so it is only attached."""
    if not source.is_file(path):
        return
    builder.attach_file(_UI, lambda: source.iter_chunks(path))
    items: Any = []
    with suppress(OSError, BadRecord, InvalidContent):  # attached above as it is
        items = parse(source.read(path)).value
    for item in map(as_dict, as_list(items)):
        at = _milliseconds(item.get("ts"))
        builder.add_time(at)
        if item.get("say") == "task":
            builder.title = builder.title or make_title(as_str(item.get("text")))
        if item.get("say") == "api_req_started":
            _add_usage(builder, as_str(item.get("text")), at)


def _add_usage(builder: SessionBuilder, text: str, at: Timestamp | None) -> None:
    try:
        usage = as_dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        return
    counts = TokenCounts(
        input=count_of(usage.get("tokensIn")),
        output=count_of(usage.get("tokensOut")),
        cache_read=count_of(usage.get("cacheReads")),
        cache_write=count_of(usage.get("cacheWrites")),
    )
    cost = usage.get("cost")
    if any(counts):
        priced = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
        builder.logs.add_usage(f"{builder.source_id}:{at}", at, builder.model, counts, priced)


def _milliseconds(value: Any) -> Timestamp | None:
    return parse_time(value / 1000) if isinstance(value, int | float) and not isinstance(value, bool) else None


FORMAT = Format(
    NAME,
    "the storage of Cline, Roo Code or Kilo Code in VS Code (with tasks/), or one task",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="tasks",
    iter_units=iter_units,
    places=tuple(
        Place("~/.config", "XDG_CONFIG_HOME", f"{editor}/User/globalStorage/{extension}")
        for editor in _EDITORS
        for extension in _EXTENSIONS
    ),
)
