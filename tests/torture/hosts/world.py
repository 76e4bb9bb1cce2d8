"""A grove for attacks: a database, some hosts with their cables, and the model that they are compared with."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from store.grove import administration
from store.grove.private_server import PrivateServer
from tests.grove.groves import files
from tests.torture.hosts.cables import Cables, cables
from tests.torture.hosts.deeds import Deed
from tests.torture.hosts.host import Answer, Host
from tests.torture.hosts.model import Event, Frontier, GroveState

NAMES = ("ann", "bob", "cid")
SETTLE_S = 90.0
INDEX_S = 10.0
_POLL_S = 0.02
_numbers = itertools.count(1)

GAPS = """
SELECT 'unit ' || unit FROM grove.log GROUP BY shard, unit HAVING count(*) <> max(version) OR min(version) <> 1
UNION ALL SELECT 'shard ' || s.shard FROM grove.shards s LEFT JOIN grove.log l USING (shard) GROUP BY s.shard, s.seq
HAVING count(l.seq) <> s.seq OR coalesce(max(l.seq), 0) <> s.seq
"""


@contextmanager
def running_server() -> Iterator[PrivateServer]:
    with new_server() as server:
        server.start()
        yield server


@contextmanager
def new_server(address: str = "") -> Iterator[PrivateServer]:
    """A server that was not started yet; ended and removed at the end. It is given to another user, so not in a
    private directory."""
    directory = Path(tempfile.mkdtemp(prefix="grovefs-pg-"))
    server = PrivateServer(directory, address=address)
    try:
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def new_database(server: PrivateServer) -> str:
    """Create an empty database; returns its name."""
    name = f"world{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type, unused-ignore]
    return name


class World:
    """Hosts of one grove, and what the model knows of them."""

    def __init__(self, place: Path, url: str, lines: Cables) -> None:
        self.url, self.cables = url, lines
        self.hosts = {name: Host(place / "homes" / name, place / f"{name}.log") for name in lines.names}
        self.frontier = Frontier({GroveState()})
        self.is_settled = True  # every host is reachable, and has everything
        self.story: list[str] = []

    # -- deeds -------------------------------------------------------------------------------------

    def do(self, *deeds: tuple[str, Deed]) -> list[Answer]:
        """Do deeds of different hosts at the same time, and take them into the model."""
        for name, deed in deeds:
            self.hosts[name].ask(deed)
        return self.take_in([(name, deed, self.hosts[name].answer()) for name, deed in deeds])

    def do_and_kill(self, name: str, deed: Deed, after_s: float) -> None:
        """Kill a host while it does something."""
        self.hosts[name].ask(deed)
        time.sleep(after_s)
        self.take_in([(name, deed, self.hosts[name].kill())])
        self.is_settled = False

    def take_in(self, answers: Sequence[tuple[str, Deed, Answer]]) -> list[Answer]:
        events = [Event(*answer) for answer in answers]
        self.story += map(str, events)
        failed = [str(event) for event in events if event.answer.how == "failed"]
        assert not failed, failed
        self.frontier.advance(events, is_settled=self.is_settled and len(events) == 1)
        self.is_settled = self.is_settled and len(events) == 1 and not self._is_shared(events[0])
        return [event.answer for event in events]

    def _is_shared(self, event: Event) -> bool:
        """Whether other hosts have something to learn from it."""
        return event.answer.how == "done" and event.deed.name not in ("hold", "recover")

    def note(self, text: str) -> None:
        self.story.append(text)

    # -- settling ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Repair everything, wait until all hosts have everything, and compare them with the model."""
        for name, host in self.hosts.items():
            self.cables.repair(name)
            if not host.is_alive:
                host.start()
        for host in self.hosts.values():
            self._wait(lambda host=host: host.do(Deed("ready")), lambda a: a.how == "done", f"{host.name} ready")  # type: ignore[misc]
        self._wait(self._lags, lambda lags: not lags, "every host up to date")
        self._wait(self._differences, lambda found: not found, "all homes identical")
        self._observe()
        self.note("settled")
        self.is_settled = True

    def _observe(self) -> None:
        """Compare every host with the model. A file is in place a moment before its entry in the index."""
        until = time.monotonic() + INDEX_S
        seen = [self._value(host, Deed("see")) for host in self.hosts.values()]
        while time.monotonic() < until and not all(map(self.frontier.allows, seen)):
            time.sleep(_POLL_S)
            seen = [self._value(host, Deed("see")) for host in self.hosts.values()]
        for found in seen:
            self.frontier.observe(found)

    def check(self) -> None:
        """Every home is clean, and nothing is missing in the log or in a history."""
        for host in self.hosts.values():
            found = self._value(host, Deed("check"))
            assert not found, f"{host.name}: {found}"
            for name, _ in self.frontier.any.sessions:
                numbers = self._value(host, Deed("history", name))
                assert numbers == list(range(len(numbers), 0, -1)), f"{host.name}: versions of {name}: {numbers}"
        with psycopg.connect(self.url) as connection:
            gaps = connection.execute(GAPS).fetchall()
        assert not gaps, f"the log has gaps: {gaps}"

    def _lags(self) -> list[str]:
        with psycopg.connect(self.url) as connection:
            ends = dict(connection.execute("SELECT shard, seq FROM grove.shards WHERE seq > 0").fetchall())
        found = []
        for host in self.hosts.values():
            cursors, behind = self._value(host, Deed("position"))
            if cursors != ends or behind:
                found.append(f"{host.name} at {cursors} of {ends}, behind: {behind}")
        return found

    def _differences(self) -> list[str]:
        first, *others = [(host.name, files(host.home)) for host in self.hosts.values()]
        return [
            f"{path} differs in {first[0]} and {name}"
            for name, found in others
            for path in sorted({*first[1], *found})
            if first[1].get(path) != found.get(path)
        ]

    def _value(self, host: Host, deed: Deed) -> Any:
        answer = host.do(deed)
        assert answer.how == "done", f"{host.name}: {deed}: {answer}"
        return answer.value

    def _wait(self, look: Callable[[], Any], is_good: Callable[[Any], bool], what: str) -> None:
        until = time.monotonic() + SETTLE_S
        while not is_good(found := look()):
            assert time.monotonic() < until, f"not {what} within {SETTLE_S:.0f} s: {found}"
            time.sleep(_POLL_S)

    def end(self) -> None:
        for host in self.hosts.values():
            if host.is_alive:
                host.stop()

    def kill_all(self) -> None:
        for host in self.hosts.values():
            if host.is_alive:
                host.kill()


@contextmanager
def world(place: Path, server: PrivateServer, names: Sequence[str] = NAMES) -> Iterator[World]:
    """A new grove with hosts that have joined it and are running. A failure is shown with all that happened."""
    database = new_database(server)
    administration.create(server.url(database))
    with ExitStack() as stack:
        lines = stack.enter_context(cables(place / "cables", server.directory, names))
        made = World(place, server.url(database), lines)
        stack.callback(made.kill_all)
        try:
            for name, host in made.hosts.items():
                administration.join(host.home, lines.url(name, database), name)
                host.start()
            yield made
            made.end()
        except Exception as error:
            logs = [f"{host.name}:\n{_tail(host.log)}" for host in made.hosts.values()]
            error.add_note("\n".join(["what happened:", *made.story[-80:], *logs]))
            raise
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")  # type: ignore[arg-type, unused-ignore]


def _tail(path: Path) -> str:
    return "\n".join(path.read_text().splitlines()[-12:]) if path.exists() else ""
