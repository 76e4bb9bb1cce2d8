"""A grove to try: a private PostgreSQL server, two homes and their mounts, in one temporary directory.

Everything ends with the process that runs it, even if that is killed: server and mounts get a signal from the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from fusefs.daemon.fuse_connection import find_number
from fusefs.daemon.mountpoint import MountError, unmount
from store import Message, Session, Store
from store.grove import administration
from store.grove.private_server import PrivateServer

HOSTS = ("laptop", "server")
SESSION = "welcome"
START_TIMEOUT_S = 60.0
_POLL_S = 0.05


class DemoHost(NamedTuple):
    name: str
    home: Path
    mountpoint: Path


class Demo(NamedTuple):
    directory: Path
    url: str
    hosts: list[DemoHost]


@contextmanager
def running_demo() -> Iterator[Demo]:
    """Start everything; end and remove it afterwards. Raises ServerMissing without PostgreSQL."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="grovefs-demo-"))
        stack.callback(shutil.rmtree, directory)
        directory.chmod(0o711)  # the server may run as another user
        server = PrivateServer(directory / "postgresql")
        server.create()
        stack.callback(server.stop)
        server.start()
        administration.create(server.url())
        hosts = [DemoHost(name, directory / f"{name}-home", directory / name) for name in HOSTS]
        _fill(hosts[0].home)
        for host in hosts:
            administration.join(host.home, server.url(), host.name)
            stack.enter_context(_mounted(host))
        yield Demo(directory, server.url(), hosts)


def _fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        session = Session.new(SESSION, "demo")
        session.title = "One session on two hosts"
        session.add_message(Message.user("Does the other host see this?"))
        session.add_message(Message.assistant("Within a second. Edit either copy and look at the other."))
        store.save(session)


@contextmanager
def _mounted(host: DemoHost) -> Iterator[None]:
    log = host.home / ".grovefs/mount.log"
    command = [sys.executable, "-m", "fusefs.cli", "mount", "--foreground", "--home", str(host.home)]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *command, "--log-file", log, host.mountpoint],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C at a terminal is for the demo, which unmounts
    )
    try:
        _wait_until_mounted(process, host)
        yield
    finally:
        if find_number(host.mountpoint) is not None:
            unmount(host.mountpoint, lazily=True)  # a shell may be in it
        process.terminate()
        process.communicate()


def _wait_until_mounted(process: subprocess.Popen[bytes], host: DemoHost) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while find_number(host.mountpoint) is None or not (host.mountpoint / "sessions").is_dir():
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            raise MountError(f"the mount of {host.name} did not start: {process.communicate()[1].decode().strip()}")
        time.sleep(_POLL_S)
