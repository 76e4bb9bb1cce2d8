"""Generated read-only files at the top of the mount: README.md, sessions.json, status and statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import blake2b

import orjson

from fusefs.views.audience import current_reader, may_see
from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from store import Location, Session, Store, layout

README = """\
# A grove of agent sessions

Every directory below `sessions/` is a conversation. Read and edit it with the tools you know:

    jq -r .title sessions/*/session.json          titles of all conversations
    grep -rl "some words" sessions/               conversations that contain the words
    ls search/"some words"                        the same from an index, best first; results.md shows the matches
    vim sessions/<id>/session.json                edit; an invalid edit is rejected and the file stays unchanged
    cp -r sessions/<id> sessions/<new-id>         fork a conversation
    mv sessions/<id> sessions/<new-id>            change its id
    rm -r sessions/<id>                           delete it; `grovefs undelete <id>` restores it for seven days
    rsync -a --modify-window=-1 sessions/ /backup/sessions/

To read and browse:

    less transcripts/<id>.md                      a conversation as Markdown; sub-agents in transcripts/<id>/
    grep -rn "some words" transcripts/            matches in readable lines
    xdg-open html/index.html                      all conversations in a browser; html/<id>.html exists when named
    ls views/by-title views/by-date/2026/11/16    links to sessions; also by-status, by-model, pinned, children-of
    mv views/projects/none/<name> views/projects/<project>/

To see the past (`grovefs help history`):

    ls history/<id>/                              every version of a session, with its time and program
    diff -r at/2h/sessions/<id> sessions/<id>     what changed in two hours; at/ takes any time
    grovefs snapshot monday; ls snapshots/monday/ a name for this moment
    grovefs log <id>; grovefs undo --since 10:30 --by sed

Mail, state and projects:

    cp letter.json sessions/<id>/mailbox/new/     send it a message (mkdir -p first); rm it from cur/ when done
    vim state/notes/today.md                      plain documents: .md any text, .json validated
    jq . projects/<key>/index.json                sessions by workspace; derived from their session.json

If a save fails with "Bad message", the edit was rejected: `session.json.error` next to the document has the
reason, and `session.json.rejected` has your text. "Stale file handle" means that another program saved a newer
version in the meantime.

`sessions.json` lists all sessions. `.grovefs/status.json` has the state of the store, `.grovefs/errors.jsonl`
the recently rejected writes.
"""


class TopFiles(View):
    """Renders the generated files. sessions.json is cached until the next commit."""

    def __init__(self, store: Store, stats: Callable[[], dict[str, object]]) -> None:
        self._store = store
        self._stats = stats
        self._index: tuple[object, bytes] = (None, b"")  # for the owner
        self._started_ns = time.time_ns()
        exported = store.names.stat(layout.INDEX_EXPORT)
        self._versions: dict[object, tuple[str, int]] = {}  # path and reader → version and its mtime
        self._initial_mtimes = {layout.INDEX_EXPORT: exported.st_mtime_ns if exported else self._started_ns}
        self._files: dict[str, Callable[[], bytes]] = {
            "README.md": README.encode,
            layout.INDEX_EXPORT: self._render_index,
            ".grovefs/status.json": self._render_status,
            ".grovefs/stats.json": lambda: _pretty(stats()),
            ".grovefs/errors.jsonl": self._render_errors,
            ".grovefs/schema/session.schema.json": lambda: _pretty(Session.model_json_schema()),
        }

    def find(self, path: str) -> Item | None:
        if path in self._files:
            return self._page(path, self._files[path]())
        is_folder = not path or any(other.startswith(f"{path}/") for other in self._files)
        return VirtualDir(self._started_ns, is_fixed=True) if is_folder else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        prefix = f"{path}/" if path else ""
        for name in sorted({p[len(prefix) :].partition("/")[0] for p in self._files if p.startswith(prefix)}):
            item = self.find(prefix + name)
            if item is not None:
                yield name, item

    def _page(self, path: str, data: bytes) -> VirtualFile:
        version = blake2b(data, digest_size=8).hexdigest()
        key = path, current_reader()
        seen = self._versions.get(key)
        if seen is None:
            self._versions[key] = version, self._initial_mtimes.get(path, self._started_ns)
        elif seen[0] != version:
            self._versions[key] = version, time.time_ns()
        return VirtualFile(len(data), self._versions[key][1], version, lambda: data, is_cacheable=False)

    def _render_status(self) -> bytes:
        status = self._store.maintenance.status()
        for name in ("damaged", "unfinished"):
            status[name] = {k: v for k, v in status[name].items() if self._may_see_session(k)}
        return _pretty({**status, "opens_answered_by": self._stats().get("opens_answered_by")})

    def _render_errors(self) -> bytes:
        lines = self._store.names.rejects.recent()
        if current_reader() is None:
            return lines
        return b"".join(line for line in lines.splitlines(keepends=True) if self._may_see_error(line))

    def _may_see_error(self, line: bytes) -> bool:
        try:
            path = str(orjson.loads(line)["path"])
        except (ValueError, KeyError, TypeError):
            return False
        place = layout.locate_path(path)
        return may_see(self._store, place[0].dir if place is not None else path)

    def _may_see_session(self, name: str) -> bool:
        if current_reader() is None:
            return True
        root, _, child = name.partition("/")
        return may_see(self._store, Location(root, child or None).dir)

    def _render_index(self) -> bytes:
        if current_reader() is not None:
            return self._store.maintenance.render_sessions_json(lambda path: may_see(self._store, path))
        cursor = self._store.feed.since().cursor
        if self._index[0] != cursor:
            self._index = cursor, self._store.maintenance.render_sessions_json()
        return self._index[1]


def _pretty(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE, default=str)
