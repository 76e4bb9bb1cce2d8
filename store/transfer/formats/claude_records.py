"""Records of a Claude Code file: each line becomes a message, a part of the session's logs, or a kept record.

Every user, assistant and system record becomes a message in file order. So does what a person typed while the agent
worked, which is stored as an attachment record or, in older versions, only as an operation on the queue. After a
rewind the abandoned messages stay, marked in their metadata. Usage is repeated on each line of an answer and counts
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import BlockContent, add_results, read_blocks, token_counts
from store.transfer.formats.claude_queue import PromptQueue
from store.transfer.formats.coerce import BadRecord, as_dict, as_str, make_id, make_title, parse_time
from store.transfer.formats.file_position import FilePosition
from store.transfer.formats.importer import ImportProblem, ResumedFile, SessionDraft, read_problem
from store.transfer.formats.resuming import NeedsWholeFile, make_cursor
from store.transfer.formats.session_builder import SessionBuilder, parse_line
from store.transfer.formats.source import Line, Source

NAME = "claude-code"
AGENT = "agent-"
SIDECHAIN = "sidechain-"  # a sub-agent without an id, named after its first record
# The same in nearly every line of a session: stored once, and with a message only if it differs.
_ENVELOPE = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint", "slug", "isSidechain", "agentId")
_MAPPED = {"type", "uuid", "timestamp", "message"}
_MAX_SINCE_PROMPT = 2_000  # uuids in a cursor
ABANDONED = "abandoned"  # metadata of messages that a rewind left behind
RECORD_BLOCKS = "record_blocks"  # metadata of a tool result: blocks of its record, next to the result


class ClaudeReader:
    """Read one file into one session, and into a child for each sidechain in the file of a root."""

    root: SessionBuilder
    sidechains: dict[str, SessionBuilder]
    spawned: dict[str, str]  # id of a sub-agent → the tool call that started it

    def __init__(self, source: Source, path: str, location: Location, stem: str) -> None:
        self.source = source
        self.path = path
        self.location = location
        self.problems: list[ImportProblem] = []
        self.is_broken = False
        self.sidechains = {}
        self.spawned = {}
        self.root = SessionBuilder(NAME, location, source.display_path(path), stem)
        self._titles: list[tuple[str, str]] = []  # (uuid of the summarised message, title)
        self._custom = self._generated_title = ""
        self._chains: dict[str, str] = {}  # uuid of a sidechain line → name of the sidechain
        self._envelopes: dict[str, dict[str, Any]] = {}
        self._parents: dict[str, str] = {}  # uuid of a record → its parentUuid
        self._places: dict[str, int] = {}  # uuid of a record → number of messages before it
        self._since_prompt: dict[str, None] = {}  # uuids since the last prompt, in order
        self._unknown_leaves: set[str] = set()  # uuids that summaries name and earlier lines do not have
        self._queue = PromptQueue(self.root)
        self._position = FilePosition()
        self._is_resumed = False

    @property
    def builder(self) -> SessionBuilder:
        return self.root

    @property
    def has_messages(self) -> bool:
        return bool(self.root.messages or self.sidechains)

    def fallback(self) -> Timestamp:
        return Timestamp.from_ns(self.source.mtime_ns(self.path))

    def read(self) -> None:
        """Read all lines. What cannot be read is added to `problems`."""
        path = self.source.display_path(self.path)
        try:
            for line in self.source.iter_lines(self.path, self._position):
                try:
                    self.read_line(line)
                except BadRecord as error:
                    self.problems.append(ImportProblem(path, line.number, str(error)))
        except OSError as error:
            self.is_broken = True
            self.problems.append(read_problem(self.source, self.path, error))

    def read_line(self, line: Line) -> None:
        for raw, record, exact in parse_line(self.root, line):
            builder = self._builder_for(record)
            if not exact:
                builder.keep_raw(raw)
            self._add_record(builder, record, raw, line.number)

    def _builder_for(self, record: dict[str, Any]) -> SessionBuilder:
        """The session of a record: a sidechain in the file of a root is a child."""
        if self.location.child is not None or record.get("isSidechain") is not True or self._is_agent_file():
            return self.root
        if self._is_resumed:
            raise NeedsWholeFile("a sub-agent in the file of its session")
        uuid, parent, agent = (as_str(record.get(key)) for key in ("uuid", "parentUuid", "agentId"))
        chain = f"{AGENT}{agent}" if agent else self._chains.get(parent) or f"{SIDECHAIN}{uuid}"
        self._chains[uuid] = chain
        if chain not in self.sidechains:
            place = Location(self.location.root, make_id(NAME, chain, self.location.root))
            self.sidechains[chain] = SessionBuilder(NAME, place, self.root.path, chain)
        return self.sidechains[chain]

    def _is_agent_file(self) -> bool:
        return self.root.source_id.startswith(AGENT)

    # -- one record --------------------------------------------------------------------------------

    def _add_record(self, builder: SessionBuilder, record: dict[str, Any], raw: bytes, number: int) -> None:
        kind, at = record.get("type"), parse_time(record.get("timestamp"))
        envelope = self._envelopes.setdefault(builder.location.id, {})
        if len(envelope) < len(_ENVELOPE):
            for key in _ENVELOPE:
                if key not in envelope and key in record:
                    envelope[key] = record[key]
        builder.add_time(at)
        self._follow_branch(builder, record)
        if kind in ("user", "assistant") and "content" in as_dict(record.get("message")):
            self._add_message(builder, record, at, raw, number)
        elif kind == "system" and isinstance(record.get("content"), str):
            rest = _unmapped(record, envelope, _MAPPED | {"content"})
            rest = {"type": kind, **rest}
            builder.add_message("system", record["content"], id=_id(record, number), at=at, rest=rest, raw=raw)
        elif kind == "attachment" and _queued_prompt(record):
            self._add_queued(builder, record, at, raw, number)
        else:
            self._read_other(builder, record, at, number)
            builder.keep_raw(raw)

    def _read_other(self, builder: SessionBuilder, record: dict[str, Any], at: Timestamp | None, number: int) -> None:
        """A record that is not a message: it may hold a title, or a prompt in the queue."""
        kind = record.get("type")
        if kind == "summary" and self._is_resumed:
            raise NeedsWholeFile("a summary of an earlier message")
        if kind == "summary":
            self._titles.append((as_str(record.get("leafUuid")), as_str(record.get("summary"))))
        elif kind == "custom-title":
            self._custom = as_str(record.get("customTitle")) or self._custom
        elif kind == "ai-title":
            self._generated_title = as_str(record.get("aiTitle")) or self._generated_title
        elif kind == "queue-operation" and builder is self.root:
            self._queue.read(record, at, number)

    def _add_message(
        self, builder: SessionBuilder, record: dict[str, Any], at: Timestamp | None, raw: bytes, number: int
    ) -> None:
        message = record["message"]
        blocks = read_blocks(message.get("content"), builder)
        if blocks.results:
            _share_texts(blocks, record)
        rest = self._rest(builder, record, blocks, at)
        id = _id(record, number)
        first = len(builder.messages)
        add_results(builder, blocks, id, at, rest=rest, raw=raw)
        self._link_sub_agent(builder, record, first)
        if record["type"] == "assistant":
            self._add_usage(builder, record, at)
        if blocks.results and not (blocks.texts or blocks.parts or blocks.calls or blocks.thinking):
            return
        own = {} if blocks.results else rest
        is_generated = record.get("isMeta") is True or record.get("isCompactSummary") is True
        members = blocks.members()
        builder.add_message(
            record["type"], blocks.content, id=id, at=at, rest=own, raw=raw, is_generated=is_generated, **members
        )
        if record["type"] == "user":
            self._queue.deliver(blocks.content)

    def _rest(
        self, builder: SessionBuilder, record: dict[str, Any], blocks: BlockContent, at: Timestamp | None
    ) -> dict[str, Any]:
        """The members of a record that the message does not hold."""
        message = record["message"]
        rest = {**_unmapped(record, self._envelopes[builder.location.id], _MAPPED), **blocks.unmapped()}
        if blocks.results and "blocks" in rest:
            rest[RECORD_BLOCKS] = rest.pop("blocks")  # `blocks` are those of the first result
        inner = {key: value for key, value in message.items() if key not in ("role", "content")}
        if message.get("role") != record["type"]:
            inner["role"] = message.get("role")
        if inner:
            rest["message"] = inner
        if at is None and record.get("timestamp") is not None:
            rest["timestamp"] = record["timestamp"]
        return rest

    def _add_usage(self, builder: SessionBuilder, record: dict[str, Any], at: Timestamp | None) -> None:
        message = record["message"]
        model = as_str(message.get("model"))
        builder.status = "error" if record.get("isApiErrorMessage") is True else None
        if not model or model.startswith("<"):  # "<synthetic>": written by the program itself
            return
        builder.model = model
        answer = as_str(message.get("id")) or as_str(record.get("uuid"))
        usage = as_dict(message.get("usage"))
        if usage and answer:
            cost = record.get("costUSD")
            priced = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
            builder.logs.add_usage(answer, at, model, token_counts(usage), priced)

    def _link_sub_agent(self, builder: SessionBuilder, record: dict[str, Any], first: int) -> None:
        """Link the result of a tool call that started a sub-agent to the session of that sub-agent."""
        if "toolUseResult" not in record:
            return
        agent = as_str(as_dict(record["toolUseResult"]).get("agentId"))
        if agent and first < len(builder.messages):
            if self._is_resumed and agent not in self.spawned:
                raise NeedsWholeFile("the result of a sub-agent, whose session is linked to it")
            message = builder.messages[first]
            child = make_id(NAME, f"{AGENT}{agent}", self.location.root)
            builder.note(message, "child_session_id", child)
            self.spawned[agent] = message["tool_call_id"]

    # -- prompts typed while the agent works ---------------------------------------------------------

    def _add_queued(
        self, builder: SessionBuilder, record: dict[str, Any], at: Timestamp | None, raw: bytes, number: int
    ) -> None:
        """A queued prompt that the agent got, as the newest versions store it."""
        blocks = read_blocks(record["attachment"]["prompt"], builder)
        attachment = {key: value for key, value in record["attachment"].items() if key != "prompt"}
        envelope = self._envelopes[builder.location.id]
        rest = {**_unmapped(record, envelope, {*_MAPPED, "attachment"}), "attachment": attachment, **blocks.unmapped()}
        builder.add_message(
            "user", blocks.content, id=_id(record, number), at=at, rest=rest, raw=raw, **blocks.members()
        )
        self._queue.deliver(blocks.content)

    # -- rewinds -------------------------------------------------------------------------------------

    def _follow_branch(self, builder: SessionBuilder, record: dict[str, Any]) -> None:
        """Mark what a rewind abandoned: a prompt that continues from before the last prompt."""
        uuid, parent = as_str(record.get("uuid")), as_str(record.get("parentUuid"))
        if not uuid or builder is not self.root:
            return
        if self._is_resumed and uuid in self._unknown_leaves:
            raise NeedsWholeFile("a message that a summary names")
        if _is_prompt(record):
            if parent not in self._since_prompt and self._is_known(parent):
                self._mark_abandoned(parent)
            self._since_prompt = {}
        self._since_prompt[uuid] = None
        self._parents[uuid] = parent
        self._places[uuid] = builder.count

    def _is_known(self, uuid: str) -> bool:
        """Whether a record is in this file. A resumed reader knows only the last ones."""
        if self._is_resumed and uuid and uuid not in self._places:
            raise NeedsWholeFile("perhaps a rewind to an earlier prompt")
        return uuid in self._places

    def _mark_abandoned(self, parent: str) -> None:
        current, at = set(), parent
        while at and at not in current:
            current.add(at)
            at = self._parents.get(at, "")
        first = self.root.count - len(self.root.messages)
        for message in self.root.messages[self._places[parent] - first :]:
            if message["id"].partition(":")[0] not in current:
                self.root.note(message, ABANDONED, True)

    # -- the session -----------------------------------------------------------------------------------

    def finish(self) -> None:
        self._queue.insert()
        known = [title for leaf, title in self._titles if leaf in self._places]
        title = self._custom or self._generated_title or (known[-1] if known else "")
        self.root.title = make_title(title) or self.root.title
        for builder in (self.root, *self.sidechains.values()):
            self._apply_envelope(builder)

    def draft(self) -> SessionDraft:
        self.finish()
        cursor = make_cursor(self.source, self.path, self._position, self)
        self._parents, self._places, self._since_prompt = {}, {}, {}  # frees the ids of all records
        return self.root.build(fallback=self.fallback(), moved=self._queue.delivered, cursor=cursor)

    def dump(self) -> dict[str, Any] | None:
        if self.sidechains:
            return None
        return {
            "envelope": self._envelopes.get(self.location.id, {}),
            "titles": [self._custom, self._generated_title],
            "unknown_leaves": [*self._unknown_leaves, *(leaf for leaf, _ in self._titles if leaf not in self._places)],
            "since_prompt": [*self._since_prompt][-_MAX_SINCE_PROMPT:],
            "spawned": self.spawned,
            "queue": self._queue.dump(),
        }

    def restore(self, known: dict[str, Any]) -> None:
        """Go on after the lines that `dump` was called after. The builder was restored before."""
        self._is_resumed = True
        self._envelopes[self.location.id] = known["envelope"]
        self._custom, self._generated_title = known["titles"]
        self._unknown_leaves = set(known["unknown_leaves"])
        self._since_prompt = dict.fromkeys(known["since_prompt"])
        self.spawned = known["spawned"]
        self._queue.restore(known["queue"])

    def _apply_envelope(self, builder: SessionBuilder) -> None:
        envelope = self._envelopes.get(builder.location.id, {})
        builder.workspace = as_str(envelope.get("cwd"))
        branch = as_str(envelope.get("gitBranch"))
        builder.git_branch = "" if branch == "HEAD" else branch
        builder.add_metadata("envelope", envelope or None)

    def iter_sidechains(self) -> Iterator[SessionDraft]:
        for child in self.sidechains.values():
            yield child.build(fallback=self.fallback())


def resume(file: ResumedFile) -> ClaudeReader:
    reader = ClaudeReader(file.source, file.path, file.location, file.source_id)
    reader.restore(file.state)
    return reader


def _id(record: dict[str, Any], number: int) -> str:
    return as_str(record.get("uuid")) or f"line-{number}"


def _share_texts(blocks: BlockContent, record: dict[str, Any]) -> None:
    """Let the structured result of a tool share the text of its message: most of a log is there twice."""
    texts = {block["content"]: block["content"] for block in blocks.results if isinstance(block.get("content"), str)}
    result = as_dict(record.get("toolUseResult"))
    for holder in (result, as_dict(result.get("file"))) if texts else ():
        for key, value in holder.items():
            if isinstance(value, str) and value in texts:
                holder[key] = texts[value]


def _queued_prompt(record: dict[str, Any]) -> bool:
    attachment = as_dict(record.get("attachment"))
    is_prompt = attachment.get("type") == "queued_command" and attachment.get("commandMode", "prompt") == "prompt"
    return is_prompt and isinstance(attachment.get("prompt"), str | list)


def _is_prompt(record: dict[str, Any]) -> bool:
    """Whether a person typed this record: no tool result, no text of the program."""
    if record.get("type") != "user" or record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return False
    content = as_dict(record.get("message")).get("content")
    if isinstance(content, str):
        return not content.lstrip().startswith("<")
    return isinstance(content, list) and not any(as_dict(block).get("type") == "tool_result" for block in content)


def _unmapped(record: dict[str, Any], envelope: dict[str, Any], mapped: set[str]) -> dict[str, Any]:
    return {
        key: value
        for key, value in record.items()
        if key not in mapped and not (key in envelope and envelope[key] == value)
    }
