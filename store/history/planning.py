"""Planning of versions: what a commit adds to the history, worked out before its files are replaced.

Nothing here writes. A plan is valid while the caller holds the lock of its session: no other writer
changes the lineage meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from store import layout
from store.disk.disk import Disk
from store.disk.file import File, NewFile, Temp
from store.errors import Corrupt
from store.history import reading, steps
from store.history.lineages import NO_TEXT, Lineage, TextState
from store.history.steps import REMOVAL, Step
from store.history.texts import digest_of_parts, said_ns_of
from store.history.versions import AgreedNumber, FileChanges, KnownChange, is_session_dir, mark_of, place_of

# A new whole text is stored when the steps since the last one are this many, or larger than it.
# More steps make reading slower, fewer make the history larger.
MAX_STEPS = 4096
MIN_STEP_BYTES = 256 << 10
# Compressing a longer text takes tens of milliseconds, which are left to idle time.
WHOLE_IN_COMMIT_BYTES = 1 << 20
# Small changes between two texts with a digest. It proves the steps before it too, as each builds on the last.
DIGEST_EVERY = 16


class NewText(NamedTuple):
    """One text of a version to be recorded."""

    path: str
    step: Step
    size: int | None
    digest: bytes | None
    said_ns: int | None


@dataclass
class PlannedVersion:
    """A version of one lineage; a text that is None stays as in the version before."""

    path: str
    lineage: Lineage | None
    what: str
    note: str = ""
    main: NewText | None = None
    side: NewText | None = None

    def set(self, text: NewText, *, is_side: bool) -> None:
        if is_side:
            self.side = text
        else:
            self.main = text


@dataclass
class RecordingPlan:
    """What one commit adds: versions, then moves of lineages, then `arrived` paths to be looked at."""

    versions: list[PlannedVersion] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    arrived: list[str] = field(default_factory=list)
    notes: Mapping[str, str] = field(default_factory=dict)  # by path of a lineage
    what: str = ""
    agreed: dict[str, AgreedNumber] = field(default_factory=dict)  # by directory of a unit of the grove

    def __bool__(self) -> bool:
        return bool(self.versions or self.moves or self.arrived)


class Replacement(NamedTuple):
    """A kept file that a commit replaces or removes."""

    path: str
    is_side: bool
    new: NewFile | None  # None: removed


def replacements(changes: FileChanges) -> dict[str, list[Replacement]]:
    """The kept files that a commit replaces or removes, by lineage."""
    found: dict[str, list[Replacement]] = {}
    for file in changes.files:
        place = place_of(file.path)
        if place is not None:
            found.setdefault(place.dir, []).append(Replacement(file.path, place.is_side, file))
    for source, target in changes.moves:
        place = place_of(source)
        if place is not None and not _follows(place.dir, source, target):
            found.setdefault(place.dir, []).append(Replacement(source, place.is_side, None))
    return found


def _follows(lineage: str, source: str, target: str) -> bool:
    """Whether a file takes its lineage along: into the trash, or to a name whose versions are kept too.

    A document of a session leaves its lineage, which is the session's.
    """
    return lineage == source and (target.startswith(f"{layout.TRASH}/") or place_of(target) is not None)


def lineage_moves(moves: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The moves that lineages follow: of directories, and of kept files that are not documents."""
    found = []
    for source, target in moves:
        place = place_of(source)
        is_file_move = place is not None and not _follows(place.dir, source, target)
        if not is_file_move and not source.startswith(layout.TMP) and not target.startswith(layout.TMP):
            found.append((source, target))
    return found


def arrivals(changes: FileChanges) -> list[str]:
    """Lineages whose files come by a move: from the trash, or from tmp/ with a note."""
    placed = [place.dir for _, target in changes.moves if (place := place_of(target)) is not None]
    made = [
        path
        for source, target in changes.moves
        if source.startswith(layout.TMP)
        for path in changes.notes
        if path == target or path.startswith(f"{target}/")
    ]
    return list(dict.fromkeys([*placed, *made]))


@dataclass(frozen=True)
class Planner:
    """Compares files with the newest versions of their lineages."""

    disk: Disk

    def version(
        self, lineage: Lineage | None, path: str, found: Sequence[Replacement], changes: FileChanges
    ) -> PlannedVersion:
        """The version that a commit makes. Every replaced file is the newest version of its lineage."""
        planned = PlannedVersion(path, lineage, changes.what, changes.notes.get(path, ""))
        for place in found:
            state = _state(lineage, is_side=place.is_side)
            if place.new is not None:
                text = self._text_after(state, place.new, changes.known.get(place.path))
            else:
                text = NewText(place.path, REMOVAL, None, None, None)
            planned.set(text, is_side=place.is_side)
        return planned

    def _text_after(self, state: TextState, file: NewFile, known: KnownChange | None) -> NewText:
        """The new text of a file, as a step from the one it replaces."""
        parts = _parts_of(file)
        size = file.kept_bytes + sum(map(len, parts))
        like = file.like if file.like is not None and _is_read(file.like) and state.size is not None else None
        said_ns: int | None
        if known is not None and known.splices is not None and like is not None:
            step, said_ns = steps.encode_splices(like.data, known.splices, like.start), known.said_ns
        else:
            parts = self._with_kept(file, parts)
            file = file._replace(kept_bytes=0)
            text = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
            step = steps.encode(like.data if like is not None and _is_whole(like) else None, text)
            said_ns = known.said_ns if known is not None else said_ns_of(text)
        # A text with the updated_at of the one before may have to be found again among all that say the same.
        needs_digest = step.kind != steps.SPLICES or said_ns == state.said_ns or state.steps % DIGEST_EVERY == 0
        if file.kept_bytes:  # a long text whose beginning was not read; idle time stores what is left out here
            return NewText(file.path, step, size, None, said_ns)
        digest = digest_of_parts(parts, size) if needs_digest else None
        if step.kind != steps.WHOLE and _is_run_full(state, step) and size <= WHOLE_IN_COMMIT_BYTES:
            step = steps.whole(b"".join(parts))
        return NewText(file.path, step, size, digest, said_ns)

    def _with_kept(self, file: NewFile, parts: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """The parts of the whole text: those of a file that keeps a beginning are only its end."""
        present = self.disk.read(file.path) if file.kept_bytes else None
        return [present.data[: file.kept_bytes], *parts] if present is not None else parts

    def present(self, path: str, found: Sequence[Replacement] = ()) -> list[tuple[str, bool, File | None]]:
        """The files of a lineage as they are now: path, whether it is the sidecar, content."""
        known = {place.path: place.new.like for place in found if place.new is not None and _is_whole(place.new.like)}
        if is_session_dir(path):
            names = [(f"{path}/{layout.SESSION}", False), (f"{path}/{layout.RUNTIME}", True)]
        else:
            names = [(path, False)]
        return [(name, is_side, known[name] if name in known else self._read(name)) for name, is_side in names]

    def _read(self, path: str) -> File | None:
        """A file; None if there is none, or something else has its name."""
        try:
            return self.disk.read(path)
        except (Corrupt, PermissionError):
            return None

    def is_recorded(self, lineage: Lineage | None, found: Sequence[Replacement]) -> bool:
        """Whether the files to be replaced are those of the newest version, by their stamps."""
        for place in found:
            state = _state(lineage, is_side=place.is_side)
            like = place.new.like if place.new is not None else None
            mark = mark_of(like.stamp) if like is not None and _is_read(like) else self.mark(place.path)
            if state.mark != mark:
                return False
        return True

    def mark(self, path: str) -> int | None:
        """The mark of a file as it is; None if there is none."""
        stamp = self.disk.stamp(path)
        return mark_of(stamp) if stamp is not None else None

    def difference(
        self, db: apsw.Connection, lineage: Lineage | None, path: str, file: File | None, *, is_side: bool
    ) -> NewText | None:
        """The step from the newest version to a file as it is; None if they are equal."""
        state = _state(lineage, is_side=is_side)
        if file is None:
            return None if state.size is None else NewText(path, REMOVAL, None, None, None)
        digest = digest_of_parts([file.data], len(file.data))
        if state.size == len(file.data) and digest is not None and digest == state.digest:
            return None
        old = _newest_text(db, lineage, is_side=is_side) if state.size is not None else None
        if old == file.data:
            return None
        return NewText(path, steps.encode(old, file.data), len(file.data), digest, said_ns_of(file.data))


def _state(lineage: Lineage | None, *, is_side: bool) -> TextState:
    if lineage is None:
        return NO_TEXT
    return lineage.side if is_side else lineage.main


def _is_read(like: File) -> bool:
    """Whether a replaced file, or the end of it, was read, and not only stat-ed."""
    return like.start + len(like.data) == like.stamp.size


def _is_whole(like: File | None) -> bool:
    return like is not None and _is_read(like) and not like.start


def _newest_text(db: apsw.Connection, lineage: Lineage | None, *, is_side: bool) -> bytes | None:
    if lineage is None:
        return None
    try:
        return reading.read_text(db, lineage.key, lineage.last, "side" if is_side else "main")
    except Corrupt:  # a new whole text begins; `check` reports the damage
        return None


def _is_run_full(state: TextState, step: Step) -> bool:
    total = state.step_bytes + len(step.data)
    return state.steps >= MAX_STEPS or total > max(state.whole_bytes, MIN_STEP_BYTES)


def _parts_of(file: NewFile) -> Sequence[bytes | memoryview]:
    if isinstance(file.content, Temp):
        if file.text is not None:
            return [file.text]
        fd = file.content.fd
        return [os.pread(fd, os.fstat(fd).st_size, 0)]
    assert isinstance(file.content, list | tuple), "an iterator can be consumed only once"
    return file.content
