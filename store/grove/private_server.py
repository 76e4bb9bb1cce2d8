"""A private PostgreSQL server in a directory of its own, for tests and `grovefs grove demo`.

It listens on a unix socket in that directory, and on TCP only if an address is given. It ends with
the thread that started it, even if that is killed: the kernel then sends it SIGINT, which is a fast
shutdown. It runs with PostgreSQL's own settings for durability. PostgreSQL does not run as root, so
root starts it as the user `postgres`, whom the directory is given to.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

from store.errors import StoreError

DEBIAN_BINARIES = Path("/usr/lib/postgresql")
START_TIMEOUT_S = 60.0
_POLL_S = 0.02
_IN_USE = b"shared memory block"  # in the message that another server, or what is left of one, uses the data
_USER = "postgres"


class ServerMissing(StoreError):
    """PostgreSQL is not installed here, or could not be started."""


class PrivateServer:
    """A server whose data is in `directory`/data. `create` makes the data, `start` runs it."""

    def __init__(self, directory: Path, *, address: str = "", port: int = 5432) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        self._address, self._port = address, port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def url(self, database: str = "postgres") -> str:
        """The connection URL of a database, over the unix socket."""
        directory = quote(str(self.directory), safe="")
        return f"postgresql:///{database}?host={directory}&port={self._port}&user={_USER}"

    def tcp_url(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}@{self._address}:{self._port}/{database}"

    def create(self) -> None:
        """Make an empty server."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.directory, _USER, _USER)
        options = ["-N", "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8"]
        command = [str(_binary("initdb")), *options, "-D", str(self._data)]
        made = subprocess.run(_as_user(command), capture_output=True, text=True, cwd=self.directory)
        if made.returncode:
            raise ServerMissing(f"initdb failed: {made.stderr.strip()}")

    def configure(self, **settings: str) -> None:
        """Add settings to postgresql.conf, for the next start."""
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        Processes of a server that was killed may still be ending: it is tried until they have.
        """
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # of a server that was killed
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            logged = self.log.stat().st_size if self.log.exists() else 0
            try:
                return self._start()
            except ServerMissing:
                if _IN_USE not in self.log.read_bytes()[logged:] or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def _start(self) -> None:
        options = ["-k", str(self.directory), "-h", self._address, "-p", str(self._port)]
        command = [str(_binary("postgres")), "-D", str(self._data), *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                _as_user(command, pdeathsig=True),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C at a terminal is for the program that started it
            )
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """End the server: connections are closed, everything committed is on disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a crash would. Its other processes end by themselves."""
        self._end(signal.SIGKILL)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(START_TIMEOUT_S)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        command = [str(_binary("pg_isready")), "-q", "-h", str(self.directory), "-p", str(self._port)]
        deadline = time.monotonic() + START_TIMEOUT_S
        while subprocess.run(command).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServerMissing(f"PostgreSQL did not start: {_last_lines(self.log)}")
            time.sleep(_POLL_S)


def _binary(name: str) -> Path:
    """A program of the newest PostgreSQL: Debian keeps them outside of PATH."""
    found = sorted(DEBIAN_BINARIES.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    in_path = shutil.which(name)
    if not found and in_path is None:
        raise ServerMissing(f"{name} was not found: install PostgreSQL (Debian: apt-get install postgresql)")
    return found[-1] if found else Path(str(in_path))


def _as_user(command: list[str], *, pdeathsig: bool = False) -> list[str]:
    """The command as an unprivileged user; `pdeathsig` ends it with the thread that starts it."""
    options = ["--pdeathsig", "INT"] if pdeathsig else []
    if os.getuid() == 0:
        try:
            user = pwd.getpwnam(_USER)
        except KeyError as error:
            raise ServerMissing(f"there is no user {_USER!r} to run PostgreSQL as: install PostgreSQL") from error
        options += ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return ["setpriv", *options, *command] if options else command


def _last_lines(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").splitlines()[-3:])
