"""A static site: pages, images and relative links, all inside its directory."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import unquote

from fusefs.views.html.site import write_site
from store import Location, Session, Store
from store.model.message import ImageUrl, MessagePart
from store.transfer.formats.importer import ImportProblem
from tests.builders import make_session

EMBEDDED = "data:image/png;base64," + base64.b64encode(b"inside").decode()


def fill(store: Store) -> list[Location]:
    root = make_session("r", title="Root")
    attached = store.attach(root, b"picture", "image/png")
    root.messages[1].content_parts = [
        MessagePart(type="image_url", image_url=ImageUrl(url=url)) for url in (attached.url, EMBEDDED)
    ]
    store.save(root)
    child = Session.new_child_of("c", root, "m", "Child")
    child.messages = [root.messages[1].model_copy()]
    store.save(child)
    store.save(make_session("other"))
    return [Location("r"), Location("r", "c")]


def test_site_has_pages_images_and_relative_links(store: Store, tmp_path: Path) -> None:
    """Every link leads to a file of the site; sessions that were not exported are not linked."""
    pages = [*write_site(store, fill(store), tmp_path, with_stats=False)]
    assert pages == [tmp_path / "r.html", tmp_path / "r/c.html"]
    assert (tmp_path / "r.images/1-0.png").read_bytes() == b"inside"
    (picture,) = (tmp_path / "files/r/attachments").iterdir()
    assert picture.read_bytes() == b"picture"
    for page in tmp_path.rglob("*.html"):
        text = page.read_text().partition("<plaintext>")
        links = [link for link in re.findall(r'href="([^"#]+)"', text[0]) if not link.startswith("data:")]
        links += re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text[2])
        assert links
        assert all((page.parent / unquote(link)).is_file() for link in links), (page, links)
        assert "other" not in text[0].partition("</style>")[2].partition("<script>")[0]
    assert "(../files/r/attachments/" in (tmp_path / "r/c.html").read_text()


def test_history_is_written_on_request(store: Store, tmp_path: Path) -> None:
    """The conversation links to its log, the log to every difference, and all of them exist."""
    locations = fill(store)
    store.update("r", lambda session: setattr(session, "title", "Renamed"))
    [*write_site(store, locations, tmp_path / "without", with_stats=False)]
    assert not [*(tmp_path / "without").rglob("*.log.html")]
    [*write_site(store, locations, tmp_path / "with", with_stats=False, with_history=True)]
    found = {str(page.relative_to(tmp_path / "with")) for page in (tmp_path / "with").rglob("*.html")}
    assert {"r.log.html", "r.diff-1.html", "r.diff-2.html", "r/c.log.html", "r/c.diff-1.html"} <= found
    assert 'href="r.log.html"' in (tmp_path / "with/r.html").read_text()
    assert 'href="../r/c.log.html"' in (tmp_path / "with/r/c.html").read_text()
    assert "Renamed" in (tmp_path / "with/r.diff-2.html").read_text()
    for page in (tmp_path / "with").rglob("*.html"):
        head = page.read_text().partition("<plaintext>")[0]
        links = [link for link in re.findall(r'href="([^"#]+)"', head) if not link.startswith("data:")]
        assert all((page.parent / unquote(link)).is_file() for link in links), (page, links)


def test_keys_are_redacted(store: Store, tmp_path: Path) -> None:
    """In the text, in titles and in the list."""
    key = "ghp_" + "0Grove1Demo2" * 3
    session = make_session("s", title=f"Token {key}")
    session.messages[0].content = f"it is {key}"
    store.save(session)
    assert [*write_site(store, [Location("s")], tmp_path, with_stats=False, redact=True)] == [tmp_path / "s.html"]
    assert key not in "".join(page.read_text() for page in tmp_path.rglob("*.html"))


def test_damaged_session_is_a_problem(store: Store, tmp_path: Path) -> None:
    locations = fill(store)
    path = store.home / "sessions/r/session.json"
    whole = path.read_bytes()
    path.write_bytes(b"{")
    found = [*write_site(store, [*locations, Location("other")], tmp_path, with_stats=True)]
    path.write_bytes(whole)
    assert isinstance(found[0], ImportProblem)
    assert found[-1] == tmp_path / "other.html"
    assert (tmp_path / "stats.html").is_file()
