"""Names users give for a session: exact id, unique prefix, title."""

from __future__ import annotations

import pytest

from store.errors import Ambiguous, InvalidName
from store.sessions.match_name import match_name, match_one

TITLES = {"fix-login": "The login", "fix-login/plan": "A plan", "fix-logout": "", "r/fix-login": "The login"}


def match(name: str) -> list[str]:
    return match_name(name, TITLES, str, TITLES.__getitem__)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fix-login", ["fix-login"]),
        ("r/fix-login", ["r/fix-login"]),
        ("plan", ["fix-login/plan"]),
        ("fix-logo", ["fix-logout"]),
        ("fix-logi", ["fix-login", "r/fix-login"]),
        ("fix/pl", ["fix-login/plan"]),
        ("r/", ["r/fix-login"]),
        ("the  LOGIN", ["fix-login", "r/fix-login"]),
        ("ogin", []),
        ("", []),
        (" ", []),
        ("\udcff", []),
    ],
)
def test_an_exact_id_wins_over_prefixes_and_titles(name: str, found: list[str]) -> None:
    """The exact path of a root also wins over a child with the same id."""
    assert match(name) == found


def test_one_match_is_required() -> None:
    """The error lists the candidates; a name without a match is not an error here."""
    assert match_one("plan", TITLES, str, TITLES.__getitem__) == "fix-login/plan"
    assert match_one("nobody", TITLES, str, TITLES.__getitem__) is None
    with pytest.raises(Ambiguous, match=r"candidates: fix-login, r/fix-login$"):
        match_one("the login", TITLES, str, TITLES.__getitem__)
    with pytest.raises(InvalidName, match="blank"):
        match_one(" ", TITLES, str, TITLES.__getitem__)


def test_an_empty_title_is_not_matched() -> None:
    """Sessions without a title have no name but their id."""
    assert match("fix-logout") == ["fix-logout"]
    assert match_name("x", ["a"], str, lambda _: "") == []
