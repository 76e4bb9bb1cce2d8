"""`grovefs trash` and `grovefs undelete`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from tests.builders import make_session
from tests.fusefs.test_cli import grovefs


@pytest.fixture
def emptied(home: Path) -> Path:
    """A root with a child was deleted; one session is left."""
    with Store.open(home, background=False) as store:
        for id in ("first", "second"):
            store.save(make_session(id))
        store.save(Session.new_child("kid", "first", "m", "A child"))
        store.delete("first")
    return home


def ids(home: Path) -> list[str]:
    with Store.open(home, background=False) as store:
        return store.ids()


def test_what_was_deleted_is_listed(emptied: Path) -> None:
    (line,) = grovefs(emptied, "trash").stdout.splitlines()
    assert line.split("\t")[2:] == ["first", "deleted"]
    (slot,) = json.loads(grovefs(emptied, "trash", "--json").stdout)
    assert (slot["session_id"], slot["paths"]) == ("first", ["sessions/first"])


@pytest.mark.parametrize("by_id", [True, False])
def test_it_can_be_had_back(emptied: Path, by_id: bool) -> None:
    """By its id, or by its name in the trash; children and all."""
    name = "first" if by_id else grovefs(emptied, "trash").stdout.split("\t")[0]
    result = grovefs(emptied, "undelete", name)
    assert result.stdout == "restored: first, first/kid\n"
    assert ids(emptied) == ["first", "first/kid", "second"]
    assert grovefs(emptied, "trash").stdout == "nothing was deleted in the last 7 days\n"


def test_what_is_not_there_is_one_line_with_the_remedy(emptied: Path) -> None:
    result = grovefs(emptied, "undelete", "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "grovefs: there is no 'nobody' in the trash; `grovefs trash` lists what is\n"


def test_nothing_is_put_over_what_came_since(emptied: Path) -> None:
    with Store.open(emptied, background=False) as store:
        store.save(make_session("first", title="A new one"))
    result = grovefs(emptied, "undelete", "first")
    assert result.returncode == 1
    assert "exists again" in result.stderr
    assert ids(emptied) == ["first", "second"]


def test_what_went_in_the_same_go_comes_back_with_it(emptied: Path) -> None:
    """As `rm -r` in a mount deletes, child by child; but not what had been deleted long before."""
    with Store.open(emptied, background=False) as store:
        for kid in ("old", "young"):
            store.save(Session.new_child(kid, "second", "m", "A child"))
            store.delete(f"second/{kid}")
        [slot] = [slot for slot in store.deleted() if slot.session_id == "second/old"]
        info = emptied / f".grovefs/trash/{slot.name}/info.json"
        info.write_text(info.read_text().replace(str(slot.deleted_at_ns), str(slot.deleted_at_ns - 3600 * 10**9)))
        store.delete("second")
    assert grovefs(emptied, "undelete", "second").stdout == "restored: second, second/young\n"
    assert ids(emptied) == ["second", "second/young"]
