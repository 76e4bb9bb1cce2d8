"""Session names: an id, a prefix or a title resolves to one session, or the error lists the candidates."""

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
def test_id_prefix_and_title_resolve(named: Store, name: str, expected: str) -> None:
    assert str(named.resolve(name)) == expected


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("fix", ["fix-login", "fix-logout"]),
        ("look into it", ["fix-login/worker-1", "fix-login/worker-2"]),
        ("fix-login/wor", ["fix-login/worker-1", "fix-login/worker-2"]),
    ],
)
def test_ambiguous_name_lists_the_candidates(named: Store, name: str, candidates: list[str]) -> None:
    with pytest.raises(Ambiguous) as caught:
        named.resolve(name)
    assert caught.value.candidates == candidates
    assert all(candidate in str(caught.value) for candidate in candidates)


def test_exact_id_wins(named: Store) -> None:
    """Also if it is a prefix of other ids, or the title of another session."""
    named.save(make_session("fix", title="fix-login"))
    assert named.resolve("fix") == Location("fix")
    assert named.resolve("fix-login") == Location("fix-login")


def test_prefix_and_title_have_equal_priority(named: Store) -> None:
    named.save(make_session("another", title="fix-logo"))
    named.save(make_session("fix-logo-of-firm"))
    with pytest.raises(Ambiguous, match="another, fix-logo-of-firm"):
        named.resolve("fix-logo")


def test_title_may_contain_characters_invalid_in_an_id(named: Store) -> None:
    named.save(make_session("odd", title="a/b: ../ and more"))
    assert named.resolve("a/b: ../ and more") == Location("odd")


def test_derived_title_resolves(named: Store) -> None:
    named.get_or_create("untitled")
    named.append("untitled", [Message.user("Why is the sky blue?")])
    assert named.resolve("why is the sky blue?") == Location("untitled")


def test_unknown_and_blank_names_are_errors(named: Store) -> None:
    with pytest.raises(NotFound, match="`grovefs ls` lists them"):
        named.resolve("nobody")
    with pytest.raises(NotFound):
        named.resolve("\udcff")
    with pytest.raises(InvalidName, match="blank"):
        named.resolve(" ")


@pytest.mark.warns
def test_damaged_session_resolves(store: Store) -> None:
    """The user must be able to show or delete it."""
    store.save(make_session("broken-one"))
    path = store.home / "sessions/broken-one/session.json"
    text = path.read_bytes()
    path.write_bytes(b"{")
    store.maintenance.sweep()
    assert store.resolve("broken") == Location("broken-one")
    path.write_bytes(text)
    store.maintenance.sweep()


def test_error_lists_at_most_eight_candidates(store: Store) -> None:
    for number in range(10):
        store.save(make_session(f"s{number}", messages=0))
    with pytest.raises(Ambiguous, match="s0, s1, s2, s3, s4, s5, s6, s7 and 2 more") as caught:
        store.resolve("s")
    assert len(caught.value.candidates) == 10


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_any_name_resolves_or_raises_a_store_error(named: Store, name: str) -> None:
    try:
        location = named.resolve(name)
    except (NotFound, Ambiguous, InvalidName):
        return
    assert named.entry(str(location)) is not None
