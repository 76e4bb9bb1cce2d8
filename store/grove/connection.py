"""Connections to the database of a grove: deadlines, unreachable servers, and the checks of a new connection.

Only this module and the one that agrees handle psycopg's errors. Every wait for the server ends at a
deadline of this host's own: a server that is stopped, or a cable that is cut, sends no error. After
a failure writes are refused at once, and a background thread tries until the database answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from store.errors import Busy, ReadOnly, StoreError, Unreachable
from store.grove import schema
from store.grove.queries import lost_shards
from store.grove.replica import Replica

log = logging.getLogger("grovefs.store")

T = TypeVar("T")

OTHER_HISTORY = (
    "the database has another history than the one this home joined, for example because another host has accepted "
    "a loss: nothing is written here until this home rejoins"
)
DEADLINE_S = 10.0  # for one operation, from the first attempt to connect
PROBE_S = 1.0  # between two attempts to reach a database that did not answer
RETRIES = 5
IDLE_CONNECTIONS = 4
# The server gives up before this host does: an answer is better than an unknown outcome. Set on every
# connection: a pool of connections may drop what a client passes at its start. Statements are planned
# once: for arrays of one unit the server believes that a plan of their own, each time, is cheaper.
_SETTINGS = """
SELECT pg_is_in_recovery(), set_config('statement_timeout', '9s', false), set_config('lock_timeout', '8s', false),
       set_config('idle_in_transaction_session_timeout', '5s', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
"""
# Serialization failure, deadlock, lock timeout: nothing was changed, and another attempt may succeed.
RETRIED = frozenset({"40001", "40P01", "55P03"})
DEADLOCKED = frozenset({"40001", "40P01"})  # those that end at once
CANCELED = "57014"  # statement timeout
_CONNECT = {
    "connect_timeout": 5,
    "tcp_user_timeout": 9000,  # milliseconds until unacknowledged data breaks the connection
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "application_name": "grovefs",
}


def now_s() -> float:
    """A clock that keeps running while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DeadlineConnection(psycopg.Connection[Any]):  # type: ignore[misc]
    """A connection on which no wait lasts past `deadline`. `warnings` counts the server's warnings."""

    deadline: float = float("inf")
    warnings: int = 0
    prepared: set[str]  # names of statements that the server knows

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        left = self.deadline - now_s()
        if left <= 0:
            self.pgconn.finish()  # what the server still sends must not be taken for another answer
            raise psycopg.OperationalError("the database did not answer in time")
        try:
            return super().wait(gen, interval, timeout=left if left != float("inf") else None)
        except psycopg.errors._WaitTimeout:
            self.pgconn.finish()
            raise psycopg.OperationalError("the database did not answer in time") from None


class GroveServer:
    """The database of a grove, as one process sees it. Thread-safe."""

    def __init__(self, replica: Replica, *, deadline_s: float = DEADLINE_S) -> None:
        self.replica = replica
        self.deadline_s = deadline_s
        self.last_contact_ns: int | None = None
        self._membership = replica.membership
        self._lock = threading.Lock()
        self._idle: list[DeadlineConnection] = []
        self._refusal: StoreError | None = None
        self._probe: threading.Thread | None = None
        self._closed = threading.Event()

    # -- state -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the reason why nothing can be written, from the last contact."""
        refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))

    def refuse(self, error: StoreError) -> None:
        """Refuse writes from now on, until the database answers and has no objection."""
        with self._lock:
            self._refusal = error
            idle, self._idle = self._idle, []
            if (self._probe is None or not self._probe.is_alive()) and not self._closed.is_set():
                self._probe = threading.Thread(target=self._try_again, name="grovefs-grove-probe", daemon=True)
                self._probe.start()
        for connection in idle:
            _close(connection)

    def _try_again(self) -> None:
        while not self._closed.wait(PROBE_S):
            try:
                connection = self.connect()
            except StoreError as error:
                self._refusal = error
                continue
            self._refusal = None
            log.info("the database of the grove answers again")
            self._give_back(connection)
            return

    def freeze(self, why: str) -> None:
        """Stop the writes of all hosts: history was lost."""

        def update(connection: DeadlineConnection) -> None:
            connection.execute("UPDATE grove.grove SET frozen = %s WHERE frozen IS NULL", (why,))

        self.run(update)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    # -- work --------------------------------------------------------------------------------------

    def run(self, work: Callable[[DeadlineConnection], T], *, deadline_s: float | None = None) -> T:
        """Do something that may be repeated, on a connection in autocommit mode.

        Raises Unreachable if the database does not answer, Busy if it is too slow.
        """
        deadline = now_s() + (self.deadline_s if deadline_s is None else deadline_s)
        attempts = 0
        while True:
            attempts += 1
            connection = self.take(deadline)
            try:
                result = work(connection)
            except psycopg.Error as error:
                _close(connection)
                if not self._may_retry(error, attempts, deadline):
                    raise self.meaning_of(error) from error
            except BaseException:
                _close(connection)
                raise
            else:
                self.give_back(connection)
                return result

    def _may_retry(self, error: psycopg.Error, attempts: int, deadline: float) -> bool:
        is_transient = error.sqlstate in RETRIED or is_lost(error)
        return is_transient and attempts <= RETRIES and now_s() < deadline

    def meaning_of(self, error: psycopg.Error) -> StoreError:
        """The error for a statement that did not change anything."""
        text = first_line(error)
        if error.sqlstate in RETRIED or error.sqlstate == CANCELED:
            return Busy(f"the grove is busy: {text}; nothing was changed, try again")
        if is_lost(error):
            unreachable = self._unreachable(text)
            self.refuse(unreachable)
            return unreachable
        return ReadOnly(f"the database of the grove refused: {text}; nothing was changed")

    def _unreachable(self, text: str) -> Unreachable:
        return Unreachable(
            f"the database of the grove does not answer: {text}. Nothing was changed. Reading still works; "
            "writing works again when the database is back"
        )

    def listen(self, channel: str) -> Hints:
        """A connection of its own that receives what hosts notify each other of. Raises Unreachable."""
        connection = self.connect()
        hints = Hints(connection, self._membership.host)
        hints.run(lambda: connection.execute(f"LISTEN {channel}"))
        connection.deadline = float("inf")  # nothing is waited for: hints are read when they have arrived
        return hints

    # -- connections -------------------------------------------------------------------------------

    def take(self, deadline: float) -> DeadlineConnection:
        """An idle connection, or a new one. The caller gives it back, or closes it."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or connection.closed:
            connection = self.connect(deadline)
        connection.deadline, connection.warnings = deadline, 0
        return connection

    def give_back(self, connection: DeadlineConnection) -> None:
        """Keep a connection for later. It has answered."""
        self.last_contact_ns = time.time_ns()
        self._give_back(connection)

    def _give_back(self, connection: DeadlineConnection) -> None:
        connection.deadline = float("inf")
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and not self._closed.is_set() and self._refusal is None:
                self._idle.append(connection)
                return
        _close(connection)

    def connect(self, deadline: float | None = None) -> DeadlineConnection:
        """Open a connection in autocommit mode and check that it leads to the history this home knows."""
        deadline = deadline or now_s() + self.deadline_s
        try:
            connection = open_connection(self._membership.url, deadline)
            try:
                self._check_grove(connection)
            except BaseException:
                _close(connection)
                raise
        except psycopg.Error as error:
            unreachable = self._unreachable(first_line(error))
            self.refuse(unreachable)
            raise unreachable from error
        except ReadOnly as error:
            self.refuse(error)
            raise
        return connection

    def _check_grove(self, connection: DeadlineConnection) -> None:
        row = connection.execute("SELECT epoch::text, oldest_format, frozen FROM grove.grove").fetchone()
        if row is None or row[0] != self._membership.epoch:
            raise ReadOnly(f"{OTHER_HISTORY}: `grovefs grove rejoin`")
        if row[1] > schema.FORMAT:
            raise ReadOnly("the grove needs a newer GroveFS to write; reading still works")
        if row[2] is not None:
            raise ReadOnly(f"the grove is frozen: {row[2]}; see `grovefs grove status`")
        lost = lost_shards(connection, {**self.replica.cursors(), **self.replica.acknowledged()})
        if lost:
            why = f"the database has lost commits that host {self._membership.name} has (shards {lost[:8]})"
            connection.execute("UPDATE grove.grove SET frozen = %s WHERE frozen IS NULL", (why,))
            raise ReadOnly(f"the grove is frozen: {why}; see `grovefs grove status`")


class Hints:
    """Notifications of hosts. They only shorten a wait, and those of this host not even that."""

    def __init__(self, connection: DeadlineConnection, host: str) -> None:
        self._connection = connection
        self._host = host

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def drop(self) -> bool:
        """Read what has arrived; returns whether another host sent it. Raises Unreachable if the connection is lost."""
        senders: list[str] = []
        self.run(lambda: senders.extend(hint.payload for hint in self._connection.notifies(timeout=0)))
        return any(sender != self._host for sender in senders)

    def run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except psycopg.Error as error:  # no reason to refuse writes: other connections may be well
            self.close()
            raise Unreachable(f"the database of the grove closed a connection: {first_line(error)}") from error

    def close(self) -> None:
        _close(self._connection)


def open_connection(url: str, deadline: float) -> DeadlineConnection:
    """Connect to a server that takes writes. Raises psycopg.Error."""
    options: dict[str, Any] = dict(_CONNECT)
    given = psycopg.conninfo.conninfo_to_dict(url)
    options = {name: value for name, value in options.items() if name not in given}
    options["connect_timeout"] = max(2, min(5, int(deadline - now_s())))
    if "target_session_attrs" not in given:
        options["target_session_attrs"] = "read-write"
    connection: DeadlineConnection = DeadlineConnection.connect(url, autocommit=True, **options)
    try:
        connection.deadline = deadline
        connection.prepared = set()
        connection.prepare_threshold = 1
        connection.add_notice_handler(lambda notice: _count_warning(connection, notice))
        row = connection.execute(_SETTINGS).fetchone()
        if row is None or row[0]:
            raise psycopg.OperationalError("the server is a standby")
    except BaseException:
        _close(connection)
        raise
    return connection


def _count_warning(connection: DeadlineConnection, notice: Any) -> None:
    if notice.severity_nonlocalized == "WARNING":
        log.warning("the database of the grove warns: %s", notice.message_primary)
        connection.warnings += 1


def is_lost(error: psycopg.Error) -> bool:
    """Whether an error means that the connection, or the server, is gone."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    # Connection failure, out of resources, server shutting down; read-only since a failover.
    return state[:2] in ("08", "53") or state[:3] == "57P" or state == "25006"


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _close(connection: DeadlineConnection) -> None:
    with suppress(psycopg.Error, OSError):
        connection.close()
