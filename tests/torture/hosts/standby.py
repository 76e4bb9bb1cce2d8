"""A primary database with a standby, on one machine: to fail over, with and without losing commits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from store.grove.private_server import PrivateServer, _as_user, _binary

PATIENCE_S = 60.0


class Pair:
    """Two servers. Hosts use a URL with both, and write to the one that takes writes."""

    def __init__(self, primary: PrivateServer, standby: PrivateServer) -> None:
        self.primary, self.standby = primary, standby

    def url(self, database: str) -> str:
        places = f"{self.primary.directory},{self.standby.directory}"
        return f"host={places} port=5432,5433 user=postgres dbname={database} target_session_attrs=read-write"

    def make_synchronous(self) -> None:
        """From now on a commit is acknowledged when the standby has it on disk."""
        _wait(lambda: _ask(self.primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"))
        _ask(self.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        _ask(self.primary, "SELECT pg_reload_conf()")
        _wait(lambda: _ask(self.primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"))

    def stop_replication(self) -> None:
        """Let the standby have everything until now, and nothing more."""
        end = _ask(self.primary, "SELECT pg_current_wal_flush_lsn()")
        _wait(lambda: _ask(self.standby, f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"))
        _ask(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        _ask(self.standby, "SELECT pg_reload_conf()")
        _wait(lambda: not _ask(self.standby, "SELECT count(*) FROM pg_stat_wal_receiver WHERE pid IS NOT NULL"))

    def fail_over(self) -> None:
        """The primary dies, and the standby takes its place."""
        self.primary.kill()
        assert _ask(self.standby, "SELECT pg_promote(true, 60)")


@contextmanager
def new_pair() -> Iterator[Pair]:
    """A running primary with a running standby."""
    places = [Path(tempfile.mkdtemp(prefix="grovefs-pg-")) for _ in range(2)]
    primary, standby = PrivateServer(places[0]), PrivateServer(places[1], port=5433)
    try:
        primary.create()
        primary.start()
        _copy(primary, standby)
        standby.start()
        yield Pair(primary, standby)
    finally:
        standby.stop()
        primary.stop()
        for place in places:
            shutil.rmtree(place)


def _copy(primary: PrivateServer, standby: PrivateServer) -> None:
    if os.getuid() == 0:
        shutil.chown(standby.directory, "postgres", "postgres")
    source = ["-h", str(primary.directory), "-p", "5432", "-U", "postgres"]
    options = ["-D", str(standby.directory / "data"), "-R", "-X", "stream", "-c", "fast"]
    command = [str(_binary("pg_basebackup")), *source, *options]
    done = subprocess.run(_as_user(command), capture_output=True, text=True, cwd=standby.directory)
    assert done.returncode == 0, done.stderr


def _ask(server: PrivateServer, query: str) -> Any:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(query)  # type: ignore[arg-type, unused-ignore]
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def _wait(is_true: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)
