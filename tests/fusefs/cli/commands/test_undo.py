"""`grovefs undo`: shows its plan, asks, and says what it did not do."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from store import Message, Store
from store.history.authors import acting_as
from store.undo.versions_spec import local_text
from tests.fusefs.cli.test_cli import grovefs, on_a_terminal
from tests.store.undo.test_undo import AGENT, contents, made, sed


@pytest.fixture
def wrong(home: Path) -> Path:
    """Two sessions changed by sed; in `live` an agent wrote afterwards."""
    with Store.open(home, background=False) as store:
        for id in ("live", "quiet"):
            made(store, id)
            sed(store, home, id)
        with acting_as(AGENT):
            store.append("live", [Message.assistant("the answer")])
    return home


def test_a_dry_run_shows_the_plan(wrong: Path) -> None:
    before = contents(wrong)
    result = grovefs(wrong, "undo", "--since", "1h", "--by", "sed", "--dry-run")
    assert result.returncode == 1
    row, refused, totals = result.stdout.splitlines()
    assert row.split("\t")[:2] == ["quiet", "1"]
    assert row.split("\t")[3:] == ["mount: sed (4711)", "version 2"]
    assert refused == "not undone: live: changed since by agent; --merge keeps those changes"
    assert totals == "would undo 1 change in 1 session, 1 refused"
    assert contents(wrong) == before


def test_nothing_is_undone_without_confirmation(wrong: Path) -> None:
    before = contents(wrong)
    result = grovefs(wrong, "undo", "--since", "1h", "--by", "sed")
    assert result.returncode == 2
    assert "--yes" in result.stderr
    assert contents(wrong) == before


@pytest.mark.parametrize(("typed", "is_undone"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_the_question_is_answered_on_a_terminal(wrong: Path, typed: bytes, is_undone: bool) -> None:
    """Only `y` undoes. Else nothing is changed, and the exit code says so."""
    before = contents(wrong)
    command = ("undo", "--since", "1h", "--by", "sed", "quiet")
    shown = on_a_terminal(wrong, *command, returncode=0 if is_undone else 1, typed=typed)
    assert "Take back 1 change in 1 session? [y/N]" in shown
    assert ("undone in 1 session;" in shown) == is_undone
    changed = {name for name, document in contents(wrong).items() if document != before[name]}
    assert changed == ({"sessions/quiet/session.json"} if is_undone else set())


def test_until_ends_the_span_of_time(home: Path) -> None:
    """Changes made after it stay, and a session changed only then is not in the plan."""
    with Store.open(home, background=False) as store:
        for id in ("early", "late"):
            made(store, id)
        sed(store, home, "early")
        until = local_text(store.history.log("early")[0].at_ns)
        while local_text(time.time_ns()) == until:
            time.sleep(0.001)
        sed(store, home, "late")
    before = contents(home)
    planned = grovefs(home, "undo", "--since", "1h", "--until", until, "--by", "sed", "--dry-run")
    assert [line.split("\t")[0] for line in planned.stdout.splitlines()[:-1]] == ["early"]
    result = grovefs(home, "undo", "--since", "1h", "--until", until, "--by", "sed", "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    changed = {name for name, document in contents(home).items() if document != before[name]}
    assert changed == {"sessions/early/session.json"}
    nothing = grovefs(home, "undo", "--since", "2h", "--until", "1h", "--by", "sed", "--yes")
    assert (nothing.returncode, nothing.stdout) == (1, "no change matches; `grovefs log SESSION` lists them\n")


def test_undo_and_its_undo(wrong: Path) -> None:
    """The last line says how to take it back."""
    before = contents(wrong)
    result = grovefs(wrong, "undo", "--since", "1h", "--by", "sed", "--merge", "--yes")
    assert result.returncode == 0
    assert "merged with later changes" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("undone in 2 sessions; `grovefs undo --since '20")
    assert last.endswith("--by 'revert*'` takes it back")
    assert contents(wrong) != before
    again = grovefs(wrong, "undo", "--since", "1h", "--by", "sed", "--merge", "--yes")
    assert (again.returncode, again.stdout) == (0, "would undo 0 changes in 0 sessions, 2 already as before\n")
    assert grovefs(wrong, "undo", "--since", "1h", "--by", "revert*", "--yes").returncode == 0
    assert contents(wrong) == before


def test_json_output(wrong: Path) -> None:
    found = json.loads(grovefs(wrong, "undo", "--since", "1h", "--by", "sed", "--yes", "--json").stdout)
    item = {"id": "quiet", "versions": [3], "back_to": 2, "merged": False}
    reason = "changed since by agent; --merge keeps those changes"
    assert found == {
        "to_undo": [item],
        "refused": [{"id": "live", "reason": reason}],
        "unchanged": [],
        "undone": [item],
    }


def test_only_named_sessions(wrong: Path) -> None:
    result = grovefs(wrong, "undo", "--since", "1h", "--by", "sed", "--yes", "quiet")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].startswith("undone in 1 session;")
    assert grovefs(wrong, "undo", "--since", "1h", "nobody").stderr.startswith("grovefs: there is no session 'nobody'")


def test_wrong_times_are_explained(wrong: Path) -> None:
    result = grovefs(wrong, "undo", "--since", "teatime")
    assert (result.returncode, result.stdout) == (1, "")
    assert "'teatime' is not a time: expected 2h, 10:32" in result.stderr
    assert grovefs(wrong, "undo").returncode == 2


def test_nothing_matches(wrong: Path) -> None:
    result = grovefs(wrong, "undo", "--since", "1h", "--by", "perl", "--yes")
    assert (result.returncode, result.stdout) == (1, "no change matches; `grovefs log SESSION` lists them\n")
