"""The page of one conversation: a head made from the index, followed by the transcript's own bytes.

    constant: policy, style           shell.py
    title, links, tokens              from the index and the token log, built at lookup
    constant: script                  shell.py
    sub-agents                        from the index, built at lookup
    <plaintext>                       everything after this tag is text, to the end of the file
    the transcript, with marks        store/documents/transcript.py

Why the size is exact without rendering: what precedes the text is built when the page is looked up, from rows of the
index and the session's token log, and a marked transcript has the size that the index knows for the plain one.

Why nothing in a message can become markup: HTML has no way back out of `<plaintext>`. The parser stays in a state that
knows neither tags nor entities nor comments until the file ends, so there is nothing to escape and nothing to forget.
What precedes it comes from the index and is escaped. The script then makes nodes from that text (shell.py says why it
cannot make markup by mistake).

Why a message cannot pretend to be another one, or a tool call: the script splits the text at control characters, which
the store replaces in everything that an agent wrote.

Without JavaScript the transcript is shown as text, with working links above it.

Images are files next to the sessions, linked relatively: inlining them would make the size depend on their bytes.
Images inside a message (data: URLs) are decoded into files that exist when named.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from html import escape

import orjson

from fusefs.views.html.names import INDEX, link, path_of
from fusefs.views.html.shell import load_shell
from store.search.page_facts import PageFacts, PageLink

SHELL = load_shell("style.css", "conversation.css", "markdown.js", "highlight.js", "keys.js", "conversation.js")
_TOOLS = """\
<span class="tools"><span class="count" id="count" role="status"></span>
<input type="search" id="filter" placeholder="Filter ( / )" aria-label="Filter messages">
<button type="button" id="unfold" aria-pressed="false" title="Show reasoning and tool calls (e)">Unfold</button></span>
"""


def render_head(facts: PageFacts, *, has_log: bool = False) -> bytes:
    """Everything before the transcript."""
    links = "".join(_links(facts, has_log=has_log)).encode(errors="replace")
    children = "".join(_children(facts)).encode(errors="replace")
    main = b'<div class="layout">\n<main id="main" tabindex="-1">\n'
    return SHELL.head(facts.title) + links + SHELL.script + main + children + b"<plaintext>"


def version_of(facts: PageFacts, head: bytes) -> str:
    """An equal version means equal bytes."""
    return f"{facts.info.digest} {blake2b(head, digest_size=12).hexdigest()}"


def _links(facts: PageFacts, *, has_log: bool) -> Iterator[str]:
    here = facts.info.location
    yield '<a class="skip" href="#main">Skip to the conversation</a>\n'
    yield f'<nav class="top" aria-label="Pages">\n<a class="brand" href="{_quoted(link(here, INDEX))}">Sessions</a>\n'
    if facts.parent is not None:
        yield _step(facts, facts.parent, "parent", "↑")
    if facts.newer is not None:
        yield _step(facts, facts.newer, "newer", "←")
    if facts.older is not None:
        yield _step(facts, facts.older, "older", "→")
    if has_log:
        yield f'<a class="step" href="{_quoted(link(here, path_of(here, "log")))}">History</a>\n'
    yield f"{_TOOLS}</nav>\n"
    data = {"tokens": [*map(list, facts.tokens)], "images": f"{link(here, path_of(here, 'images'))}/"}
    yield f'<script type="application/json" id="data">{_json(data)}</script>\n'


def _step(facts: PageFacts, target: PageLink, name: str, arrow: str) -> str:
    href, title = _quoted(link(facts.info.location, path_of(target.location))), _quoted(target.title or "Untitled")
    word = {"parent": "parent", "newer": "newer (p)", "older": "older (n)"}[name]
    return f'<a class="step" id="{name}" href="{href}" title="{word}: {title}">{arrow} <bdi>{title}</bdi></a>\n'


def _children(facts: PageFacts) -> Iterator[str]:
    if not facts.children:
        return
    count = len(facts.children)
    yield f'<details class="children"><summary>{count} sub-agent{"" if count == 1 else "s"}</summary>\n<ul>\n'
    for child in facts.children:
        href, status = _quoted(link(facts.info.location, path_of(child.location))), _quoted(child.status or "")
        data = (
            f'data-id="{_quoted(child.location.id)}" data-created="{child.created_ns // 10**6}" data-status="{status}"'
        )
        yield f'<li><a href="{href}" {data}>{_quoted(child.title or "Untitled")}</a></li>\n'
    yield "</ul></details>\n"


def _quoted(text: str) -> str:
    return escape(" ".join(text.split()))


def _json(value: object) -> str:
    """JSON inside a script element: without <, which could end the element."""
    return orjson.dumps(value).decode().replace("<", "\\u003c")
