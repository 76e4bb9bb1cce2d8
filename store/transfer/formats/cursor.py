"""Cursor chats: agent transcripts (`~/.cursor/projects/<project>/agent-transcripts/`) and exported Markdown.

A transcript has one message per line, with content blocks. An exported chat begins with a title and the line
`_Exported on … from Cursor (…)_`; its messages are separated by rules and begin with `**User**` or `**Cursor**`. The
databases of the editor (state.vscdb) are not documented and not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from store.transfer.formats.anthropic_blocks import add_results, read_blocks
from store.transfer.formats.coerce import BadRecord, as_dict, as_str, digest, make_title, parse_time
from store.transfer.formats.importer import Format, ImportProblem, Place, SessionTree, SourceUnit, read_units
from store.transfer.formats.session_builder import SessionBuilder, parse_line
from store.transfer.formats.session_files import built, file_units, find_files, new_builder, read_lines
from store.transfer.formats.source import Line, Source

NAME = "cursor"
_EXPORTED = re.compile(r"^_Exported on .+ from Cursor.*_$", re.MULTILINE)
_SPEAKER = re.compile(r"^\*\*(User|Cursor)\*\*\s*$", re.MULTILINE)
_ROLES = {"User": "user", "Cursor": "assistant"}


def _chats(source: Source) -> list[str]:
    found = find_files(source, _is_wanted, "projects", 5)
    return [path for path in found if _is_chat(source, path)]


def _is_wanted(path: str) -> bool:
    return ("agent-transcripts/" in f"{path}/" and path.endswith(".jsonl")) or (
        "/" not in path and path.endswith((".md", ".jsonl"))
    )


def _is_chat(source: Source, path: str) -> bool:
    head = source.head(path, 16 * 1024)
    if path.endswith(".md"):
        return _EXPORTED.search(head.decode(errors="replace")) is not None
    return head.startswith(b'{"role"') and b'"message"' in head and b'"content"' in head


def recognise(source: Source) -> int | None:
    return 80 if _chats(source) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    return file_units(source, _chats(source), _read)


def _read(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    if path.endswith(".md"):
        yield from built(source, path, _read_export(source, path))
        return
    builder = new_builder(NAME, source, path, path.rpartition("/")[2].removesuffix(".jsonl"))
    yield from read_lines(source, path, lambda line: _add_line(builder, line))
    yield from built(source, path, builder)


def _add_line(builder: SessionBuilder, line: Line) -> None:
    for raw, record, exact in parse_line(builder, line):
        message = as_dict(record.get("message"))
        if record.get("role") not in ("user", "assistant", "system") or "content" not in message:
            builder.keep_raw(raw)
            raise BadRecord("not a message; kept as raw text in records.jsonl")
        at, id = parse_time(record.get("timestamp")), f"line-{line.number}"
        blocks = read_blocks(message["content"], builder)
        rest = {key: value for key, value in record.items() if key not in ("role", "message", "timestamp")}
        rest |= {key: value for key, value in message.items() if key != "content"} | blocks.unmapped()
        add_results(builder, blocks, f"{id}:result", at, rest={}, raw=raw)
        text = blocks.content.removeprefix("<user_query>").removesuffix("</user_query>").strip()
        builder.add_message(record["role"], text, id=id, at=at, rest=rest, raw=raw, **blocks.members())
        if not exact:
            builder.keep_raw(raw)


def _read_export(source: Source, path: str) -> SessionBuilder:
    text = source.read(path).decode(errors="replace")
    stem = path.rpartition("/")[2].removesuffix(".md")
    builder = new_builder(NAME, source, path, f"cursor-{digest(text[:500])[:12]}-{stem}"[:80])
    builder.title = make_title(text.lstrip().removeprefix("#").partition("\n")[0])
    exported = _EXPORTED.search(text)
    builder.add_metadata("exported", exported[0].strip("_") if exported else None)
    speakers = [*_SPEAKER.finditer(text)]
    ends = [*(speaker.start() for speaker in speakers[1:]), len(text)]
    for number, (speaker, end) in enumerate(zip(speakers, ends, strict=True)):
        body = text[speaker.end() : end].strip()
        body = body.removesuffix("---").rstrip() if end < len(text) or body.endswith("\n---") else body
        builder.add_message(_ROLES[as_str(speaker[1])], body, id=f"message-{number}")
    return builder


FORMAT = Format(
    NAME,
    "~/.cursor (agent transcripts), or Markdown files exported from Cursor",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="projects",
    iter_units=iter_units,
    places=(Place("~/.cursor"),),
    is_scattered=True,
)
