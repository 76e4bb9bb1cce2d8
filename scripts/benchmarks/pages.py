"""Long web pages: how soon a conversation of 5,000 messages can be read in a browser, opened from a mount."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from store import Message, Session, Store, Timestamp

from .rows import Row, Target, compare

if TYPE_CHECKING:
    from tests.mount.browser import Browser

USABLE_TARGET_MS = 3_000
_CODE = "```rust\n" + "    let token = lexer.next()?; // a line\n" * 8 + "```"


@contextmanager
def _mounted(place: Path, messages: int) -> Iterator[Path]:
    """html/ of a mounted home with one long session."""
    home, mountpoint = place / "home", place / "mnt"
    mountpoint.mkdir()
    session = Session.new("long", "some-model")
    for number in range(messages):
        text = f"Message {number}, with *emphasis* and `code`.\n\n{_CODE}"
        message = Message.user(text) if number % 2 else Message.assistant(text)
        message.created_at = Timestamp.from_ns((1_700_000_000 + number) * 10**9)
        session.messages.append(message)
    with Store.open(home, background=False) as store:
        store.save(session)
    words = ["mount", "--home", home, "--log-file", place / "log", mountpoint]
    subprocess.run([sys.executable, "-m", "fusefs.cli", *map(str, words)], check=True)
    try:
        yield mountpoint / "html"
    finally:
        subprocess.run(["fusermount3", "-u", mountpoint], check=True)


def _opening(browser: Browser, page: Path, is_ready: str, usable: list[float]) -> Callable[[], float]:
    """Open a page and wait for it. Returns milliseconds; when it was usable, by its own clock, goes to `usable`."""

    def run() -> float:
        browser.leave()
        began = time.perf_counter()
        browser.driver.get(page.as_uri())
        browser.wait(f"return {is_ready}")
        elapsed_ms = (time.perf_counter() - began) * 1e3
        usable.extend(browser.run("return performance.getEntriesByName('usable').map((mark) => mark.startTime)"))
        return elapsed_ms

    return run


def measure_pages(place: Path, messages: int, rounds: int) -> list[Row]:
    from tests.mount.browser import start_browser  # needs selenium and chromium

    usable: list[float] = []
    with _mounted(place, messages) as pages, start_browser() as browser:
        plain = place / "plain.html"  # what the browser needs for the same text without any script
        text = (pages.parent / "transcripts/long.md").read_text()
        plain.write_text(f"<!doctype html><meta charset=utf-8><pre>{escape(text)}</pre>")
        ours = _opening(browser, pages / "long.html", "document.documentElement.dataset.ready === 'yes'", usable)
        theirs = _opening(browser, plain, "document.readyState === 'complete'", [])
        row = compare(f"page of {messages:,} messages, complete", ours, "the same text in <pre>", theirs, None, rounds)
        browser.leave()
    what = "… usable: the first messages are shown, keys and filter work"
    return [row, Row(what, statistics.median(usable), target=Target(USABLE_TARGET_MS), samples=rounds)]
