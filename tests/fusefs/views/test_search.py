"""search/<query>/: links to the sessions found, and results.md with the matches."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fusefs.views import search as views
from fusefs.views.base import VirtualDir, VirtualFile, VirtualLink
from fusefs.views.search import SearchView, query_of
from store import InvalidQuery, Message, Session, Store
from store.search.query import Query, parse_query
from tests.builders import make_session


def said(store: Store, id: str, *texts: str, **fields: Any) -> Session:
    session = make_session(id, messages=0, **fields)
    for text in texts:
        session.add_message(Message.user(text))
    store.save(session)
    return session


def names(view: SearchView, query: str) -> list[str]:
    return [name for name, _ in view.iter_items(query)]


def links(view: SearchView, query: str) -> dict[str, str]:
    return {name: item.target for name, item in view.iter_items(query) if isinstance(item, VirtualLink)}


def page(view: SearchView, query: str) -> str:
    """The text of results.md. Its stated size must be the number of bytes."""
    item = view.find(f"{query}/results.md")
    assert isinstance(item, VirtualFile)
    data = item.render()
    assert item.size == len(data)
    assert not item.is_cacheable
    return data.decode()


def test_page_shows_hints_about_the_query(store: Store) -> None:
    said(store, "s1", "a needle")
    assert page(SearchView(store), "needle roles:user").endswith(
        "Note: unknown filter 'roles:', searched as words; did you mean role:?\n"
    )
    assert "Note" not in page(SearchView(store), "needle role:user")


def test_query_is_parsed_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both searches and the hints use the query parsed at lookup."""
    said(store, "s1", "a needle")
    parsed: list[str] = []

    def parse(text: str) -> Query:
        parsed.append(text)
        return parse_query(text)

    monkeypatch.setattr(views, "parse_query", parse)
    monkeypatch.setattr("store.search.query.parse_query", lambda text: pytest.fail("parsed again"))  # by the store
    assert "a [needle]" in page(SearchView(store), "needle")
    assert parsed == ["needle"]


def test_links_sort_best_first(store: Store) -> None:
    """A name is the rank, the title and the id. It is safe in a shell, and its link leads into sessions/."""
    said(store, "long", "needle " + "hay " * 300, title="Much hay")
    said(store, "short", "needle needle", title="Sharp/things; rm -rf *")
    store.save(Session.new_child("kid", "long", "m", "needle of a child"))
    found = links(SearchView(store), "needle")
    assert list(found) == sorted(found)
    assert set(found.values()) == {
        "../../sessions/short",
        "../../sessions/long",
        "../../sessions/long/children/kid",
    }
    assert list(found)[-1] == "03-Much-hay~long"
    assert any(name.endswith("Sharp-things-rm--rf~short") for name in found)
    assert all(name.isprintable() and not set(name) & set(" /;*$") for name in found)


def test_each_session_has_one_link(store: Store) -> None:
    """Also if several of its messages match."""
    for i in range(12):
        said(store, f"s{i}", *["word"] * 3, title="same title")
    view = SearchView(store)
    found = links(view, "word")
    assert sorted(found.values()) == sorted(f"../../sessions/s{i}" for i in range(12))
    assert all(isinstance(view.find(f"word/{name}"), VirtualLink) for name in found)
    assert view.find("word/13-absent~s13") is None


def test_page_lists_matches_by_session(store: Store) -> None:
    """With a snippet of each match, and the number of sessions."""
    said(store, "s1", "nothing", "a needle here", "another needle there", title="Haystack")
    text = page(SearchView(store), "needle")
    assert text.startswith("# Search: needle\n\n1 found, best first")
    assert "## Haystack ([s1](../../sessions/s1))" in text
    assert "- [message 1](../../html/s1.html#m1), user, " in text
    assert ": a [needle] here\n" in text
    assert "- title: [Haystack]" in page(SearchView(store), "haystack")
    assert "No matches." in page(SearchView(store), "absent")
    assert names(SearchView(store), "absent") == ["results.md"]


def test_results_follow_every_commit(store: Store) -> None:
    """Without a commit the cached result is used."""
    session = said(store, "s1", "needle one", title="x")
    view = SearchView(store)
    assert "[needle] one" in page(view, "needle")
    assert view.find("needle/results.md") is view.find("needle/results.md")
    store.append(session, [Message.user("needle two")])
    assert "[needle] two" in page(view, "needle")
    said(store, "s2", "needle three", title="y")
    assert len(links(view, "needle")) == 2
    store.delete("s1")
    assert list(links(view, "needle").values()) == ["../../sessions/s2"]
    assert "[needle] one" not in page(view, "needle")


def test_links_may_be_stale_for_a_short_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While sessions are written, looking up many links does not search for each of them."""
    said(store, "s1", "needle", title="x")
    view = SearchView(store)
    searched: list[Query] = []
    search = store.search

    def recorded(query: Query, **options: Any) -> object:
        searched.append(query)
        return search(query, **options)

    monkeypatch.setattr(store, "search", recorded)
    for i in range(5):
        store.append("s1", [Message.user(f"more {i}")])
        assert isinstance(view.find("needle/01-x~s1"), VirtualLink)
    assert len(searched) == 2  # once for sessions, once for matches
    monkeypatch.setattr(views, "STALE_S", 0.0)
    said(store, "s0", "needle needle", title="better")
    assert view.find("needle/01-x~s1") is None


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("100%25", "100%"),
        ("%252F x", "%2F x"),
        ("50%", "50%"),
        ("a%20b", "a%20b"),
        ("role:user x", "role:user x"),
    ],
)
def test_slash_and_percent_are_escaped(name: str, query: str) -> None:
    """A name cannot contain a slash; the percent sign starts an escape."""
    assert query_of(name).text == query


def test_escaped_slash_finds_a_path(store: Store) -> None:
    said(store, "s1", "see src/main.rs for that", title="x")
    assert list(links(SearchView(store), "src%2Fmain.rs").values()) == ["../../sessions/s1"]


def test_top_lists_nothing_and_dot_names_do_not_exist(store: Store) -> None:
    """A recursive walk ends here. Names that shells, git and editors probe for are not queries."""
    said(store, "s1", "git", title="x")
    view = SearchView(store)
    assert isinstance(view.find(""), VirtualDir)
    assert list(view.iter_items("")) == []
    for path in (".git", ".", "..", ".hidden/results.md", "git/results.md/x", "git/01-x~s1/session.json"):
        assert view.find(path) is None, path
        assert list(view.iter_items(path)) == []
    assert isinstance(view.find("git"), VirtualDir)
    assert view.is_slow("git/results.md")
    assert not view.is_slow("git")


@pytest.mark.parametrize("name", ["***", "AND", "-", '"', "()", "a%00b\0"])
def test_invalid_query_is_rejected_at_lookup(store: Store, name: str) -> None:
    view = SearchView(store)
    for path in (name, f"{name}/results.md"):
        with pytest.raises(InvalidQuery):
            view.find(path)


def test_name_over_255_bytes_fails_with_enametoolong(store: Store) -> None:
    view = SearchView(store)
    assert isinstance(view.find("x" * 255), VirtualDir)
    for name in ("x" * 256, "文" * 86, "x" * 1024):
        with pytest.raises(OSError, match="too long") as failed:
            view.find(name)
        assert failed.value.errno == errno.ENAMETOOLONG


def test_name_that_is_not_utf8_is_a_query(store: Store) -> None:
    """Such bytes are decoded as surrogates."""
    said(store, "s1", "needle", title="x")
    name = os.fsdecode(b"needle \xff")
    assert names(SearchView(store), name)[-1] == "results.md"
    assert page(SearchView(store), name).startswith("# Search: needle")


def test_cache_is_bounded_in_number_and_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said(store, "s1", "needle", title="x")
    view = SearchView(store)
    for i in range(100):
        page(view, f"query{i}")
    assert len(view._cache) == len(view._used_s) == views.MAX_CACHED
    assert ("query99", None) in view._cache
    assert ("query0", None) not in view._cache
    monkeypatch.setattr(views, "CACHED_S", -1.0)
    page(view, "needle")
    assert list(view._cache) == [("needle", None)]


def test_results_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that there are more, and also names sessions without a snippet."""
    monkeypatch.setattr(views, "MAX_SESSIONS", 4)
    monkeypatch.setattr(views, "MAX_PLACES", 2)
    for i in range(6):
        said(store, f"s{i}", "word", title=f"title {i}")
    view = SearchView(store)
    assert list(links(view, "word")) == [f"0{n}-title-{6 - n}~s{6 - n}" for n in (1, 2, 3, 4)]
    text = page(view, "word")
    assert "The first 4 found" in text
    assert text.count("[word]") == 2
    assert "## More sessions\n\n- title 3 ([s3](../../sessions/s3))" in text


def test_state_documents_are_linked(store: Store) -> None:
    store.state.save_markdown("memory", "facts", "the needle")
    view = SearchView(store)
    assert list(links(view, "needle").values()) == ["../../state/memory/facts.md"]
    assert "- document: facts" in page(view, "needle")


def test_control_characters_in_titles_become_spaces(store: Store) -> None:
    said(store, "s1", "needle \x1b[31m", title="two\nlines \x1b[0m")
    text = page(SearchView(store), "needle")
    assert "\x1b" not in text
    assert "## two lines" in text
