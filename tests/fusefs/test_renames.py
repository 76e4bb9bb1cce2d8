"""Exchanging a document with a file while somebody else commits: the newer version is never lost."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import cast

import pytest

from fusefs.renames import Renamer
from fusefs.tree import Tree
from fusefs.writers import Writers
from store import Store
from store.errors import Conflict
from store.namespace import Namespace
from store.places import Place, place_of
from tests.builders import make_session


def test_a_version_that_comes_meanwhile_is_not_exchanged_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(make_session("root", title="Before"))
    document, file = place_of("sessions/root/session.json"), place_of("sessions/root/draft")
    before = (store.home / document.path).read_bytes()
    draft, newer = before.replace(b"Before", b"Drafted"), before.replace(b"Before", b"Newer")
    (store.home / file.path).write_bytes(draft)
    put_plain = Namespace.put_plain

    def and_somebody_commits(names: Namespace, place: Place, data: bytes, like: os.stat_result) -> None:
        put_plain(names, place, data, like)
        names.commit(document, newer)

    monkeypatch.setattr(Namespace, "put_plain", and_somebody_commits)
    renamer = Renamer(cast("Tree", SimpleNamespace(store=store)), Writers(), overwrite=False)
    with pytest.raises(Conflict):
        renamer.exchange(document, file)
    assert (store.home / document.path).read_bytes() == newer
    assert (store.home / file.path).read_bytes() == draft
    assert not (store.home / "sessions/root/.draft.old").exists()
