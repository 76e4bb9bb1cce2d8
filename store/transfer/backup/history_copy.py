"""The history in a backup: `.grovefs-backup/history.db`, a complete copy of the home's history.db.

It is copied before the files. What is committed meanwhile is then in the files only, and the next
commit after a restore records it as found; the other way round, the newest versions would be of a future that the
files do not have. A copy of a home made by rsync has the history where the home has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import apsw

from store import layout
from store.commit.core import Core
from store.errors import Busy, Corrupt, StoreError
from store.history.copies import HistoryCopy, summary_of, write_copy
from store.history.versions import owner_of, place_of
from store.transfer.backup.tree import PRIVATE, TMP, BackupTree, Damage
from store.transfer.backup.writer import BackupWriter

log = logging.getLogger("grovefs.store")

COPY = f"{PRIVATE}/history.db"


def copy_history(core: Core, writer: BackupWriter) -> str | None:
    """Replace the copy if the history has changed; returns why that failed, if it did."""
    if not core.history.database.path.exists():
        return None
    temp = f"{TMP}/history.db"
    try:
        if _is_current(core, writer):
            return None
        writer.disk.remove_tree(temp)  # of a copy that was interrupted
        writer.disk.step("backup-history")
        write_copy(core.history.database, writer.path / temp)
        writer.disk.move(temp, COPY)
        writer.disk.sync_dirs([PRIVATE])
    except (apsw.Error, OSError, StoreError) as error:  # the files are what must be backed up
        log.warning("the history was not backed up: %s", error)
        return str(error)
    return None


def _is_current(core: Core, writer: BackupWriter) -> bool:
    if writer.disk.stat(COPY) is None:
        return False
    try:
        with HistoryCopy(writer.path / COPY) as copy:
            return copy.damage() is None and summary_of(copy.db) == summary_of(core.history.database.reader)
    except Corrupt:
        return False


def drop_history(writer: BackupWriter) -> None:
    """Remove the copy: the user wants no past in this backup."""
    if writer.disk.stat(COPY) is not None:
        writer.disk.remove(COPY)


def find_damage(tree: BackupTree) -> Damage | None:
    """The damage of the copy; None if it can be read, or there is none."""
    if tree.disk.stat(COPY) is None:
        return None
    try:
        with HistoryCopy(tree.path / COPY) as copy:
            why = copy.damage()
    except Corrupt as error:
        why = error.problem.reason
    return Damage(COPY, why) if why is not None else None


@contextmanager
def open_copy(tree: BackupTree) -> Iterator[HistoryCopy | None]:
    """The history of a backup; None if it has none, or it cannot be read."""
    path = next((path for path in (COPY, layout.HISTORY_DB) if tree.disk.stat(path) is not None), None)
    if path is None:
        yield None
        return
    try:
        copy = HistoryCopy(tree.path / path)
    except Corrupt as error:
        log.warning("files are restored without their versions: %s", error)
        yield None
        return
    with copy:
        yield copy


def bring_back(core: Core, copy: HistoryCopy, paths: Iterable[str]) -> None:
    """Bring back the versions of files that are about to be restored, where the home has none of them."""
    lineages = dict.fromkeys(place.dir for path in paths if (place := place_of(path)) is not None)
    for path in lineages:
        location = owner_of(path)
        try:
            with nullcontext() if location is None else core.locked(location):
                copy.bring_back(core.history.database, path)
        except (apsw.Error, OSError, Busy, Corrupt) as error:  # the files are restored all the same
            log.warning("%s is restored without its versions: %s", path, error)
