"""Applying: a row of the log becomes an ordinary commit of this home, agreed to already.

Index, search, feed, history and mounts follow as they do after any other commit. A row is applied
once: one that is not newer than the home's version of its unit is skipped, and a file that has the
agreed content is not written again. The caller holds the lock of the unit, and that of the tree if
a row deletes the unit or brings it into being.

An outside edit that a row replaces is kept as a rejected write, and the history has it too. `edits`
collects them, for `outside` to merge.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import get_args

from store import layout
from store.commit import session_reader
from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.commit.journal import AgreedCommit
from store.commit.session_reader import DocumentPair
from store.commit.to_trash import to_trash
from store.disk.file import File, NewFile, Stamp
from store.disk.rejects import Rejects
from store.errors import Busy, Conflict, Corrupt, ReadOnly, StoreError
from store.grove.collapsing import ChunkReader, collapse
from store.grove.replica import AgreedUnit, Replica
from store.grove.row_plan import OutsideEdit, RowPlan, RowPlanner
from store.grove.units import location_of, unescape_path
from store.grove.wire import BadRow, Gone, LogRow, Operation, Put, Whole, decode_ops
from store.history.authors import Author, Via, acting_as
from store.history.versions import place_of
from store.index.catalog import NO_VERSION, IndexUpdate
from store.index.change_feed import What
from store.layout import Location
from store.path_kinds import PathKind, classify_path
from store.sessions.delete import DeleteOperations

log = logging.getLogger("grovefs.store")

_BASES_TRIED = 20  # versions of the history that are compared with the base of a step
_MAX_PROGRAM = 80
_FILES_TOGETHER = 100  # in one commit of a new host; and their bytes:
_BYTES_TOGETHER = 8 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REASONS = {
    PathKind.ATTACHMENT: "attachment deleted",
    PathKind.RECORD: "record deleted",
}


class LostHistory(ReadOnly):
    """The database has lost commits that it had acknowledged."""


def apply_rows(core: Core, replica: Replica, rows: Sequence[LogRow], read_chunk: ChunkReader) -> list[OutsideEdit]:
    """Apply rows of one unit, in ascending order; returns the outside edits that they replaced.

    Raises BadRow or LostHistory.
    """
    applier = Applier(core, replica)
    applier.apply(rows, read_chunk)
    return applier.edits


def apply_whole(core: Core, replica: Replica, rows: Sequence[LogRow], read_chunk: ChunkReader) -> list[OutsideEdit]:
    """Make the files of a unit those of its newest version, whatever they are now.

    `rows` are those from the last whole version on.
    """
    applier = Applier(core, replica)
    applier.apply_plan(applier.plan_whole(rows, read_chunk))
    return applier.edits


def apply_new(core: Core, replica: Replica, units: Sequence[Sequence[LogRow]], read_chunk: ChunkReader) -> None:
    """The same for many units, of which most are new here: new sessions of one author share a commit.

    No other process has the home open. A unit whose rows cannot be read is noted as behind.
    """
    applier = Applier(core, replica)
    shared: dict[tuple[Author, What], list[RowPlan]] = {}
    others: list[RowPlan] = []
    for rows in units:
        try:
            plan = applier.plan_whole(rows, read_chunk)
        except BadRow as error:
            log.warning("%s: not stored here: %s", rows[-1].unit, error)
            replica.note_behind(rows[-1].unit, str(error))
        else:
            key = author_of(plan.row), what_of(plan.row)
            (shared.setdefault(key, []) if _is_new_session(plan) else others).append(plan)
    for (author, what), plans in shared.items():
        for some in _portions(plans):
            applier.store_sessions(some, author, what)
    for plan in others:
        with core.locked_tree(location_of(plan.row.unit).root):
            applier.apply_plan(plan)


def put_back(
    core: Core,
    replica: Replica,
    rows: Sequence[LogRow],
    names: Collection[str],
    why: StoreError,
    read_chunk: ChunkReader,
) -> None:
    """Give files of a unit their agreed content again. What they have now is kept as rejected, with the reason.

    `rows` are those from a whole version to the one that this home has.
    """
    row = collapse(rows, read_chunk)
    ops = decode_ops(row.ops, row.unit)
    wanted = tuple(o for o in ops if isinstance(o, Put) and unescape_path(o.path) in names)
    Applier(core, replica, why=why).apply_row(row, wanted, read_chunk)


@dataclass
class Applier:
    core: Core
    replica: Replica
    edits: list[OutsideEdit] = field(default_factory=list)  # outside edits that rows replaced
    why: StoreError | None = None  # the reason that is stored with them; None: the row

    def apply(self, rows: Sequence[LogRow], read_chunk: ChunkReader) -> None:
        for row in rows:
            if not self.check_order(row):
                continue
            ops = decode_ops(row.ops, row.unit)
            known = self.replica.find_unit(row.unit)
            version = known.version if known is not None else 0
            if row.version > version + 1 and not (ops and isinstance(ops[0], Whole | Gone)):
                raise BadRow(f"{row.unit}: versions {version + 1} to {row.version - 1} are missing")
            self.apply_row(row, ops, read_chunk)

    def check_order(self, row: LogRow) -> bool:
        """Whether a row is newer than this home. Raises LostHistory if the two do not fit together."""
        known = self.replica.find_unit(row.unit)
        return known is None or check_order(known, row)

    def apply_row(self, row: LogRow, ops: tuple[Operation, ...], read_chunk: ChunkReader) -> None:
        self.apply_plan(self._plan(row, ops, read_chunk))

    def plan_whole(self, rows: Sequence[LogRow], read_chunk: ChunkReader) -> RowPlan:
        """What makes the files of a unit those of its newest version."""
        row = collapse(rows, read_chunk)
        known = self.replica.find_unit(row.unit)
        if known is not None and (known.version, known.token) != (row.version, row.token):
            self.check_order(row)
        return self._plan(row, decode_ops(row.ops, row.unit), read_chunk)

    def _plan(self, row: LogRow, ops: tuple[Operation, ...], read_chunk: ChunkReader) -> RowPlan:
        agreed = self.replica.files(row.unit)
        return RowPlanner(self.core.disk, agreed, read_chunk, self._base_text, RowPlan(row)).run(ops)

    def _base_text(self, path: str, digest: bytes) -> bytes | None:
        """An older text of a file, from the history: another program may have replaced the file."""
        is_side = path.endswith(f"/{layout.RUNTIME}")
        for version in self.core.history.log(path, limit=_BASES_TRIED):
            text = self.core.history.read_document(version, is_side=is_side)
            if text is not None and hashlib.sha256(text).digest() == digest:
                return text
        return None

    # -- commits -----------------------------------------------------------------------------------

    def apply_plan(self, plan: RowPlan) -> None:
        location = location_of(plan.row.unit)
        if plan.is_gone:
            return self._delete(plan, location)
        if not plan.changes_files:
            return self._recognise(plan)
        for edit in plan.edits:
            self._keep(edit, plan.row)
        index = self._index(plan, location)
        commit, temps = self._commit(plan, location, index)
        with acting_as(author_of(plan.row)):
            self.core.journal.run(commit, index)
        for temp in temps:
            self.core.disk.drop_temp(temp)
        self.core.on_commit()

    def _recognise(self, plan: RowPlan) -> None:
        """The files have the agreed content already: this host ended before it recorded that."""
        history = self.core.history
        numbers = plan.version.numbers()
        for path in {place.dir for path in plan.present if (place := place_of(path)) is not None}:
            if not history.has_lineage(path):
                history.observe(path, author=author_of(plan.row), what=what_of(plan.row))
                history.note_agreed({path: numbers[path]})
        self.replica.record_agreed([plan.version], plan.present)

    def store_sessions(self, plans: Sequence[RowPlan], author: Author, what: What) -> None:
        """Store new sessions in one commit. The caller has made sure that they replace nothing."""
        locations = [location_of(plan.row.unit) for plan in plans]
        files = [file for plan in plans for file in _sidecar_first(plan)]
        dirs = [path for plan, each in zip(plans, locations, strict=True) for path in _session_dirs(plan, each)]
        commit = Commit(
            locations[0],
            files,
            dirs=list(dict.fromkeys([*dirs, *(file.path.rpartition("/")[0] for file in files)])),
            touched=locations,
            label=what,
            agreed=[plan.version for plan in plans],
        )
        with ExitStack() as held, acting_as(author):
            for root in dict.fromkeys(location.root for location in locations):
                held.enter_context(self.core.locked_tree(root))
            self.core.journal.run(commit, IndexRefresh(locations, what))
        self.core.on_commit()

    def plan_next(self, row: LogRow, read_chunk: ChunkReader) -> RowPlan | None:
        """The plan of a row that only replaces documents of a session here; None if it is another one."""
        known = self.replica.find_unit(row.unit)
        if known is None or known.is_gone or (known.version + 1, known.token) != (row.version, row.previous):
            return None
        ops = decode_ops(row.ops, row.unit)
        if not all(isinstance(o, Put) and not o.chunks and o.path in layout.DOCUMENTS for o in ops):
            return None
        plan = self._plan(row, ops, read_chunk)
        is_plain = not (plan.edits or plan.present) and {*plan.replaced} == {file.path for file in plan.files}
        return plan if is_plain and plan.files else None

    def store_together(self, plans: Sequence[RowPlan]) -> None:
        """Apply plans of `plan_next`, one of each session. The caller holds the locks of all."""
        group: list[AgreedCommit] = []
        for plan in plans:
            location = location_of(plan.row.unit)
            index = self._index(plan, location)
            commit, _ = self._commit(plan, location, index)
            group.append(AgreedCommit(commit, index, author_of(plan.row)))
        self.core.journal.run_together(group)
        self.core.on_commit()

    def _commit(
        self, plan: RowPlan, location: Location, index: IndexUpdate | IndexRefresh | None
    ) -> tuple[Commit, list[str]]:
        """The commit, and the temporary names of what it deletes permanently: acknowledged mail."""
        is_mail = location != location.owner and not plan.is_gone
        temps = [self.core.disk.temp_path() for _ in plan.removed] if is_mail else []
        trash = to_trash(location, _reason(plan.removed), moved=[] if is_mail else plan.removed, numbered=True)
        targets = [*(file.path for file in plan.files), *(target for _, target in plan.moves)]
        dirs = [*_session_dirs(plan, location), *(path.rpartition("/")[0] for path in targets), *trash.dirs]
        commit = Commit(
            location,
            [*trash.files, *_sidecar_first(plan)],
            [*plan.moves, *zip(plan.removed, temps, strict=False), *trash.moves],
            list(dict.fromkeys(dirs)),
            what=None if isinstance(index, IndexRefresh) and index.reread else what_of(plan.row),
            label=what_of(plan.row),
            agreed=[plan.version],
            replaced=plan.replaced,
        )
        return commit, temps

    def _index(self, plan: RowPlan, location: Location) -> IndexUpdate | IndexRefresh | None:
        if location.is_session and _is_indexed(plan, location):
            return self._index_update(plan, location) or IndexRefresh([location], what_of(plan.row))
        if location.root == f"/{layout.STATE}":
            return IndexRefresh(documents=[*(file.path for file in plan.files), *plan.removed])
        return None

    def _index_update(self, plan: RowPlan, location: Location) -> IndexUpdate | None:
        """The rows of a session that gets both documents, from their texts; None if the files have to be read."""
        texts = {file.path: file.content[0] for file in plan.files if isinstance(file.content, list)}
        if plan.moves or plan.removed or {*texts} != {location.path(name) for name in layout.DOCUMENTS}:
            return None
        if max(map(len, texts.values())) > self.core.limit_bytes:
            return None
        main, side = (
            File(bytes(texts[location.path(name)]), Stamp(0, 0, 0, 0), 0, 0, 0)
            for name in (layout.SESSION, layout.RUNTIME)
        )
        try:
            loaded = session_reader.parse(DocumentPair(location, main, side), with_messages=False)
        except Corrupt:  # the index stores why, once the file is in place
            return None
        return self.core.index.plan(session_reader.facts_on_disk(self.core.disk, loaded, NO_VERSION))

    def _delete(self, plan: RowPlan, location: Location) -> None:
        """A deletion moves the session to the trash of this home. Its mailbox goes with it."""
        if not location.is_session:
            return self._delete_files(plan, location)
        if self.core.disk.stat(location.dir) is None:
            return self.replica.record_agreed([plan.version], {})
        with acting_as(author_of(plan.row)):
            DeleteOperations(self.core).delete_agreed(location, [plan.version])

    def _delete_files(self, plan: RowPlan, location: Location) -> None:
        """Delete what is left of a mailbox after its session was deleted, or all documents of a state category."""
        session = self.replica.find_unit(location.owner.dir) if location != location.owner else None
        if session is not None and not session.is_gone and self.replica.is_behind(location.owner.dir):
            raise Busy(f"{plan.row.unit} waits for the deletion of its session")
        paths = [f"{plan.row.unit}/{name}" for name in self.replica.files(plan.row.unit)]
        plan.removed = [path for path in paths if self.core.disk.stat(path) is not None]
        if not plan.removed:
            return self.replica.record_agreed([plan.version], {})
        index = self._index(plan, location)
        commit, _ = self._commit(plan, location, index)
        with acting_as(author_of(plan.row)):
            self.core.journal.run(commit, index)
        self.core.on_commit()

    def _keep(self, edit: OutsideEdit, row: LogRow) -> None:
        """Keep a text that another program wrote here, before the row replaces it."""
        directory, _, name = edit.path.rpartition("/")
        why = self.why or Conflict(
            f"{edit.path} was edited on disk, and changed on {row.host_name} at the same time; "
            "the version of the grove is in place, this text is kept"
        )
        content = edit.text if edit.text is not None else self.core.disk.iter_chunks(edit.path)
        Rejects(self.core.disk).store(directory, name, content, why)
        self.edits.append(edit)


def check_order(known: AgreedUnit, row: LogRow) -> bool:
    """Whether a row is newer than the version of this home. Raises LostHistory if the two do not fit together."""
    if row.version == known.version and row.token != known.token:
        raise LostHistory(f"{row.unit}: the grove has another version {known.version} than this home")
    if row.version == known.version + 1 and row.previous != known.token:
        raise LostHistory(f"{row.unit}: version {row.version} does not follow that of this home")
    return row.version > known.version


def author_of(row: LogRow) -> Author:
    """The author of a row: the program, and the host it ran on."""
    via: Via = next((via for via in get_args(Via) if via == row.via), "outside")
    program = _CONTROL.sub(" ", f"{row.program}@{row.host_name}".lstrip("@"))[:_MAX_PROGRAM]
    return Author(via, program, 0, os.getuid())


def what_of(row: LogRow) -> What:
    found: What = next((what for what in get_args(What) if what == row.what), "saved")
    return found


def _is_indexed(plan: RowPlan, location: Location) -> bool:
    """Whether the row changes what the index knows of a session: documents and attachments."""
    names = [*plan.digests]
    return location.is_session and any(
        name in layout.DOCUMENTS or name.startswith(layout.ATTACHMENTS) for name in names
    )


def _is_new_session(plan: RowPlan) -> bool:
    """Whether a plan only writes files of a session that has none here."""
    is_plain = not (plan.is_gone or plan.moves or plan.removed or plan.edits or plan.replaced or plan.present)
    return is_plain and layout.SESSION in plan.digests and location_of(plan.row.unit).is_session


def _portions(plans: Sequence[RowPlan]) -> Iterator[list[RowPlan]]:
    """Plans that are stored together: all files of a commit are open at once, and documents are in memory."""
    portion: list[RowPlan] = []
    count = size_bytes = 0
    for plan in plans:
        portion.append(plan)
        count += len(plan.files)
        size_bytes += plan.size_bytes
        if count >= _FILES_TOGETHER or size_bytes >= _BYTES_TOGETHER:
            yield portion
            portion, count, size_bytes = [], 0, 0
    if portion:
        yield portion


def _sidecar_first(plan: RowPlan) -> list[NewFile]:
    """The new files, session.json last: its rename is the point of no return."""
    return sorted(plan.files, key=lambda file: file.path.endswith(f"/{layout.SESSION}"))


def _session_dirs(plan: RowPlan, location: Location) -> list[str]:
    """The directories of a new session, as the host that created it has them."""
    if not location.is_session or layout.SESSION not in plan.digests:
        return []
    names = [layout.ATTACHMENTS] if location.child is not None else [layout.ATTACHMENTS, layout.CHILDREN]
    return [location.path(name) for name in names]


def _reason(removed: Sequence[str]) -> str:
    """The reason that the trash shows for files that another host deleted."""
    kinds = {classify_path(path).kind for path in removed}
    return next((reason for kind, reason in _REASONS.items() if kinds == {kind}), "document deleted")
