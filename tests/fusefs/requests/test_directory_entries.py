"""Handlers that change names, called without a mount."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from fusefs.requests.cpu_affinity import CpuFollower
from fusefs.requests.directory_entries import DirectoryEntries
from fusefs.requests.files import Files
from fusefs.requests.threads import Threads
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.tree import Tree
from fusefs.tree.writers import Writers
from store import Store
from store.commit.write_request import WriteRequest
from store.errors import Conflict
from store.path_kinds import classify_path
from tests.builders import make_session


def test_version_committed_within_one_clock_tick_is_not_overwritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File times have the granularity of a kernel tick: a newer version may have an earlier time."""
    store.save(make_session("root", title="Before"))
    document, draft = classify_path("sessions/root/session.json"), classify_path("sessions/root/draft")
    before = (store.home / document.path).read_bytes()
    writers, watches = Writers(), DirectoryWatches(store.home)
    tree = Tree(store, {}, writers, watches)
    files = Files(tree, writers, Threads(CpuFollower()), overwrite=False)
    monkeypatch.setattr("fusefs.requests.files.time", SimpleNamespace(time_ns=lambda: time.time_ns() + 10**9))
    directory = tree.lookup(tree.lookup(tree.root, "sessions"), "root")
    _, node = files.create(directory, draft.name, 0o600, os.O_WRONLY)
    (store.home / draft.path).write_bytes(before.replace(b"Before", b"Drafted"))
    newer = before.replace(b"Before", b"Newer")
    store.names.commit(WriteRequest(document, newer))
    try:
        entries = DirectoryEntries(files, overwrite=False, read_only=False)
        with pytest.raises(Conflict):
            entries._rename_on_disk(draft, document, node, replace=True)
    finally:
        files.handles.close_all()
        watches.close()
    assert (store.home / document.path).read_bytes() == newer
