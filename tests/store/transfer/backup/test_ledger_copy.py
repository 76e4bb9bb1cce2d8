"""Backups carry the ledger of imports: a restored home knows what was deleted and renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import Store
from tests.store.transfer.foreign import CLAUDE_ID, CODEX_ID, CODEX_OLD, make_claude, make_codex


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    return [str(make_claude(tmp_path / "claude")), str(make_codex(tmp_path / "codex"))]


def roots(store: Store) -> set[str]:
    return {entry.id for entry in store.entries(kind="root")}


def fill(store: Store, sources: list[str]) -> None:
    """Import everything, rename one session and delete another."""
    for source in sources:
        store.imports.run(source)
    store.rename(CLAUDE_ID, "my-shop")
    store.delete(CODEX_ID)


@pytest.mark.parametrize("is_imported_again", [True, False])
def test_restored_home_knows_what_was_deleted_and_renamed(
    store: Store, tmp_path: Path, sources: list[str], is_imported_again: bool
) -> None:
    """Whether or not an import noticed the changes before the backup."""
    fill(store, sources)
    if is_imported_again:
        for source in sources:
            store.imports.run(source)
    assert not store.backup(tmp_path / "backup").problems
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(tmp_path / "backup")
        for source in sources:
            assert not other.imports.run(source).problems
        assert roots(other) == {"my-shop", CODEX_OLD}
        assert other.check().is_clean


def test_home_keeps_its_own_ledger(store: Store, tmp_path: Path, sources: list[str]) -> None:
    """A session that was deleted in the home of the backup, and that another home has, is still followed there."""
    fill(store, sources)
    store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "other", background=False) as other:
        other.imports.run(sources[1])
        other.restore(tmp_path / "backup")
        for source in sources:
            assert not other.imports.run(source).problems
        assert roots(other) == {"my-shop", CODEX_ID, CODEX_OLD}


def test_restore_of_one_session_leaves_the_others_to_import(store: Store, tmp_path: Path, sources: list[str]) -> None:
    fill(store, sources)
    store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(tmp_path / "backup", CODEX_OLD)
        other.imports.run(sources[1])
        assert roots(other) == {CODEX_ID, CODEX_OLD}


def test_sessions_that_a_restore_leaves_out_are_imported_again(
    store: Store, tmp_path: Path, sources: list[str]
) -> None:
    """Its root is damaged in the backup, so a child is not restored either."""
    store.imports.run(sources[0])
    everything = {entry.id for entry in store.entries()}
    store.backup(tmp_path / "backup")
    (tmp_path / f"backup/sessions/{CLAUDE_ID}/session.json").write_bytes(b"{}")
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(tmp_path / "backup", skip_damaged=True)
        assert not roots(other)
        other.imports.run(sources[0])
        assert {entry.id for entry in other.entries()} == everything
