"""Groups of Store methods: `store.trash`, `store.prune`, `store.history`, `store.attachments`,
`store.usage`, `store.maintenance`.

Each group holds the open home and raises Closed once the store is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from store import layout
from store.commit import reindex, session_reader
from store.commit.agreement import Agreement
from store.disk import trash
from store.disk.trash import TrashSlot
from store.documents import attachment_names
from store.errors import LocalOnly, StoreError
from store.history.retention import Retention
from store.history.versions import HistoryState, SavedVersion, Snapshot, VersionTexts, lineage_path
from store.home.history_upkeep import PurgeReport
from store.home.open_home import OpenHome, Progress
from store.home.opening import migrate_sidecars
from store.index.database import now_ns
from store.layout import Location
from store.model.session import Session
from store.search.prices import Prices
from store.search.usage import Usage, gather
from store.sessions.cleanup import CleanupMode, CleanupResult, Plan
from store.sessions.prune import AutoPrune, Keep, PrunePlan, PruneResult
from store.undo.difference import Difference
from store.undo.past_tree import PastTree
from store.undo.undo_plan import UndoPlan, UndoRequest, UndoResult
from store.undo.versions_spec import parse_moment
from store.workspace.agent_records import BATCH, AgentPlan


@dataclass(frozen=True)
class Trash:
    """`store.trash`: deletions of the last seven days."""

    _home: OpenHome

    def deleted(self) -> list[TrashSlot]:
        """List the slots of the trash, newest first."""
        return trash.list_slots(self._home.core.disk)

    def undelete(self, name: str, *, displace: bool = True) -> list[Location]:
        """Restore a slot by its name in `deleted()`; returns the restored sessions.

        Files at its paths go to the trash, or raise AlreadyExists with `displace=False`.
        """
        return self._home.services.deleter.undelete(name, displace=displace)

    def empty(self) -> int:
        """Erase the trash permanently; returns the number of slots erased."""
        return self._home.services.deleter.empty_trash()


@dataclass(frozen=True)
class Prune:
    """`store.prune`: bulk deletion into the trash, always in two steps.

    A plan lists what would be deleted and changes nothing. `apply` checks every item again under its lock and skips
    what changed since. Nothing is pruned automatically unless the store is opened with `auto_prune`.
    """

    _home: OpenHome

    def plan(self, keep: Keep) -> PrunePlan:
        """Plan the deletion of old session trees, by age or number."""
        return self._home.services.pruner.plan(keep)

    def plan_cleanup(self, mode: CleanupMode, *, keep_pinned: bool = True) -> Plan:
        """Plan the deletion of all sessions, of the empty ones, or of all children."""
        return self._home.services.cleanup.plan(mode, keep_pinned=keep_pinned)

    def plan_agents(self, keep: Keep) -> AgentPlan:
        """Plan the deletion of old agent records in `state/agents/`."""
        return self._home.services.agents.plan(keep)

    @overload
    def apply(self, plan: PrunePlan, *, progress: Progress | None = None) -> PruneResult: ...
    @overload
    def apply(self, plan: Plan, *, progress: Progress | None = None) -> CleanupResult: ...
    @overload
    def apply(self, plan: AgentPlan, *, batch: int = BATCH, progress: Progress | None = None) -> list[str]: ...

    def apply(
        self, plan: PrunePlan | Plan | AgentPlan, *, batch: int = BATCH, progress: Progress | None = None
    ) -> PruneResult | CleanupResult | list[str]:
        """Delete what a plan lists. Agent records are deleted in batches, one commit each; returns their names."""
        services = self._home.services
        if isinstance(plan, PrunePlan):
            return services.pruner.apply(plan, progress)
        if isinstance(plan, Plan):
            return services.cleanup.apply(plan, progress)
        return services.agents.apply(plan, batch=batch, progress=progress)

    def run_if_due(self, auto: AutoPrune) -> PruneResult | None:
        """Plan and apply, unless any process did so within the cooldown or every session would be deleted."""
        return self._home.services.pruner.run_if_due(auto)


@dataclass(frozen=True)
class PastVersions:
    """`store.history`: the versions of sessions, records, project payloads and state documents.

    `what` is a session, by id or Location, or the path of another kept file, such as `state/notes/plan.md`.
    """

    _home: OpenHome

    def path_of(self, what: str | Location) -> str:
        """The path whose versions are meant. A session that no longer exists keeps the path it had."""
        if isinstance(what, Location):
            return what.dir
        if what.partition("/")[0] in (*layout.STORED, layout.PRIVATE):
            return lineage_path(what)
        location = self._home.core.locate(what) or layout.parse_location(what) or Location(what)
        return location.dir

    def log(
        self, what: str | Location, *, limit: int = 20, before: int | None = None, fetch: bool = False
    ) -> list[SavedVersion]:
        """List versions, newest first; `before` is the number to continue from.

        With `fetch`, a host of a grove asks the database for versions from before it joined, if the list reaches them.
        """
        path = self.path_of(what)
        if fetch:
            return self._home.services.versions.fetch_log(path, limit=limit, before=before)
        return self._home.core.history.log(path, limit=limit, before=before)

    def host_of(self, version: SavedVersion) -> str:
        """The name of the host that made a version; "" if the home belongs to no grove."""
        here = self._home.core.agreement.host_name
        is_here = version.made_ns is None or not here
        return here if is_here else version.author.program.rpartition("@")[2]

    def find(self, what: str | Location, number: int) -> SavedVersion | None:
        """Return a version by its number; None if it is not kept."""
        return self._home.core.history.find(self.path_of(what), number)

    def find_shown(self, what: str | Location, number: int) -> SavedVersion | None:
        """Return the version that people mean by a number: in a grove, its number there."""
        return self._home.core.history.find_shown(self.path_of(what), number)

    def at(self, what: str | Location, at_ns: int) -> SavedVersion | None:
        """Return the version that was current at a moment; None before the first."""
        return self._home.core.history.at(self.path_of(what), at_ns)

    def between(self, since_ns: int, until_ns: int) -> Iterator[SavedVersion]:
        """Iterate over all versions of a span of time, in the order of recording."""
        return self._home.core.history.between(since_ns, until_ns)

    def read(self, version: SavedVersion) -> VersionTexts:
        """Return the texts of a version: session.json and runtime.json, or the one file."""
        return self._home.core.history.read(version)

    # -- as people name them -----------------------------------------------------------------------

    def resolve(self, text: str) -> tuple[str, str | None]:
        """The path that `ID`, `ID@V` or `PATH@V` means, and V if there is one. NotFound, Ambiguous."""
        return self._home.services.versions.split(text)

    def get(self, path: str, version: str) -> SavedVersion:
        """Return the version that a person means: a number, -1, 2h, 10:32, a date. NotFound says what is kept."""
        return self._home.services.versions.get(path, version)

    def get_newest(self, path: str) -> SavedVersion:
        """Return the newest version. NotFound if nothing has been recorded."""
        return self._home.services.versions.get_newest(path)

    def newest(self, what: str | Location) -> SavedVersion | None:
        """Return the newest version; None if nothing has been recorded."""
        return self._home.core.history.newest(self.path_of(what))

    def before(self, version: SavedVersion) -> SavedVersion | None:
        """Return the version before one; None if it is the first or no longer kept."""
        return self._home.services.versions.before(version)

    def name_of(self, path: str) -> str:
        """Return the name of a path for people: `root/child`, or the path of a file that is not a session's."""
        return self._home.services.versions.name_of(path)

    def children_of(self, root: str) -> list[str]:
        """List the children of a root that have versions, in order."""
        directory = f"{Location(root).dir}/{layout.CHILDREN}"
        paths = self._home.core.history.paths_below(directory)
        return [name for path in paths if "/" not in (name := path[len(directory) + 1 :])]

    # -- differences -------------------------------------------------------------------------------

    def diff(self, old: SavedVersion | None, new: SavedVersion) -> Difference:
        """Compare two versions; `old` None compares with nothing."""
        return self._home.services.versions.difference(old, new)

    def summaries(self, versions: Sequence[SavedVersion]) -> list[str]:
        """Say in a few words what each of some consecutive versions, newest first, changed."""
        return self._home.services.versions.summaries(versions)

    def load(self, version: SavedVersion) -> Session:
        """Return the session of a version. It cannot be saved: `revert` brings a version back."""
        return self._home.services.versions.load(version).session

    def transcript(self, version: SavedVersion, message: int | None = None, *, marked: bool = False) -> str:
        """Render the conversation of a version as Markdown, or one message of it."""
        services = self._home.services
        return services.transcripts.text_of(services.versions.load(version), message, marked=marked)

    # -- going back --------------------------------------------------------------------------------

    def revert(self, version: SavedVersion) -> bool:
        """Bring a version back, as a new one; False if the present content is the same."""
        return self._home.services.reverter.revert(version)

    def would_revert(self, version: SavedVersion) -> bool:
        """Whether `revert` would change something; changes nothing."""
        return self._home.services.reverter.would_revert(version)

    def plan_undo(
        self,
        *,
        since: str,
        until: str = "now",
        by: str | None = None,
        merge: bool = False,
        names: Iterable[str] | None = None,
    ) -> UndoPlan:
        """Plan to take back the changes of a span of time; changes nothing.

        `by` is a pattern for the author. `merge` takes changes out from between those of others.
        """
        now = now_ns()
        begin, end = parse_moment(since, now).start_ns, parse_moment(until, now).end_ns
        lookup, host = self._home.services.versions, self._home.core.agreement.host_name
        paths = frozenset(map(lookup.path_of, names)) if names else None
        return self._home.services.undoer.plan(UndoRequest(begin, end, by, paths, merge, host))

    def undo(self, plan: UndoPlan, *, progress: Progress | None = None) -> UndoResult:
        """Undo what a plan lists. Each item is decided again under its lock."""
        return self._home.services.undoer.apply(plan, progress)

    # -- moments -----------------------------------------------------------------------------------

    def is_kept(self, at_ns: int) -> bool:
        """Whether anything is known of a moment: not in the future, nor before the oldest version."""
        return self._home.services.moments.is_kept(at_ns)

    def tree_at(self, at_ns: int) -> PastTree:
        """Return the files of the home at a moment."""
        return self._home.services.moments.tree(at_ns)

    def snapshot(self, name: str, *, progress: Progress | None = None) -> Snapshot:
        """Give this moment a name. AlreadyExists if it is in use.

        Sessions that have no version, as in a home of an older GroveFS, get one first.
        """
        return self._home.services.moments.take_snapshot(name, progress)

    def delete_snapshot(self, name: str) -> None:
        """Delete a name; its versions may then be thinned out. NotFound."""
        self._home.core.history.delete_snapshot(name)

    def snapshots(self) -> list[Snapshot]:
        """List the snapshots, newest first."""
        return self._home.core.history.snapshots()

    # -- size and removal --------------------------------------------------------------------------

    def thin(self, retention: Retention | None = None, *, progress: Progress | None = None) -> int:
        """Remove versions that are too old, as the background thread does once an hour; returns how many."""
        upkeep = self._home.upkeep
        return (upkeep if retention is None else replace(upkeep, retention=retention)).thin(progress)

    def purge(self, *what: str | Location, matching: str | None = None) -> PurgeReport:
        """Remove past texts permanently: those that match a regular expression, or all but the present ones.

        Without `what`, of everything; then `matching` is required. The present files are never changed.
        """
        self._home.check_writable()
        if self._home.core.agreement.is_joined:
            raise LocalOnly(
                "this home belongs to a grove, whose log and other hosts would keep the texts: purging does not cross "
                "hosts yet. Leave the grove first, on every host; nothing was changed"
            )
        return self._home.upkeep.purge([self.path_of(each) for each in what] or None, matching)

    def state(self, *, probe: bool = False) -> HistoryState:
        """Return whether versions are kept now, how many there are, and their size. `probe` tries to write."""
        return self._home.core.history.state(probe=probe)


@dataclass(frozen=True)
class AttachmentReader:
    """`store.attachments`: the bytes of attachments. `store.attach` adds them."""

    _home: OpenHome

    def read(self, session_id: str, attachment_id: str) -> tuple[bytes, str] | None:
        """Return bytes and MIME type; None if there is no such session or attachment."""
        layout.check_id(attachment_id)
        core = self._home.core
        location = core.locate(session_id)
        path = session_reader.find_attachment(core.disk, location, attachment_id) if location else None
        file = core.disk.read(path) if path else None
        if path is None or file is None:
            return None
        return file.data, attachment_names.extension_to_mime(path.rpartition(".")[2]) or attachment_names.OCTET_STREAM

    def resolve(self, url: str) -> tuple[bytes, str] | None:
        """Read the attachment behind a `bamboo-attachment://` URL; None for any other URL."""
        parsed = attachment_names.parse_reference(url)
        return self.read(*parsed) if parsed else None


@dataclass(frozen=True)
class TokenUsage:
    """`store.usage`: the records in each session's token-usage.jsonl, and their totals."""

    _home: OpenHome

    def append(self, session_id: str, record: str | dict[str, Any]) -> bool:
        """Append one record; False, and nothing written, for an unknown id."""
        return self._home.services.logs.append_log(session_id, layout.TOKEN_USAGE, record)

    def totals(self, *, since: str = "", prices: Prices | None = None) -> Usage:
        """Count sessions, messages and tokens by local day, model and project.

        Costs come from the records or from `prices`.
        """
        return gather(self._home.core, since=since, prices=prices)


@dataclass(frozen=True)
class Maintenance:
    """`store.maintenance`: index, sessions.json and status of the home as a whole."""

    _home: OpenHome

    def sweep(self, progress: Progress | None = None) -> int:
        """Re-index sessions whose files were changed by other programs; returns their number."""
        return reindex.sweep(self._home.core, progress)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Rebuild the index from the files, session by session; returns the number of sessions.

        Searches meanwhile miss nothing. If index.db itself is damaged, close all stores and mounts, then delete it:
        opening the home creates a new one.
        """
        core, services = self._home.core, self._home.services
        reindex.rebuild(core, progress)
        services.state.rebuild()
        services.trigrams.rebuild(progress)
        services.projects.rebuild_all()
        self._home.export()
        return core.index.count()

    def export_sessions_json(self) -> None:
        """Bring sessions.json up to date now. The background thread does it half a second after a commit."""
        self._home.export()

    def render_sessions_json(self, shows: Callable[[str], bool] | None = None) -> bytes:
        """Render sessions.json from the index without writing it; `shows` selects sessions by directory."""
        return self._home.sessions_json.render(shows)

    def migrate_sidecars(self) -> int:
        """Write a sidecar for every session that has none, once per home; returns how many were written."""
        return migrate_sidecars(self._home.core, self._home.services.putter)

    def check_writable(self) -> None:
        """Raise BambooAtWork while a Bamboo server uses this home."""
        self._home.check_writable()

    def status(self, *, probe: bool = False) -> dict[str, Any]:
        """Return the state of the home for people and monitoring: pending commits, damaged sessions, a server.

        `probe` also tries whether the history can be written.
        """
        core = self._home.core
        missed = len(core.journal.missed.versions())
        return {
            "home": str(self._home.path),
            "sessions": core.index.count(),
            "durability": core.disk.durability,
            "unfinished": {"/".join(entry): why for entry, why in core.journal.index_failures.items()},
            "damaged": {str(location): why for location, why in core.index.damaged().items()},
            "bamboo": self._home.bamboo.activity(),
            "refuses_writes": self._home.bamboo.refusal(),
            "grove_refuses_writes": _refusal(core.agreement),
            "history": {**core.history.state(probe=probe).as_json(), "missed": missed},
        }

    def erase_all(self) -> None:
        """Erase every session, the index and the trash permanently. For development."""
        core = self._home.core
        core.check_writable()
        core.disk.remove(layout.IMPORT_LEDGER)  # what was imported before can be imported again
        for root in core.disk.directories(layout.SESSIONS):
            with core.locks.tree(root):
                core.disk.remove_tree(f"{layout.SESSIONS}/{root}")
        for entry in [*core.disk.entries(layout.TRASH)]:
            core.disk.remove_tree(f"{layout.TRASH}/{entry.name}")
        reindex.sweep(core)
        self._home.export()


def _refusal(agreement: Agreement) -> str | None:
    """Why nothing can be written in a home of a grove now; None if it can. Asks nobody."""
    try:
        agreement.check()
    except StoreError as error:
        return str(error)
    return None
