"""The history of a session as pages: its versions, and a difference with changed messages side by side.

Everything is escaped text; the pages have no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import orjson

from fusefs.views.html.names import INDEX, diff_path, link, path_of
from fusefs.views.html.shell import load_shell
from store import Difference, Location, SavedVersion, Store
from store.undo.changes import MemberChange, MessageChange
from store.undo.versions_spec import local_text
from store.undo.word_diff import Piece, diff_words

SHELL = load_shell("style.css", "history.css")
SHOWN_VERSIONS = 50
CONTEXT, LONGEST = 300, 10_000  # characters shown at both ends of an unchanged part, and of a changed one
# Follow from other changes.
_FOLLOWING = {"updated_at", "title_version", "metadata_version"}


def render_log(store: Store, location: Location) -> bytes | None:
    """The newest versions, each with what it changed; None if no version is kept."""
    versions = store.history.log(location.dir, limit=SHOWN_VERSIONS)
    if not versions:
        return None
    changes = store.history.summaries(versions)
    return _page(f"History of {location}", _log(location, versions, changes))


def iter_history(store: Store, location: Location) -> Iterator[tuple[str, bytes]]:
    """The log of a session and the pages it links to, each with its path below html/."""
    log = render_log(store, location)
    if log is None:
        return
    yield path_of(location, "log"), log
    for version in store.history.log(location.dir, limit=SHOWN_VERSIONS):
        page = render_diff(store, location, None, version.number)
        if page is not None:
            yield diff_path(location, version.number), page


def _log(location: Location, versions: list[SavedVersion], changes: list[str]) -> Iterator[str]:
    yield from _top(location, f"History of {location}")
    yield "<table>\n<thead><tr>"
    yield "".join(f'<th scope="col">{name}</th>' for name in ("Version", "When", "By", "Change"))
    yield "</tr></thead>\n<tbody>\n"
    for version, change in zip(versions, changes, strict=True):
        href = escape(link(location, diff_path(location, version.number)))
        note = f" <small>{escape(version.note)}</small>" if version.note else ""
        yield f'<tr><th scope="row"><a href="{href}">{version.label}</a></th><td>{local_text(version.made_at_ns)}</td>'
        yield f"<td>{escape(str(version.author))}</td><td><bdi>{escape(change)}</bdi>{note}</td></tr>\n"
    yield "</tbody></table>\n"
    if versions[-1].number > 1:
        yield f"<p>The newest {len(versions)}; <code>grovefs log {escape(str(location))}</code> lists more.</p>\n"
    yield "</main>\n"


def render_diff(store: Store, location: Location, old: int | None, new: int) -> bytes | None:
    """Two versions compared; `old` None is the one before. None if one of them does not exist."""
    after = store.history.find(location.dir, new)
    if after is None:
        return None
    if old is None:
        earlier = store.history.log(location.dir, limit=1, before=new)
        before = earlier[0] if earlier else None
    else:
        before = store.history.find(location.dir, old)
        if before is None:
            return None
    labels = f"versions {before.label} and {after.label}" if before else f"version {after.label}"
    title = f"{location}: {labels}"
    return _page(title, _diff(location, title, before, after, store.history.diff(before, after)))


def _diff(
    location: Location, title: str, before: SavedVersion | None, after: SavedVersion, found: Difference
) -> Iterator[str]:
    yield from _top(location, title)
    yield f"<p>{local_text(after.made_at_ns)}, {escape(str(after.author))}: <bdi>{escape(found.summary())}</bdi></p>\n"
    yield '<div class="sides head"><div>'
    yield f"Version {before.label}" if before else "Nothing"
    yield f"</div><div>Version {after.label}</div></div>\n"
    if found.changes is None:
        lines = "\n".join(escape(line) for line in found.raw("old", "new"))
        yield f'<pre tabindex="0">{lines}</pre>\n'
    else:
        for member in _telling(found.changes.members) or (() if found.changes.messages else found.changes.members):
            yield f"<section>{_member(member)}</section>\n"
        for change in sorted(found.changes.messages, key=_place):
            yield from _message(change)
    yield "</main>\n"


def _telling(members: Sequence[MemberChange]) -> list[MemberChange]:
    """The changes that do not just follow from others."""
    return [member for member in members if str(member.path[0] if member.path else "") not in _FOLLOWING]


def _place(change: MessageChange) -> tuple[int, int]:
    """The order of reading: a removed message comes before the one that took its place."""
    return (change.old_index or 0, 0) if change.new_index is None else (change.new_index, 1)


def _message(change: MessageChange) -> Iterator[str]:
    index = change.old_index if change.new_index is None else change.new_index
    role = escape(str(change.message.get("role", "message")))
    yield f'<section class="{change.event}"><h2>{role} <span class="badge">#{index} {change.event}</span></h2>\n'
    if change.event in ("added", "removed"):
        kind = change.event
        cell = _pieces([Piece("added" if kind == "added" else "removed", _shown_message(change.message))])
        sides = ("", cell) if kind == "added" else (cell, "")
        yield _sides(*sides)
    yield from map(_member, change.members)
    yield "</section>\n"


def _member(member: MemberChange) -> str:
    name = ".".join(map(str, member.path))
    heading = "" if name == "content" else f"<h3><code>{escape(name)}</code></h3>"
    pieces = diff_words(_shown(member.old), _shown(member.new))
    old = _pieces([piece for piece in pieces if piece.kind != "added"])
    new = _pieces([piece for piece in pieces if piece.kind != "removed"])
    return f"{heading}{_sides(old, new)}\n"


def _sides(old: str, new: str) -> str:
    return f'<div class="sides"><div>{old}</div><div>{new}</div></div>'


def _pieces(pieces: list[Piece]) -> str:
    """The old or the new text, with what changed in it; long parts are shortened."""
    shown = []
    for kind, text in pieces:
        tag = {"removed": "del", "added": "ins"}.get(kind)
        kept = escape(_shortened(text, LONGEST if tag else CONTEXT))
        shown.append(f"<{tag}>{kept}</{tag}>" if tag else kept)
    return "".join(shown)


def _shortened(text: str, ends: int) -> str:
    return text if len(text) <= 2 * ends else f"{text[:ends]} … {text[-ends:]}"


def _shown_message(message: Any) -> str:
    rest = {
        key: value for key, value in message.items() if key in ("reasoning", "tool_calls", "content_parts") and value
    }
    content = str(message.get("content") or "")
    return f"{content}\n{_shown(rest)}".strip() if rest else content


def _shown(value: Any) -> str:
    """A value as text. Other than plain JSON is only the mark of an absent member."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:
        return ""


def _top(location: Location, title: str) -> Iterator[str]:
    yield '<a class="skip" href="#main">Skip to the content</a>\n<nav class="top" aria-label="Pages">\n'
    yield f'<a class="brand" href="{escape(link(location, INDEX))}">Sessions</a>\n'
    yield f'<a href="{escape(link(location, path_of(location)))}">Conversation</a>\n'
    yield f'<a href="{escape(link(location, path_of(location, "log")))}">History</a>\n</nav>\n'
    yield f'<main id="main">\n<h1><bdi>{escape(title)}</bdi></h1>\n'


def _page(title: str, body: Iterator[str]) -> bytes:
    return SHELL.head(title) + "".join(body).encode(errors="replace") + b"</body>\n</html>\n"
