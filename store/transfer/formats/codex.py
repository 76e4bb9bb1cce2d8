"""Codex sessions: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one thread per file.

A thread spawned by another becomes a child below the same root, at any depth. After a rewind a thread continues in a
further file, `rollout-<time>-<thread>_<segment>.jsonl`: both are one session, in which the abandoned messages are
marked. Compressed files (.jsonl.zst) and the .json files of the first versions are read too. `codex_records` reads the
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.codex_records import NAME, CodexReader, resume
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, make_id, make_title, parse, parse_time
from store.transfer.formats.file_position import FilePosition
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    Place,
    SessionDraft,
    SessionTree,
    SourceSession,
    SourceUnit,
    group_by_root,
    read_problem,
    read_tree,
    read_units,
)
from store.transfer.formats.resuming import make_cursor
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Line, Source

_EXTENSIONS = (".jsonl", ".jsonl.zst", ".json")
_LEVELS = 4  # YYYY/MM/DD/rollout-*
_INDEX = "session_index.jsonl"
# Members of the metadata that a session gets, or that tell how threads belong together.
_PLAIN_META = ("originator", "cli_version", "model_provider", "git", "forked_from_id", "parent_thread_id")
_META = {*_PLAIN_META, "id", "timestamp", "cwd", "source", "history_base"}
_SEGMENT = re.compile(r"_([0-9a-fA-F-]{8,})\.jsonl(?:\.zst)?$")


@dataclass(frozen=True)
class _Thread(SourceSession):
    """A rollout file with the metadata that its first lines state, and the files in which the thread continues."""

    meta: dict[str, Any]
    segments: tuple[_Thread, ...] = ()

    @property
    def base(self) -> dict[str, Any]:
        """The place in a thread before which this file begins; empty for the first file of a thread."""
        return as_dict(self.meta.get("history_base"))


_Tree = tuple[_Thread, list[tuple[_Thread, int]]]  # a root, and the threads below it with their depth
_THREADS: dict[tuple[str, str, bytes], _Thread] = {}  # by source, path and beginning
_TREES: dict[str, dict[str, _Tree]] = {}  # by source and path, as they were last listed
_MAX_REMEMBERED = 20_000
_KNOWN_BY_BYTES = 256  # with the time and the id of a thread
K = TypeVar("K")
V = TypeVar("V")


def _rollouts(source: Source) -> list[str]:
    if source.name is not None:
        return [source.name] if source.name.endswith(_EXTENSIONS) else []
    bases = [name for name in ("sessions", "archived_sessions") if source.is_dir(name)]
    found = [path for base in bases or [""] for path in source.iter_files(base, _LEVELS)]
    return [path for path in found if _is_rollout(path.rpartition("/")[2])]


def _is_rollout(name: str) -> bool:
    return name.startswith("rollout-") and name.endswith(_EXTENSIONS)


def recognise(source: Source) -> int | None:
    return 95 if any(_find_meta(source, path) for path in _rollouts(source)) else None


def _iter_lines(source: Source, path: str, position: FilePosition | None = None) -> Iterator[Line]:
    """The lines of a file. The first versions wrote one object, whose items are returned as lines."""
    if not path.endswith(".json"):
        yield from source.iter_lines(path, position)
        return
    whole = as_dict(parse(source.read(path)).value)
    for number, item in enumerate([whole.get("session"), *as_list(whole.get("items"))], 1):
        yield Line(number, orjson.dumps(item))


def _find_meta(source: Source, path: str) -> dict[str, Any] | None:
    """The session metadata in the first 20 lines of a file; None if there is none."""
    try:
        for line in _iter_lines(source, path):
            if line.number > 20:
                break
            try:
                record = as_dict(parse(line.data or b"").value)
            except BadRecord:
                continue
            if record.get("type") == "session_meta":
                return as_dict(record.get("payload"))
            if "type" not in record and isinstance(record.get("id"), str) and "timestamp" in record:
                return record
    except (OSError, BadRecord, InvalidContent):
        return None
    return None


def _read_thread(source: Source, path: str) -> _Thread:
    meta = _find_meta(source, path) or {}
    name = path.rpartition("/")[2].removeprefix("rollout-").partition(".json")[0]
    parent = as_str(_spawn_record(meta).get("parent_thread_id")) or as_str(meta.get("parent_thread_id"))
    kept = {key: value for key, value in meta.items() if key in _META}  # all instructions are in it too
    return _Thread(path, as_str(meta.get("id")) or name, parent or None, kept or dict.fromkeys(meta))


def _spawn_record(meta: dict[str, Any]) -> dict[str, Any]:
    """How another thread spawned this one; empty for a root."""
    return as_dict(as_dict(as_dict(meta.get("source")).get("subagent")).get("thread_spawn"))


def _join_segments(threads: list[_Thread]) -> list[_Thread]:
    """Each thread with the files in which it continues after a rewind, in the order of their names."""
    firsts = {thread.id for thread in reversed(threads) if not _continues(thread)}
    segments: dict[str, list[_Thread]] = {}
    for thread in threads:
        if _continues(thread) and thread.id in firsts:
            segments.setdefault(thread.id, []).append(thread)
    joined = [t for t in threads if not (_continues(t) and t.id in firsts)]
    return [replace(t, segments=tuple(segments.pop(t.id, ()))) for t in joined]


def _parts_of(tree: _Tree) -> list[_Thread]:
    """All files of a tree of threads."""
    root, below = tree
    return [part for member in (root, *(child for child, _ in below)) for part in (member, *member.segments)]


def _continues(thread: _Thread) -> bool:
    """Whether a file continues an earlier file of the same thread."""
    return as_str(thread.base.get("thread_id")) == thread.id


def iter_units(source: Source) -> Iterator[SourceUnit]:
    threads = [_known_thread(source, path) for path in _rollouts(source)]
    source.done_bytes = 0  # the files are read again, and progress counts those bytes
    grouped = group_by_root(_join_segments(threads))
    trees = {part.path: tree for tree in grouped for part in _parts_of(tree)}
    _remember(_TREES, str(source.root), trees)
    return map(_CodexHome(source).unit, grouped)


def find_units(source: Source, paths: Iterable[str]) -> list[SourceUnit] | None:
    """The trees of threads that changed files belong to; None if one of them is not a known rollout."""
    trees, home = _TREES.get(str(source.root), {}), _CodexHome(source)
    if source.name is not None or not all(path in trees for path in paths):
        return None
    return [home.unit(trees[path]) for path in paths]


def _known_thread(source: Source, path: str) -> _Thread:
    """The thread in a file. The beginning of a file is enough to know it again."""
    key = (str(source.root), path, source.head(path, _KNOWN_BY_BYTES))
    if key not in _THREADS:
        thread = _read_thread(source, path)
        if not thread.meta:
            return thread
        _remember(_THREADS, key, thread)
    return _THREADS[key]


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= _MAX_REMEMBERED:
        cache.clear()
    cache[key] = value


class _CodexHome:
    """The threads of a source, with the names given to them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = _read_names(source)
        self.spawned: dict[str, str] = {}  # id or task name of a sub-agent → the tool call that started it

    def unit(self, tree: _Tree) -> SourceUnit:
        """A root with the threads below it."""
        root, below = tree
        members = [root, *(child for child, _ in below)]
        names = "\n".join(self.names.get(member.id, "") for member in members)
        files = tuple(part.path for part in _parts_of(tree))
        return SourceUnit(root.path, files, partial(self._tree, root, below), state=names)

    def _tree(self, root: _Thread, below: list[tuple[_Thread, int]]) -> Iterator[SessionTree | ImportProblem]:
        return read_tree(self.source, NAME, root, below, self._read)

    def _read(
        self, source: Source, thread: _Thread, location: Location, depth: int
    ) -> Iterator[SessionDraft | ImportProblem]:
        """Yield the problems of a thread, then its draft."""
        path = source.display_path(thread.path)
        builder = SessionBuilder(NAME, location, path, thread.id)
        if location.child is not None and thread.parent is not None:
            builder.parent, builder.depth = make_id(NAME, thread.parent, location.root), depth
        self._apply_meta(builder, thread)
        reader, position = CodexReader(builder), FilePosition()
        try:
            for part in (thread, *thread.segments):
                position = FilePosition()
                yield from self._read_part(reader, part, position)
        except (OSError, BadRecord, InvalidContent) as error:
            yield read_problem(source, thread.path, error)
            return
        self.spawned |= reader.spawned
        if builder.messages:
            last = (thread, *thread.segments)[-1].path
            cursor = make_cursor(source, last, position, reader) if last.endswith(".jsonl") else None
            yield builder.build(fallback=Timestamp.from_ns(source.mtime_ns(thread.path)), cursor=cursor)
        elif not thread.meta:
            yield ImportProblem(path, None, "not a Codex session; not imported")

    def _read_part(self, reader: CodexReader, part: _Thread, position: FilePosition) -> Iterator[ImportProblem]:
        end = part.base.get("end_ordinal_exclusive")
        if _continues(part) and isinstance(end, int):
            reader.rewind(end)
            segment = _SEGMENT.search(part.path)
            reader.prefix = f"{segment[1] if segment else part.path}:"
        for line in _iter_lines(self.source, part.path, position):
            try:
                reader.read_line(line)
            except BadRecord as error:
                yield ImportProblem(self.source.display_path(part.path), line.number, str(error))

    def _apply_meta(self, builder: SessionBuilder, thread: _Thread) -> None:
        meta, spawn = thread.meta, _spawn_record(thread.meta)
        builder.add_time(parse_time(meta.get("timestamp")))
        builder.title = make_title(self.names.get(thread.id, ""))
        builder.workspace = as_str(meta.get("cwd"))
        builder.git_branch = as_str(as_dict(meta.get("git")).get("branch"))
        builder.subagent_type = as_str(spawn.get("agent_role")) or None
        task = as_str(spawn.get("agent_path")).rpartition("/")[2]
        builder.spawned_by = self.spawned.get(thread.id) or self.spawned.get(task) if spawn else None
        origin = as_str(meta.get("forked_from_id")) or as_str(thread.base.get("thread_id"))
        if origin and origin != thread.id:
            builder.forked_from = make_id(NAME, origin)
        for key in _PLAIN_META:
            builder.add_metadata(key, meta.get(key))


def _read_names(source: Source) -> dict[str, str]:
    """The names given with /rename, by thread; the last one counts."""
    names: dict[str, str] = {}
    if source.name is not None or not source.is_file(_INDEX):
        return names
    for line in source.head(_INDEX, 4 * 1024 * 1024).splitlines():
        try:
            record = as_dict(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue  # the file may be written at this moment
        if as_str(record.get("thread_name")):
            names[as_str(record.get("id"))] = record["thread_name"]
    return names


FORMAT = Format(
    NAME,
    "~/.codex, ~/.codex/sessions, or one rollout-*.jsonl file",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="sessions",
    iter_units=iter_units,
    find_units=find_units,
    resume=resume,
    places=(Place("~/.codex", "CODEX_HOME"),),
)
