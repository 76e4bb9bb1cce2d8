"""What people call a session leads to that session, or to an error that names those it could be."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import Ambiguous, InvalidName, Location, Message, NotFound, Session, Store
from tests.builders import make_session


@pytest.fixture
def named(store: Store) -> Store:
    root = make_session("fix-login", title="Fix the Login")
    store.save(root)
    store.save(make_session("fix-logout", title="Straße"))
    store.save(Session.new_child_of("worker-1", root, "m", "Look into it"))
    store.save(Session.new_child_of("worker-2", root, "m", "Look into it"))
    return store


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fix-login", "fix-login"),
        ("fix-logi", "fix-login"),
        ("fix the login", "fix-login"),
        ("  Fix  the login ", "fix-login"),
        ("STRASSE", "fix-logout"),
        ("worker-1", "fix-login/worker-1"),
        ("fix-login/worker-2", "fix-login/worker-2"),
        ("fix-logi/worker-2", "fix-login/worker-2"),
    ],
)
def test_a_session_is_called_by_id_beginning_or_title(named: Store, name: str, expected: str) -> None:
    assert str(named.resolve(name)) == expected


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("fix", ["fix-login", "fix-logout"]),
        ("look into it", ["fix-login/worker-1", "fix-login/worker-2"]),
        ("fix-login/wor", ["fix-login/worker-1", "fix-login/worker-2"]),
    ],
)
def test_what_could_be_several_is_refused_with_their_names(named: Store, name: str, candidates: list[str]) -> None:
    with pytest.raises(Ambiguous) as caught:
        named.resolve(name)
    assert caught.value.candidates == candidates
    assert all(candidate in str(caught.value) for candidate in candidates)


def test_an_id_is_meant_as_it_stands(named: Store) -> None:
    """Also where others begin with it, or are titled so."""
    named.save(make_session("fix", title="fix-login"))
    assert named.resolve("fix") == Location("fix")
    assert named.resolve("fix-login") == Location("fix-login")


def test_a_beginning_and_a_title_are_not_weighed_against_each_other(named: Store) -> None:
    named.save(make_session("another", title="fix-logo"))
    named.save(make_session("fix-logo-of-firm"))
    with pytest.raises(Ambiguous, match="another, fix-logo-of-firm"):
        named.resolve("fix-logo")


def test_a_title_may_have_what_an_id_may_not(named: Store) -> None:
    named.save(make_session("odd", title="a/b: ../ and more"))
    assert named.resolve("a/b: ../ and more") == Location("odd")


def test_a_session_without_a_title_is_called_as_lists_show_it(named: Store) -> None:
    named.get_or_create("untitled")
    named.append("untitled", [Message.user("Why is the sky blue?")])
    assert named.resolve("why is the sky blue?") == Location("untitled")


def test_nothing_and_blank_say_what_to_do(named: Store) -> None:
    with pytest.raises(NotFound, match="`grovefs ls` lists them"):
        named.resolve("nobody")
    with pytest.raises(NotFound):
        named.resolve("\udcff")
    with pytest.raises(InvalidName, match="blank"):
        named.resolve(" ")


@pytest.mark.warns
def test_a_damaged_session_can_be_called_too(store: Store) -> None:
    """Who wants to delete or to look at it must be able to name it."""
    store.save(make_session("broken-one"))
    path = store.home / "sessions/broken-one/session.json"
    text = path.read_bytes()
    path.write_bytes(b"{")
    store.maintenance.sweep()
    assert store.resolve("broken") == Location("broken-one")
    path.write_bytes(text)
    store.maintenance.sweep()


def test_an_error_names_eight_at_most(store: Store) -> None:
    for number in range(10):
        store.save(make_session(f"s{number}", messages=0))
    with pytest.raises(Ambiguous, match="s0, s1, s2, s3, s4, s5, s6, s7 and 2 more") as caught:
        store.resolve("s")
    assert len(caught.value.candidates) == 10


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_whatever_is_said_is_a_session_or_a_plain_error(named: Store, name: str) -> None:
    try:
        location = named.resolve(name)
    except (NotFound, Ambiguous, InvalidName):
        return
    assert named.entry(str(location)) is not None
