"""The ledger of imports in a backup: `.grovefs-backup/imported.jsonl`.

Without it an import into a restored home would bring back the sessions that were deleted, and import renamed ones a
second time. It is copied before the files: a session that is in the ledger and not among the files counts as deleted.
A copy of a home made by rsync has the ledger where the home has it.
"""

from __future__ import annotations

from collections.abc import Collection

from store import layout
from store.commit.core import Core
from store.transfer.backup.tree import PRIVATE, BackupTree
from store.transfer.backup.writer import BackupWriter
from store.transfer.import_ledger import ImportLedger

COPY = f"{PRIVATE}/imported.jsonl"


def copy_ledger(core: Core, writer: BackupWriter) -> None:
    """Replace the copy if the ledger has changed."""
    file, copy = core.disk.read(layout.IMPORT_LEDGER), writer.disk.read(COPY)
    if file is None or (copy is not None and copy.data == file.data):
        return
    temp, _ = writer.write([file.data], 0o600, file.stamp.mtime_ns)
    writer.disk.sync_temps([temp])
    writer.disk.move(temp, COPY)
    writer.disk.sync_dirs([PRIVATE])


def bring_back_ledger(core: Core, tree: BackupTree, left_out: Collection[str]) -> None:
    """Add what the ledger of the home lacks, but not sessions of units that were not restored."""
    path = next((path for path in (COPY, layout.IMPORT_LEDGER) if tree.disk.stat(path) is not None), None)
    file = tree.disk.read(path) if path is not None else None
    if file is not None:
        ledger = ImportLedger(core)
        ledger.add_missing(file.data, left_out)
        ledger.save()
