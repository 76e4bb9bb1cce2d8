"""search/: a query is a directory, what it found are links, and a page says where."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fusefs.views import search as views
from fusefs.views.base import VirtualDir, VirtualFile, VirtualLink
from fusefs.views.search import SearchView, query_of
from store import InvalidQuery, Message, Session, Store
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
    """What results.md says; its size and version are those of its bytes."""
    item = view.find(f"{query}/results.md")
    assert isinstance(item, VirtualFile)
    data = item.render()
    assert item.size == len(data)
    assert not item.is_cacheable
    return data.decode()


def test_the_page_says_what_was_probably_meant_otherwise(store: Store) -> None:
    said(store, "s1", "a needle")
    assert page(SearchView(store), "needle roles:user").endswith(
        "Note: 'roles:' is no filter, and was searched as words; did you mean role:?\n"
    )
    assert "Note" not in page(SearchView(store), "needle role:user")


def test_best_session_comes_first_by_a_name_that_says_what_it_is(store: Store) -> None:
    """Numbers in the order of rank, the title, the id; safe in a shell; leading into sessions/."""
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


def test_every_session_found_has_one_link(store: Store) -> None:
    """However many of its messages match."""
    for i in range(12):
        said(store, f"s{i}", *["word"] * 3, title="same title")
    view = SearchView(store)
    found = links(view, "word")
    assert sorted(found.values()) == sorted(f"../../sessions/s{i}" for i in range(12))
    assert all(isinstance(view.find(f"word/{name}"), VirtualLink) for name in found)
    assert view.find("word/13-nobody~s13") is None


def test_page_shows_where(store: Store) -> None:
    """Under each session its places, with what was said; and a count."""
    said(store, "s1", "nothing", "a needle here", "another needle there", title="Haystack")
    text = page(SearchView(store), "needle")
    assert text.startswith("# Search: needle\n\n1 found, the best first")
    assert "## Haystack ([s1](../../sessions/s1))" in text
    assert "- message 1, user, " in text
    assert ": a [needle] here\n" in text
    assert "- title: [Haystack]" in page(SearchView(store), "haystack")
    assert "Nothing was found." in page(SearchView(store), "absent")
    assert names(SearchView(store), "absent") == ["results.md"]


def test_reading_again_shows_the_change(store: Store) -> None:
    """Also what another has changed; and as long as nothing changes, nothing is searched again."""
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


def test_links_may_be_a_moment_late_but_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others write, looking at each of many links does not search for each."""
    said(store, "s1", "needle", title="x")
    view = SearchView(store)
    searched: list[str] = []
    search = store.search

    def recorded(query: str, **options: Any) -> object:
        searched.append(query)
        return search(query, **options)

    monkeypatch.setattr(store, "search", recorded)
    for i in range(5):
        store.append("s1", [Message.user(f"more {i}")])
        assert isinstance(view.find("needle/01-x~s1"), VirtualLink)
    assert len(searched) == 2  # one look: sessions, and places in them
    monkeypatch.setattr(views, "LATE_S", 0.0)
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
def test_slash_and_percent_are_spelt(store: Store, name: str, query: str) -> None:
    """The two characters that a name cannot have, or would be ambiguous with."""
    assert query_of(name) == query


def test_path_is_found_by_its_spelling(store: Store) -> None:
    said(store, "s1", "see src/main.rs for that", title="x")
    assert list(links(SearchView(store), "src%2Fmain.rs").values()) == ["../../sessions/s1"]


def test_top_lists_nothing_and_dots_lead_nowhere(store: Store) -> None:
    """A walk through the mount ends here; what shells, git and editors look for is not a query."""
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
def test_what_is_no_query_is_refused(store: Store, name: str) -> None:
    """EINVAL, with the reason, and at once."""
    view = SearchView(store)
    for path in (name, f"{name}/results.md"):
        with pytest.raises(InvalidQuery):
            view.find(path)


def test_long_name_is_refused_as_any_filesystem_would(store: Store) -> None:
    """255 bytes are a name, 256 are not."""
    view = SearchView(store)
    assert isinstance(view.find("x" * 255), VirtualDir)
    for name in ("x" * 256, "文" * 86, "x" * 1024):
        with pytest.raises(OSError, match="too long") as refused:
            view.find(name)
        assert refused.value.errno == errno.ENAMETOOLONG


def test_names_that_are_no_text_are_queries_too(store: Store) -> None:
    """Bytes that are no UTF-8 come from the kernel as surrogates."""
    said(store, "s1", "needle", title="x")
    name = os.fsdecode(b"needle \xff")
    assert names(SearchView(store), name)[-1] == "results.md"
    assert page(SearchView(store), name).startswith("# Search: needle")


def test_results_that_no_one_uses_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many are kept, and only for so long."""
    said(store, "s1", "needle", title="x")
    view = SearchView(store)
    for i in range(100):
        page(view, f"query{i}")
    assert len(view._kept) == len(view._asked_s) == views.KEPT
    assert "query99" in view._kept
    assert "query0" not in view._kept
    monkeypatch.setattr(views, "KEPT_S", -1.0)
    page(view, "needle")
    assert list(view._kept) == ["needle"]


def test_of_very_many_the_first_are_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the page says that there are more; those without a snippet are still named."""
    monkeypatch.setattr(views, "MOST_SESSIONS", 4)
    monkeypatch.setattr(views, "SHOWN", 2)
    for i in range(6):
        said(store, f"s{i}", "word", title=f"title {i}")
    view = SearchView(store)
    assert list(links(view, "word")) == [f"0{n}-title-{6 - n}~s{6 - n}" for n in (1, 2, 3, 4)]
    text = page(view, "word")
    assert "The first 4 found" in text
    assert text.count("[word]") == 2
    assert "## And in\n\n- title 3 ([s3](../../sessions/s3))" in text


def test_state_documents_are_linked_too(store: Store) -> None:
    """They lie beside the sessions, and are found with them."""
    store.state.save_markdown("memory", "facts", "the needle")
    view = SearchView(store)
    assert list(links(view, "needle").values()) == ["../../state/memory/facts.md"]
    assert "- document: facts" in page(view, "needle")


def test_titles_cannot_break_a_page_or_a_terminal(store: Store) -> None:
    """Control characters and line breaks are spaces."""
    said(store, "s1", "needle \x1b[31m", title="two\nlines \x1b[0m")
    text = page(SearchView(store), "needle")
    assert "\x1b" not in text
    assert "## two lines" in text
