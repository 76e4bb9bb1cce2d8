"""views/: links to sessions, complete and current; lookup and listing agree."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusefs.views.base import VirtualLink
from fusefs.views.by_date import parse_period, period_at
from fusefs.views.session_views import ViewsOfSessions
from store import Generated, Location, NotFound, Session, Store, Timestamp
from tests.builders import make_session
from tests.fusefs.views.test_transcripts import walk


def links(store: Store, below: str = "") -> dict[str, str]:
    """Every link and the directory in the home that it points to."""
    found = {}
    for path, item in walk(ViewsOfSessions(store), below).items():
        if isinstance(item, VirtualLink):
            target = posixpath.normpath(posixpath.join("views", posixpath.dirname(path), item.target))
            assert (store.home / target / "session.json").is_file(), (path, target)
            found[path] = target
    return found


def save(store: Store, name: str, **fields: Any) -> Session:
    session = make_session(name, **fields)
    store.save(session)
    return session


def run(store: Store, name: str, status: str) -> None:
    store.update(name, lambda session: setattr(session, "last_run_status", status))


def test_top_lists_every_view(store: Store) -> None:
    names = [name for name, _ in ViewsOfSessions(store).iter_items("")]
    assert names == ["by-title", "by-date", "by-status", "by-model", "pinned", "children-of", "projects"]
    assert links(store) == {}


def test_by_title(store: Store) -> None:
    save(store, "s1", title="Fix the login/page")
    root = save(store, "s2", title="New Session")
    store.save(Session.new_child_of("0b0e9d64-1111-2222-3333", root, "m", "A helper"))
    assert links(store, "by-title") == {
        "by-title/Fix-the-login-page~s1": "sessions/s1",
        "by-title/msg-0~s2": "sessions/s2",
        "by-title/A-helper~0b0e9d64": "sessions/s2/children/0b0e9d64-1111-2222-3333",
    }


def test_equal_names_get_distinct_suffixes(store: Store) -> None:
    """Equal titles with similar ids, and one id below two roots."""
    for tail in ("aaaa", "bbbb"):
        root = save(store, f"0b0e9d64-1111-{tail}-3333", title="Twin")
        store.save(Session.new_child_of("c", root, "m", "Same"))
    found = links(store, "by-title")
    assert sorted(found.values()) == sorted(
        f"sessions/0b0e9d64-1111-{tail}-3333{below}" for tail in ("aaaa", "bbbb") for below in ("", "/children/c")
    )
    assert all(path.count("~") == 2 for path in found)
    assert ViewsOfSessions(store).find("by-title/Twin~0b0e9d64") is None
    store.delete("0b0e9d64-1111-aaaa-3333")
    assert sorted(links(store, "by-title")) == ["by-title/Same~c", "by-title/Twin~0b0e9d64"]


def test_by_date_uses_the_day_of_the_last_update(store: Store) -> None:
    for name, when in (
        ("a", "2024-02-29T23:59:59.999999999Z"),
        ("b", "2024-03-01T00:00:00Z"),
        ("c", "2026-12-31T23:30:00-01:00"),
    ):
        save(store, name, messages=0, title=name, updated_at=Timestamp(when), created_at=Timestamp(when))
    assert links(store, "by-date") == {
        "by-date/2024/02/29/a~a": "sessions/a",
        "by-date/2024/03/01/b~b": "sessions/b",
        "by-date/2027/01/01/c~c": "sessions/c",
    }
    view = ViewsOfSessions(store)
    for path in (
        "2025",
        "2024/01",
        "2024/02/30",
        "2024/02/28",
        "24",
        "2024/2",
        "2024/02/29/b~b",
        "2024/02/29/a~a/x",
        "x",
    ):
        assert view.find(f"by-date/{path}") is None, path


def test_by_status_and_model(store: Store) -> None:
    save(store, "a", title="a", model="openai/gpt-5")
    save(store, "b", title="b", model="")
    run(store, "a", "completed")
    found = links(store)
    assert found["by-status/completed/a~a"] == "sessions/a"
    assert found["by-status/none/b~b"] == "sessions/b"
    assert found["by-model/none/b~b"] == "sessions/b"
    label = next(path for path in found if path.startswith("by-model/openai-gpt-5~"))
    assert label.endswith("/a~a")
    run(store, "a", "failed")
    assert "by-status/failed/a~a" in links(store, "by-status")
    assert ViewsOfSessions(store).find("by-status/completed") is None
    assert ViewsOfSessions(store).find("by-status/failed/b~b") is None


def test_pinned(store: Store) -> None:
    save(store, "a", title="a", pinned=True)
    save(store, "b", title="b")
    assert list(links(store, "pinned")) == ["pinned/a~a"]
    store.update("a", lambda session: setattr(session, "pinned", False))
    assert links(store, "pinned") == {}


def test_children_of_lists_direct_children(store: Store) -> None:
    root = save(store, "r", title="r")
    child = Session.new_child_of("c", root, "m", "c")
    store.save(child)
    store.save(Session.new_child_of("g", child, "m", "g"))
    assert links(store, "children-of") == {
        "children-of/r/c~c": "sessions/r/children/c",
        "children-of/c/g~g": "sessions/r/children/g",
    }
    assert ViewsOfSessions(store).find("children-of/g") is None
    assert ViewsOfSessions(store).find("children-of/none") is None


# -- projects ------------------------------------------------------------------------------------------------


def project_of(store: Store, name: str) -> str | None:
    session = store.load(name)
    assert session is not None
    return session.project_id


def test_link_moves_from_project_to_project(store: Store) -> None:
    """In the documents and in the index; also out of all projects."""
    for name in ("a", "b"):
        save(store, name, title=name)
    store.move_to_project("b", "p1")
    view = ViewsOfSessions(store)
    assert sorted(links(store, "projects")) == ["projects/none/a~a", "projects/p1/b~b"]
    view.move("projects/none/a~a", "projects/p1/a~a")
    assert project_of(store, "a") == "p1"
    assert sorted(links(store, "projects")) == ["projects/p1/a~a", "projects/p1/b~b"]
    view.move("projects/p1/b~b", "projects/none/b~b")
    assert project_of(store, "b") is None
    assert "projects/none/b~b" in links(store, "projects")


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("projects/none/a~a", "projects/p1/other", Generated),
        ("projects/none/a~a", "projects/none/other", Generated),
        ("projects/none/a~a", "by-title/a~a", Generated),
        ("by-title/a~a", "by-title/b", Generated),
        ("projects/p1", "projects/p2", Generated),
        ("projects", "other", Generated),
        ("projects/none/a~a", "projects/nowhere/a~a", NotFound),
        ("projects/none/x~x", "projects/p1/x~x", NotFound),
        ("projects/p1/a~a", "projects/none/a~a", NotFound),
    ],
)
def test_other_moves_are_rejected(store: Store, source: str, target: str, error: type[Exception]) -> None:
    for name in ("a", "b"):
        save(store, name, title=name)
    store.move_to_project("b", "p1")
    before = links(store)
    with pytest.raises(error):
        ViewsOfSessions(store).move(source, target)
    assert links(store) == before


# -- many sessions, odd names --------------------------------------------------------------------------------------


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.text(max_size=80), st.text(max_size=12), st.none() | st.text(max_size=12)), min_size=1, max_size=6
    )
)
def test_every_view_lists_every_session_once(tmp_path_factory: Any, found: list[tuple[str, str, str | None]]) -> None:
    """Whatever the titles, models and projects are."""
    home: Path = tmp_path_factory.mktemp("home")
    with Store.open(home, background=False, durability="normal") as store:
        for i, (title, model, project) in enumerate(found):
            save(store, f"session-number-{i}", title=title, model=model, messages=i % 2)
            if project and project.strip():  # a blank one is rejected
                store.move_to_project(f"session-number-{i}", project)
        everything = {Location(f"session-number-{i}").dir for i in range(len(found))}
        for view in ("by-title", "by-date", "by-status", "by-model", "projects"):
            targets = list(links(store, view).values())
            assert len(targets) == len(everything)
            assert set(targets) == everything


def test_listing_reads_no_document(store: Store, home: Path) -> None:
    """Sessions are still listed after their documents have become unreadable."""
    for i in range(200):
        save(store, f"s{i:03}", title=f"Number {i}", messages=1)
    (home / "sessions").rename(home / "elsewhere")
    try:
        view = ViewsOfSessions(store)
        assert len(list(view.iter_items("by-title"))) == 200
        assert isinstance(view.find("by-title/Number-7~s007"), VirtualLink)
    finally:
        (home / "elsewhere").rename(home / "sessions")


@pytest.mark.parametrize("at_ns", [-(2**63), -1, 0, 1, 951_782_400 * 10**9, 2**63 - 1])
def test_period_contains_its_time(at_ns: int) -> None:
    for level in range(3):
        period = period_at(at_ns, level)
        assert period.start_ns <= at_ns <= period.stop_ns
    assert parse_period("2024/12") == period_at(1_734_000_000 * 10**9, 1)
