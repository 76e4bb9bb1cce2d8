"""html/index.html: the list of all sessions as one table, which the script sorts and filters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from html import escape

from fusefs.views.html.names import STATS, link, path_of
from fusefs.views.html.numbers import short
from fusefs.views.html.shell import load_shell
from store.search.page_facts import ListedSession

SHELL = load_shell("style.css", "list.css", "keys.js", "list.js")
_COLUMNS = ("Title", "Project", "Model", "Status", "Updated", "Messages", "Tokens")
_TOP = """\
<a class="skip" href="#main">Skip to the list</a>
<nav class="top" aria-label="Pages">
<a class="brand" href="index.html" aria-current="page">Sessions</a>
{statistics}<span class="tools"><span class="count" id="count" role="status"></span>
<input type="search" id="filter" placeholder="Filter ( / )" aria-label="Filter sessions">
<button type="button" id="children" aria-pressed="false">Sub-agents</button></span>
</nav>
<main id="main">
<h1>Sessions</h1>
"""


def render_list(sessions: Iterable[ListedSession], *, has_stats: bool = True) -> bytes:
    """The whole page."""
    body = "".join(_body(sessions, has_stats=has_stats)).encode(errors="replace")
    return SHELL.head("Sessions") + body + SHELL.script + b"</body>\n</html>\n"


def _body(sessions: Iterable[ListedSession], *, has_stats: bool) -> Iterator[str]:
    yield _TOP.format(statistics=f'<a href="{STATS}">Statistics</a>\n' if has_stats else "")
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    yield f'<table id="sessions">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    yield from map(_row, sessions)
    yield '</tbody>\n</table>\n<p id="none" hidden>No session matches.</p>\n</main>\n'
    yield "<footer><kbd>/</kbd> filter · <kbd>j</kbd> <kbd>k</kbd> move · <kbd>Enter</kbd> open</footer>\n"


def _row(session: ListedSession) -> str:
    title, place = _text(session.title) or "Untitled", _text(str(session.location))
    extras = [f'<span class="id">{place}</span>']
    if session.pinned:
        extras.append('<span class="badge">pinned</span>')
    if session.children:
        extras.append(f'<span class="badge">{session.children} sub-agent{"" if session.children == 1 else "s"}</span>')
    status = _text(session.status or "")
    kind = status if status.isalpha() else ""
    badge = f'<span class="badge {kind}">{status}</span>' if status else ""
    tokens, exact = (short(session.tokens), f"{session.tokens:,}") if session.tokens else ("", "")
    href = escape(link(None, path_of(session.location)))
    return (
        f"<tr{' class=child' if session.location.child else ''}>"
        f'<th scope="row"><a href="{href}"><bdi>{title}</bdi></a><div>{" ".join(extras)}</div></th>'
        f'<td data-name="Project"><bdi>{_text(session.project or "")}</bdi></td>'
        f'<td data-name="Model"><bdi>{_text(session.model)}</bdi></td><td data-name="Status">{badge}</td>'
        f'<td data-name="Updated" data-v="{session.updated_ns // 10**6}">{_time(session.updated_ns)}</td>'
        f'<td data-name="Messages" data-v="{session.message_count}">{session.message_count:,}</td>'
        f'<td data-name="Tokens" data-v="{session.tokens}" title="{exact}">{tokens}</td></tr>\n'
    )


def _time(ns: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
    except OverflowError:  # after the year 9999
        return ""
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M} UTC</time>'


def _text(text: str) -> str:
    return escape(" ".join(text.split()))
