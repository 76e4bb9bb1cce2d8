"""Cables between hosts and their database: a proxy in a process of its own, with one unix socket for each host.

A cable can be cut: its connections break, and new ones are refused, until it is repaired. It can also snap in the
middle of a conversation, before or after the database has received what the host said last.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

processes = multiprocessing.get_context("fork")
SOCKET = ".s.PGSQL.5432"  # what libpq looks for in a directory
CHUNK_BYTES = 1 << 16
ANSWER_S = 60.0


@dataclass
class _Cable:
    """The cable of one host, in the proxy's process."""

    server: Path
    is_cut: bool = False
    snaps_after: int | None = None  # pieces that the host may still send
    delivers_last: bool = True  # whether the database gets the piece after which the cable snaps
    stays_cut: bool = True
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        from_server, to_server = await asyncio.open_unix_connection(str(self.server))
        self.writers |= {writer, to_server}
        try:
            await asyncio.gather(self._send(reader, to_server), self._answer(from_server, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, to_server):
                self.writers.discard(end)
                end.transport.abort()

    async def _send(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self.snaps_after is not None:
                self.snaps_after -= 1
                if self.snaps_after < 0:
                    if self.delivers_last:
                        to_server.write(data)
                        await to_server.drain()
                    self.cut()
                    return
            to_server.write(data)
            await to_server.drain()
        raise OSError("the host has closed the connection")

    async def _answer(self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_server.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        raise OSError("the database has closed the connection")

    def cut(self) -> None:
        self.is_cut, self.snaps_after = self.stays_cut, None
        for writer in list(self.writers):
            # Closed, not aborted: the database still reads what was written.
            with suppress(OSError, RuntimeError):
                writer.close()

    def obey(self, order: str, *args: Any) -> None:
        if order == "repair":
            self.is_cut, self.snaps_after = False, None
        elif order == "cut":
            self.stays_cut = True
            self.cut()
        else:
            self.snaps_after, self.delivers_last, self.stays_cut = args


async def _serve(server: Path, sockets: dict[str, Path], orders: Connection) -> None:
    cables = {name: _Cable(server) for name in sockets}
    for name, path in sockets.items():
        await asyncio.start_unix_server(cables[name].carry, str(path))
        os.chmod(path, 0o777)
    over = asyncio.Event()

    def obey() -> None:
        try:
            name, order, *args = orders.recv()
        except EOFError:
            over.set()
            return
        cables[name].obey(order, *args)
        orders.send("done")

    asyncio.get_running_loop().add_reader(orders.fileno(), obey)
    orders.send("ready")
    await over.wait()


def _live(server: Path, sockets: dict[str, Path], orders: Connection) -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, sockets, orders))


class Cables:
    """The cables of all hosts, as the attack sees them."""

    def __init__(self, place: Path, names: Sequence[str], orders: Connection) -> None:
        self._place, self._orders = place, orders
        self.names = list(names)

    def url(self, name: str, database: str) -> str:
        directory = quote(str(self._place / name), safe="")
        return f"postgresql:///{database}?host={directory}&port=5432&user=postgres"

    def cut(self, name: str) -> None:
        self._order(name, "cut")

    def repair(self, name: str) -> None:
        self._order(name, "repair")

    def snap(self, name: str, pieces: int, *, delivers_last: bool, stays_cut: bool) -> None:
        """Break the connections once the host has sent this number of pieces, and one more."""
        self._order(name, "snap", pieces, delivers_last, stays_cut)

    def _order(self, name: str, order: str, *args: Any) -> None:
        self._orders.send((name, order, *args))
        assert self._orders.poll(ANSWER_S), "the proxy does not answer"
        self._orders.recv()


@contextmanager
def cables(place: Path, server_directory: Path, names: Sequence[str]) -> Iterator[Cables]:
    """Lay a cable from each host to the server whose socket is in a directory."""
    sockets = {name: place / name / SOCKET for name in names}
    for path in sockets.values():
        path.parent.mkdir(parents=True, mode=0o755)
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_live, args=(server_directory / SOCKET, sockets, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(ANSWER_S), "the proxy does not start"
        ours.recv()
        yield Cables(place, names, ours)
    finally:
        process.kill()
        process.join(ANSWER_S)
        ours.close()
        theirs.close()
