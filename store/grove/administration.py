"""What `grovefs grove` does to a home that is not open: create, join, leave, rejoin, status. Each is one command."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from store.errors import StoreError
from store.grove.connection import OTHER_HISTORY
from store.grove.join_plan import JoinPlan
from store.grove.joining import JoinOperation, Told, accept_loss, connect, create_grove, leave_grove, plan_empty
from store.grove.log_query import read_ends
from store.grove.replica import BehindUnit, Membership, Replica, is_joined
from store.home.open_home import OpenHome

_HOSTS = (
    "SELECT name, host::text, (extract(epoch FROM seen) * 1000)::bigint, "
    "(SELECT coalesce(sum(c), 0) FROM unnest(cursor) AS c)::bigint "
    "FROM grove.hosts WHERE NOT retired ORDER BY name, host"
)

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # it becomes a part of session ids: ID~HOST


@dataclass(frozen=True)
class HostState:
    """A host of the grove. `lag` is the number of commits that it has not shown to have."""

    name: str
    host: str
    seen_ms: int
    lag: int
    is_this: bool


@dataclass(frozen=True)
class GroveStatus:
    """The state of a home in its grove. Without an answer from the database, only what the home knows."""

    membership: Membership
    problem: str  # why this home must rejoin; "" if it need not
    behind: list[BehindUnit]
    units: int
    waiting: list[str]  # files edited on disk, to be confirmed by `grovefs grove publish`
    unreachable: str = ""  # why the database did not answer; "" if it did
    frozen: str | None = None
    hosts: list[HostState] = field(default_factory=list)


def create(url: str) -> str:
    return create_grove(url)


def plan_joining(home: Path, url: str) -> JoinPlan:
    """What joining would do. Creates nothing: a missing or empty directory would get all that the grove has."""
    if not home.exists() or not any(home.iterdir()):
        return plan_empty(url)
    opened = OpenHome(home, background=False)
    try:
        return JoinOperation(opened, url).plan()
    finally:
        opened.close()


def join(home: Path, url: str, name: str | None = None, told: Told | None = None) -> JoinPlan:
    """Join a grove. The home must not be open in another process."""
    if is_joined(home):
        raise StoreError(f"{home} has joined a grove already: `grovefs grove status`, `leave` or `rejoin`")
    if name is not None and not _HOST_NAME.fullmatch(name):
        raise StoreError(f"{name!r} cannot name a host: use at most 63 letters, digits, dots, hyphens and underscores")
    return _join(home, url, name, told)


def rejoin(home: Path, *, thaw: bool = False, told: Told | None = None) -> JoinPlan:
    """Join again under a new host id. `thaw` first accepts what the database has lost, for all hosts."""
    replica = Replica(home)
    found = replica.membership
    replica.close()
    if thaw:
        accept_loss(found.url)
    return _join(home, found.url, found.name, told)


def _join(home: Path, url: str, name: str | None, told: Told | None) -> JoinPlan:
    opened = OpenHome(home, background=False)  # alone: copies are made without asking the grove
    try:
        operation = JoinOperation(opened, url, name or socket.gethostname())
        if told is not None:
            operation.told = told
        return operation.run()
    finally:
        opened.close()


def leave(home: Path) -> None:
    """Leave the grove. The files stay."""
    if not is_joined(home):
        Replica(home)  # raises NotJoined
    opened = OpenHome(home, background=False)
    try:
        leave_grove(opened)
    finally:
        opened.close()


def status(home: Path) -> GroveStatus:
    """The state of a home in its grove."""
    replica = Replica(home)
    try:
        found = GroveStatus(
            replica.membership, replica.problem(), replica.behind(), len(replica.units()), replica.waiting()
        )
    finally:
        replica.close()
    try:
        with connect(found.membership.url) as connection:
            epoch, frozen = connection.execute("SELECT epoch::text, frozen FROM grove.grove").fetchone()
            problem = found.problem or (OTHER_HISTORY if epoch != found.membership.epoch else "")
            return replace(found, frozen=frozen, problem=problem, hosts=_hosts(connection, found.membership.host))
    except StoreError as error:
        return replace(found, unreachable=str(error))


def _hosts(connection: Any, this: str) -> list[HostState]:
    end = sum(position.seq for position in read_ends(connection).values())
    rows = connection.execute(_HOSTS)
    return [HostState(name, host, seen, max(0, end - int(done)), host == this) for name, host, seen, done in rows]
