"""Outside edits: files of this replica that another program changed on disk are published, or rejected.

A file is edited if neither its stamp nor its SHA-256 is what was agreed to. A missing file is not a
deletion: it is fetched again. Nothing is replaced here without a trace: a text that cannot be
published as it is, is kept as a rejected write before the agreed version comes back, and stays there
unless a merge has stored it.

A file that was fetched while joining, and not synced, may have been emptied by a power failure. It is
never published: the agreed version comes back.

The watcher notes units whose directories changed; a sweep looks at all. More than MAX_UNASKED edits
at once are likely to be a mistake, such as a restored backup: they wait until a person confirms them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from store import layout
from store.commit.commit import AgreedVersion
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.write_request import WriteRequest
from store.disk.file import is_same_content
from store.disk.rejects import Rejects
from store.errors import Busy, Conflict, StoreError
from store.grove.applying import put_back
from store.grove.local_units import unit_files
from store.grove.outside_verdict import Judge
from store.grove.past_texts import PastTexts
from store.grove.replica import AgreedFile, Replica
from store.grove.row_plan import OutsideEdit, read_edit
from store.grove.units import location_of
from store.grove.wire import LogRow
from store.history.authors import OUTSIDE, acting_as
from store.index.catalog import Version
from store.layout import Location
from store.path_kinds import PathKind, classify_path
from store.sessions.put import PutOperation
from store.workspace.state import State

log = logging.getLogger("grovefs.store")

MAX_UNASKED = 20
UNASKED_S = 60.0  # edits found within this time count together
QUIET_S = 1.0  # a file is judged so long after its last change: its writer may not have finished


class Grove(Protocol):
    """The agreement, as this module needs it."""

    def publish_present(
        self, unit: str, edits: Sequence[OutsideEdit], texts: Mapping[str, bytes]
    ) -> list[AgreedVersion]: ...
    def settle_unit(self, unit: str) -> None: ...
    def rows_until(self, unit: str, version: int) -> Sequence[LogRow]: ...
    def rows_of_version(self, unit: str, version: int) -> Sequence[LogRow]: ...
    def fetch_chunk(self, digest: bytes) -> bytes: ...


class SetAside(NamedTuple):
    """An edit that is kept as rejected, until it is merged. `base` is what it was edited from."""

    edit: OutsideEdit
    base: bytes


class OutsideEdits:
    """The outside edits of one home. Thread-safe."""

    def __init__(self, core: Core, replica: Replica, grove: Grove) -> None:
        self._core, self._replica, self._grove = core, replica, grove
        self._rejects = Rejects(core.disk)
        self._lock = threading.Lock()
        self._noted: dict[str, float] = {}  # unit → time of its last change
        self._unasked: deque[float] = deque()  # times of edits that were published without asking

    # -- finding -----------------------------------------------------------------------------------

    def find(self, unit: str) -> list[OutsideEdit]:
        """The edited and the new files of a unit. Notes the new stamps of files with the agreed content."""
        if not self._is_shared(unit):
            return []
        disk, agreed = self._core.disk, self._replica.files(unit)
        names = [path[len(unit) + 1 :] for path in unit_files(disk, unit)]
        edits = (self._find(unit, name, agreed.get(name)) for name in names)
        return [edit for edit in edits if edit is not None]

    def _find_locked(self, unit: str) -> list[OutsideEdit]:
        """The same while nobody commits to the unit. Raises Busy."""
        with self._core.locked(location_of(unit)):
            return self.find(unit)

    def _is_shared(self, unit: str) -> bool:
        """Whether the grove has the unit. A mailbox is created with its first message."""
        known = self._replica.find_unit(unit)
        if known is None and unit.endswith(f"/{layout.MAILBOX}"):
            known = self._replica.find_unit(unit.rpartition("/")[0])
        return known is not None and not known.is_gone

    def _find(self, unit: str, name: str, known: AgreedFile | None) -> OutsideEdit | None:
        path = f"{unit}/{name}"
        present = self._core.disk.stat_file(path)
        if present is None or (known is not None and is_same_content(known.stamp, present.stamp)):
            return None
        edit = read_edit(self._core.disk, path, known)
        if edit is None and known is not None:
            is_settled = present.stamp.if_settled(time.time_ns()) == present.stamp  # else it may change unseen
            self._replica.restamp(unit, name, AgreedFile(known.sha256, present.stamp if is_settled else None))
        return edit

    def missing(self, unit: str) -> list[str]:
        """The files of a unit that are not on disk."""
        known = self._replica.find_unit(unit)
        if known is None or known.is_gone:
            return []
        return [name for name in self._replica.files(unit) if self._core.disk.stat(f"{unit}/{name}") is None]

    # -- looking for edits ---------------------------------------------------------------------------

    def note(self, location: Location) -> None:
        """Look at a location later, when its files have not changed for a while."""
        units = (location.dir, location.path(layout.MAILBOX)) if location.is_session else (location.dir,)
        with self._lock:
            self._noted.update((unit, time.monotonic()) for unit in units)

    def settle_noted(self) -> None:
        """Settle the units that were noted and are quiet now."""
        quiet_since = time.monotonic() - QUIET_S
        with self._lock:
            due = {unit: at for unit, at in self._noted.items() if at < quiet_since}
            for unit in due:
                del self._noted[unit]
        try:
            self._settle_all(due, ask=True, waiting=self._replica.waiting() if due else [])
        except BaseException:
            with self._lock:
                self._noted = {**due, **self._noted}
            raise

    def sweep(self, *, ask: bool = True) -> list[str]:
        """Settle all edits, and fetch missing files; returns the paths of edits that wait to be confirmed."""
        units = [unit for unit, known in self._replica.units().items() if not known.is_gone]
        boxes = [f"{unit}/{layout.MAILBOX}" for unit in units if classify_path(unit).kind is PathKind.SESSION]
        new = [box for box in boxes if self._replica.find_unit(box) is None]
        return self._settle_all([*units, *new], ask=ask)

    def _settle_all(self, units: Iterable[str], *, ask: bool, waiting: Sequence[str] = ()) -> list[str]:
        """`waiting` are edits found earlier, which count too."""
        for unit in self._replica.unsynced():
            self._settle(unit)
        found: dict[str, list[OutsideEdit]] = {}
        waited = {*self._replica.waiting()}
        for unit in units:
            edits = self.find(unit)
            try:
                if edits or self.missing(unit):
                    # Commits that other processes are making may be among them, and must not count.
                    found[unit] = self._find_locked(unit) if edits else []
            except Busy as error:
                self._note_again(unit, error)
                waiting = [*waiting, *(edit.path for edit in edits if edit.path in waited)]
        paths = sorted({*waiting, *(edit.path for edits in found.values() for edit in edits)})
        if not found and not waiting:
            self._replica.set_waiting([])
            return []
        waits = ask and len(paths) + self._count_unasked() > MAX_UNASKED and bool(paths)
        self._replica.set_waiting(paths if waits else [])
        if waits:
            log.warning("%d files were edited on disk; they are published by `grovefs grove publish --yes`", len(paths))
        for unit, edits in found.items():
            if not (edits and waits):
                self._unasked.extend(time.monotonic() for _ in edits)
                self._settle(unit)
        return paths if waits else []

    def _count_unasked(self) -> int:
        oldest = time.monotonic() - UNASKED_S
        while self._unasked and self._unasked[0] < oldest:
            self._unasked.popleft()
        return len(self._unasked)

    def _settle(self, unit: str) -> None:
        try:
            self._grove.settle_unit(unit)
        except Busy as error:
            self._note_again(unit, error)

    def _note_again(self, unit: str, error: Busy) -> None:
        log.info("%s: not settled yet: %s", unit, error)
        with self._lock:
            self._noted.setdefault(unit, time.monotonic())

    # -- settling one unit -----------------------------------------------------------------------------

    def settle_locked(self, unit: str) -> list[SetAside]:
        """Publish or reject the edits of a unit, and bring missing files back. The caller holds its lock.

        Returns the edits that are to be merged without that lock. Raises Stale.
        """
        if self._replica.is_unsynced(unit):
            self._restore_unsynced(unit)
        judge = Judge(self.past, self._core.limit_bytes)
        to_publish: list[OutsideEdit] = []
        texts: dict[str, bytes] = {}
        aside: list[SetAside] = []
        for edit in self.find(unit):
            verdict = judge.judge(edit)
            if verdict.action == "publish":
                to_publish.append(edit)
                texts |= {edit.path: verdict.base} if verdict.base is not None else {}
            elif verdict.action == "merge" and verdict.base is not None:
                self._put_back(unit, edit, Conflict(f"{edit.path} was edited on disk; the text is being merged"))
                aside.append(SetAside(edit, verdict.base))
            elif verdict.action == "restore":
                self._put_back(unit, edit, Conflict(f"{edit.path} was an older version"))
                self._forget(edit)
            elif verdict.action == "reject" and verdict.why is not None:
                self._put_back(unit, edit, verdict.why)
                log.warning("%s: an edit made on disk is kept as rejected: %s", edit.path, verdict.why)
        if to_publish:
            with acting_as(OUTSIDE):
                agreed = self._grove.publish_present(unit, to_publish, texts)
            self._index(unit, to_publish)
            for version in agreed:
                self._core.history.note_agreed(version.numbers())
        return aside

    def _restore_unsynced(self, unit: str) -> None:
        """Bring back what is not as it was fetched. What is there instead is kept as rejected: it may be an edit."""
        for edit in self.find(unit):
            if not edit.is_new:
                why = Conflict(
                    f"{edit.path} is not as it was fetched: joining was interrupted, maybe by a power failure"
                )
                log.warning("%s", why)
                self._put_back(unit, edit, why)
        self._replica.forget_unsynced([unit])

    @property
    def past(self) -> PastTexts:
        return PastTexts(self._core, self._rows, self._grove.fetch_chunk)

    def _rows(self, unit: str) -> Sequence[LogRow]:
        known = self._replica.find_unit(unit)
        return self._grove.rows_until(unit, known.version) if known is not None else []

    def _put_names(self, unit: str, names: Sequence[str], why: StoreError) -> None:
        known = self._replica.find_unit(unit)
        if known is not None:
            rows = self._grove.rows_of_version(unit, known.version)
            put_back(self._core, self._replica, rows, names, why, self._grove.fetch_chunk)

    def fetch_missing(self, unit: str) -> None:
        """Bring back files that are missing on disk. The caller holds the lock of the tree."""
        names = self.missing(unit)
        if names:
            self._put_names(unit, names, Conflict(f"{unit}: a file was missing"))

    def _put_back(self, unit: str, edit: OutsideEdit, why: StoreError) -> None:
        self._put_names(unit, [edit.path[len(unit) + 1 :]], why)

    def _forget(self, edit: OutsideEdit) -> None:
        directory, _, name = edit.path.rpartition("/")
        self._rejects.clear(directory, name)

    def _index(self, unit: str, edits: Sequence[OutsideEdit]) -> None:
        """Update index, feed and history: nothing was written, so no commit does it."""
        location = location_of(unit)
        self._core.observe_known(edit.path for edit in edits if classify_path(edit.path).kind in _OBSERVED)
        if location.is_session and location == location.owner:
            self._core.reread(location)
        elif location.root == f"/{layout.STATE}":
            self._core.refresh(location)
        else:
            with self._core.db.write() as db:
                self._core.feed.add(db, [location.owner], "mail")
            self._core.on_commit()

    # -- merging -----------------------------------------------------------------------------------

    def judge_replaced(self, edits: Sequence[OutsideEdit]) -> list[SetAside]:
        """Of edits that rows of other hosts have replaced: those that may be merged. All are kept as rejected."""
        judge = Judge(self.past, self._core.limit_bytes)
        found: list[SetAside] = []
        for edit in edits:
            verdict = judge.judge(edit)
            base = verdict.base if verdict.action in ("publish", "merge") else None
            if verdict.action == "restore":
                self._forget(edit)
            elif base is not None and classify_path(edit.path).kind in _MERGED:
                found.append(SetAside(edit, base))
        return found

    def merge(self, aside: SetAside) -> None:
        """Store an edit that was set aside, merged with the present version; or leave it as rejected.

        An edit does not bring back what another host has deleted.
        """
        edit, target = aside.edit, classify_path(aside.edit.path)
        assert edit.text is not None
        present = self._core.disk.stat_file(edit.path)
        if present is None:
            log.warning("%s was deleted; an edit made on disk is kept as rejected", edit.path)
            return
        base = Version(present.stamp, present.stamp)  # if the file goes meanwhile, nothing is stored
        request = WriteRequest(target, edit.text, base, "merge", base_text=aside.base)
        commits = Commits(self._core)
        is_document = target.kind is PathKind.DOCUMENT
        put = PutOperation(self._core, commits).put if is_document else State(self._core, commits).put
        try:
            with acting_as(OUTSIDE):
                put(request, edit.text)
        except StoreError as error:
            log.warning("%s: an edit made on disk is kept as rejected: %s", edit.path, error)
            self._rejects.store(target.directory, target.name, edit.text, error)
        else:
            self._forget(edit)


_MERGED = frozenset({PathKind.DOCUMENT, PathKind.STATE_JSON})
_OBSERVED = frozenset({PathKind.RECORD, PathKind.STATE_JSON, PathKind.STATE_TEXT})
