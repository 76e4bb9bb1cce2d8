"""Claude Code sessions: `~/.claude/projects/<project>/<session>.jsonl`, one record per line, and their sub-agents.

Every user, assistant and system record becomes a message in file order, including abandoned branches; `parentUuid`
stays with the message. Sub-agents become children. They are found in the lines of the session (`isSidechain`), next to
it (`agent-*.jsonl`) or below it (`<session>/subagents/`). Other files below `<session>/`, such as long tool results,
become attachments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import add_results, read_blocks
from store.transfer.formats.coerce import BadRecord, as_dict, as_str, make_id, make_title, parse, parse_time
from store.transfer.formats.importer import Format, ImportProblem, SessionDraft, SessionTree, read_problem
from store.transfer.formats.session_builder import SessionBuilder, parse_line
from store.transfer.formats.source import Line, Source

NAME = "claude-code"
_AGENT = "agent-"
# The same in nearly every line of a session: stored once, and with a message only if it differs.
_ENVELOPE = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint", "slug", "isSidechain", "agentId")
_MAPPED = {"type", "uuid", "timestamp", "message"}
_SIGNATURE_KEYS = (b'"sessionId"', b'"leafUuid"', b'"parentUuid"', b'"isSidechain"')


# -- session files -----------------------------------------------------------------------------


def _projects(source: Source) -> list[str]:
    """The directories that contain session files: the source itself, or its subdirectories."""
    if source.name is not None or _transcripts(source, ""):
        return [""]
    base = "projects/" if source.is_dir("projects") else ""
    names = source.directories(base.rstrip("/"))
    return [f"{base}{name}" for name in names if _transcripts(source, f"{base}{name}")]


def _transcripts(source: Source, directory: str) -> list[str]:
    return [e.name for e in source.entries(directory) if e.is_file and e.name.endswith(".jsonl")]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def recognise(source: Source) -> int | None:
    for directory in _projects(source):
        for name in _transcripts(source, directory):
            if name.startswith("rollout-"):
                continue
            for line in source.head(_join(directory, name)).splitlines()[:20]:
                if _is_record(line):
                    return 90
    return None


def _is_record(line: bytes) -> bool:
    """Whether a line looks like a record. Not parsed: the head of a file may end within its first line."""
    return line.startswith(b"{") and any(key in line for key in _SIGNATURE_KEYS)


# -- one session and its sub-agents --------------------------------------------------------------------


class _Agent(NamedTuple):
    """The file of a sub-agent."""

    path: str
    stem: str
    meta: dict[str, Any]


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    for directory in _projects(source):
        names = _transcripts(source, directory)
        roots = [name for name in names if not name.startswith(_AGENT)]
        agent_files = _find_agent_files(source, directory, [name for name in names if name.startswith(_AGENT)])
        for name in roots:
            stem = name.removesuffix(".jsonl")
            yield from _read_tree(source, directory, stem, agent_files.pop(stem, []))
        for agents in agent_files.values():  # their session file is missing: each becomes a root
            for agent in agents:
                yield from _read_tree(source, directory, agent.stem, [])


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


def _read_tree(
    source: Source, directory: str, stem: str, agents: list[_Agent]
) -> Iterator[SessionTree | ImportProblem]:
    path = _join(directory, f"{stem}.jsonl")
    reader = _ClaudeReader(source, path, Location(make_id(NAME, stem)), stem)
    yield from reader.read()
    if not reader.lines:
        yield ImportProblem(source.display_path(path), None, "no records")
        return
    below = [*source.iter_files(_join(directory, stem))] if source.is_dir(_join(directory, stem)) else []
    inside = [path for path in below if _is_agent(path)]
    for other in (path for path in below if not _is_agent(path)):
        name = other.removeprefix(_join(directory, stem) + "/")
        reader.root.attach_file(name, lambda other=other: source.iter_chunks(other))  # type: ignore[misc]
    agents = [*agents, *(_read_agent_meta(source, path) for path in inside)]
    yield SessionTree(reader.draft(), _read_children(source, reader, agents))


def _is_agent(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(_AGENT) and name.endswith(".jsonl")


def _read_agent_meta(source: Source, path: str) -> _Agent:
    meta: Any = None
    with suppress(OSError, BadRecord, InvalidContent):  # it is also kept as an attachment, so nothing is lost
        meta = parse(source.read(path.removesuffix(".jsonl") + ".meta.json")).value
    return _Agent(path, path.rpartition("/")[2].removesuffix(".jsonl"), as_dict(meta))


def _read_children(source: Source, root: _ClaudeReader, agents: list[_Agent]) -> Iterator[SessionDraft | ImportProblem]:
    fallback = root.fallback()
    for child in root.sidechains.values():
        yield child.build(fallback=fallback)
    stems = {agent.stem for agent in agents}
    for agent in agents:
        location = Location(root.location.root, make_id(NAME, agent.stem))
        reader = _ClaudeReader(source, agent.path, location, agent.stem)
        yield from reader.read()
        _apply_agent_meta(reader.root, agent.meta, stems)
        if reader.lines:
            yield reader.draft()
        else:
            yield ImportProblem(source.display_path(agent.path), None, "no records")


def _apply_agent_meta(child: SessionBuilder, meta: dict[str, Any], stems: set[str]) -> None:
    """Apply the metadata file of a sub-agent."""
    child.title = make_title(as_str(meta.get("description"))) or child.title
    child.subagent_type = as_str(meta.get("agentType")) or None
    above = f"{_AGENT}{as_str(meta.get('parentAgentId'))}"
    if above in stems:
        child.parent = make_id(NAME, above)
    depth = meta.get("spawnDepth")
    if isinstance(depth, int) and not isinstance(depth, bool) and 0 < depth < 1000:
        child.depth = depth
    if meta:
        child.add_metadata("agent", meta)


# -- the lines of one file ---------------------------------------------------------------------------------


class _ClaudeReader:
    """Read one file into one session, and into a child for each sidechain in the file of a root."""

    root: SessionBuilder
    sidechains: dict[str, SessionBuilder]

    def __init__(self, source: Source, path: str, location: Location, stem: str) -> None:
        self.source = source
        self.path = path
        self.location = location
        self.lines = 0
        self.sidechains = {}
        self.root = SessionBuilder(NAME, location, source.display_path(path), stem)
        self._titles: list[tuple[str, str]] = []  # (uuid of the summarised message, title)
        self._custom = ""
        self._chains: dict[str, str] = {}  # uuid of a sidechain line → name of the sidechain
        self._envelopes: dict[str, dict[str, Any]] = {}
        self._uuids: set[str] = set()

    def fallback(self) -> Timestamp:
        return Timestamp.from_ns(self.source.mtime_ns(self.path))

    def read(self) -> Iterator[ImportProblem]:
        path = self.source.display_path(self.path)
        try:
            for line in self.source.iter_lines(self.path):
                self.lines += 1
                try:
                    self._read_line(line)
                except BadRecord as error:
                    yield ImportProblem(path, line.number, str(error))
        except OSError as error:
            self.lines = 0
            yield read_problem(self.source, self.path, error)

    def _read_line(self, line: Line) -> None:
        raw, record, exact = parse_line(self.root, line)
        builder = self._builder_for(record)
        if not exact:
            builder.keep_raw(raw)
        self._add_record(builder, record, raw, line.number)

    def _builder_for(self, record: dict[str, Any]) -> SessionBuilder:
        """The builder for a record: that of its sidechain, or the root's. A sub-agent file is one session."""
        if self.location.child is not None or record.get("isSidechain") is not True or self._is_agent_file():
            return self.root
        uuid, parent, agent = (as_str(record.get(key)) for key in ("uuid", "parentUuid", "agentId"))
        chain = f"{_AGENT}{agent}" if agent else self._chains.get(parent) or f"sidechain-{uuid}"
        self._chains[uuid] = chain
        if chain not in self.sidechains:
            place = Location(self.location.root, make_id(NAME, chain))
            self.sidechains[chain] = SessionBuilder(NAME, place, self.root.path, chain)
        return self.sidechains[chain]

    def _is_agent_file(self) -> bool:
        return self.root.source_id.startswith(_AGENT)

    def _add_record(self, builder: SessionBuilder, record: dict[str, Any], raw: bytes, number: int) -> None:
        kind, at = record.get("type"), parse_time(record.get("timestamp"))
        envelope = self._envelopes.setdefault(builder.location.id, {})
        for key in _ENVELOPE:
            if key in record:
                envelope.setdefault(key, record[key])
        builder.add_time(at)
        self._uuids.add(as_str(record.get("uuid")))
        message = record.get("message")
        if kind in ("user", "assistant") and isinstance(message, dict):
            self._add_message(builder, record, message, at, raw, number)
        elif kind == "system" and isinstance(record.get("content"), str):
            rest = _unmapped(record, envelope, _MAPPED | {"content"})
            builder.add_message(
                "system",
                record["content"],
                id=_id(record, number),
                at=at,
                rest={"type": kind, **rest},
                raw=raw,
            )
        else:
            self._read_title(record)
            builder.keep_raw(raw)

    def _read_title(self, record: dict[str, Any]) -> None:
        if record.get("type") == "summary":
            self._titles.append((as_str(record.get("leafUuid")), as_str(record.get("summary"))))
        elif record.get("type") in ("custom-title", "ai-title"):
            self._custom = as_str(record.get("customTitle")) or as_str(record.get("aiTitle")) or self._custom

    def _add_message(
        self,
        builder: SessionBuilder,
        record: dict[str, Any],
        message: dict[str, Any],
        at: Timestamp | None,
        raw: bytes,
        number: int,
    ) -> None:
        blocks = read_blocks(message.get("content"), builder)
        rest = {**_unmapped(record, self._envelopes[builder.location.id], _MAPPED), **blocks.unmapped()}
        inner = {key: value for key, value in message.items() if key not in ("role", "content")}
        if message.get("role") != record["type"]:
            inner["role"] = message.get("role")
        if inner:
            rest["message"] = inner
        if at is None and record.get("timestamp") is not None:
            rest["timestamp"] = record["timestamp"]
        id = _id(record, number)
        add_results(builder, blocks, id, at, rest=rest, raw=raw)
        if blocks.results and not (blocks.texts or blocks.parts or blocks.calls or blocks.thinking):
            return
        own = {} if blocks.results else rest
        builder.add_message(record["type"], blocks.content, id=id, at=at, rest=own, raw=raw, **blocks.members())
        model = as_str(message.get("model"))
        if record["type"] == "assistant" and model and not model.startswith("<"):
            builder.model = model

    def draft(self) -> SessionDraft:
        known = [title for leaf, title in self._titles if leaf in self._uuids]
        self.root.title = make_title(self._custom or (known[-1] if known else "")) or self.root.title
        for builder in (self.root, *self.sidechains.values()):
            envelope = self._envelopes.get(builder.location.id, {})
            builder.workspace = as_str(envelope.get("cwd"))
            builder.add_metadata("envelope", envelope or None)
        return self.root.build(fallback=self.fallback())


def _id(record: dict[str, Any], number: int) -> str:
    return as_str(record.get("uuid")) or f"line-{number}"


def _unmapped(record: dict[str, Any], envelope: dict[str, Any], mapped: set[str]) -> dict[str, Any]:
    return {
        key: value
        for key, value in record.items()
        if key not in mapped and not (key in envelope and envelope[key] == value)
    }


FORMAT = Format(
    NAME, "~/.claude, ~/.claude/projects, one project in it, or one .jsonl file", recognise, iter_records, "projects"
)
