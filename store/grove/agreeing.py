"""GroveAgreement: the consent of a grove to the commits of this home.

`agree` asks for it with one statement. The same statement with the same token is sent again if the
connection is lost: the server then either does it, or finds that the first one has done it. Without
an answer until the deadline the outcome is unknown (Unsure).

`repeat` runs an operation again after another host was faster. It holds the local lock, then the row
of the unit, pulls the newest version, and runs the operation under both, so that no host starves.
The order is always local lock, then row: the other order deadlocks across processes of one home.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import apsw
import psycopg

from store.commit.agreement import PastText, Stale
from store.commit.commit import AgreedVersion, Commit
from store.commit.core import Core
from store.disk.file import File, NewFile, Stamp, Temp
from store.errors import Busy, NotFound, ReadOnly, StoreError, Unreachable, Unsure
from store.grove import queries
from store.grove.applying import apply_rows
from store.grove.chains import LongChains
from store.grove.connection import DEADLOCKED, DeadlineConnection, GroveServer, is_lost, now_s
from store.grove.deletions import Deletions
from store.grove.hints import HintSender
from store.grove.log_history import LogHistory
from store.grove.outside import OutsideEdits, SetAside
from store.grove.prefix_digests import PrefixDigests
from store.grove.proposing import EditedOutside, Proposal, Proposals
from store.grove.replica import AgreedFile, Replica
from store.grove.row_plan import OutsideEdit
from store.grove.statement import (
    STALE_STATE,
    agreed_versions,
    compact,
    parameters,
    prepared_for,
    statement_for,
    tree_change,
)
from store.grove.units import is_unit, location_of, shard_of, unit_of
from store.grove.wire import CHUNK_BYTES, Gone, LogRow, Whole, decode_ops
from store.history.authors import current_author
from store.history.texts import said_ns_of
from store.layout import Location

log = logging.getLogger("grovefs.store")

T = TypeVar("T")

MIN_FREE_BYTES = 64 << 20  # what is agreed to must fit into this home too
REPEAT_S = 10.0  # how long an operation is repeated before it is Busy
_PROBLEM_S = 0.5  # how long an answer of `Replica.problem` is used
_RESEND_S = 0.05
_LAST_QUERY_S = 0.5  # for finding out, after the deadline, what became of an attempt


class _Warned(psycopg.OperationalError):  # type: ignore[misc, unused-ignore]
    """The server has committed, with a warning: it stopped waiting for its standby, which may lack the commit."""


class _Held(NamedTuple):
    """Rows that a connection has locked: of one unit, or of a tree with all its units."""

    root: str
    unit: str | None
    connection: DeadlineConnection

    def covers(self, values: dict[str, Any]) -> bool:
        """Whether the statement with these values changes only what is held."""
        if self.connection.closed or values["root"] != self.root:
            return False
        return self.unit is None or (values["units"] == [self.unit] and not values["atomic"])


class _ThreadState(threading.local):
    """What one thread is doing."""

    is_repeating = False
    deadline: float | None = None  # of the agreement in progress
    held: _Held | None = None
    meanwhile: Callable[[], None]  # what to do while the database works

    def __init__(self) -> None:
        self.set_aside: list[SetAside] = []  # outside edits to merge once no lock is held
        self.meanwhile = _nothing


class GroveAgreement:
    """The agreement of a joined home. Thread-safe."""

    is_joined = True

    def __init__(self, core: Core, replica: Replica, server: GroveServer) -> None:
        self.core = core
        self.replica = replica
        self.server = server
        self._membership = replica.membership
        self._local = _ThreadState()
        self._problem: tuple[float, str] = (0.0, "")
        self.outside = OutsideEdits(core, replica, self)
        self.deletions = Deletions(core, replica, self.outside, self)
        self.chains = LongChains(server, replica, self.fetch_chunk)
        self._prefixes = PrefixDigests()
        self._hints = HintSender(self._membership.url, self._membership.host)

    # -- the journal's side ------------------------------------------------------------------------

    def check(self) -> None:
        self._check_home()
        self.server.check()

    def _check_home(self) -> None:
        checked_at, problem = self._problem
        if not checked_at or time.monotonic() - checked_at > _PROBLEM_S:
            problem = self.replica.problem()
            self._problem = (time.monotonic(), problem)
        if problem:
            raise ReadOnly(f"{problem}; nothing is written until `grovefs grove rejoin`")

    def agree(self, commit: Commit, temps: Sequence[str], meanwhile: Callable[[], None]) -> list[AgreedVersion]:
        self._local.meanwhile = meanwhile
        try:
            host = self._membership.host
            found = Proposals(self.core.disk, self.replica, host, commit, temps, self._prefixes).result()
            if not found:
                return []
            self.check()
            self._require_space()
            return self._agree(found)
        except EditedOutside as error:  # a missing file comes back under the lock of the tree
            raise self._stale(commit, location_of(error.unit), whole_tree=error.is_missing) from None
        except Stale as stale:
            raise self._stale(commit, stale.location, whole_tree=stale.whole_tree) from None
        finally:
            self._local.meanwhile = _nothing

    def _stale(self, commit: Commit, location: Location, *, whole_tree: bool) -> StoreError:
        """What a commit raises that has to be repeated on top of something else."""
        if any(not isinstance(file.content, Temp | list | tuple) for file in commit.files):
            # An iterator has been read: repeating the operation would store what is left of it.
            return Busy(f"{location} was changed by another program or host; nothing was changed here, try again")
        return Stale(location, whole_tree=commit.whole_tree or whole_tree)

    def _require_space(self) -> None:
        info = os.statvfs(self.core.home)
        if info.f_bavail * info.f_frsize < MIN_FREE_BYTES:
            text = f"less than {MIN_FREE_BYTES >> 20} MiB are free, and what the grove agrees to must fit"
            raise OSError(errno.ENOSPC, text, str(self.core.home))

    def record(self, agreed: Sequence[AgreedVersion], stamps: Mapping[str, Stamp | None]) -> None:
        try:
            self.replica.record_agreed(agreed, stamps)
        except (apsw.Error, OSError, StoreError) as error:
            log.warning("%s: version %d is in place but not recorded: %s", agreed[0].unit, agreed[0].version, error)

    def fall_behind(self, agreed: Sequence[AgreedVersion], why: str) -> None:
        for version in agreed:
            try:
                self.replica.note_behind(version.unit, why)
            except (apsw.Error, OSError, StoreError) as error:
                log.warning("%s is behind, which cannot be recorded: %s", version.unit, error)

    def past_texts(self, path: str, said_ns: int) -> list[PastText]:
        try:
            found = [*self.outside.past.logged_texts(path)]
        except StoreError as error:
            log.info("%s: older versions cannot be read from the grove: %s", path, error)
            return []
        return [PastText(row.version, row.at_ns, text) for row, text in found if said_ns_of(text) == said_ns]

    def fill_history(self, path: str) -> int:
        return LogHistory(self.core, self.rows_until, self.fetch_chunk).fill(path)

    def fill_history_between(self, since_ns: int, until_ns: int) -> None:
        try:
            units = self.server.run(lambda connection: queries.units_changed_between(connection, since_ns, until_ns))
        except StoreError as error:
            log.info("versions from before this host joined cannot be read from the grove: %s", error)
            return
        history = LogHistory(self.core, self.rows_until, self.fetch_chunk)
        for unit in filter(is_unit, units):
            history.fill_unit(unit)

    @property
    def host_name(self) -> str:
        return self._membership.name

    def note_change(self, location: Location) -> None:
        self.outside.note(location)

    def is_claimed_elsewhere(self, path: str) -> bool:
        unit = unit_of(path)
        host = self.replica.claim_of(unit, path[len(unit) + 1 :]) if unit is not None else None
        return host is not None and host != self._membership.host

    def unsure_claims(self, location: Location) -> list[str]:
        unit = location.dir
        found = [f"{unit}/{path}" for path in self.replica.unsure_claims(unit)]
        return [path for path in found if not self.is_claimed_elsewhere(path)]

    def forget_unsure(self, location: Location, paths: Sequence[str]) -> None:
        unit = location.dir
        if self.replica.unsure_claims(unit):
            self.replica.forget_unsure(unit, [path[len(unit) + 1 :] for path in paths])

    def close(self) -> None:
        self._hints.close()
        self.server.close()
        self.replica.close()

    # -- agreeing ----------------------------------------------------------------------------------

    def _agree(self, proposals: Sequence[Proposal]) -> list[AgreedVersion]:
        """Agree within the deadline: the local lock is not held any longer. Sending long files takes what it takes."""
        self._send_chunks(proposals)
        self._local.deadline = now_s() + self.server.deadline_s
        try:
            return self._agree_now(proposals)
        finally:
            self._local.deadline = None

    def _run(self, work: Callable[[DeadlineConnection], T]) -> T:
        """Ask the database something, within the deadline of the agreement in progress."""
        deadline = self._local.deadline
        left_s = max(_LAST_QUERY_S, deadline - now_s()) if deadline is not None else None
        return self.server.run(work, deadline_s=left_s)

    def _agree_now(self, proposals: Sequence[Proposal]) -> list[AgreedVersion]:
        place = location_of(proposals[0].unit)
        shard = shard_of(place.root, self._membership.shards)
        token, tree = str(uuid.uuid4()), tree_change(proposals)
        known = self.replica.newest_known(shard)  # before the statement: this home goes on writing meanwhile
        gone = [proposal.unit for proposal in proposals if proposal.is_gone] if tree != "kept" else []
        author = current_author(self.core.history.author)
        values = parameters(proposals, token, shard, tree) | {
            "epoch": self._membership.epoch,
            "known_seq": known.seq if known is not None else 0,
            "host": self._membership.host,
            "what": self._what(proposals),
            "via": author.via,
            "program": author.program,
            "generation": self._generation(place.root, gone) if gone else None,
        }
        try:
            seq = self._decide(values)
        except Unsure:
            self._note_unsure(proposals)
            raise
        self._hints.send()
        agreed = agreed_versions(proposals, token, shard, seq)
        self.chains.note(agreed)
        return agreed

    def _note_unsure(self, proposals: Sequence[Proposal]) -> None:
        """Remember messages that may be claimed now: no other host will ever get them."""
        for proposal in proposals:
            claimed = [path for path, host in proposal.claims.items() if host == self._membership.host]
            if claimed:
                self.replica.note_unsure(proposal.unit, claimed)

    def _what(self, proposals: Sequence[Proposal]) -> str:
        if any(proposal.is_gone for proposal in proposals):
            return "deleted"
        return "created" if any(proposal.is_new for proposal in proposals) else "saved"

    def _generation(self, root: str, gone: Sequence[str]) -> int | None:
        """The generation of a tree in which this home knows all units that a deletion takes along."""

        def ask(connection: DeadlineConnection) -> int | None:
            generation = queries.generation_of(connection, root, self._membership.shards)
            for head in queries.heads_of_root(connection, root, self._membership.shards):
                if not any(f"{head.unit}/".startswith(f"{unit}/") for unit in gone):
                    continue
                known = self.replica.find_unit(head.unit)
                if known is None or (known.version, known.token) != (head.version, head.token):
                    raise Stale(location_of(head.unit), whole_tree=True)
            return generation

        return self._run(ask)

    def _decide(self, values: dict[str, Any]) -> int:
        """Send the statement until its outcome is known. Returns the seq of the last row."""
        deadline = self._local.deadline or now_s() + self.server.deadline_s
        is_sent = False
        while True:
            try:
                connection, is_held = self._connection_for(values, deadline)
            except Unreachable as error:
                raise (self._unsure(error) if is_sent else error) from error
            try:
                seq = self._send(connection, values, is_held=is_held)
            except psycopg.Error as error:
                self._drop(connection)
                if isinstance(error, _Warned):
                    raise self._unsure(error) from error
                if error.sqlstate == STALE_STATE:
                    return self._find_own(values, is_sent=is_sent)
                if error.sqlstate in DEADLOCKED and now_s() < deadline:
                    time.sleep(_RESEND_S)
                    continue
                if not is_lost(error):  # an earlier attempt may have succeeded
                    raise (self._unsure(error) if is_sent else self.server.meaning_of(error)) from error
                is_sent = True
                if now_s() >= deadline:
                    self.server.refuse(Unreachable(f"the database of the grove does not answer: {error}"))
                    raise self._unsure(error) from error
                time.sleep(_RESEND_S)
                continue
            if not is_held:
                self.server.give_back(connection)
            return seq if seq is not None else self._find_own(values, is_sent=is_sent)

    def _connection_for(self, values: dict[str, Any], deadline: float) -> tuple[DeadlineConnection, bool]:
        held = self._local.held
        if held is not None and held.covers(values):
            held.connection.deadline = deadline
            return held.connection, True
        return self.server.take(deadline), False

    def _send(self, connection: DeadlineConnection, values: dict[str, Any], *, is_held: bool) -> int | None:
        """Returns None if nothing was agreed to. A row that is held is committed in the same round trip."""
        if is_held:
            seq = _execute_and_commit(connection, compact(values))
        else:
            found = prepared_for(values).run(connection, values, self._local.meanwhile)
            seq = int(found) if found is not None else None
        if connection.warnings:  # such as: committed locally, but perhaps not replicated
            raise _Warned("the database warned about this commit")
        return seq

    def _drop(self, connection: DeadlineConnection) -> None:
        with suppress(psycopg.Error, OSError):
            connection.close()

    def _find_own(self, values: dict[str, Any], *, is_sent: bool) -> int:
        """After a refusal: the seq, if an earlier attempt with this token was agreed to. Raises Stale, or why.

        `is_sent`: there was an earlier attempt, so without an answer the outcome is unknown.
        """

        shard = values["shard"]
        known = self.replica.newest_known(shard)

        def ask(connection: DeadlineConnection) -> tuple[int | None, Any, bool, bool]:
            rows = queries.find_token(connection, shard, values["units"], values["token"])
            state = connection.execute("SELECT epoch::text, frozen FROM grove.grove").fetchone()
            is_gone = queries.is_tree_gone(connection, shard, values["root"])
            is_lost = known is not None and bool(queries.lost_shards(connection, {shard: known}))
            return (rows[-1][0] if rows else None), state, is_gone, is_lost

        try:
            seq, state, is_gone, is_history_lost = self._run(ask)
        except (Unreachable, Busy) as error:
            raise (self._unsure(error) if is_sent else error) from error
        if seq is not None:
            return seq
        if state is None or state[0] != values["epoch"] or state[1] is not None:
            why = state[1] if state and state[1] else "its history was replaced"
            refusal = ReadOnly(f"the grove is frozen: {why}; nothing was changed. See `grovefs grove status`")
            self.server.refuse(refusal)
            raise refusal
        if is_history_lost:
            why = f"the database has lost commits that host {self._membership.name} has (shard {shard})"
            refusal = self._freeze(why)
            raise self._unsure(refusal) if is_sent else refusal
        root = self.replica.find_unit(Location(values["root"]).dir)
        if values["tree"] == "below" and is_gone and root is not None and root.is_gone:
            raise NotFound(f"session {values['root']} was deleted on another host; nothing was changed")
        raise Stale(location_of(values["units"][0]), whole_tree=values["atomic"])

    def _freeze(self, why: str) -> ReadOnly:
        """A pool of connections or a virtual address leads to another server now, or this one was restored."""
        self.replica.set_problem(why)
        self.server.freeze(why)
        refusal = ReadOnly(f"the grove is frozen: {why}; nothing was changed. See `grovefs grove status`")
        self.server.refuse(refusal)
        return refusal

    def _unsure(self, error: BaseException) -> Unsure:
        return Unsure(
            f"outcome unknown: the database of the grove did not answer ({str(error).splitlines()[0]}). "
            "The change may still appear; look before you repeat it"
        )

    def _send_chunks(self, proposals: Sequence[Proposal]) -> None:
        """Store the chunks that the grove does not have, and renew the others. One at a time: each has its deadline."""
        sources = {digest: source for proposal in proposals for digest, source in proposal.chunks.items()}
        if not sources:
            return
        digests = list(sources)

        def renew(connection: DeadlineConnection) -> set[bytes]:
            rows = connection.execute(
                "UPDATE grove.chunks SET seen = current_date WHERE sha256 = ANY(%s) RETURNING sha256", (digests,)
            )
            return {bytes(digest) for (digest,) in rows}

        present = self._run(renew)
        for digest, source in sources.items():
            if digest not in present:
                data = queries.pack_chunk(self._read_chunk(source.path, source.offset))
                self._run(partial(_insert_chunk, row=(digest, data)))

    def _read_chunk(self, path: str, offset: int) -> bytes:
        fd = self.core.disk.open_to_read(path)
        try:
            return os.pread(fd, CHUNK_BYTES, offset)
        finally:
            os.close(fd)

    # -- repeating ---------------------------------------------------------------------------------

    def repeat(self, work: Callable[[], T]) -> T:
        if self._local.is_repeating:
            return work()  # the outermost operation is repeated as a whole
        self._local.is_repeating = True
        try:
            return self._repeat(work)
        finally:
            self._local.is_repeating = False
            self.merge_set_aside()

    def merge_set_aside(self) -> None:
        """Merge the outside edits that were found on the way, as operations of their own."""
        while self._local.set_aside:
            self.outside.merge(self._local.set_aside.pop())

    def _repeat(self, work: Callable[[], T]) -> T:
        until = time.monotonic() + REPEAT_S
        stale: Stale | None = None
        while True:
            try:
                with ExitStack() as stack:
                    if stale is not None:
                        self._catch_up(stale, stack)
                    return work()
            except Stale as found:
                stale = found
            if time.monotonic() > until:
                raise Busy(f"{stale.location} keeps changing on other hosts; nothing was changed, try again")

    def _catch_up(self, stale: Stale, stack: ExitStack) -> None:
        """Hold the local lock and the row, and pull what other hosts did."""
        if stale.whole_tree:
            stack.enter_context(self.core.locked_tree(stale.location.root))
            stack.enter_context(self._rows_held(stale.location.root, None))
            self.pull_tree(stale.location.root)
            for unit in self.replica.units_of(stale.location.root):
                self.outside.fetch_missing(unit)
                self._settle_locked(unit)
            return
        stack.enter_context(self.core.locked(stale.location))
        stack.enter_context(self._rows_held(stale.location.root, stale.location.dir))
        self._pull_held(stale.location)
        self._settle_locked(stale.location.dir)

    def _pull_held(self, location: Location) -> None:
        held = self._local.held
        assert held is not None
        try:
            self._pull(location, held.connection)
        except psycopg.Error:  # the server ended the transaction while this host was stopped: continue without it
            self._drop(held.connection)
            self._pull(location)

    @contextmanager
    def _rows_held(self, root: str, unit: str | None) -> Iterator[None]:
        """Hold the row of a unit, or those of a tree, on a connection of its own.

        A server that ends the connection leaves compare-and-set.
        """
        connection = self.server.take(now_s() + self.server.deadline_s)
        try:
            connection.autocommit = False
            queries.lock_rows(connection, shard_of(root, self._membership.shards), root, unit)
            self._local.held = _Held(root, unit, connection)
            yield
        except psycopg.Error as error:
            self._drop(connection)
            raise self.server.meaning_of(error) from error
        finally:
            self._local.held = None
            self._let_go(connection)

    def _let_go(self, connection: DeadlineConnection) -> None:
        try:
            connection.rollback()
            connection.autocommit = True
        except psycopg.Error:  # the server has ended it, and the row lock with it
            self._drop(connection)
        else:
            self.server.give_back(connection)

    # -- outside edits -------------------------------------------------------------------------------

    def settle_unit(self, unit: str) -> None:
        """Publish, merge or reject what other programs did to a unit on disk. The caller holds no lock of it."""
        location = location_of(unit)

        def settle() -> None:
            is_missing = bool(self.outside.missing(unit))
            with self.core.locked_tree(location.root) if is_missing else self.core.locked(location):
                if is_missing:
                    self.outside.fetch_missing(unit)
                self._settle_locked(unit)

        self.repeat(settle)

    def _settle_locked(self, unit: str) -> None:
        self._local.set_aside += self.outside.settle_locked(unit)

    def publish_present(
        self, unit: str, edits: Sequence[OutsideEdit], texts: Mapping[str, bytes]
    ) -> list[AgreedVersion]:
        """Publish files as they are on disk. `texts` are the agreed ones, by path. Raises Stale or Busy."""
        known = self.replica.files(unit)
        commit = Commit(location_of(unit), [_edited_file(unit, edit, texts, known) for edit in edits])
        paths = [edit.path for edit in edits]
        found = Proposals(self.core.disk, self.replica, self._membership.host, commit, paths).result()
        digests = {proposal.path(name): digest for proposal in found for name, digest in proposal.digests.items()}
        if any(digests.get(edit.path) != edit.digest for edit in edits):
            raise Busy(f"{unit} is being written by another program; nothing was published yet")
        self.check()
        agreed = self._agree(found)
        stamps = {edit.path: edit.stamp for edit in edits}
        self.replica.record_agreed(agreed, stamps)
        return agreed

    # -- pulling -----------------------------------------------------------------------------------

    def refresh(self, location: Location) -> None:
        try:
            with self.core.locked(location):
                self._pull(location)
        except Stale as stale:
            with self.core.locked_tree(stale.location.root):
                self.pull_tree(stale.location.root)
        if not self._local.is_repeating:
            self.merge_set_aside()

    def _pull(self, location: Location, connection: DeadlineConnection | None = None) -> None:
        """Bring a unit to its newest version. The caller holds its lock."""
        unit = location.dir
        known = self.replica.find_unit(unit)
        rows = self._rows_of(unit, known.version if known else 0, connection)
        # What deletes a unit or creates a session needs the lock of the tree, which cannot be had under that of one.
        of_tree = Whole | Gone if location.is_session else Gone
        if any(isinstance(o, of_tree) for row in rows for o in decode_ops(row.ops, unit)):
            raise Stale(location, whole_tree=True)
        self._apply(rows)

    def _apply(self, rows: Sequence[LogRow]) -> None:
        edits = apply_rows(self.core, self.replica, rows, self.fetch_chunk)
        self._local.set_aside += self.outside.judge_replaced(edits)

    def pull_tree(self, root: str) -> None:
        """Bring all units of a root to their newest versions. The caller holds the lock of the tree."""
        self.deletions.apply(root)
        for unit, version in self._outdated_units(root).items():
            self._apply(self._rows_of(unit, version))

    def deletions_of(self, root: str) -> list[LogRow]:
        """The deletions in a tree that this home has not applied, in their order."""
        versions, shard = self._outdated_units(root), shard_of(root, self._membership.shards)
        return self.server.run(lambda c: queries.deletions_after(c, shard, versions)) if versions else []

    def _outdated_units(self, root: str) -> dict[str, int]:
        """The units of a root that are newer in the grove, with their versions here; 0: it is not here."""
        heads = self.server.run(lambda c: queries.heads_of_root(c, root, self._membership.shards))
        found: dict[str, int] = {}
        for head in heads:
            if not is_unit(head.unit) or location_of(head.unit).root != root:
                continue  # written by a broken host
            known = self.replica.find_unit(head.unit)
            if known is None or (known.version, known.token) != (head.version, head.token):
                found[head.unit] = known.version if known is not None else 0
        return found

    def _rows_of(self, unit: str, after: int, connection: DeadlineConnection | None = None) -> list[LogRow]:
        root = location_of(unit).root

        def ask(used: DeadlineConnection) -> list[LogRow]:
            return queries.rows_of_unit(used, unit, root, self._membership.shards, after)

        return ask(connection) if connection is not None else self.server.run(ask)

    def rows_until(self, unit: str, version: int) -> list[LogRow]:
        root, shards = location_of(unit).root, self._membership.shards
        return self.server.run(lambda c: queries.all_rows_of_unit(c, unit, root, shards, version))

    def rows_of_version(self, unit: str, version: int) -> list[LogRow]:
        """The rows that make up a version of a unit, from a whole one on. Raises BadRow if the log does not have it."""
        root, shards = location_of(unit).root, self._membership.shards
        return self.server.run(lambda c: queries.rows_of_version(c, unit, root, shards, version))

    def fetch_chunk(self, digest: bytes) -> bytes:
        return self.server.run(lambda connection: queries.chunk(connection, digest))


def _execute_and_commit(connection: DeadlineConnection, values: dict[str, Any]) -> int | None:
    """In one round trip. A refusal is raised after the pipeline has ended: before, psycopg would log a warning."""
    cursor = connection.cursor()
    refused: psycopg.Error | None = None
    try:
        with connection.pipeline():
            try:
                cursor.execute(statement_for(values), values)
                connection.commit()
            except psycopg.Error as error:
                refused = error
    except psycopg.Error as error:  # of the commit: the pipeline was aborted
        raise refused or error from error
    if refused is not None:
        raise refused
    row = cursor.fetchone()
    return int(row[0]) if row is not None and row[0] is not None else None


def _nothing() -> None:
    """The work of an agreement that has none of its own."""


def _edited_file(unit: str, edit: OutsideEdit, texts: Mapping[str, bytes], known: Mapping[str, AgreedFile]) -> NewFile:
    """The file as a commit would write it, from the agreed text if that is known."""
    agreed, text = known.get(edit.path[len(unit) + 1 :]), texts.get(edit.path)
    if agreed is None or text is None:
        return NewFile(edit.path, [])
    return NewFile(edit.path, [], File(text, agreed.stamp or edit.stamp, 0, 0, 0))


def _insert_chunk(connection: DeadlineConnection, row: tuple[bytes, bytes]) -> None:
    connection.execute(
        "INSERT INTO grove.chunks (sha256, data) VALUES (%s, %s) "
        "ON CONFLICT (sha256) DO UPDATE SET seen = excluded.seen",
        row,
    )
