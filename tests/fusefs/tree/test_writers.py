"""Writers: open writers and rejections."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusefs.tree.processes import Process
from fusefs.tree.writers import REJECTED_S, Writers
from store.path_kinds import classify_path

DOCUMENT = "sessions/s/session.json"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("fusefs.tree.writers.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def info(tmp_path: Path) -> os.stat_result:
    (tmp_path / "f").write_bytes(b"data")
    return (tmp_path / "f").stat()


def test_name_is_being_written_until_its_last_writer_ends() -> None:
    writers = Writers()
    writers.begin(DOCUMENT)
    writers.begin(DOCUMENT)
    writers.end(DOCUMENT)
    assert writers.is_being_written(DOCUMENT)
    writers.end(DOCUMENT)
    assert not writers.is_being_written(DOCUMENT)


def test_rejection_is_remembered_per_thread_for_ten_seconds(clock: list[float]) -> None:
    writers = Writers()
    writers.note_rejected(DOCUMENT, 1)
    assert writers.was_rejected(DOCUMENT, 1)
    assert not writers.was_rejected(DOCUMENT, 2)
    clock[0] += REJECTED_S + 0.1
    assert not writers.was_rejected(DOCUMENT, 1)
    writers.note_rejected(DOCUMENT, 2)
    writers.forget_rejection(DOCUMENT, 2)
    assert not writers.was_rejected(DOCUMENT, 2)


def test_hidden_name_is_not_cached(info: os.stat_result) -> None:
    """One process sees it and another does not, so the kernel must ask each time."""
    writers = Writers()
    writers.hidden.hide(classify_path(DOCUMENT), info, Process(7), was_deleted=False)
    assert writers.is_being_written(DOCUMENT)
    writers.hidden.show(DOCUMENT, Process(7))
    assert not writers.is_being_written(DOCUMENT)
