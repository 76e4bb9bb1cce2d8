"""Search results as links and as a Markdown page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusefs.views.base import VirtualLink
from fusefs.views.html.names import path_of
from store import Hit, Timestamp
from store.documents.display_names import MAX_BYTES, clip
from store.documents.search_text import printable
from store.documents.transcript import quote_name
from store.search.query import Query

PAGE = "results.md"
MAX_PLACES = 100  # matches shown with a snippet
UP = "../.."  # from a query's directory to the top of the mount


def links_of(hits: Sequence[Hit]) -> dict[str, VirtualLink]:
    """One link per session or document. The names sort best first."""
    width = max(2, len(str(len(hits))))
    return {
        clip(f"{number:0{width}}-{hit.name}", MAX_BYTES): VirtualLink(f"{UP}/{hit.path}", max(hit.updated_ns, 0))
        for number, hit in enumerate(hits, 1)
    }


def render(query: Query, sessions: Sequence[Hit], places: Sequence[Hit], *, is_all: bool) -> str:
    """The best matches, grouped by session; then the sessions without a match shown."""
    head = [*_head(query.text, len(sessions), is_all=is_all), *_hints(query.hints)]
    return "\n".join([*head, *_shown(places), *_others(sessions, places), ""])


def _head(query: str, count: int, *, is_all: bool) -> Iterator[str]:
    yield f"# Search: {_line(query)}"
    yield ""
    if not count:
        yield "No matches."
    else:
        number = f"{count}" if is_all else f"The first {count}"
        yield f"{number} found, best first. Matches are in [brackets]."


def _hints(hints: Sequence[str]) -> Iterator[str]:
    if hints:
        yield ""
        yield from (f"Note: {hint}{'' if hint.endswith('?') else '.'}" for hint in hints)


def _shown(places: Sequence[Hit]) -> Iterator[str]:
    by_owner: dict[str, list[Hit]] = {}
    for hit in places:
        by_owner.setdefault(hit.path, []).append(hit)
    for hits in by_owner.values():
        yield from ("", f"## {_linked(hits[0])}", "")
        yield from map(_place, hits)


def _place(hit: Hit) -> str:
    """A match. A message is linked to its place in the conversation's web page."""
    if hit.message_index is None or hit.location is None:
        return f"- {'title' if hit.kind == 'session' else 'document'}: {hit.snippet}"
    page = f"{UP}/html/{quote_name(path_of(hit.location))}#m{hit.message_index}"
    return f"- [message {hit.message_index}]({page}), {hit.role}{_time(hit.created_ns)}: {hit.snippet}"


def _others(sessions: Sequence[Hit], places: Sequence[Hit]) -> Iterator[str]:
    shown = {hit.path for hit in places}
    others = [hit for hit in sessions if hit.path not in shown]
    if others:
        yield from ("", "## More sessions", "")
        yield from (f"- {_linked(hit)}" for hit in others)


def _linked(hit: Hit) -> str:
    """A Markdown link, valid inside the mount, to the session's directory or the document."""
    name = str(hit.location or hit.path)
    return f"{_line(hit.title) or 'Untitled'} ([{_line(name)}]({UP}/{quote_name(hit.path)}))"


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def _time(ns: int | None) -> str:
    try:
        return f", {Timestamp.from_ns(ns)[:16].replace('T', ' ')}" if ns is not None else ""
    except ValueError:  # outside the years 1 to 9999
        return ""
