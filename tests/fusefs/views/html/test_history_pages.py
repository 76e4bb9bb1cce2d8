"""html/<id>.log.html and html/<id>.diff-N.html: versions, and what they changed, side by side."""

from __future__ import annotations

import re

import pytest

from fusefs.views.html.view import HtmlView
from store import Message, Store, Timestamp
from tests.builders import make_session
from tests.fusefs.views.test_transcripts import page


@pytest.fixture
def changed(store: Store) -> Store:
    """Three versions: created, a word and the title changed, a message added."""
    store.save(make_session("r", title="Old title"))
    session = store.load("r")
    assert session is not None
    session.title = "New <title>"
    session.messages[0].content = "msg-0 with <script>more</script>"
    store.save(session)
    store.append("r", [Message.user("an added <b>message</b>")])
    return store


def text(view: HtmlView, path: str) -> str:
    return page(view, path).render().decode()


def test_log_lists_versions_with_links(changed: Store) -> None:
    shown = text(HtmlView(changed), "r.log.html")
    assert re.findall(r'href="(r\.diff-\d+\.html)">', shown) == ["r.diff-3.html", "r.diff-2.html", "r.diff-1.html"]
    assert "+1 message" in shown
    assert 'href="r.log.html">History' in text(HtmlView(changed), "r.html")


def test_difference_is_side_by_side(changed: Store) -> None:
    """Old on the left, new on the right, word by word; nothing in it is markup."""
    view = HtmlView(changed)
    shown = text(view, "r.diff-2.html")
    left, right = re.findall(r'<h2>user.*?<div class="sides"><div>(.*?)</div><div>(.*?)</div>', shown, re.DOTALL)[0]
    assert left == "msg-0"
    assert right == "msg-0<ins> with &lt;script&gt;more&lt;/script&gt;</ins>"
    assert "<del>Old </del>title" in shown
    assert "<script" not in shown
    added = text(view, "r.diff-3.html")
    assert "<div></div><div><ins>an added &lt;b&gt;message&lt;/b&gt;</ins></div>" in added


def test_change_of_a_time_alone_is_shown(changed: Store) -> None:
    """What usually follows from another change is shown if it is the only one."""
    assert "updated_at" not in text(HtmlView(changed), "r.diff-2.html").partition('class="sides head"')[2]
    store = changed
    store.update("r", lambda session: setattr(session, "updated_at", Timestamp("2030-01-01T00:00:00Z")))
    assert "<code>updated_at</code>" in text(HtmlView(store), "r.diff-4.html")


def test_two_versions_can_be_named(changed: Store) -> None:
    view = HtmlView(changed)
    both = text(view, "r.diff-1-3.html")
    assert "an added" in both
    assert "<del>Old </del>" in both
    assert text(view, "r.diff-1.html").count("<section") >= 2


@pytest.mark.parametrize("path", ["r.diff-9.html", "r.diff-0.html", "r.diff-9-1.html", "x.log.html", "x.diff-1.html"])
def test_missing_versions_are_not_found(changed: Store, path: str) -> None:
    assert HtmlView(changed).find(path) is None


def test_page_is_rendered_again_after_a_change(changed: Store) -> None:
    view = HtmlView(changed)
    before = page(view, "r.log.html").version
    assert page(view, "r.log.html").version == before
    changed.append("r", [Message.user("one more")])
    assert page(view, "r.log.html").version != before
