"""Store: the public interface to a home of sessions.

Synchronous; safe to use from many threads and many processes at once. Each method is one
transaction: when it returns, the change is on disk and in the index; when it raises, nothing has
changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from store import layout
from store.commit.agreement import Agreement, Alone
from store.commit.core import Core
from store.errors import Corrupt, InvalidName, NotFound
from store.grouped import Grouped
from store.home.open_home import HomeOptions, OpenHome, Progress
from store.index.catalog import ALL, CatalogRow, Filter, Order, Version
from store.index.change_feed import ChangeFeed
from store.layout import Location

if TYPE_CHECKING:
    from store.check.finding import Report
    from store.check.health import Health
    from store.commit.write_request import OnConflict
    from store.grove.follower import LogFollower
    from store.grove.publishing import Publishing
    from store.model.index_entry import IndexEntry
    from store.model.message import Message
    from store.model.session import Session
    from store.search.query import Query
    from store.search.results import Hit
    from store.sessions.append import AppendedMessage
    from store.sessions.attachments import Attachment
    from store.sessions.save import OnStale
    from store.transfer.backup.backup import BackupSummary
    from store.transfer.backup.restore import RestoreSummary


class Store(Grouped):
    """A home of sessions. Open it with `Store.open(home)`, preferably in a `with` statement.

    The methods work on sessions. Other operations are grouped in attributes:

        trash        list deletions, restore them, empty the trash
        prune        delete old, empty or all sessions by plan
        history      versions of sessions and other kept files
        feed         changes since a cursor, from all processes
        attachments  read attachments
        usage        token usage records and totals
        summaries    session lists with a derived title
        records      artifacts, traces and verification reports of a session
        trajectory   tool calls of a session, step by step
        mail         messages between sessions
        state        JSON and Markdown documents by category and name
        projects     opaque payloads by project and session
        imports      sessions from other programs; exports: to other formats
        transcripts  Markdown transcripts and their sizes; browser: grouped listings
        pages        what web pages show next to transcripts
        names        what a filesystem may do to a path
        moves        renames and exchanges
        trigrams     the index of `grovefs grep`
        maintenance  sweep, rebuild, sessions.json, status
    """

    backend_name = "local"

    def __init__(self, home: str | os.PathLike[str], **options: Unpack[HomeOptions]) -> None:
        options.setdefault("attach", attach_if_joined)
        self._home = OpenHome(home, **options)
        self.home: Path = self._home.path
        self._follower = self._follow(background=options.get("background", True))

    # -- opening and closing -----------------------------------------------------------------------------

    @classmethod
    def open(cls, home: str | os.PathLike[str], **options: Unpack[HomeOptions]) -> Self:
        """Open a home; create it if it does not exist. Options:

        durability      "full" (default) survives power loss, "normal" only kill -9
        background      False starts no threads: no watching, no housekeeping
        beside_bamboo   True allows writes while a Bamboo server uses the home
        limit_bytes     largest document
        lock_timeout_s  how long to wait for a session's lock before Busy
        auto_prune      an AutoPrune: prune in the background
        author          name of the author in the history; default: the name of the program
        history         False keeps no versions
        progress        called with (done, total) while the index is rebuilt
        """
        return cls(home, **options)

    def close(self) -> None:
        """Export sessions.json and record a clean shutdown. May be called twice."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()
        self._home.close()

    def _follow(self, *, background: bool) -> LogFollower | None:
        """Catch up with the other hosts of a grove, and follow them with `background`."""
        if not self._core.agreement.is_joined:
            return None
        from store.grove.attaching import start_following

        return start_following(self._core, background=background)

    @property
    def is_in_grove(self) -> bool:
        """Whether this home belongs to a grove: changes are shared with other hosts."""
        return self._core.agreement.is_joined

    @property
    def grove(self) -> Publishing:
        """What this home can publish to its grove, and whether it is followed. Raises NotJoined if it is in none."""
        from store.grove.replica import NotJoined

        if not self._core.agreement.is_joined:
            raise NotJoined(f"{self.home} has not joined a grove; see `grovefs help grove`")
        from store.grove.publishing import Publishing

        return Publishing(self._core, self._follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _core(self) -> Core:
        return self._home.core

    # -- whole sessions ----------------------------------------------------------------------------------

    def load(self, session_id: str) -> Session | None:
        """Load a session; None if there is none. Corrupt names line and column of the damage."""
        from store.commit.session_reader import with_load_state

        location = self._core.locate(session_id)
        loaded = self._core.load(location) if location else None
        return with_load_state(loaded) if loaded else None

    def save(
        self,
        session: Session,
        *,
        overwrite: bool = False,
        shorten: bool = False,
        on_conflict: OnStale = "raise",
    ) -> None:
        """Write a session, new or changed. Conflict if it was changed by another writer since it was loaded.

        With `on_conflict="merge"` both changes are stored, and the Session becomes the merged one;
        MergeConflict if both changed the same thing. `overwrite` replaces the stored version;
        `shorten` allows fewer messages than loaded.
        """
        self._home.services.saver.save(session, overwrite=overwrite, shorten=shorten, on_conflict=on_conflict)

    def refresh(self, session: Session) -> bool:
        """Bring a loaded Session up to date and keep its unsaved changes; False if nobody had changed it.

        MergeConflict, and the Session is left alone, if both changed the same thing. NotFound if the
        session was deleted.
        """
        from store.sessions.refresh import RefreshOperation

        return RefreshOperation(self._core).refresh(session)

    def load_runtime(self, session_id: str) -> Session | None:
        """Load a session without its messages if it has a sidecar: the cost does not depend on its length."""
        from store.commit import session_reader

        location = self._core.locate(session_id)
        if location is None:
            return None
        session = session_reader.load_sidecar(self._core.disk, location, self._core.limit_bytes)
        row = self._core.index.find(location)
        if session is None or (row is not None and self._is_stale(session, row)):
            return self.load(str(location))
        return session

    def _is_stale(self, runtime: Session, row: CatalogRow) -> bool:
        """Whether session.json is newer than its sidecar. Read only if the index does not know its version."""
        if row.version == self._core.version(row.location):
            return runtime.updated_at.ns < row.entry.updated_at.ns
        try:
            loaded = self._core.load(row.location)
        except Corrupt:  # the sidecar alone can be read
            return False
        return loaded is not None and loaded.side is None

    def save_runtime(self, session: Session) -> None:
        """Write a session without its messages: the cost does not depend on its length."""
        self._home.services.saver.save_runtime(session)

    def update(
        self, session_id: str, change: Callable[[Session], Session | None], *, shorten: bool = False
    ) -> Session | None:
        """Load, change and save under the session's lock, so it never conflicts. None for an unknown id.

        `change` modifies the session in place or returns another one. In a grove it may be called
        several times, with a fresh Session each time.
        """
        return self._core.agreement.repeat(lambda: self._update(session_id, change, shorten=shorten))

    def _update(self, session_id: str, change: Callable[[Session], Session | None], *, shorten: bool) -> Session | None:
        from store.model.session import Session

        location = self._core.locate(session_id)
        if location is None:
            return None
        with self._core.locked(location):
            session = self.load(str(location))
            if session is None:
                return None
            changed = change(session)
            session = changed if isinstance(changed, Session) else session
            self.save(session, shorten=shorten)
            return session

    def append(self, target: Session | str, messages: Iterable[Message | dict[str, Any]]) -> list[AppendedMessage]:
        """Add messages to the end of a session. Never conflicts, and costs no rewrite of the messages before.

        A Session object is up to date afterwards, and has what others stored meanwhile. Returns the index and id of
        each new message.
        """
        return self._home.services.appender.append(target, messages)

    def new_child(
        self, parent: Session | str, child_id: str | None = None, *, model: str = "", title: str = ""
    ) -> Session:
        """Create and save a child of a session. Without an id it gets a UUID, without a model that of its parent."""
        return self._home.services.saver.new_child(parent, child_id, model=model, title=title)

    def get_or_create(self, session_id: str | None = None, **fields: Any) -> Session:
        """Load a session, or create and save a new one. Fields of a new one: user_id, model, title."""
        return self._home.services.saver.get_or_create(session_id, **fields)

    def clear(self, session_id: str) -> bool:
        """Remove all messages but the first system message; False for an unknown id."""
        location = self._core.locate(session_id)
        return location is not None and self._home.services.saver.clear(location)

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """Move a session and its descendants to the trash; False for an unknown id, Protected if one is pinned."""
        return self._home.services.deleter.delete(session_id, force=force)

    def rename(self, session_id: str, target: str) -> Location:
        """Change a session's id, or move it to `root/child`; its documents and relatives are updated."""
        place = _location(target)
        self._home.services.relocator.move(self._existing(session_id), place)
        return place

    def fork(self, session_id: str, target: str) -> list[Location]:
        """Copy a session (a root with its children) to another id or `root/child`; returns the new sessions."""
        from store.sessions.fork import ForkOperation

        location = self._existing(session_id)
        return ForkOperation(self._core, self._home.services.relocator).fork(location, _location(target))

    def move_to_project(self, session_id: str, project_id: str | None) -> bool:
        """Set a session's project, or remove it (None); False for an unknown id."""
        return self._home.services.saver.move_to_project(session_id, project_id)

    def attach(self, target: Session | str, data: bytes | str, mime: str | None = None) -> Attachment:
        """Store an attachment, given as bytes, as base64 text or as a `data:` URL."""
        return self._home.services.attachments.attach(target, data, mime)

    # -- documents ---------------------------------------------------------------------------------------

    def put_document(
        self,
        location: Location | str,
        name: str,
        raw: bytes,
        *,
        base: Version | bytes | None = None,
        on_conflict: OnConflict = "reject",
        mtime_ns: int | None = None,
    ) -> bool:
        """Validate and commit a document byte for byte; False if it is stored already. The mount uses this.

        `base` is the version, or its text, that the document was edited from. With `on_conflict="merge"` what
        others stored since is kept too; MergeConflict if both changed the same thing.
        """
        return self._home.services.putter.put_document(
            _location(location), name, raw, base=base, on_conflict=on_conflict, mtime_ns=mtime_ns
        )

    def get_document(self, location: Location | str, name: str) -> bytes | None:
        """Read a document's bytes as they are on disk; None if there is none."""
        if name not in layout.DOCUMENTS:
            raise InvalidName(f"{name!r}: not a document; expected {' or '.join(layout.DOCUMENTS)}")
        file = self._core.disk.read(_location(location).path(name), self._core.limit_bytes)
        return file.data if file else None

    def version(self, location: Location | str) -> Version:
        """Return the current version of a session's documents, for `put_document(base=…)`."""
        return self._core.version(_location(location))

    def transcript(self, session_id: str, message: int | None = None, *, marked: bool = False) -> str | None:
        """Render a session, or one message of it, as Markdown; None if there is none.

        `marked` puts control characters where messages and their parts begin: see `store.documents.transcript`.
        """
        location = self._core.locate(session_id)
        return self.transcripts.text(location, message, marked=marked) if location else None

    # -- the index ---------------------------------------------------------------------------------------

    def location(self, session_id: str) -> Location | None:
        """Return the location of a session; None if there is none, Ambiguous if several roots have such a child."""
        return self._core.locate(session_id)

    def resolve(self, name: str) -> Location:
        """Find the session a person means: by id, unique prefix of an id, or title. NotFound or Ambiguous."""
        from store.search.resolve import NameResolver

        return NameResolver(self._core).resolve(name)

    def exists(self, session_id: str) -> bool:
        """Whether there is such a session, readable or not."""
        return self._core.locate(session_id) is not None

    def ids(self) -> list[str]:
        """List the exact name (`root` or `root/child`) of every session, readable or not, in order."""
        return sorted(str(location) for location, _ in self._core.index.versions())

    def count(self) -> int:
        """Return the number of indexed sessions."""
        return self._core.index.count()

    def entry(self, session_id: str) -> IndexEntry | None:
        """Return the index entry of a session; None if there is none."""
        location = self._core.locate(session_id)
        row = self._core.index.find(location) if location else None
        return row.entry if row else None

    def entries(
        self,
        *,
        order: Order = "updated",
        descending: bool = True,
        limit: int = ALL,
        offset: int = 0,
        **where: Any,
    ) -> list[IndexEntry]:
        """List the index, or `limit` entries of it from `offset`.

        Filters: kind, root, parent, pinned, status, model, project, user, persona, seed,
        title (a part of it), updated_since, updated_before."""
        return self._core.index.entries(Filter(**where), order, descending=descending, limit=limit, offset=offset)

    def children(self, session_id: str) -> list[IndexEntry]:
        """List the direct children of a session, oldest first."""
        location = self._core.locate(session_id)
        root = location.root if location is not None else None  # children of a deleted parent are found by its id
        where = Filter(root=root, parent=location.id if location is not None else session_id)
        return self._core.index.entries(where, "created", descending=False, limit=-1, offset=0)

    def search(
        self, query: str | Query, *, limit: int = 20, by_session: bool = False, snippets: int | None = None
    ) -> list[Hit]:
        """Search messages, titles and state documents, best match first; `by_session`: one hit per session.

        Words, "phrases", prefix*, OR, -not, (groups) and filters; any string is a query, see `store.search.query`.
        `parse_query(text)` gives a Query with hints about likely mistakes. `snippets`: number of hits that get a
        snippet; None means all.
        """
        from store.search.query import Query, parse_query
        from store.search.results import find

        parsed = query if isinstance(query, Query) else parse_query(query)
        return find(self._core, parsed, limit, by_session=by_session, snippets=snippets)

    def near_spellings(self, query: str | Query) -> list[str]:
        """Words of the home that are spelled like those of a query without a match; at most three."""
        from store.search.near_spellings import near_spellings
        from store.search.query import Query, parse_query

        parsed = query if isinstance(query, Query) else parse_query(query)
        return near_spellings(self._core.db.path, parsed.words)

    @property
    def feed(self) -> ChangeFeed:
        """The change feed: `feed.since(cursor)` and `feed.wait(cursor)` list commits of all processes in order."""
        return self._core.feed

    # -- the home as a whole -----------------------------------------------------------------------------

    def check(self, *, repair: bool = False, secrets: bool = False, progress: Progress | None = None) -> Report:
        """Look for every kind of damage. `repair` repairs derived data, never a conversation; `secrets` also
        reports likely keys and tokens."""
        from store.check.run import run_checks

        return run_checks(self._home, repair=repair, secrets=secrets, progress=progress)

    def health(self, **limits: Any) -> Health:
        """Test that the home can be written, is indexed and has free space. Limits: deep (read the whole index),
        min_free_bytes, min_free_inodes."""
        from store.check.health import examine

        return examine(self._core, **limits)

    def backup(self, dest: str | os.PathLike[str], **options: Any) -> BackupSummary:
        """Copy what changed to the backup at `dest`. Options: verify, keep_deleted, force, history,
        progress."""
        self.maintenance.export_sessions_json()
        return self._home.services.backups.run(dest, **options)

    def restore(self, source: str | os.PathLike[str], *names: str, **options: Any) -> RestoreSummary:
        """Restore a backup, or only the named sessions. Options: overwrite, skip_damaged, dry_run, progress,
        report."""
        return self._home.services.restores.run(source, names, **options)

    def _existing(self, session_id: str) -> Location:
        location = self._core.locate(session_id)
        if location is None:
            raise NotFound(f"there is no session {session_id!r}")
        return location


def attach_if_joined(core: Core) -> Agreement:
    """The agreement of the grove that a home has joined. Nothing of a grove is imported for other homes."""
    if not (core.home / layout.GROVE_DB).exists():
        return Alone()
    from store.grove.attaching import attach

    return attach(core)


def _location(place: Location | str) -> Location:
    if isinstance(place, Location):
        return layout.check_location(place)
    return layout.parse_location(place) or Location(layout.check_id(place))
