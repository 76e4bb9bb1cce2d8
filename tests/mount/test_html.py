"""html/ in a real browser, opened from a real mount by file://."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from selenium.webdriver.common.keys import Keys

from store import Message, Session, Store, Timestamp, ToolCall
from store.model.message import FunctionCall, ImageUrl, MessagePart
from tests.mount.browser import Browser, start_browser
from tests.mount.conftest import Mount, daemons_of, grovefs, wait_until
from tests.mount.hostile import RUN, make_hostile

ROOT = Path(__file__).parent.parent.parent
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCREENSHOTS = {"index": "index.html", "conversation": "fix-login.html", "statistics": "stats.html"}
MARKDOWN = """\
# A heading

Some *emphasis*, **strong words**, `code`, ~~old~~ and [a link](https://example.invalid/x).

1. one
2. two
   - nested

> quoted

| name | value |
|---|---|
| a | 1 |

```python
def answer() -> int:
    return 42  # a comment
```
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def mounted_pages(browser: Browser) -> Iterator[Path]:
    """html/ of a mounted home, for all tests of this file."""
    base = Path(tempfile.mkdtemp(prefix="grovefs-test-", dir="/var/tmp"))
    make_home(base / "home")
    (base / "mnt").mkdir()
    result = grovefs("mount", "--home", base / "home", "--log-file", base / "log", base / "mnt")
    assert result.returncode == 0, result.stderr
    yield base / "mnt/html"
    browser.leave()
    subprocess.run(["fusermount3", "-u", str(base / "mnt")], check=True)
    wait_until(lambda: not daemons_of(base / "mnt"))
    assert "Traceback" not in (base / "log").read_text(), (base / "log").read_text()
    shutil.rmtree(base)


@pytest.fixture
def pages(mounted_pages: Path, browser: Browser) -> Iterator[Path]:
    """The same for one test. At its end: no error on the console, no request but to files."""
    browser.leave()
    browser.problems(), browser.requests()
    yield mounted_pages
    assert browser.problems() == []
    outside = [url for url in browser.requests() if not url.startswith(("file:", "data:"))]
    assert outside == []


def make_home(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        make_work(store)
        for name in ("alpha", "beta"):
            session = Session.new(name, "birch-mini")
            session.title = f"Session {name}"
            session.add_message(Message.user(f"the text of {name}"))
            store.save(session)
        make_hostile(store)
    return home


def make_work(store: Store) -> None:
    """A session with everything that a page shows."""
    session = Session.new("work", "oak-large")
    session.title, session.project_id, session.last_run_status = "Repair the roof", "house", "completed"
    session.add_message(Message.system("You are careful."))
    session.add_message(Message.user("Please **look** at the roof."))
    call = ToolCall(id="call_1", type="function", function=FunctionCall(name="Task", arguments=""))
    call.function.arguments = orjson.dumps({"prompt": "Inspect", "command": "ls -l\necho done"}).decode()
    asking = Message.assistant("I send somebody.", [call])
    asking.reasoning = "A sub-agent can inspect it."
    session.add_message(asking)
    session.add_message(Message.tool_result("call_1", '{"agent": "inspector", "state": "started"}'))
    session.add_message(Message.assistant(MARKDOWN))
    attached = store.attach(session, PIXEL, "image/png")
    embedded = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    pictures = Message.assistant("Two pictures.")
    pictures.content_parts = [
        MessagePart(type="image_url", image_url=ImageUrl(url=url)) for url in (attached.url, embedded)
    ]
    session.add_message(pictures)
    store.save(session)
    child = Session.new_child_of("inspector", session, "m", "Inspect the roof")
    child.add_message(Message.user("Go up."))
    store.save(child)
    used = {"input_tokens": 1200, "output_tokens": 345, "cache_read_input_tokens": 20_000}
    store.usage.append("work", {"ts": pictures.created_at, "model": "oak-large", **used})


def test_only_two_pages_are_listed_and_all_have_their_size(pages: Path) -> None:
    """Conversations exist when named, so `grep -r` over the mount does not read them twice."""
    assert sorted(os.listdir(pages)) == ["index.html", "stats.html"]
    for name in ("index.html", "stats.html", "work.html", "work/inspector.html", "hostile.html"):
        assert (pages / name).stat().st_size == len((pages / name).read_bytes())
    assert os.listdir(pages / "work") == []
    for missing in ("other.html", "work/other.html", "alpha", "work.txt", "work.images/0-0.png", "work/work.html"):
        assert not (pages / missing).exists()
    found = subprocess.run(["grep", "-rl", "the text of alpha", pages.parent], capture_output=True, text=True)
    assert sorted(found.stdout.split()) == [
        str(pages.parent / "sessions/alpha/session.json"),
        str(pages.parent / "transcripts/alpha.md"),
    ]


def test_list_is_filtered_and_sorted_and_leads_to_a_conversation(pages: Path, browser: Browser) -> None:
    browser.open(pages / "index.html")
    shown = "#sessions tbody tr:not([hidden])"
    assert browser.count(shown) == 4
    browser.press("/")
    browser.press("roof")
    assert browser.text("#count") == "2 of 6"
    assert browser.text("#sessions tbody").splitlines()[0].strip() == "Inspect the roof"
    browser.press(Keys.ESCAPE)
    assert browser.count(shown) == 4
    browser.run("document.querySelector('thead button').click()")
    titles = browser.run(f"return [...document.querySelectorAll('{shown} a')].map((a) => a.innerText)")
    assert titles == sorted(titles, key=str.lower)
    browser.run("document.getElementById('children').click()")
    assert browser.count(shown) == 6
    browser.press("/" + "repair" + Keys.ENTER)
    browser.run(f"document.querySelector('{shown} a').click()")
    browser.wait("return document.title === 'Repair the roof' && document.documentElement.dataset.ready")
    assert browser.text("h1") == "Repair the roof"


def test_list_is_walked_by_keys(pages: Path, browser: Browser) -> None:
    browser.open(pages / "index.html")
    browser.press("j")
    browser.press("j")
    browser.press("k")
    first = browser.run(
        "return document.querySelector('#sessions tbody tr:not([hidden]) a') === document.activeElement"
    )
    assert first is True
    browser.press(Keys.ENTER)
    browser.wait("return document.querySelector('#messages')")


def test_conversation_shows_every_part(pages: Path, browser: Browser) -> None:
    browser.open(pages / "work.html")
    assert browser.run("return [...document.querySelectorAll('.message')].map((m) => m.id)") == [
        f"m{n}" for n in range(6)
    ]
    assert "oak-large" in browser.text(".title dl")
    assert browser.text("#m1 strong") == "look"
    facts = browser.run("return [...document.querySelectorAll('.title dd')].map((e) => e.innerText)")
    assert "house" in facts
    assert "21k in · 345 out" in facts
    assert browser.text("#m5 .tokens") == "21k in · 345 out"
    for tag in ("h3", "em", "strong", "code", "del", "ol ul", "blockquote", "table td", "pre"):
        assert browser.count(f"#m4 {tag}") >= 1, tag
    browser.run("document.querySelector('#m4 pre').scrollIntoView()")
    assert browser.wait("return document.querySelector('#m4 pre .k')?.innerText") == "def"
    assert browser.text("#m4 pre .c") == "# a comment"
    link = browser.run("const a = document.querySelector('#m4 a:not(.number)'); return [a.href, a.rel]")
    assert link == ["https://example.invalid/x", "noopener noreferrer nofollow"]


def test_reasoning_and_tool_calls_open(pages: Path, browser: Browser) -> None:
    """Folded they have one line, which says what they are about."""
    browser.open(pages / "work.html")
    assert browser.run("return [...document.querySelectorAll('#m2 summary')].map((s) => s.innerText)") == [
        "Reasoning\nA sub-agent can inspect it.",
        "Task\nls -l",
    ]
    assert browser.run("return document.querySelector('#m2 dl').checkVisibility()") is False
    browser.run("document.querySelectorAll('#m2 summary')[1].click()")
    assert browser.run("return document.querySelector('#m2 dl').checkVisibility()") is True
    assert browser.text("#m2 dl pre") == "ls -l\necho done"
    assert "agent: inspector" in browser.text("#m3 summary")
    browser.press("e")
    assert browser.count("details.fold:not([open])") == 0
    browser.press("e")
    assert browser.count("details.fold[open]") == 0


def test_images_are_shown(pages: Path, browser: Browser) -> None:
    """An attachment, and an image inside the message."""
    browser.open(pages / "work.html")
    browser.run("document.getElementById('m5').scrollIntoView()")
    browser.wait("return [...document.querySelectorAll('#m5 img')].every((i) => i.naturalWidth > 0)")
    assert browser.count("#m5 img") == 2


def test_sub_agent_is_linked_where_it_was_spawned(pages: Path, browser: Browser) -> None:
    browser.open(pages / "work.html")
    assert browser.text("#m2 .child") == "Inspect the roof"  # the call; its result names the sub-agent
    browser.run("document.querySelector('#m2 .child').click()")
    browser.wait("return document.title === 'Inspect the roof' && document.documentElement.dataset.ready")
    assert browser.text("#m0").endswith("Go up.")
    browser.run("document.getElementById('parent').click()")
    browser.wait("return document.title === 'Repair the roof' && document.documentElement.dataset.ready")


def test_anchors_filter_and_keys(pages: Path, browser: Browser) -> None:
    """#m4, and #4 as `grovefs search` prints it; j and k move by message; / filters."""
    for anchor in ("#m4", "#4"):
        browser.open(pages / "work.html", anchor)
        assert browser.run("return document.activeElement.id") == "m4"
    browser.press("k")
    assert browser.run("return document.activeElement.id") == "m3"
    browser.press("j")
    assert browser.run("return document.activeElement.id") == "m4"
    browser.press("/")
    browser.press("heading")
    assert browser.text("#count") == "1 of 6"
    assert browser.run("return [...document.querySelectorAll('.message:not([hidden])')].map((m) => m.id)") == ["m4"]
    newer = browser.run("return document.getElementById('newer').href")
    assert newer == (pages / "alpha.html").as_uri()


def test_hostile_content_runs_nothing(pages: Path, browser: Browser) -> None:
    """No script runs, nothing is loaded, no message pretends to be another one, and 1 MB lines are shown."""
    browser.open(pages / "hostile.html")
    with Store.open(pages.parent.parent / "home", background=False) as store:
        session = store.load("hostile")
    assert session is not None
    assert browser.count(".message") == len(session.messages)
    roles = browser.run("return [...document.querySelectorAll('.message')].map((m) => m.classList[1])")
    assert roles == [message.role for message in session.messages]
    calls = browser.run("return [...document.querySelectorAll('.message.assistant details.fold')].length")
    assert calls == 2 * sum(message.role == "assistant" for message in session.messages)
    browser.press("e")
    for number in range(0, len(session.messages), 3):
        browser.run(f"document.getElementById('m{number}').scrollIntoView()")
    assert browser.run("return window.hacked") is None
    dangerous = "script:not([type]):not(:first-of-type), iframe, object, embed, base, form, main style, main link"
    assert browser.count(f"main :is({dangerous})") == 0
    schemes = browser.run("return [...new Set([...document.querySelectorAll('main a')].map((a) => a.protocol))]")
    assert set(schemes) <= {"file:", "https:", "http:"}
    assert "example.invalid" not in str(browser.run("return [...document.images].map((image) => image.src)"))
    assert browser.count("[onclick], [onerror], [onload]") == 0
    for name in ("index.html", "stats.html", "hostile/child.html", "hostile.log.html", "hostile.diff-1.html"):
        browser.open(pages / name)
        assert browser.run("return window.hacked") is None, name
        assert browser.count("main [onclick], main [onerror], main [onload], main script, main iframe") == 0, name
    assert RUN in (pages / "hostile.html").read_text()


def test_browser_refuses_what_the_policy_forbids(pages: Path, browser: Browser) -> None:
    """The second line of defence: an inline script, an event handler and innerHTML do not work in a page."""
    browser.open(pages / "alpha.html")
    browser.run(
        f"const s = document.createElement('script'); try {{ s.text = '{RUN}' }} catch (error) {{ window.refused = 1 }}"
        "document.body.append(s)"
    )
    refused = browser.run("try { document.body.innerHTML = '<b>' } catch (error) { return error.name }")
    assert refused == "TypeError"
    browser.run("document.body.setAttribute('title', 'x')")
    assert browser.run("return window.hacked") is None
    assert any("Content Security Policy" in line or "TrustedScript" in line for line in browser.problems())


def test_text_is_readable_without_scripts(pages: Path, browser: Browser) -> None:
    browser.allow_scripts(allowed=False)
    try:
        browser.driver.get((pages / "work.html").as_uri())
        shown = browser.driver.find_element("tag name", "plaintext").text
        assert "I send somebody." in shown
        assert shown.startswith("# Repair the roof")
        link = browser.driver.find_element("css selector", ".children a").get_attribute("href")
        assert link == (pages / "work/inspector.html").as_uri()
        assert not browser.driver.find_element("id", "filter").is_displayed()
    finally:
        browser.allow_scripts(allowed=True)


def test_five_thousand_messages_are_usable_and_scroll(
    place: Path, mount_home: Callable[..., Mount], browser: Browser
) -> None:
    with Store.open(place / "long", background=False) as store:
        session = Session.new("long", "m")
        for number in range(5_000):
            text = f"Message {number}\n\n```rust\n" + "    let token = lexer.next()?; // a line\n" * 8 + "```"
            message = Message.user(text) if number % 2 else Message.assistant(text)
            message.created_at = Timestamp.from_ns((1_700_000_000 + number) * 10**9)
            session.messages.append(message)
        store.save(session)
    page = mount_home(place / "long").path / "html/long.html"
    browser.open(page)
    assert browser.count(".message") == 5_000
    ready_ms = browser.run("return performance.now()")
    assert ready_ms < 60_000  # bench measures it; here a machine may be busy
    browser.run("document.getElementById('m4999').scrollIntoView()")
    assert browser.run("return document.getElementById('m4999').getBoundingClientRect().top") < 900
    assert browser.run("return document.scrollingElement.scrollTop") > 10_000
    browser.wait("return document.querySelector('#m4999 pre .k')")
    assert browser.problems() == []
    browser.leave()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots_follow_the_preferred_scheme(
    place: Path, mount_home: Callable[..., Mount], browser: Browser, scheme: str
) -> None:
    """Of the demo home, kept in $GROVEFS_TEST_SCREENSHOTS if that is set. Pages are light, or dark, but not empty."""
    directory = Path(os.environ.get("GROVEFS_TEST_SCREENSHOTS") or place)
    subprocess.run([sys.executable, ROOT / "scripts/demo.py", place / "demo"], check=True, capture_output=True)
    pages = mount_home(place / "demo").path / "html"
    browser.use_scheme(scheme)
    try:
        for name, page in SCREENSHOTS.items():
            for kind, size in {"": (1280, 900), "-phone": (390, 844)}.items():
                browser.resize(*size)
                browser.open(pages / page)
                browser.run("document.querySelector('#m5 summary')?.click()")
                file = directory / f"{name}{kind}-{scheme}.png"
                browser.driver.save_screenshot(str(file))
                shades = shades_of(file)
                assert shades.std() > 5, f"{file.name} is empty"
                assert (shades.mean() > 128) == (scheme == "light"), file.name
        assert browser.problems() == []
    finally:
        browser.leave()
        browser.use_scheme("light")
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def shades_of(picture: Path) -> Any:
    """The brightness of every pixel, 0 to 255."""
    from matplotlib import image

    return 255 * image.imread(str(picture))[:, :, :3].mean(axis=2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(pages: Path, browser: Browser, scheme: str) -> None:
    """No serious finding of axe-core, everything unfolded; on a phone nothing is wider than the window."""
    browser.use_scheme(scheme)
    try:
        for name in ("index.html", "work.html", "hostile.html", "stats.html"):
            browser.resize(1280, 900)
            browser.open(pages / name)
            browser.run("document.querySelectorAll('details').forEach((part) => { part.open = true })")
            if name != "hostile.html":  # megabytes of text take axe minutes
                assert browser.accessibility() == [], name
            browser.resize(390, 844)
            assert browser.run("return document.scrollingElement.scrollWidth") <= 390, name
        browser.problems()
    finally:
        browser.use_scheme("light")
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_conversation_can_be_printed(pages: Path, browser: Browser) -> None:
    """Every message is on paper, in full and dark on white; what only a screen needs is not."""
    browser.open(pages / "work.html")
    messages = browser.count(".message")
    browser.use_paper(used=True)
    try:
        shown = "[...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).length"
        assert browser.run(f"return {shown}", ".message") == messages > 0
        assert browser.run(f"return {shown}", "nav.top, .outline, footer") == 0
        assert browser.run("return getComputedStyle(document.querySelector('pre')).maxHeight") == "none"
        light = browser.run("return getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
        assert max(light[:3]) < 100, light
    finally:
        browser.use_paper(used=False)


def test_statistics_are_drawn(pages: Path, browser: Browser) -> None:
    browser.open(pages / "stats.html")
    titles = browser.run("return [...document.querySelectorAll('h2')].map((h) => h.innerText)")
    assert "Tokens by day" in titles
    assert "Messages by weekday and hour" in titles
    assert browser.count("svg.chart rect") > 168
    assert browser.run("return document.querySelector('svg.chart g title').textContent").endswith(": 22k")


def test_history_is_reached_from_the_conversation(pages: Path, browser: Browser) -> None:
    """A list of versions, and the difference of each."""
    with Store.open(pages.parent.parent / "home", background=False) as store:
        store.update("beta", lambda session: setattr(session, "title", "Session gamma <script>"))
    browser.open(pages / "beta.html")
    browser.run("[...document.querySelectorAll('nav a')].find((a) => a.innerText === 'History').click()")
    browser.wait("return document.title === 'History of beta' && document.readyState === 'complete'")
    assert browser.count("tbody tr") == 2
    browser.run("document.querySelector('tbody a').click()")
    browser.wait("return document.title === 'beta: versions 1 and 2' && document.readyState === 'complete'")
    sides = browser.run("return [...document.querySelectorAll('section .sides > div')].map((e) => e.innerText)")
    assert sides == ["Session beta", "Session gamma <script>"]
    assert browser.accessibility() == []


def test_exported_site_is_the_same(pages: Path, browser: Browser, tmp_path: Path) -> None:
    """Images and sub-agents too."""
    home = pages.parent.parent / "home"
    result = grovefs("export", "--home", home, "--format", "html", "work", tmp_path / "site")
    assert result.returncode == 0, result.stderr
    browser.open(tmp_path / "site/index.html")
    assert browser.count("#sessions tbody tr") == 2
    browser.open(tmp_path / "site/work.html")
    browser.run("document.getElementById('m5').scrollIntoView()")
    browser.wait("return [...document.querySelectorAll('#m5 img')].every((i) => i.naturalWidth > 0)")
    browser.run("document.querySelector('#m2 .child').click()")
    browser.wait("return document.title === 'Inspect the roof'")


def test_open_names_the_page_in_the_mount(pages: Path) -> None:
    result = grovefs("open", "--home", pages.parent.parent / "home", "--print", "work#4")
    assert (result.stdout.strip(), result.stderr) == (f"{(pages / 'work.html').as_uri()}#m4", "")


def test_page_follows_the_session(pages: Path, browser: Browser) -> None:
    """Reloading shows what another process appended, within a second (rule 7)."""
    browser.open(pages / "alpha.html")
    assert browser.count(".message") == 1
    home = pages.parent.parent / "home"
    assert grovefs("append", "--home", home, "alpha", "one more").returncode == 0

    def is_shown() -> bool:
        browser.open(pages / "alpha.html")
        return browser.count(".message") == 2

    wait_until(is_shown)
