"""Claude Code sessions: `~/.claude/projects/<project>/<session>.jsonl`, one record per line, and their sub-agents.

Sub-agents become children. They are found in the lines of the session (`isSidechain`), next to it (`agent-*.jsonl`) or
below it (`<session>/subagents/`). Other files below `<session>/`, such as long tool results, become attachments. A file
that continues another one, by a copy of its records or as a fork, is linked to it. `claude_records` reads the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from store.errors import InvalidContent
from store.layout import Location
from store.transfer.formats.claude_records import AGENT, NAME, SIDECHAIN, ClaudeReader, resume
from store.transfer.formats.coerce import BadRecord, as_dict, as_str, make_id, make_title, parse
from store.transfer.formats.exported_session import BEFORE_EXPORT
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    Place,
    SessionDraft,
    SessionTree,
    SourceUnit,
    read_units,
)
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

# Of records without a message, which a session without a conversation consists of.
_OTHER_KINDS = re.compile(
    rb'"type":\s*"(summary|mode|permission-mode|file-history-snapshot|queue-operation|custom-title|ai-title'
    rb'|last-prompt|agent-name|attachment|system)"'
)
_ANSWER = re.compile(rb'"id":\s*"(msg_[^"]+)"')
_TIME = re.compile(rb'"timestamp":\s*"([^"]+)"')
_FORK = re.compile(rb'"forkedFrom":\s*\{[^{}]*"sessionId":\s*"([^"]+)"')


_ORIGINS: dict[tuple[str, str, int], dict[str, str]] = {}  # of projects that are followed
_MAX_ORIGINS = 64


# -- session files -----------------------------------------------------------------------------


def _projects(source: Source) -> list[str]:
    """The directories that contain session files: below projects/, the source itself, or its subdirectories."""
    if source.name is not None:
        return [""]
    if source.is_dir("projects"):
        names = [f"projects/{name}" for name in source.directories("projects")]
        return [name for name in names if _transcripts(source, name)]
    if any(_is_session(source, name) for name in _transcripts(source, "")):
        return [""]
    return [name for name in source.directories() if _transcripts(source, name)]


def _transcripts(source: Source, directory: str) -> list[str]:
    return [e.name for e in source.entries(directory) if e.is_file and e.name.endswith(".jsonl")]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def recognise(source: Source) -> int | None:
    for directory in _projects(source):
        for name in _transcripts(source, directory):
            if _is_session(source, _join(directory, name)):
                return 90
    return None


def _is_session(source: Source, path: str) -> bool:
    """Whether a file begins with records of Claude Code. Other agents use some of the same member names."""
    return any(_is_record(line) for line in source.head(path).splitlines()[:20])


def _is_record(line: bytes) -> bool:
    """Whether a line is a record. The last line of a head is incomplete: its members are searched as text."""
    if not line.startswith(b"{"):
        return False
    try:
        record = as_dict(orjson.loads(line))
    except orjson.JSONDecodeError:
        return b'"parentUuid"' in line and b'"isSidechain"' in line
    if "parentUuid" in record and "isSidechain" in record:
        return True
    message = as_dict(record.get("message"))
    if record.get("type") in ("user", "assistant") and {"role", "content"} <= message.keys():
        return "sessionId" in record or "uuid" in record
    return record.get("type") == "summary" and "leafUuid" in record


def _is_without_conversation(source: Source, path: str) -> bool:
    """Whether a file has only records of Claude Code that are not messages, or nothing at all."""
    lines = [line for line in source.head(path).splitlines()[:20] if line.strip()]
    return all(line.startswith(b"{") and _OTHER_KINDS.search(line) for line in lines)


# -- one session and its sub-agents --------------------------------------------------------------------


class _Agent(NamedTuple):
    """The file of a sub-agent."""

    path: str
    stem: str
    meta: dict[str, Any]


def iter_units(source: Source) -> Iterator[SourceUnit]:
    for directory in _projects(source):
        names = _transcripts(source, directory)
        roots = [name for name in names if not name.startswith(AGENT)]
        agent_files = _find_agent_files(source, directory, [name for name in names if name.startswith(AGENT)])
        origins = _find_origins(source, directory)
        for name in roots:
            stem = name.removesuffix(".jsonl")
            yield _unit(source, directory, stem, agent_files.pop(stem, []), origins)
        for agents in agent_files.values():  # their session file is missing: each becomes a root
            for agent in agents:
                yield _unit(source, directory, agent.stem, [], {})


def find_units(source: Source, paths: Iterable[str]) -> list[SourceUnit]:
    return [unit for path in paths if (unit := _find_unit(source, path)) is not None]


def _find_unit(source: Source, path: str) -> SourceUnit | None:
    """The session that a changed file belongs to: its own file, one below it, or a sub-agent next to it."""
    parts = path.split("/")
    if source.name is not None:
        return _unit(source, "", source.name.removesuffix(".jsonl"), [], {})
    depth = 2 if parts[0] == "projects" else 1 if source.is_dir(parts[0]) and not source.is_file(parts[0]) else 0
    directory = "/".join(parts[:depth])
    if len(parts) <= depth or (depth == 0 and source.is_dir("projects")):
        return None
    stem = parts[depth].removesuffix(".jsonl")
    siblings = _find_agent_files(source, directory, [n for n in _transcripts(source, directory) if n.startswith(AGENT)])
    if stem.startswith(AGENT):
        stem = next((session for session, agents in siblings.items() if any(a.stem == stem for a in agents)), stem)
    if not source.is_file(_join(directory, f"{stem}.jsonl")):
        return None
    return _unit(source, directory, stem, siblings.get(stem, []), _known_origins(source, directory))


def _known_origins(source: Source, directory: str) -> dict[str, str]:
    """The origins in a project, found again only when a file was added to it or removed."""
    known = _ORIGINS.get(_origins_key(source, directory))
    return known if known is not None else _find_origins(source, directory)


def _origins_key(source: Source, directory: str) -> tuple[str, str, int]:
    return str(source.root), directory, source.mtime_ns(directory)


def _unit(source: Source, directory: str, stem: str, agents: list[_Agent], origins: dict[str, str]) -> SourceUnit:
    path = _join(directory, f"{stem}.jsonl")
    below = [*source.iter_files(_join(directory, stem))] if source.is_dir(_join(directory, stem)) else []
    below = [file for file in below if not file.endswith(BEFORE_EXPORT)]
    files = (path, *(agent.path for agent in agents), *below)
    return SourceUnit(path, files, lambda: _read_tree(source, directory, stem, agents, below, origins))


def _find_agent_files(source: Source, directory: str, names: list[str]) -> dict[str, list[_Agent]]:
    """Sub-agent files next to the session files, by the session id they state."""
    found: dict[str, list[_Agent]] = {}
    for name in names:
        path = _join(directory, name)
        session = ""
        for line in source.head(path).splitlines():
            try:
                session = as_str(as_dict(orjson.loads(line)).get("sessionId"))
            except orjson.JSONDecodeError:
                continue
            if session:
                break
        found.setdefault(session, []).append(_Agent(path, name.removesuffix(".jsonl"), {}))
    return found


def _find_origins(source: Source, directory: str) -> dict[str, str]:
    """The session each file continues: the oldest other file with the same first answer.

    Versions before 2.0 copy all records into a new file at each resume, with the ids of the answers unchanged.
    """
    key = _origins_key(source, directory)
    names = [name for name in _transcripts(source, directory) if not name.startswith(AGENT)]
    same: dict[bytes, list[tuple[bytes, str]]] = {}
    for name in names:
        head = source.head(_join(directory, name))
        answer, at = _ANSWER.search(head), _TIME.search(head)
        if answer and at:
            same.setdefault(answer[1], []).append((at[1], name.removesuffix(".jsonl")))
    found: dict[str, str] = {}
    for files in same.values():
        origin = min(files)[1]
        found |= {stem: origin for _, stem in files if stem != origin}
    if len(_ORIGINS) >= _MAX_ORIGINS:
        _ORIGINS.clear()
    _ORIGINS[key] = found
    return found


def _read_tree(
    source: Source, directory: str, stem: str, agents: list[_Agent], below: list[str], origins: dict[str, str]
) -> Iterator[SessionTree | ImportProblem]:
    path = _join(directory, f"{stem}.jsonl")
    agents = [*agents, *(_read_agent_meta(source, path) for path in below if _is_agent(path))]
    reader = ClaudeReader(source, path, Location(make_id(NAME, stem)), stem)
    reader.read()
    if reader.is_broken or not (reader.has_messages or (agents and _is_without_conversation(source, path))):
        yield from _explain_empty(source, path, reader)
        for agent in agents:
            yield from _read_lone_agent(source, agent)
        return
    yield from reader.problems
    for other in (path for path in below if not _is_agent(path)):
        name = other.removeprefix(_join(directory, stem) + "/")
        reader.root.attach_file(name, lambda other=other: source.iter_chunks(other))  # type: ignore[misc]
    _link_origin(source, reader, path, origins.get(stem))
    yield SessionTree(reader.draft(), _read_children(source, reader, agents))


def _explain_empty(source: Source, path: str, reader: ClaudeReader) -> Iterator[ImportProblem]:
    """A session that was opened and left without a prompt is not a problem; a file of another kind is."""
    if reader.is_broken:
        yield from reader.problems
    elif not _is_without_conversation(source, path):
        yield ImportProblem(source.display_path(path), None, "not a Claude Code session; not imported")


def _read_lone_agent(source: Source, agent: _Agent) -> Iterator[SessionTree | ImportProblem]:
    """A sub-agent whose session has no conversation becomes a root."""
    reader = ClaudeReader(source, agent.path, Location(make_id(NAME, agent.stem)), agent.stem)
    reader.read()
    if reader.has_messages:
        yield from reader.problems
        yield SessionTree(reader.draft())
    else:
        yield from _explain_empty(source, agent.path, reader)


def _link_origin(source: Source, reader: ClaudeReader, path: str, origin: str | None) -> None:
    fork = _FORK.search(source.head(path))
    if fork is not None:
        reader.root.forked_from = make_id(NAME, fork[1].decode(errors="replace"))
    elif origin is not None:
        reader.root.resumed_from = make_id(NAME, origin)


def _is_agent(path: str) -> bool:
    """Whether a file is that of a sub-agent; an export writes those that were in the file of a root as SIDECHAIN."""
    name = path.rpartition("/")[2]
    return name.startswith((AGENT, SIDECHAIN)) and name.endswith(".jsonl")


def _read_agent_meta(source: Source, path: str) -> _Agent:
    meta: Any = None
    with suppress(OSError, BadRecord, InvalidContent):  # it is also kept as an attachment, so nothing is lost
        meta = parse(source.read(path.removesuffix(".jsonl") + ".meta.json")).value
    return _Agent(path, path.rpartition("/")[2].removesuffix(".jsonl"), as_dict(meta))


def _read_children(source: Source, root: ClaudeReader, agents: list[_Agent]) -> Iterator[SessionDraft | ImportProblem]:
    yield from root.iter_sidechains()
    stems = {agent.stem for agent in agents}
    spawned = dict(root.spawned)
    for agent in agents:
        if agent.stem.startswith(SIDECHAIN) and agent.stem in root.sidechains:
            continue  # exported from here, but the file of the root, which has it too, was not replaced
        location = Location(root.location.root, make_id(NAME, agent.stem, root.location.root))
        reader = ClaudeReader(source, agent.path, location, agent.stem)
        reader.read()
        _apply_agent_meta(reader.root, agent.meta, stems)
        reader.root.spawned_by = spawned.get(agent.stem.removeprefix(AGENT))
        spawned |= reader.spawned
        if reader.has_messages:
            yield from reader.problems
            yield reader.draft()
        else:
            yield from _explain_empty(source, agent.path, reader)


def _apply_agent_meta(child: SessionBuilder, meta: dict[str, Any], stems: set[str]) -> None:
    """Apply the metadata file of a sub-agent."""
    child.title = make_title(as_str(meta.get("description"))) or child.title
    child.subagent_type = as_str(meta.get("agentType")) or None
    above = f"{AGENT}{as_str(meta.get('parentAgentId'))}"
    if above in stems:
        child.parent = make_id(NAME, above, child.location.root)
    depth = meta.get("spawnDepth")
    if isinstance(depth, int) and not isinstance(depth, bool) and 0 < depth < 1000:
        child.depth = depth
    if meta:
        child.add_metadata("agent", meta)


FORMAT = Format(
    NAME,
    "~/.claude, ~/.claude/projects, one project in it, or one .jsonl file",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="projects",
    iter_units=iter_units,
    find_units=find_units,
    resume=resume,
    places=(Place("~/.claude", "CLAUDE_CONFIG_DIR"), Place("~/.config", "XDG_CONFIG_HOME", "claude")),
)
