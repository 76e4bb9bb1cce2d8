"""What exists only in the mount: the page for people, the index, and how things stand. All read-only."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from store import Session, Store

README = """\
# A grove of agent sessions

Every directory below `sessions/` is a conversation. Read and edit it with the tools you know:

    jq -r .title sessions/*/session.json          titles of all conversations
    grep -rl "some words" sessions/               where it was said
    vim sessions/<id>/session.json                edit; a broken edit is refused, the old text stands
    cp -r sessions/<id> sessions/<new-id>         fork a conversation
    mv sessions/<id> sessions/<better-name>       give it another id
    rm -r sessions/<id>                           delete it (kept for seven days in the home's trash)
    rsync -a --modify-window=-1 sessions/ /backup/sessions/

If a save is refused ("Bad message"), the reason stands beside the document in `session.json.error`, and what
you had typed in `session.json.rejected`. "Stale file handle" means that someone else saved meanwhile.

`sessions.json` lists all sessions; `.grovefs/status.json` says how things stand, `.grovefs/errors.jsonl` what
was refused lately.
"""


class Generated:
    """Renders the generated files; what is costly is kept until something was committed."""

    def __init__(self, store: Store, stats: Callable[[], dict[str, object]]) -> None:
        self._store = store
        self._stats = stats
        self._index: tuple[object, bytes] = (None, b"")

    @property
    def files(self) -> dict[str, Callable[[], bytes]]:
        """By path."""
        return {
            "README.md": README.encode,
            "sessions.json": self._render_index,
            ".grovefs/status.json": lambda: _pretty(self._store.status()),
            ".grovefs/stats.json": lambda: _pretty(self._stats()),
            ".grovefs/errors.jsonl": self._store.names.rejects.recent,
            ".grovefs/schema/session.schema.json": lambda: _pretty(Session.model_json_schema()),
        }

    def _render_index(self) -> bytes:
        cursor = self._store.changes().cursor
        if self._index[0] != cursor:
            self._index = cursor, self._store.render_index()
        return self._index[1]


def _pretty(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE, default=str)
