"""What a search found, as links and as a page to read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusefs.views.base import VirtualLink
from store import Hit, Timestamp
from store.documents.display_names import MAX_BYTES, clip
from store.documents.search_text import printable
from store.documents.transcript import quote_name

PAGE = "results.md"
SHOWN = 100  # places whose text is shown
UP = "../.."  # from a query's directory to the top of the mount


def links_of(hits: Sequence[Hit]) -> dict[str, VirtualLink]:
    """One for each session or document, named so that they sort the best first."""
    width = max(2, len(str(len(hits))))
    return {
        clip(f"{number:0{width}}-{hit.name}", MAX_BYTES): VirtualLink(f"{UP}/{hit.path}", max(hit.updated_ns, 0))
        for number, hit in enumerate(hits, 1)
    }


def render(
    query: str, sessions: Sequence[Hit], places: Sequence[Hit], *, is_all: bool, notes: Sequence[str] = ()
) -> str:
    """The best places, under the session each lies in; then the sessions of which nothing is shown."""
    head = [*_head(query, len(sessions), is_all=is_all), *_hints(notes)]
    return "\n".join([*head, *_shown(places), *_others(sessions, places), ""])


def _head(query: str, count: int, *, is_all: bool) -> Iterator[str]:
    yield f"# Search: {_line(query)}"
    yield ""
    if not count:
        yield "Nothing was found."
    else:
        number = f"{count}" if is_all else f"The first {count}"
        yield f"{number} found, the best first; a match is in [brackets]."


def _hints(notes: Sequence[str]) -> Iterator[str]:
    """What was probably meant otherwise."""
    if notes:
        yield ""
        yield from (f"Note: {note}{'' if note.endswith('?') else '.'}" for note in notes)


def _shown(places: Sequence[Hit]) -> Iterator[str]:
    by_owner: dict[str, list[Hit]] = {}
    for hit in places:
        by_owner.setdefault(hit.path, []).append(hit)
    for hits in by_owner.values():
        yield from ("", f"## {_linked(hits[0])}", "")
        yield from map(_place, hits)


def _place(hit: Hit) -> str:
    if hit.message_index is None:
        return f"- {'title' if hit.kind == 'session' else 'document'}: {hit.snippet}"
    return f"- message {hit.message_index}, {hit.role}{_time(hit.created_ns)}: {hit.snippet}"


def _others(sessions: Sequence[Hit], places: Sequence[Hit]) -> Iterator[str]:
    shown = {hit.path for hit in places}
    others = [hit for hit in sessions if hit.path not in shown]
    if others:
        yield from ("", "## And in", "")
        yield from (f"- {_linked(hit)}" for hit in others)


def _linked(hit: Hit) -> str:
    """A link that resolves in the mount: to the session's directory, or the document."""
    name = str(hit.location or hit.path)
    return f"{_line(hit.title) or 'Untitled'} ([{_line(name)}]({UP}/{quote_name(hit.path)}))"


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def _time(ns: int | None) -> str:
    try:
        return f", {Timestamp.from_ns(ns)[:16].replace('T', ' ')}" if ns is not None else ""
    except ValueError:  # no date that a calendar has
        return ""
