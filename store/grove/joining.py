"""Joining and leaving a grove.

A home joins while no other process has it open: a process that does not know of the grove would
write without asking it. Units that differ from those of the grove are kept as copies. If joining is
interrupted, following continues where it stopped: what was not fetched is in the log, and what
was not published stays local until it is changed or published by name. What was fetched and not
synced is noted: after a power failure it is compared with the log, and never taken for an edit.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from store import layout
from store.commit.commit import AgreedVersion
from store.commit.core import Core
from store.errors import Busy, InvalidName, ReadOnly, StoreError, Unreachable
from store.grove import schema
from store.grove.agreeing import GroveAgreement
from store.grove.applying import apply_new
from store.grove.attaching import attach
from store.grove.connection import DEADLINE_S, first_line, now_s, open_connection
from store.grove.join_plan import GroveUnit, JoinPlan, plan_join
from store.grove.local_units import is_session_unit, iter_units, location_of_session, unit_digests
from store.grove.log_query import read_ends, read_units
from store.grove.publishing import publish_unit
from store.grove.queries import chunk
from store.grove.replica import Membership, Replica, machine_id, private_inode
from store.grove.units import location_of, shard_of, unescape_path
from store.grove.wire import BadRow, LogRow, Put, Remove, Rename, Whole, decode_ops
from store.home.open_home import OpenHome
from store.home.services import Services
from store.layout import Location
from store.sessions.fork import ForkOperation

log = logging.getLogger("grovefs.store")

Told = Callable[[str, int, int], None]  # called with what is being done, how many are done, and the total

_TOGETHER = 64  # units in one transaction of the index
_TOGETHER_BYTES = 1 << 20  # of their rows, which are compressed

_UNITS = "SELECT unit, version, token::text, gone, digests FROM grove.units"


def check_url(url: str) -> None:
    """Raise InvalidName for a URL with a password: it would be stored in the home."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InvalidName(f"not a connection URL: {first_line(error)}") from None
    if given.get("password"):
        raise InvalidName("the URL has a password, which would be stored: put it in ~/.pgpass or a service file")


def connect(url: str) -> Any:
    """Connect to a server that is safe to hold a grove. Raises Unreachable or ReadOnly."""
    try:
        connection = open_connection(url, now_s() + DEADLINE_S)
    except psycopg.Error as error:
        raise Unreachable(f"the database does not answer: {first_line(error)}") from error
    connection.deadline = float("inf")
    unsafe = schema.unsafe_settings(connection)
    if unsafe:
        connection.close()
        raise ReadOnly(f"the server may lose what it acknowledged ({', '.join(unsafe)}); turn that on first")
    return connection


def create_grove(url: str) -> str:
    """Create an empty grove in a database; returns its epoch."""
    check_url(url)
    epoch = str(uuid.uuid4())
    with connect(url) as connection:
        try:
            with connection.transaction():
                schema.create_tables(connection, epoch)
        except psycopg.errors.DuplicateSchema:
            raise StoreError("the database has a grove already; join it: `grovefs grove join URL`") from None
        except psycopg.Error as error:
            raise ReadOnly(f"the grove could not be created: {first_line(error)}; nothing was changed") from error
    return epoch


@dataclass
class JoinOperation:
    """Joins one home. `home` is open, and by no other process."""

    home: OpenHome
    url: str
    name: str = field(default_factory=socket.gethostname)
    told: Told = lambda what, done, total: None

    @property
    def core(self) -> Core:
        return self.home.core

    @property
    def services(self) -> Services:
        return self.home.services

    def plan(self) -> JoinPlan:
        """What joining would do. Changes nothing."""
        check_url(self.url)
        with connect(self.url) as connection:
            return self._plan(connection)

    def run(self) -> JoinPlan:
        """Join; returns what was done."""
        check_url(self.url)
        require_alone(self.home)
        with connect(self.url) as connection:
            _require_usable(connection)
            first = self._plan(connection)
            copies = self._set_aside(first)
            plan = self._plan(connection)  # sessions were copied and deleted
            ends = read_ends(connection)
            self._enter(connection)
            agreement = attach(self.core)
            assert isinstance(agreement, GroveAgreement)
            self.core.agreement = agreement  # from here on, commits record what was agreed to
            replica = agreement.replica
            self.core.history.share()
            self._adopt(connection, replica, plan)
            self._fetch(connection, replica, plan)
            replica.set_cursors(ends)
        self._publish([unit for unit in plan.units("publish") if location_of(unit).root not in copies])
        return first

    def _plan(self, connection: Any) -> JoinPlan:
        local = {unit: unit_digests(self.core.disk, unit) for unit in iter_units(self.core)}
        return plan_join(local, _grove_units(connection, local))

    def _set_aside(self, plan: JoinPlan) -> set[str]:
        """Keep copies of what differs, and delete what the grove has deleted; returns the ids of the copies.

        The copies are local until they are published by name.
        """
        differing = [location_of_session(unit) for unit in plan.units("conflict") if is_session_unit(unit)]
        copied: set[str] = set()
        for location in differing:
            if Location(location.root) not in differing or location.child is None:  # a root is copied with its children
                copied.add(self._copy(location).root)
        for unit in [*plan.units("discard"), *plan.units("conflict")]:
            if is_session_unit(unit):
                self.services.deleter.delete(str(location_of_session(unit)), force=True)
        return copied

    def _copy(self, location: Location) -> Location:
        target = Location(f"{location.id}~{self.name}")
        if self.core.disk.stat(target.dir) is not None:
            target = Location(f"{target.root}-{time.time_ns()}")
        ForkOperation(self.core, self.services.relocator).fork(location, target)
        return target

    def _enter(self, connection: Any) -> None:
        """Register this home with the grove."""
        epoch, shards = connection.execute("SELECT epoch::text, shards FROM grove.grove").fetchone()
        host, place = str(uuid.uuid4()), (machine_id(), private_inode(self.core.home))
        row = (host, self.name, *place, schema.FORMAT, [0] * shards)
        connection.execute(
            "INSERT INTO grove.hosts (host, name, machine, home_inode, format, cursor) VALUES (%s, %s, %s, %s, %s, %s)",
            row,
        )
        membership = Membership(host, self.name, self.url, epoch, shards, *place, time.time_ns())
        if (self.core.home / layout.GROVE_DB).exists():
            replica = Replica(self.core.home)
            replica.replace_membership(membership)
        else:
            replica = Replica.create(self.core.home, membership)
        replica.close()

    def _adopt(self, connection: Any, replica: Replica, plan: JoinPlan) -> None:
        wanted = {*plan.units("adopt")}
        for unit, version, token, is_gone, digests in connection.execute(_UNITS):
            if unit in wanted or is_gone:
                files = {unescape_path(path): digest for path, digest in digests.items()} if not is_gone else {}
                shard = shard_of(location_of(unit).root, replica.membership.shards)
                agreed = AgreedVersion(unit, version, token, shard, 0, files, is_gone=is_gone, is_whole=True)
                replica.record_agreed([agreed], {})

    def _fetch(self, connection: Any, replica: Replica, plan: JoinPlan) -> None:
        """Get what the grove has. Where nothing of this home is replaced, it is synced once, at the end."""
        replaced = {*plan.units("conflict"), *plan.units("discard")}
        wanted = {*plan.units("fetch"), *replaced}
        if replaced:
            return self._fetch_units(connection, replica, wanted, together=1)
        replica.note_unsynced(wanted)
        with self.core.disk.synced_once():
            self._fetch_units(connection, replica, wanted, together=_TOGETHER)
        replica.forget_unsynced(wanted)

    def _fetch_units(self, connection: Any, replica: Replica, wanted: Collection[str], together: int) -> None:
        """Units are indexed and recorded in batches.

        Of a batch that is interrupted there are files, which opening the home indexes and following recognises.
        """
        done = 0
        for batch in _batches((rows for rows in _iter_pages(connection) if rows[-1].unit in wanted), together):
            with self.core.db.write(), replica.write():
                apply_new(self.core, replica, batch, lambda digest: chunk(connection, digest))
            done += len(batch)
            self.told("fetching", done, len(wanted))

    def _publish(self, units: Sequence[str]) -> None:
        for done, unit in enumerate(units, 1):
            publish_unit(self.core, unit)
            self.told("publishing", done, len(units))


def plan_empty(url: str) -> JoinPlan:
    """What joining would do for a home that has nothing."""
    check_url(url)
    with connect(url) as connection:
        _require_usable(connection)
        return plan_join({}, _grove_units(connection, {}))


def _grove_units(connection: Any, local: Mapping[str, Mapping[str, str]]) -> dict[str, GroveUnit]:
    """All units of the grove, compared with those of this home."""
    grove: dict[str, GroveUnit] = {}
    for unit, version, token, is_gone, digests in connection.execute(_UNITS):
        files = {unescape_path(path): digest for path, digest in digests.items()}
        grove[unit] = GroveUnit(version, token, is_gone, files)
        if is_gone and unit in local:
            grove[unit] = grove[unit]._replace(was_agreed=_was_agreed(connection, unit, local[unit]))
    return grove


def _was_agreed(connection: Any, unit: str, digests: Mapping[str, str]) -> bool:
    """Whether a unit once had these files. False if the log is damaged: they are then kept as a copy."""
    try:
        return any(digests == found for found in _past_digests(connection, unit))
    except BadRow as error:
        log.warning("%s: its older versions cannot be compared: %s", unit, error)
        return False


def leave_grove(home: OpenHome) -> None:
    """Make a home an ordinary one again. Its files stay; the grove keeps what it has."""
    require_alone(home)
    replica = Replica(home.path)
    membership = replica.membership
    replica.close()
    home.core.agreement.close()
    try:
        with connect(membership.url) as connection:
            connection.execute("UPDATE grove.hosts SET retired = true WHERE host = %s", (membership.host,))
    except Unreachable:
        pass  # the host stays listed; nothing waits for it
    home.core.history.unshare()
    for suffix in ("", "-wal", "-shm"):
        (home.path / f"{layout.GROVE_DB}{suffix}").unlink(missing_ok=True)


def accept_loss(url: str) -> None:
    """Go on with the history that the database has now: it is thawed, and every host has to rejoin."""
    with connect(url) as connection:
        connection.execute("UPDATE grove.grove SET frozen = NULL, epoch = %s", (str(uuid.uuid4()),))


def require_alone(home: OpenHome) -> None:
    """Raise Busy if another process has the home open: it would keep writing without the grove, or with it."""
    if not home.presence.try_exclusive():
        raise Busy(f"{home.path} is open in another process, such as a mount; close it first")


def _require_usable(connection: Any) -> None:
    try:
        row = connection.execute("SELECT format, frozen FROM grove.grove").fetchone()
    except psycopg.errors.UndefinedTable:
        raise StoreError("the database has no grove; create one: `grovefs grove create URL`") from None
    if row[0] > schema.FORMAT:
        raise ReadOnly(f"the grove has format {row[0]}; this GroveFS knows format {schema.FORMAT}")
    if row[1] is not None:
        raise ReadOnly(f"the grove is frozen: {row[1]}; see `grovefs help grove`")


def _iter_pages(connection: Any) -> Iterator[list[LogRow]]:
    after = (-1, "")
    while page := read_units(connection, after):
        yield from page
        after = (page[-1][0].shard, page[-1][0].unit)


def _batches(units: Iterable[list[LogRow]], together: int) -> Iterator[list[list[LogRow]]]:
    """Units in groups of at most this many, and not many bytes."""
    batch: list[list[LogRow]] = []
    size = 0
    for rows in units:
        batch.append(rows)
        size += sum(len(row.ops) for row in rows)
        if len(batch) >= together or size > _TOGETHER_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _past_digests(connection: Any, unit: str) -> Iterator[dict[str, str]]:
    """The digests of every version that a unit had."""
    files: dict[str, str] = {}
    for (ops,) in connection.execute("SELECT ops FROM grove.log WHERE unit = %s ORDER BY version", (unit,)):
        for operation in decode_ops(bytes(ops), unit):
            match operation:
                case Whole():
                    files = {}
                case Put():
                    files[unescape_path(operation.path)] = operation.sha256.hex()
                case Remove():
                    files.pop(unescape_path(operation.path), None)
                case Rename():
                    files[unescape_path(operation.target)] = files.pop(unescape_path(operation.source), "")
        yield dict(files)
