"""Hidden names: from whom, for how long, and in renamed directories."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusefs.tree.hidden_names import EVERYBODY, HiddenNames
from fusefs.tree.processes import Process
from store.path_kinds import classify_path

DOCUMENT = "sessions/s/session.json"
VIM, EMACS, CAT = 7, 8, 9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("fusefs.tree.hidden_names.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def info(tmp_path: Path) -> os.stat_result:
    (tmp_path / "f").write_bytes(b"data")
    return (tmp_path / "f").stat()


def hide(
    names: HiddenNames, info: os.stat_result, path: str = DOCUMENT, taker: int = VIM, *, was_deleted: bool = True
) -> None:
    names.hide(classify_path(path), info, Process(taker), was_deleted=was_deleted)


def test_rename_hides_a_name_from_its_taker_and_unlink_from_everybody(info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info, was_deleted=False)
    assert names.find(DOCUMENT, VIM) is not None
    assert names.find(DOCUMENT, CAT) is None
    assert names.find(DOCUMENT, EVERYBODY) is None
    assert names.in_directory("sessions/s", VIM) == ["session.json"]
    assert names.in_directory("sessions/s", CAT) == []
    hide(names, info)
    assert names.find(DOCUMENT, CAT) is not None
    assert names.in_directory("sessions/s", CAT) == ["session.json"]


def test_taker_of_another_pid_namespace_hides_the_name_from_everybody(info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info, taker=0, was_deleted=False)
    assert names.find(DOCUMENT, CAT) is not None
    assert not names.was_deleted(DOCUMENT, VIM)


def test_commit_shows_the_name_to_its_writer_and_not_to_another_taker(info: os.stat_result) -> None:
    """Emacs took the name away too, and is about to create it: it must not find what vim has saved."""
    names = HiddenNames()
    hide(names, info, was_deleted=False)
    hide(names, info, taker=EMACS, was_deleted=False)
    names.show(DOCUMENT, Process(VIM))
    assert names.find(DOCUMENT, VIM) is None
    assert names.find(DOCUMENT, EMACS) is not None
    names.remove(names.all()[0])
    assert not names


def test_unlinked_name_is_shown_to_others_once_it_is_created_again(info: os.stat_result) -> None:
    """mv from another filesystem unlinks and creates. Only between the two does nobody see the document."""
    names = HiddenNames()
    hide(names, info)
    names.created(DOCUMENT, Process(EMACS))
    assert names.find(DOCUMENT, CAT) is None
    assert names.was_deleted(DOCUMENT, EMACS)
    assert not names.was_deleted(DOCUMENT, CAT)
    names.show(DOCUMENT, Process(CAT))
    assert names.find(DOCUMENT, EMACS) is not None, "it has not seen what cat has saved"


def test_process_sees_what_a_program_it_runs_has_saved(info: os.stat_result) -> None:
    """A script renames the document away and lets jq write the new one."""
    names = HiddenNames()
    hide(names, info, was_deleted=False)
    names.show(DOCUMENT, Process(CAT, ancestors=(3, VIM)))
    assert names.find(DOCUMENT, VIM) is None


def test_hidden_name_is_overdue_after_ten_seconds_without_a_writer(clock: list[float], info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info)
    assert list(names.overdue(())) == []
    clock[0] += names.hidden_s + 0.1
    assert list(names.overdue({DOCUMENT})) == []
    assert list(names.overdue(())) == names.all()
    assert names.find(DOCUMENT, EVERYBODY) in names.all()
    names.show(DOCUMENT, Process(VIM))
    assert names.all() == []


def test_only_direct_entries_of_a_directory_are_listed_as_hidden(info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info)
    hide(names, info, "sessions/s/children/c/session.json")
    assert names.in_directory("sessions/s", EVERYBODY) == ["session.json"]


def test_unlink_differs_from_rename(clock: list[float], info: os.stat_result) -> None:
    """After an unlink the replacement need not be based on the removed version."""
    names = HiddenNames()
    hide(names, info, was_deleted=False)
    assert not names.was_deleted(DOCUMENT, VIM)
    hide(names, info)
    assert names.was_deleted(DOCUMENT, VIM)
    sidecar = "sessions/s/runtime.json"
    assert not names.was_deleted(sidecar, VIM)
    names.note_deleted(sidecar)
    assert names.was_deleted(sidecar, VIM)
    clock[0] += names.hidden_s + 0.1
    assert not names.was_deleted(sidecar, VIM)


def test_hidden_name_follows_its_directory_if_the_version_is_the_same(info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info)
    names.rename("sessions/s", "sessions/t", lambda _: info)
    hidden = names.find("sessions/t/session.json", EVERYBODY)
    assert hidden is not None
    assert hidden.path_info.path == "sessions/t/session.json"
    assert names.find(DOCUMENT, EVERYBODY) is None


def test_version_saved_since_is_shown_after_a_directory_rename(info: os.stat_result, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.write_bytes(b"newer")
    os.utime(newer, ns=(info.st_mtime_ns + 10**9,) * 2)
    names = HiddenNames()
    hide(names, info)
    names.rename("sessions/s", "sessions/t", lambda _: newer.stat())
    assert names.all() == []


def test_new_directory_has_no_hidden_names(info: os.stat_result) -> None:
    names = HiddenNames()
    hide(names, info)
    names.directory_created("sessions/s")
    assert names.find(DOCUMENT, EVERYBODY) is None
