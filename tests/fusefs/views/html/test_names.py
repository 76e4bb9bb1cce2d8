"""Names in html/: every session has its own, and every name leads back to it."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.views.html.names import INDEX, STATS, diff_path, id_of, link, parse_name, path_of, stem_of
from store import Location, layout

parts = st.sampled_from(["a", "index", "stats", "html", "log", "images", "diff-3", "diff-1-2", "d"])
ids = st.lists(parts, min_size=1, max_size=4).map(".".join).filter(layout.is_session_id)
Kind = Literal["page", "log", "images"]
KINDS: tuple[Kind, ...] = ("page", "log", "images")


@given(ids, st.sampled_from(KINDS))
def test_name_leads_back_to_its_session(session_id: str, kind: Kind) -> None:
    for location in (Location(session_id), Location("r", session_id)):
        name = path_of(location, kind).rpartition("/")[2]
        assert parse_name("r" if location.child else None, name) == (location, kind, None)
        name = diff_path(location, 5).rpartition("/")[2]
        assert parse_name("r" if location.child else None, name) == (location, "diff", (None, 5))
    assert id_of(stem_of(session_id)) == session_id


@given(st.lists(ids, unique=True, max_size=6))
def test_no_two_names_are_equal(found: list[str]) -> None:
    """Pages, logs, image directories, directories of children, and the two listed pages."""
    names = [path_of(Location(one), kind) for one in found for kind in KINDS]
    names += [diff_path(Location(one), 3) for one in found]
    names += [stem_of(one) for one in found] + [INDEX, STATS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["", ".html", "a", "a.txt", "../a.html", "index.html", "stats.html", "a.html.html"])
def test_other_names_are_nothing(name: str) -> None:
    assert parse_name(None, name) is None


def test_links_are_relative_and_quoted() -> None:
    assert link(None, path_of(Location("a b"))) == "a%20b.html"
    assert link(Location("r", "c"), INDEX) == "../index.html"
    assert link(Location("r", "c"), path_of(Location("r", "x#1"))) == "../r/x%231.html"
