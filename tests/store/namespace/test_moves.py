"""Renames and exchanges with a document never lose a version committed by another writer."""

from __future__ import annotations

import os

import pytest

from store import Store
from store.commit.write_request import WriteRequest
from store.disk.file import Stamp
from store.errors import Conflict
from store.namespace.moves import RenameRequest
from store.namespace.namespace import Namespace
from store.path_kinds import PathInfo, classify_path
from tests.builders import make_session

DOCUMENT, DRAFT = classify_path("sessions/root/session.json"), classify_path("sessions/root/draft")


def drafted(store: Store) -> tuple[bytes, bytes]:
    """Save a session and write a draft of it; returns the draft's bytes and a newer version."""
    store.save(make_session("root", title="Before"))
    before = (store.home / DOCUMENT.path).read_bytes()
    draft = before.replace(b"Before", b"Drafted")
    (store.home / DRAFT.path).write_bytes(draft)
    return draft, before.replace(b"Before", b"Newer")


def test_newer_version_is_not_exchanged_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, newer = drafted(store)
    write_copy = Namespace.write_copy

    def commit_after_copy(names: Namespace, place: PathInfo, data: bytes, like: os.stat_result) -> None:
        write_copy(names, place, data, like)
        names.commit(WriteRequest(DOCUMENT, newer))

    monkeypatch.setattr(Namespace, "write_copy", commit_after_copy)
    with pytest.raises(Conflict):
        store.moves.exchange(DOCUMENT, DRAFT)
    assert (store.home / DOCUMENT.path).read_bytes() == newer
    assert (store.home / DRAFT.path).read_bytes() == draft
    assert not list((store.home / "sessions/root").glob(".*.old"))


def test_exchange_keeps_the_files_of_the_user(store: Store) -> None:
    draft, _ = drafted(store)
    notes = store.home / "sessions/root/.draft.old"
    notes.write_bytes(b"notes")
    before = (store.home / DOCUMENT.path).read_bytes()
    store.moves.exchange(DOCUMENT, DRAFT)
    assert (store.home / DOCUMENT.path).read_bytes() == draft
    assert (store.home / DRAFT.path).read_bytes() == before
    assert notes.read_bytes() == b"notes"
    assert list((store.home / "sessions/root").glob(".*.old")) == [notes]


def test_file_created_before_the_current_version_is_rejected(store: Store) -> None:
    """Rule 8: compared by the document's stamp, because file times are too coarse."""
    draft, newer = drafted(store)
    seen = {DOCUMENT.path: Stamp.of((store.home / DOCUMENT.path).stat())}
    store.names.commit(WriteRequest(DOCUMENT, newer))
    with pytest.raises(Conflict, match="the newer version is kept"):
        store.moves.onto_document(RenameRequest(DRAFT, DOCUMENT, seen_at_create=seen))
    assert (store.home / DOCUMENT.path).read_bytes() == newer
    assert (store.home / DRAFT.path).read_bytes() == draft
    assert store.names.rejects.path("sessions/root", "session.json.rejected") is not None
    store.moves.onto_document(RenameRequest(DRAFT, DOCUMENT, "overwrite", seen_at_create=seen))
    assert (store.home / DOCUMENT.path).read_bytes() == draft


def test_file_created_after_the_current_version_replaces_it(store: Store) -> None:
    draft, _ = drafted(store)
    seen = {DOCUMENT.path: Stamp.of((store.home / DOCUMENT.path).stat())}
    assert store.moves.onto_document(RenameRequest(DRAFT, DOCUMENT, seen_at_create=seen)).is_changed
    assert (store.home / DOCUMENT.path).read_bytes() == draft
    assert (store.home / DRAFT.path).exists()  # its name is for the caller to remove


def test_removed_version_may_be_replaced_by_an_older_file(store: Store) -> None:
    """vim renames the document away and a new file onto its name: it has read that version."""
    draft, newer = drafted(store)
    store.names.commit(WriteRequest(DOCUMENT, newer))
    removed = Stamp.of((store.home / DOCUMENT.path).stat())
    store.moves.onto_document(RenameRequest(DRAFT, DOCUMENT, removed=removed, seen_at_create={DOCUMENT.path: None}))
    assert (store.home / DOCUMENT.path).read_bytes() == draft
