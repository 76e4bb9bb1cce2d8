"""The attack `grove-hosts`: three hosts write one grove as fast as they can, and lose their database now and then."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from store.grove.private_server import PrivateServer
from tests.torture.attack import Attack, Case
from tests.torture.hosts import namespaces, three_hosts
from tests.torture.hosts.crews import create_grove
from tests.torture.hosts.three_hosts import Amounts
from tests.torture.hosts.world import NAMES, new_database, new_server, running_server
from tests.torture.places import scratch

MANY = Amounts(counted=1000, appended=500, merged=200, saved=200, sent=200, deleted=100)
CUT_S = (1.0, 14.0)  # shorter and longer than the deadline of an operation


def fight_on_one_machine(amounts: Amounts) -> dict[str, Any]:
    """Hosts as processes, on the socket of the database."""
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = [place / name for name in NAMES]
        three_hosts.fill(homes[0])
        create_grove(url, dict.fromkeys(homes, url))
        return three_hosts.fight(url, homes, amounts)


def fight_with_pulled_cables(amounts: Amounts, cuts: int, seed: int) -> dict[str, Any]:
    """Hosts in network namespaces. Their cables are pulled out, one after the other, while they write."""
    chance = random.Random(seed)
    with scratch() as place, namespaces.network(NAMES) as net, _server_in(net.server) as server:
        database = new_database(server)
        urls = {place / name: f"postgresql://postgres@{net.address(name)}/{database}" for name in NAMES}
        three_hosts.fill(place / NAMES[0])

        def at(home: Path) -> AbstractContextManager[None]:
            return namespaces.inside(net.hosts[home.name])

        def pull_cables() -> None:
            for _ in range(cuts):
                time.sleep(chance.uniform(1.0, 3.0))
                name = chance.choice(NAMES)
                net.pull_out(name)
                time.sleep(chance.uniform(*CUT_S))
                net.plug_in(name)

        url = server.url(database)
        create_grove(url, urls, at)
        return three_hosts.fight(url, list(urls), amounts, is_rough=True, at=at, meanwhile=pull_cables)


@contextmanager
def _server_in(namespace: int) -> Iterator[PrivateServer]:
    """A server that listens on the addresses of a namespace, and on a unix socket for this process."""
    with new_server(address="0.0.0.0") as server:
        with (server.directory / "data/pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/16 trust\n")
        with namespaces.inside(namespace):
            server.start()
        yield server


def battles(seed: int) -> Iterator[Case]:
    yield Case("three hosts", partial(fight_on_one_machine, MANY))
    yield Case("three hosts with pulled cables", partial(fight_with_pulled_cables, MANY, 6, seed))


GROVE_HOSTS = Attack("grove-hosts", "three hosts write one grove, also while cables are pulled out", battles, 12.0)
