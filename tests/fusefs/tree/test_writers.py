"""Writers: open writers, rejections and hidden names."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

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


def hide(writers: Writers, info: os.stat_result, path: str = DOCUMENT, *, was_deleted: bool = True) -> None:
    writers.hide(classify_path(path), info, was_deleted=was_deleted)


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


def test_hidden_name_is_overdue_after_ten_seconds_without_a_writer(clock: list[float], info: os.stat_result) -> None:
    writers = Writers()
    hide(writers, info)
    assert list(writers.overdue()) == []
    clock[0] += writers.hidden_s + 0.1
    writers.begin(DOCUMENT)
    assert list(writers.overdue()) == []
    writers.end(DOCUMENT)
    assert list(writers.overdue()) == writers.all_hidden() == [writers.hidden(DOCUMENT)]
    writers.show(DOCUMENT)
    assert writers.all_hidden() == []


def test_only_direct_entries_of_a_directory_are_listed_as_hidden(info: os.stat_result) -> None:
    writers = Writers()
    hide(writers, info)
    hide(writers, info, "sessions/s/children/c/session.json")
    assert writers.hidden_in("sessions/s") == ["session.json"]


def test_unlink_differs_from_rename(clock: list[float], info: os.stat_result) -> None:
    """After an unlink the replacement need not be based on the removed version."""
    writers = Writers()
    hide(writers, info, was_deleted=False)
    assert not writers.was_deleted(DOCUMENT)
    hide(writers, info)
    assert writers.was_deleted(DOCUMENT)
    sidecar = "sessions/s/runtime.json"
    assert not writers.was_deleted(sidecar)
    writers.note_deleted(sidecar)
    assert writers.was_deleted(sidecar)
    clock[0] += writers.hidden_s + 0.1
    assert not writers.was_deleted(sidecar)


def test_hidden_name_follows_its_directory_if_the_version_is_the_same(info: os.stat_result) -> None:
    writers = Writers()
    hide(writers, info)
    writers.rename("sessions/s", "sessions/t", lambda _: info)
    hidden = writers.hidden("sessions/t/session.json")
    assert hidden is not None
    assert hidden.path_info.path == "sessions/t/session.json"
    assert writers.hidden(DOCUMENT) is None


def test_version_saved_since_is_shown_after_a_directory_rename(info: os.stat_result, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.write_bytes(b"newer")
    os.utime(newer, ns=(info.st_mtime_ns + 10**9,) * 2)
    writers = Writers()
    hide(writers, info)
    writers.rename("sessions/s", "sessions/t", lambda _: newer.stat())
    assert writers.all_hidden() == []


def test_new_directory_has_no_hidden_names(info: os.stat_result) -> None:
    writers = Writers()
    hide(writers, info)
    writers.directory_created("sessions/s")
    assert writers.hidden(DOCUMENT) is None
