"""Hosts in network namespaces, each with a cable of its own to the database, which can be pulled out.

A namespace exists as long as the process that holds it, so a killed attack leaves nothing. The database listens only
on addresses of its namespace. A pulled cable breaks no connection and sends no error, unlike a closed socket.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter(pid: int) -> None:
    """Move this thread into the network namespace of a process."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Be in another network namespace for a while."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    enter(pid)
    try:
        yield
    finally:
        assert _libc.setns(own, CLONE_NEWNET) == 0
        os.close(own)


@dataclass(frozen=True)
class Network:
    """A namespace for the database, and one for each host."""

    server: int  # pids of the processes that hold the namespaces
    hosts: dict[str, int]

    def address(self, name: str) -> str:
        """The address of the database at the cable of a host."""
        return f"10.77.{list(self.hosts).index(name) + 1}.1"

    def pull_out(self, name: str) -> None:
        _ip(self.hosts[name], "link", "set", "eth0", "down")

    def plug_in(self, name: str) -> None:
        _ip(self.hosts[name], "link", "set", "eth0", "up")

    def _connect(self, name: str) -> None:
        number = list(self.hosts).index(name) + 1
        here, there = f"db{number}", "eth0"
        _ip(self.server, "link", "add", here, "type", "veth", "peer", there, "netns", str(self.hosts[name]))
        _ip(self.server, "address", "add", f"10.77.{number}.1/24", "dev", here)
        _ip(self.server, "link", "set", here, "up")
        _ip(self.hosts[name], "address", "add", f"10.77.{number}.2/24", "dev", there)
        self.plug_in(name)


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    with ExitStack() as stack:
        holders = [stack.enter_context(_namespace()) for _ in range(len(names) + 1)]
        made = Network(holders[0], dict(zip(names, holders[1:], strict=True)))
        for name in names:
            made._connect(name)
        yield made


@contextmanager
def _namespace() -> Iterator[int]:
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", "no network namespace could be made"
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def _ip(pid: int, *arguments: str) -> None:
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr.strip()}"
