"""The private server of tests and of `grovefs grove demo`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
import pytest

from store.grove import private_server
from store.grove.private_server import PrivateServer, ServerMissing


def test_it_is_durable_and_not_run_by_root(server: PrivateServer) -> None:
    """The settings a grove asks for are those of PostgreSQL, and tests run with them."""
    with psycopg.connect(server.url()) as connection:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            row = connection.execute(f"SHOW {name}").fetchone()
            assert row == ("on",), name
    assert server.pid is not None
    assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_what_was_committed_survives_a_kill(own_server: PrivateServer) -> None:
    """A killed server starts again in the same directory, with everything that was committed."""
    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("INSERT INTO t VALUES (1)")
        own_server.kill()
    own_server.start()
    with psycopg.connect(own_server.url()) as connection:
        assert connection.execute("SELECT n FROM t").fetchone() == (1,)


def test_it_starts_while_processes_of_the_killed_one_are_ending(own_server: PrivateServer) -> None:
    """On a busy machine they hold the shared memory for a while. Here one is stopped until the new server has tried."""
    with psycopg.connect(own_server.url()) as connection:
        left = connection.info.backend_pid
        os.kill(left, signal.SIGSTOP)
        own_server.kill()
        tried = own_server.log.stat().st_size

        def go_on() -> None:
            deadline = time.monotonic() + 60
            while own_server.log.stat().st_size == tried and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(left, signal.SIGCONT)

        helper = threading.Thread(target=go_on)
        helper.start()
        own_server.start()
        helper.join()
    with psycopg.connect(own_server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_it_ends_with_a_killed_program() -> None:
    """The kernel ends the server when its starter is killed, so that none is left behind."""
    directory = Path(tempfile.mkdtemp(prefix="grovefs-pg-"))
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from store.grove.private_server import PrivateServer\n"
        "s = PrivateServer(Path(sys.argv[1])); s.create(); s.start()\n"
        "print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, timeout=120)
    pid = int(ended.stdout)
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    shutil.rmtree(directory)


def test_without_postgresql_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the missing program and the package."""
    monkeypatch.setattr(private_server, "DEBIAN_BINARIES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="initdb was not found: install PostgreSQL"):
        PrivateServer(tmp_path / "pg").create()


def is_running(pid: int) -> bool:
    """A zombie has ended: nobody may have waited for it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
