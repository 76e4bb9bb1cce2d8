"""Renaming onto a document, or exchanging it, while somebody else commits: the newer version is never lost."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import cast

import pytest

from fusefs.requests.cpu_affinity import CpuFollower
from fusefs.requests.files import Files
from fusefs.requests.threads import Threads
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.rename_rules import RenameRules
from fusefs.tree.tree import Tree
from fusefs.tree.writers import Writers
from store import Store
from store.errors import Conflict
from store.namespace.namespace import Namespace
from store.path_kinds import PathInfo, classify_path
from tests.builders import make_session


def test_a_version_that_comes_meanwhile_is_not_exchanged_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(make_session("root", title="Before"))
    document, file = classify_path("sessions/root/session.json"), classify_path("sessions/root/draft")
    before = (store.home / document.path).read_bytes()
    draft, newer = before.replace(b"Before", b"Drafted"), before.replace(b"Before", b"Newer")
    (store.home / file.path).write_bytes(draft)
    put_plain = Namespace.write_copy

    def and_somebody_commits(names: Namespace, place: PathInfo, data: bytes, like: os.stat_result) -> None:
        put_plain(names, place, data, like)
        names.commit(document, newer)

    monkeypatch.setattr(Namespace, "write_copy", and_somebody_commits)
    renamer = RenameRules(cast("Tree", SimpleNamespace(store=store)), Writers(), overwrite=False)
    with pytest.raises(Conflict):
        renamer.exchange(document, file)
    assert (store.home / document.path).read_bytes() == newer
    assert (store.home / file.path).read_bytes() == draft
    assert not (store.home / "sessions/root/.draft.old").exists()


def test_version_that_came_within_a_tick_of_the_clock_is_not_overwritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's clock for files goes in ticks: what is committed after a file was made may bear the earlier time."""
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
    store.names.commit(document, newer)
    try:
        with pytest.raises(Conflict):
            RenameRules(tree, writers, overwrite=False).rename(draft, document, node, replace=True)
    finally:
        files.handles.close_all()
        watches.close()
    assert (store.home / document.path).read_bytes() == newer
