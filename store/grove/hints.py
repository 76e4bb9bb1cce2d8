"""Hints: after a commit, tell the other hosts to look at the log now instead of at their next poll.

A hint is a NOTIFY, sent by a thread of its own: inside the commit it would serialize all commits of the
server. Several commits share one hint. While commits follow each other closely, at most MAX_PER_S are
sent in a second. A hint that fails is dropped: the log is polled anyway. GROVEFS_HINTS=off turns them
off, for a pool of connections that cannot pass them on.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress

import psycopg

from store.grove.connection import DeadlineConnection, now_s, open_connection

log = logging.getLogger("grovefs.store")

CHANNEL = "grove"
MAX_PER_S = 20
_QUIET_S = 0.01  # a commit that comes later than this after a hint gets one of its own, at once
_SEND_S = 2.0  # for one hint
_CLOSE_S = 0.5  # closing a home waits so long for its last hint
_RETRY_S = 5.0  # after a failure: the database is slow or away, and hints would only add to that
# A hint need not be durable, so it must not wait for the disk of the server.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


def are_on() -> bool:
    return os.environ.get("GROVEFS_HINTS", "on") != "off"


class HintSender:
    """Sends hints of one process. Thread-safe; the thread starts with the first hint."""

    def __init__(self, url: str, host: str) -> None:
        self._url, self._host = url, host
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: DeadlineConnection | None = None

    def send(self) -> None:
        """Send a hint soon. Returns at once."""
        if not are_on() or self._closed.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="grovefs-hints", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Send the last hint, if that is quickly done."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while True:
            is_busy = self._wanted.is_set()  # there were commits during the pause
            self._wanted.wait()
            is_last = self._closed.is_set()
            self._wanted.clear()
            sent_pause_s = 1 / MAX_PER_S if is_busy else _QUIET_S
            pause_s = sent_pause_s if self._send() else _RETRY_S
            if is_last or (self._closed.wait(pause_s) and not self._wanted.is_set()):
                break
        self._disconnect()

    def _send(self) -> bool:
        deadline = now_s() + _SEND_S
        try:
            if self._connection is None or self._connection.closed:
                self._connection = open_connection(self._url, deadline)
            self._connection.deadline = deadline
            self._connection.execute(_NOTIFY, (CHANNEL, self._host))
        except psycopg.Error as error:
            log.debug("a hint was not sent: %s", error)
            self._disconnect()
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None
