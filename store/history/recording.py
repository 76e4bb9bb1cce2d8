"""Recording of versions in history.db.

`prepare` runs before a commit replaces files. It makes sure that what will be replaced is the newest
version of its lineage: a file that is not, because another program wrote it, is recorded as "found",
synced to disk. `add` runs after the renames. A crash between them loses the author of one version,
never its bytes: the next `prepare` finds the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import apsw

from store.disk.disk import Disk
from store.disk.file import File, Stamp
from store.history.authors import OUTSIDE, Author
from store.history.database import HistoryDatabase
from store.history.lineages import (
    NO_TEXT,
    Lineage,
    TextState,
    all_marks,
    find_lineage,
    make_lineage,
    marks_below,
    move_lineages,
)
from store.history.planning import (
    NewText,
    PlannedVersion,
    Planner,
    RecordingPlan,
    arrivals,
    lineage_moves,
    replacements,
)
from store.history.steps import REMOVAL, REMOVED, WHOLE, encode
from store.history.texts import digest_of_parts, said_ns_of
from store.history.versions import FOUND, AgreedNumber, FileChanges, PastVersion, is_session_dir, mark_of, place_of
from store.layout import PRIVATE, RUNTIME, SESSION, TRASH

_TEXT = "{0}_kind, {0}_bytes, {0}_digest, {0}_said_ns, {0}_mark, {0}_data"
_INSERT = (
    "INSERT INTO versions (lineage, number, at_ns, what, origin, pid, note, agreed, made_ns, "
    f"{_TEXT.format('main')}, {_TEXT.format('side')}) VALUES ({', '.join('?' * 21)})"
)
_STATE = (
    "{0}_mark = ?, {0}_bytes = ?, {0}_digest = ?, {0}_said_ns = ?, {0}_whole_bytes = ?, {0}_step_bytes = ?, "
    "{0}_steps = ?"
)
_UPDATE = (
    f"UPDATE lineages SET last = ?, at_ns = ?, {_STATE.format('main')}, {_STATE.format('side')} "
    "WHERE key = ? AND last = ?"
)


# Only of a lineage whose first version is here, and came from a grove.
_FIRST = (
    "SELECT key, at_ns, side_kind FROM versions WHERE lineage = ? AND number = 1 AND agreed > 1 "
    f"AND main_kind = {WHOLE} AND (side_kind IS NULL OR side_kind = {WHOLE})"
)
_WHOLE_EVERY = 64  # of versions that are added at the beginning


@dataclass
class Recorder:
    """Writes versions. Every method may raise apsw.Error, OSError or StoreError."""

    disk: Disk
    database: HistoryDatabase
    is_shared: bool = False  # versions that no grove has agreed to are marked as local
    planner: Planner = field(init=False)
    _origins: dict[tuple[int, str, str, int], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.planner = Planner(self.disk)

    # -- around a commit ---------------------------------------------------------------------------

    def prepare(self, changes: FileChanges) -> RecordingPlan:
        """Record what will be replaced if that is not the newest version; plan the new versions."""
        plan = RecordingPlan(notes=changes.notes, what=changes.what)
        if changes.moves:
            plan.moves, plan.arrived = lineage_moves(changes.moves), arrivals(changes)
        for path, found in replacements(changes).items():
            with self.database.exclusive() as db:  # not the reader, whose pages every commit makes stale
                lineage = find_lineage(db, path)
            if not self.planner.is_recorded(lineage, found):
                lineage = self._record_present(path, lineage, self.planner.present(path, found)) or lineage
            plan.versions.append(self.planner.version(lineage, path, found, changes))
        return plan

    def add(self, plan: RecordingPlan, author: Author, stamps: Mapping[str, Stamp | None]) -> None:
        """Record the versions of a commit whose files are in place, and move lineages with their files."""
        self.disk.step("history-add")
        with self.database.write() as db:
            now_ns = time.time_ns()
            for planned in plan.versions:
                self._insert(db, planned, now_ns, author, stamps, _agreed_number(plan, planned.path))
            for source, target in plan.moves:
                move_lineages(db, source, target, now_ns)
        if plan.moves:
            self.disk.step("history-moved")
        for path in dict.fromkeys([*plan.arrived, *_restored_units(plan)]):
            self.observe(path, self.planner.present(path), author, what=plan.what, note=plan.notes.get(path, ""))
            agreed = _agreed_number(plan, path)
            if agreed is not None:
                self._add_unchanged(path, agreed, plan.what, author)
                self.note_agreed({path: agreed})

    def _add_unchanged(self, path: str, agreed: AgreedNumber, what: str, author: Author) -> None:
        """Add a version without a change if a grove has given a number to one: a file came back as it was."""
        with self.database.write() as db:
            lineage = find_lineage(db, path)
            newest = "SELECT agreed FROM versions WHERE lineage = ? AND number = ?"
            known = db.execute(newest, (lineage.key, lineage.last)).get if lineage is not None else None
            if known is not None and 0 < known < agreed.number:
                self._insert(db, PlannedVersion(path, lineage, what), time.time_ns(), author, {}, agreed)

    def add_together(self, plans: Sequence[tuple[RecordingPlan, Author]], stamps: Mapping[str, Stamp | None]) -> None:
        """The same for several commits: all are recorded, or none."""
        with self.database.write():
            for plan, author in plans:
                self.add(plan, author, stamps)

    def note_agreed(self, numbers: Mapping[str, AgreedNumber]) -> None:
        """Give the newest versions of lineages, which were recorded as they were found, their numbers in the grove."""
        if not numbers:
            return
        with self.database.write() as db:
            for path, agreed in numbers.items():
                newest = "(lineage, number) = (SELECT key, last FROM lineages WHERE dir = ?)"
                update = f"UPDATE versions SET agreed = ?, made_ns = ? WHERE coalesce(agreed, -1) < 0 AND {newest}"
                db.execute(update, (*agreed, os.fsencode(path)))

    def repeat_moves(self, moves: Sequence[tuple[str, str]]) -> None:
        """Move lineages after a crash. Those that were moved before are not touched."""
        wanted = lineage_moves(moves)
        if wanted:
            with self.database.write() as db:
                for source, target in wanted:
                    move_lineages(db, source, target, time.time_ns())
            self.disk.step("history-moved")

    # -- files as they are -------------------------------------------------------------------------

    def observe(
        self,
        path: str,
        present: Sequence[tuple[str, bool, File | None]],
        author: Author = OUTSIDE,
        *,
        what: str = FOUND,
        note: str = "",
        is_synced: bool = True,
    ) -> bool:
        """Record the files of a lineage if they differ from its newest version; returns whether they did."""
        lineage = find_lineage(self.database.reader, path)
        recorded = self._record_present(path, lineage, present, author, what=what, note=note, is_synced=is_synced)
        return recorded is not None

    def changed_below(self, directory: str) -> list[str]:
        """The kept files, other than sessions, whose stamps differ from those of their newest versions."""
        found = ((os.fsdecode(path), mark) for path, mark in marks_below(self.database.reader, directory))
        return [path for path, mark in found if place_of(path) is not None and self.planner.mark(path) != mark]

    def changed_paths(self) -> list[str]:
        """The paths whose files do not have the stamps of their newest versions, without deleted sessions."""
        return [
            path
            for name, main, side in all_marks(self.database.reader)
            if not (path := os.fsdecode(name)).startswith(f"{PRIVATE}/") and self._marks(path) != (main, side)
        ]

    def _marks(self, path: str) -> tuple[int | None, int | None]:
        """The marks of the files of a lineage as they are."""
        if is_session_dir(path):
            return self.planner.mark(f"{path}/{SESSION}"), self.planner.mark(f"{path}/{RUNTIME}")
        return self.planner.mark(path), None

    def is_behind(self, path: str) -> bool:
        """Whether the files of a lineage differ from its newest version. Those of a deleted session do not count."""
        db = self.database.reader
        lineage = find_lineage(db, path)
        if lineage is None or path.startswith(f"{PRIVATE}/"):
            return False
        present = self.planner.present(path)
        return any(
            self.planner.difference(db, lineage, name, file, is_side=is_side) is not None
            for name, is_side, file in present
        )

    def _record_present(
        self,
        path: str,
        lineage: Lineage | None,
        present: Sequence[tuple[str, bool, File | None]],
        author: Author = OUTSIDE,
        *,
        what: str = FOUND,
        note: str = "",
        is_synced: bool = True,
    ) -> Lineage | None:
        """Record files as the next version, synced: these bytes may be replaced next. None if nothing differs."""
        planned = PlannedVersion(path, lineage, what, note)
        stamps = {name: file.stamp for name, _, file in present if file is not None}
        mtimes = [0]
        for name, is_side, file in present:
            text = self.planner.difference(self.database.reader, lineage, name, file, is_side=is_side)
            if text is not None:
                planned.set(text, is_side=is_side)
                mtimes.append(file.stamp.mtime_ns if file is not None else time.time_ns())
        if planned.main is None and planned.side is None:
            return self._restamped(lineage, present)
        self.disk.step("history-found")
        at_ns = min(time.time_ns(), max(mtimes)) if what == FOUND else time.time_ns()
        with self.database.write(durable=is_synced and self.disk.durability == "full") as db:
            return self._insert(db, planned, at_ns, author, stamps)

    def _restamped(self, lineage: Lineage | None, present: Sequence[tuple[str, bool, File | None]]) -> Lineage | None:
        """Note new stamps of unchanged texts: times or modes of the files were changed.

        A reader may have opened the version before that, and another one afterwards. Both may save
        when the version has been replaced, so it is found by every stamp that its file had.
        """
        for _, is_side, file in present:
            state = (lineage.side if is_side else lineage.main) if lineage is not None else NO_TEXT
            if lineage is not None and file is not None and state.mark != mark_of(file.stamp):
                role, mark = "side" if is_side else "main", mark_of(file.stamp)
                newest = f"SELECT max(number) FROM versions WHERE lineage = ?1 AND {role}_kind IS NOT NULL"
                with self.database.write() as db:
                    db.execute(f"UPDATE lineages SET {role}_mark = ? WHERE key = ?", (mark, lineage.key))
                    db.execute(
                        "INSERT OR REPLACE INTO former_marks "
                        f"SELECT lineage, {role}_mark, number FROM versions "
                        f"WHERE lineage = ?1 AND number = ({newest}) AND {role}_mark IS NOT NULL",
                        (lineage.key,),
                    )
                    update = f"UPDATE versions SET {role}_mark = ?2 WHERE lineage = ?1 AND number = ({newest})"
                    db.execute(update, (lineage.key, mark))
        return None

    # -- versions from before the first one ----------------------------------------------------------

    def prepend(self, path: str, past: Sequence[PastVersion]) -> int:
        """Add older versions to a lineage that has all since its first one; returns how many.

        `past` is in order; its last one is the first one here, which gets that number. The numbers of this home grow by
        what is added: in a grove, people use those of the grove. The caller holds its lock.
        """
        with self.database.write() as db:
            lineage = find_lineage(db, path)
            first = db.execute(_FIRST, (lineage.key,)).fetchone() if lineage is not None else None
            if lineage is None or first is None or not past:
                return 0
            *older, here = past
            key, first_ns, side_kind = first
            origin = self._origin(db, here.author)
            update = "UPDATE versions SET agreed = ?, made_ns = ?, what = ?, origin = ? WHERE key = ?"
            db.execute(update, (*here.agreed, here.what, origin, key))
            db.execute("UPDATE versions SET number = number + ? WHERE lineage = ?", (len(older), lineage.key))
            db.execute("UPDATE former_marks SET number = number + ? WHERE lineage = ?", (len(older), lineage.key))
            db.execute("UPDATE lineages SET last = last + ? WHERE key = ?", (len(older), lineage.key))
            self._insert_past(db, lineage.key, older, first_ns)
            if older and older[-1].side is not None and side_kind is None:  # it had no sidecar, and said nothing of it
                db.execute("UPDATE versions SET side_kind = ?, side_data = ? WHERE key = ?", (*REMOVAL, key))
            return len(older)

    def _insert_past(self, db: apsw.Connection, lineage: int, past: Sequence[PastVersion], until_ns: int) -> None:
        """Insert the versions 1, 2, … of a lineage, all older than a moment."""
        main = side = NO_TEXT
        texts: tuple[bytes | None, bytes | None] = (None, None)
        at_ns = 0
        for number, version in enumerate(past, 1):
            made_ns = version.agreed.made_ns or 0
            at_ns = max(at_ns + 1, min(made_ns, until_ns - len(past) - 1 + number))  # it grows with the number
            is_whole = number % _WHOLE_EVERY == 1
            new_main = _past_text(texts[0], version.main, is_whole=is_whole)
            new_side = _past_text(texts[1], version.side, is_whole=is_whole)
            main, side = _state_after(main, new_main, {}), _state_after(side, new_side, {})
            head = (lineage, number, at_ns, version.what, self._origin(db, version.author), 0, "", *version.agreed)
            db.execute(_INSERT, (*head, *_columns(new_main, main), *_columns(new_side, side)))
            texts = (version.main, version.side)
            if number == 1:
                earliest = "SELECT min(from_ns) FROM names WHERE lineage = ?1"
                update = f"UPDATE names SET from_ns = ?2 WHERE lineage = ?1 AND from_ns = ({earliest})"
                db.execute(update, (lineage, at_ns))

    # -- rows --------------------------------------------------------------------------------------

    def _insert(
        self,
        db: apsw.Connection,
        planned: PlannedVersion,
        at_ns: int,
        author: Author,
        stamps: Mapping[str, Stamp | None],
        agreed: AgreedNumber | None = None,
    ) -> Lineage:
        """Insert a version and update its lineage."""
        old = planned.lineage
        at_ns = max(at_ns, old.at_ns + 1) if old is not None else at_ns
        key = old.key if old is not None else make_lineage(db, planned.path, at_ns)
        last = old.last if old is not None else 0
        main = _state_after(old.main if old is not None else NO_TEXT, planned.main, stamps)
        side = _state_after(old.side if old is not None else NO_TEXT, planned.side, stamps)
        number, made_ns = agreed or (-(last + 1) if self.is_shared else None, None)
        head = (key, last + 1, at_ns, planned.what, self._origin(db, author), author.pid, planned.note, number, made_ns)
        db.execute(_INSERT, (*head, *_columns(planned.main, main), *_columns(planned.side, side)))
        db.execute(_UPDATE, (last + 1, at_ns, *main, *side, key, last))
        if db.changes() != 1:
            raise apsw.ConstraintError(f"{planned.path}: another writer added a version meanwhile")
        return Lineage(key, last + 1, at_ns, main, side)

    def _origin(self, db: apsw.Connection, author: Author) -> int:
        """The key of an author in `origins`."""
        known = (self.database.generation, author.via, author.program, author.uid)
        key = self._origins.get(known)
        if key is None:
            row = known[1:]
            db.execute("INSERT OR IGNORE INTO origins (via, program, uid) VALUES (?, ?, ?)", row)
            key = db.execute("SELECT key FROM origins WHERE via = ? AND program = ? AND uid = ?", row).get
            self._origins[known] = key
        return key

    def forget_origins(self) -> None:
        """After a failure: a key may belong to a transaction that was rolled back."""
        self._origins.clear()


def _past_text(old: bytes | None, new: bytes | None, *, is_whole: bool) -> NewText | None:
    """The step from one text to the next; None if nothing changed."""
    if new is None:
        return NewText("", REMOVAL, None, None, None) if old is not None else None
    if new == old and not is_whole:
        return None
    step = encode(None if is_whole else old, new)
    return NewText("", step, len(new), digest_of_parts([new], len(new)), said_ns_of(new))


def _restored_units(plan: RecordingPlan) -> list[str]:
    """Units of a grove whose directories came back from the trash."""
    targets = [target for source, target in plan.moves if source.startswith(f"{TRASH}/")]
    return [unit for unit in plan.agreed if any(unit == target or unit.startswith(f"{target}/") for target in targets)]


def _agreed_number(plan: RecordingPlan, path: str) -> AgreedNumber | None:
    """The number of a lineage's unit: its own directory, or the one it is in."""
    return plan.agreed.get(path) or plan.agreed.get(path.rpartition("/")[0])


def _columns(text: NewText | None, state: TextState) -> tuple[object, ...]:
    kind, data = (text.step.kind, text.step.data) if text is not None else (None, None)
    return kind, state.size, state.digest, state.said_ns, state.mark, data


def _state_after(state: TextState, text: NewText | None, stamps: Mapping[str, Stamp | None]) -> TextState:
    """What the lineage knows of a text after a step."""
    if text is None:
        return state
    kind, data = text.step
    if kind == REMOVED:
        return NO_TEXT
    stamp = stamps.get(text.path)
    mark = mark_of(stamp) if stamp is not None else None
    if kind == WHOLE:
        return TextState(mark, text.size, text.digest, text.said_ns, len(data), 0, 0)
    run = (state.whole_bytes, state.step_bytes + len(data), state.steps + 1)
    return TextState(mark, text.size, text.digest, text.said_ns, *run)
