"""html/: pages with exact sizes, in the version that was looked up."""

from __future__ import annotations

import base64
from html.parser import HTMLParser

import pytest

from fusefs.views.base import VirtualDir, VirtualFile
from fusefs.views.html.view import HtmlView
from store import Message, Session, Store
from store.model.message import ImageUrl, MessagePart
from tests.builders import make_session
from tests.fusefs.views.test_transcripts import page, walk


def with_child(store: Store) -> Store:
    root = make_session("r", title="The root")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "The child"))
    return store


def test_only_the_list_and_the_statistics_are_listed(store: Store) -> None:
    assert sorted(walk(HtmlView(with_child(store)))) == ["index.html", "stats.html"]


def test_pages_exist_when_named(store: Store) -> None:
    view = HtmlView(with_child(store))
    assert b"<title>The root</title>" in page(view, "r.html").render()
    assert b"<title>The child</title>" in page(view, "r/c.html").render()
    assert isinstance(view.find("r"), VirtualDir)
    assert isinstance(view.find("r.images"), VirtualDir)
    assert list(view.iter_items("r")) == []


MISSING = ["x.html", "c.html", "r/x.html", "r.md", "r.html/c.html", "c", "r/c", "r.images/0-0.png", "x.images", "r/c/d"]


@pytest.mark.parametrize("path", MISSING)
def test_missing_paths_are_not_found(store: Store, path: str) -> None:
    assert HtmlView(with_child(store)).find(path) is None


def test_page_ends_with_the_transcript(store: Store) -> None:
    """As text that nothing can end; the marks are where the plain transcript has a space or a newline."""
    with_child(store)
    _, _, text = page(HtmlView(store), "r.html").render().partition(b"<plaintext>")
    info = store.transcripts.find(store.resolve("r"))
    assert info is not None
    plain = store.transcripts.render(info)
    assert len(text) == len(plain)
    differences = {(a, b) for a, b in zip(plain, text, strict=True) if a != b}
    assert differences == {(0x20, 0x1E), (0x20, 0x1F), (0x0A, 0x0E)}


def test_title_is_escaped_in_every_page(store: Store) -> None:
    store.save(make_session("r", title="</title><script>x</script>", model="<img src=x>"))
    view = HtmlView(store)
    for name in ("r.html", "index.html", "stats.html"):
        head = page(view, name).render().partition(b"<plaintext>")[0]
        parser = TagCounter()
        parser.feed(head.decode())
        assert parser.tags.count("script") <= 2
        assert "img" not in parser.tags
        assert b"<script>x" not in head


class TagCounter(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_version_changes_with_text_neighbours_and_tokens(store: Store) -> None:
    with_child(store)
    view = HtmlView(store)
    seen = [page(view, "r.html").version]
    assert page(view, "r.html").version == seen[0]
    store.append("r", [Message.user("more")])
    seen.append(page(view, "r.html").version)
    store.save(make_session("newer"))
    seen.append(page(view, "r.html").version)
    store.usage.append("r", {"ts": "2026-01-01T00:00:00Z", "input_tokens": 5})
    seen.append(page(view, "r.html").version)
    assert len(set(seen)) == 4


def test_embedded_image_is_a_file(store: Store) -> None:
    session = make_session("r")
    session.messages[1].content_parts = [
        MessagePart(type="image_url", image_url=ImageUrl(url=url))
        for url in (
            "https://example.invalid/x.png",
            "data:image/png;base64," + base64.b64encode(b"first").decode(),
            "DATA:image/svg+xml,%3Csvg%2F%3E",
            "data:image/png;base64,broken!",
        )
    ]
    store.save(session)
    view = HtmlView(store)
    assert page(view, "r.images/1-0.png").render() == b"first"
    assert page(view, "r.images/1-1.svg").render() == b"<svg/>"
    assert isinstance(view.find("r.images/1-2.png"), VirtualFile)
    assert view.find("r.images/1-3.png") is None
    assert view.find("r.images/0-0.png") is None


def test_list_is_rendered_again_after_a_commit(store: Store) -> None:
    view = HtmlView(with_child(store))
    first = page(view, "index.html")
    assert page(view, "index.html") is first
    store.save(make_session("new", title="A new one"))
    assert b"A new one" in page(view, "index.html").render()


def test_statistics_are_kept_for_some_seconds(store: Store) -> None:
    """They read the token log of every session; `ls html/` must not do that at each commit."""
    view = HtmlView(with_child(store))
    first = page(view, "stats.html")
    store.append("r", [Message.user("more")])
    assert page(view, "stats.html") is first
