"""Store: what can be asked of a home of sessions.

Synchronous, safe to use from many threads and many processes at once. Each method is one transaction:
when it returns, the change is on disk and in the index; when it raises, nothing has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from store import layout
from store.check.finding import Report
from store.check.health import Health, examine
from store.check.projects import check_projects
from store.check.run import run_checks
from store.check.secrets import check_secrets
from store.check.trigrams import check_trigrams
from store.check.unexpected_files import check_unexpected_files
from store.check.workspace import check_mail, check_records, check_state
from store.commit import session_reader
from store.commit.session_reader import with_load_state
from store.disk import trash
from store.disk.trash import TrashSlot
from store.documents import attachment_names
from store.errors import InvalidName, NotFound
from store.home.open_home import OpenHome, Progress
from store.home.opening import migrate_sidecars
from store.index.catalog import Filter, Order, Version
from store.index.change_feed import Changes, Cursor
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.message import Message
from store.model.session import Session
from store.model.timestamp import Timestamp
from store.search.query import Query, parse_query
from store.search.resolve import NameResolver
from store.search.results import Hit, find
from store.search.summaries import SessionSummary
from store.search.usage import Prices, Usage, gather
from store.sessions.attachments import Attachment
from store.sessions.cleanup import CleanupMode, CleanupResult, Plan
from store.sessions.fork import ForkOperation
from store.sessions.put import OnConflict
from store.transfer.backup.backup import BackupSummary
from store.transfer.backup.restore import RestoreSummary

PAGE = 200  # entries, unless more are asked for


class Store(OpenHome):
    """A home of sessions. Open it with `Store.open(home)`, best in a `with` statement."""

    # -- sessions ----------------------------------------------------------------------------------------

    def load(self, session_id: str) -> Session | None:
        """The session as its owner sees it; None if there is none. Corrupt says where the damage is."""
        location = self._core.locate(session_id)
        loaded = self._core.load(location) if location else None
        return with_load_state(loaded) if loaded else None

    def transcript(self, session_id: str, message: int | None = None) -> str | None:
        """The session as Markdown to read, as the mount shows it, or one of its messages; None if there is none."""
        location = self._core.locate(session_id)
        return self.transcripts.text(location, message) if location else None

    def load_runtime(self, session_id: str) -> Session | None:
        """The control plane alone, without messages where there is a sidecar: cheap at any length."""
        location = self._core.locate(session_id)
        if location is None:
            return None
        return self._load_side(location) or self.load(str(location))

    def _load_side(self, location: Location) -> Session | None:
        version = self._core.version(location)
        side = self._disk.read(location.path(layout.RUNTIME), self._core.limit_bytes)
        document = session_reader.parse_side(session_reader.DocumentPair(location, None, side))
        if side is None or document is None:
            return None
        session = document.record
        dump = session.model_dump()
        session._origin = session_reader.LoadState(
            Version(version.main, side.stamp), dump, dump, has_side=True, partial=True
        )
        return session

    def save(self, session: Session, *, overwrite: bool = False, shorten: bool = False) -> None:
        """Write a session, new or changed. Conflict if someone else changed it since it was loaded.

        `overwrite` replaces whatever is there; `shorten` allows fewer messages than before.
        """
        self._saver.save(session, overwrite=overwrite, shorten=shorten)

    def save_runtime(self, session: Session) -> None:
        """Write all of a session but its messages: O(1) in the length of the conversation."""
        self._saver.save_runtime(session)

    def update(
        self, session_id: str, change: Callable[[Session], Session | None], *, shorten: bool = False
    ) -> Session | None:
        """Read, change and write under the session's lock, so that it never conflicts.

        `change` alters the session in place or returns another; None for an unknown id.
        """
        location = self._core.locate(session_id)
        if location is None:
            return None
        with self._core.locked(location):
            session = self.load(str(location))
            if session is None:
                return None
            changed = change(session)
            session = changed if isinstance(changed, Session) else session
            self._saver.save(session, shorten=shorten)
            return session

    def get_or_create(self, session_id: str | None = None, **fields: Any) -> Session:
        """The session of this id, or a new one that is saved already. Fields of a new one: user_id, model, title."""
        return self._ownership.get_or_create(session_id, **fields)

    def move_to_project(self, session_id: str, project_id: str | None) -> bool:
        """File a session under a project, or (None) under none; False for an unknown id."""
        return self._ownership.move_to_project(session_id, project_id)

    def append(self, target: Session | str, messages: Iterable[Message | dict[str, Any]]) -> None:
        """Add messages at the end of a session: the live agent's hot path. Never conflicts.

        Given a Session that is up to date, that is kept up to date.
        """
        self._saver.append(target, messages)

    def put_document(
        self,
        location: Location | str,
        name: str,
        raw: bytes,
        *,
        base: Version | None = None,
        on_conflict: OnConflict = "reject",
        mtime_ns: int | None = None,
    ) -> bool:
        """Commit a document byte for byte; False if it is there already. What the mount calls."""
        place = _location(location)
        return self._putter.put_document(place, name, raw, base=base, on_conflict=on_conflict, mtime_ns=mtime_ns)

    def get_document(self, location: Location | str, name: str) -> bytes | None:
        """A document's bytes as they are on disk; None if there is none."""
        if name not in layout.DOCUMENTS:
            raise InvalidName(f"{name!r} is no document: {' and '.join(layout.DOCUMENTS)} are")
        file = self._disk.read(_location(location).path(name), self._core.limit_bytes)
        return file.data if file else None

    def version(self, location: Location) -> Version:
        """The versions of both documents now: what `put_document` takes as `base`."""
        return self._core.version(layout.check_location(location))

    def rename(self, session_id: str, target: str) -> Location:
        """Give a session another id, or (as `root/child`) another place; its documents and relatives follow."""
        location = self._core.locate(session_id)
        if location is None:
            raise NotFound(f"there is no session {session_id!r}")
        place = _location(target)
        self.names.relocator.move(location, place)
        return place

    def fork(self, session_id: str, target: str) -> list[Location]:
        """Copy a session, a root with its children, to another id or `root/child`; returns all that came to be."""
        location = self._core.locate(session_id)
        if location is None:
            raise NotFound(f"there is no session {session_id!r}")
        return ForkOperation(self._core, self.names.relocator).fork(location, _location(target))

    # -- taking away -----------------------------------------------------------------------------------------

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """Delete a session and its descendants; False for an unknown id, Protected if one is pinned."""
        return self._deleter.delete(session_id, force=force)

    def deleted(self) -> list[TrashSlot]:
        """What was deleted in the last seven days, the newest first."""
        return trash.deleted(self._disk)

    def undelete(self, name: str) -> list[Location]:
        """Have a deletion back, by its name in `deleted()`."""
        return self._deleter.undelete(name)

    def empty_trash(self) -> int:
        """Erase for good what was deleted; returns how many slots went."""
        return self._deleter.empty_trash()

    def clear(self, session_id: str) -> bool:
        """Keep only a session's first system message; False for an unknown id."""
        location = self._core.locate(session_id)
        return location is not None and self._saver.clear(location)

    def plan_cleanup(self, mode: CleanupMode, *, keep_pinned: bool = True) -> Plan:
        """What `cleanup` would delete, to be shown first."""
        return self._cleanup.plan(mode, keep_pinned=keep_pinned)

    def cleanup(
        self, mode: CleanupMode | Plan, *, keep_pinned: bool = True, progress: Progress | None = None
    ) -> CleanupResult:
        """Delete all sessions, the empty ones, or all children; or exactly what a plan says."""
        plan = mode if isinstance(mode, Plan) else self.plan_cleanup(mode, keep_pinned=keep_pinned)
        return self._cleanup.apply(plan, progress)

    def reset(self) -> None:
        """For development: every session is gone for good, with index and trash."""
        self._check_writable()
        for root in self._disk.directories(layout.SESSIONS):
            with self._core.locks.tree(root):
                self._disk.remove_tree(f"{layout.SESSIONS}/{root}")
        for entry in [*self._disk.entries(layout.TRASH)]:
            self._disk.remove_tree(f"{layout.TRASH}/{entry.name}")
        self._core.sweep()
        self._export()

    # -- the index ---------------------------------------------------------------------------------------------

    def entry(self, session_id: str) -> IndexEntry | None:
        """What the index says of a session; None if there is none."""
        location = self._core.locate(session_id)
        row = self._core.index.find(location) if location else None
        return row.entry if row else None

    def exists(self, session_id: str) -> bool:
        """Whether there is such a session, readable or not."""
        return self._core.locate(session_id) is not None

    def ids(self) -> list[str]:
        """The exact name (`root`, `root/child`) of every session, readable or not, in order."""
        return sorted(str(location) for location, _ in self._core.index.stamps())

    def location(self, session_id: str) -> Location | None:
        """Where a session lies; Ambiguous if an id lies under several roots."""
        return self._core.locate(session_id)

    def resolve(self, name: str) -> Location:
        """The session that a person means: by id, a unique beginning of it, or title. NotFound, or Ambiguous."""
        return NameResolver(self._core).resolve(name)

    def entries(
        self,
        *,
        order: Order = "updated",
        descending: bool = True,
        limit: int = PAGE,
        offset: int = 0,
        **where: Any,
    ) -> list[IndexEntry]:
        """A page of the index. Filters: kind, root, parent, pinned, status, model, project, user, persona,
        title (a part of it), updated_since, updated_before."""
        return self._core.index.entries(Filter(**where), order, descending=descending, limit=limit, offset=offset)

    def summaries(
        self, *, order: Order = "updated", descending: bool = True, limit: int = PAGE, offset: int = 0, **where: Any
    ) -> list[SessionSummary]:
        """As `entries`, but what a list shows: with a title made from the user's first words where none is set."""
        return self._summaries.page(order, descending=descending, limit=limit, offset=offset, **where)

    def iter_changed(self, since: Timestamp | str) -> Iterator[Session]:
        """Each session that was changed at a moment or since, the earliest first, one in memory at a time."""
        return self._summaries.iter_changed(Timestamp(since))

    def count(self) -> int:
        return self._core.index.count()

    def children(self, session_id: str) -> list[IndexEntry]:
        """The direct children of a session, the oldest first."""
        location = self._core.locate(session_id)
        if location is None:
            return []
        where = Filter(root=location.root, parent=location.id)
        return self._core.index.entries(where, "created", descending=False, limit=-1, offset=0)

    def child_run_statuses(self, session_id: str) -> list[tuple[str, str | None]]:
        """Id and last run status of each direct child."""
        return [(entry.id, entry.last_run_status) for entry in self.children(session_id)]

    def search(
        self, query: str | Query, *, limit: int = 20, by_session: bool = False, snippets: int | None = None
    ) -> list[Hit]:
        """Search messages, titles and state documents, best match first; `by_session`: one hit per session.

        Words, "phrases", prefix*, OR, -not, (groups) and filters; any string is a query, see `store.search.query`.
        `parse_query(text)` gives a Query with hints about likely mistakes. `snippets`: how many of the hits get a
        snippet; None means all.
        """
        parsed = query if isinstance(query, Query) else parse_query(query)
        return find(self._core, parsed, limit, by_session=by_session, snippets=snippets)

    def changes(self, since: Cursor | None = None) -> Changes:
        """What was committed after a cursor, in order, a page at a time; None: nothing yet, and a cursor."""
        return self._core.feed.since(since)

    def wait_changes(self, since: Cursor, timeout_s: float = 1.0) -> Changes:
        """As `changes`, but wait for something to come."""
        return self._core.feed.wait(since, timeout_s)

    def export(self) -> None:
        """Bring sessions.json up to date now, instead of in a moment."""
        self._export()

    def render_index(self) -> bytes:
        """What sessions.json would say now."""
        return self._sessions_json.render()

    def sweep(self, progress: Progress | None = None) -> int:
        """Notice what was changed straight on disk; returns how many sessions were read again."""
        return self._core.sweep(progress)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Make the index anew from the files alone, session by session; returns their number.

        No row is missing meanwhile. If index.db itself is damaged, delete it: opening makes it anew.
        """
        self._core.rebuild(progress)
        self.state.rebuild()
        self.trigrams.rebuild(progress)
        self.projects.rebuild_all()
        self._export()
        return self.count()

    def check(self, *, repair: bool = False, secrets: bool = False, progress: Progress | None = None) -> Report:
        """Look for every kind of damage; `repair` mends what is derived, never a conversation. `secrets` looks for
        likely keys and tokens too."""
        more = [
            check_mail(self._core, self.mail),
            check_records(self._core, self.records),
            check_state(self._core, self.state),
            check_trigrams(self.trigrams),
            check_unexpected_files(self._core),
            *([check_secrets(self._core)] if secrets else []),
            check_projects(self._core, self.projects, self.mail),
        ]
        return run_checks(self._core, self._sessions_json, repair=repair, progress=progress, more=more)

    def health(self, **limits: Any) -> Health:
        """Whether the home works, proved by doing. Limits: deep (read all of the index), min_free_bytes,
        min_free_inodes."""
        return examine(self._core, **limits)

    def status(self) -> dict[str, Any]:
        """How things stand: for people and for monitoring."""
        return {
            "home": str(self.home),
            "sessions": self.count(),
            "durability": self._disk.durability,
            "unfinished": {"/".join(mark): why for mark, why in self._core.journal.index_failures.items()},
            "damaged": {str(k): v for k, v in self._core.index.damaged().items()},
            "bamboo": self._bamboo.activity(),
        }

    # -- attachments and logs ------------------------------------------------------------------------------------

    def attach(self, target: Session | str, data: bytes | str, mime: str | None = None) -> Attachment:
        """Store a file with a session, from bytes, base64 text or a `data:` URL."""
        return self._attachments.attach(target, data, mime)

    def read_attachment(self, session_id: str, attachment_id: str) -> tuple[bytes, str] | None:
        """Bytes and MIME type; None if there is no such session or attachment."""
        layout.check_id(attachment_id)
        location = self._core.locate(session_id)
        path = session_reader.find_attachment(self._disk, location, attachment_id) if location else None
        file = self._disk.read(path) if path else None
        if path is None or file is None:
            return None
        return file.data, attachment_names.extension_to_mime(path.rpartition(".")[2]) or attachment_names.OCTETS

    def resolve_attachment(self, url: str) -> tuple[bytes, str] | None:
        """What a `bamboo-attachment://` reference stands for."""
        parsed = attachment_names.parse_reference(url)
        return self.read_attachment(*parsed) if parsed else None

    def append_token_usage(self, session_id: str, record: str | dict[str, Any]) -> bool:
        """One line for token-usage.jsonl; False, and nothing written, for an unknown id."""
        return self._logs.append_log(session_id, layout.TOKEN_USAGE, record)

    def usage(self, *, since: str = "", prices: Prices | None = None) -> Usage:
        """Sessions, messages and tokens by day (UTC) and model; costs where records or `prices` say them."""
        return gather(self._core, since=since, prices=prices)

    # -- backup ----------------------------------------------------------------------------------------------------

    def backup(self, dest: str | os.PathLike[str], **options: Any) -> BackupSummary:
        """Copy what has changed to a backup at `dest`, see `store.backup`. Options: verify, keep_deleted, force,
        progress."""
        self._export()
        return self.backups.run(dest, **options)

    def restore(self, source: str | os.PathLike[str], *names: str, **options: Any) -> RestoreSummary:
        """Bring back a backup, or the sessions of it that are named, see `store.restoring`. Options: overwrite,
        skip_damaged, dry_run, progress, report."""
        return self.restores.run(source, names, **options)

    # -- one-shot migration ---------------------------------------------------------------------------------------

    def migrate_sidecars(self) -> int:
        """Make a sidecar for every session that has none, once per home; returns how many were made."""
        return migrate_sidecars(self._core, self._putter)


def _location(place: Location | str) -> Location:
    if isinstance(place, Location):
        return layout.check_location(place)
    return layout.parse_location(place) or Location(layout.check_id(place))
