"""The attack `grove`: random lives of three hosts, with cut cables and killed processes, compared with a model.

After each case all homes are byte-identical, equal the model and are clean, and no version is missing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from store.grove.private_server import PrivateServer
from tests.torture.attack import Attack, Case
from tests.torture.hosts.deeds import Deed
from tests.torture.hosts.world import NAMES, World, running_server, world
from tests.torture.places import scratch

STEPS = 60
SETTLE_EVERY = 12
ROUNDS = 100_000  # more than fit into any time
ROOTS, CHILDREN, DOCUMENTS = ["r0", "r1"], ["r0/c0", "r1/c0"], ["d0", "d1"]

WEIGHTS = {
    "append": 14,
    "count": 10,
    "retitle": 6,
    "hold": 5,
    "save_held": 6,
    "attach": 4,
    "attach_long": 1,
    "record": 4,
    "send": 8,
    "drain": 8,
    "recover": 3,
    "ack": 4,
    "pin": 1,
    "unpin": 3,
    "delete": 4,
    "undelete": 6,
    "create": 8,
    "child": 6,
    "state_add": 6,
    "state_put": 3,
    "state_delete": 2,
    "edit_outside": 3,
    "remove_outside": 1,
}


class Life:
    """One random life of a grove."""

    def __init__(self, grove: World, chance: random.Random) -> None:
        self.grove, self.chance = grove, chance
        self.words = itertools.count(1)

    def run(self, steps: int) -> None:
        for number in range(1, steps + 1):
            self._step()
            if number % SETTLE_EVERY == 0:
                self.grove.settle()
        self.grove.settle()
        self.grove.check()

    def _step(self) -> None:
        alive = [name for name, host in self.grove.hosts.items() if host.is_alive]
        kind = self.chance.choices(["one", "together", "cable", "kill", "start"], [60, 20, 10, 5, 5])[0]
        if kind == "kill" and len(alive) > 1:
            self.grove.do_and_kill(self.chance.choice(alive), self._deed(), self.chance.uniform(0, 0.03))
        elif kind == "start":
            self._start()
        elif kind == "cable":
            self._trouble(self.chance.choice(list(self.grove.hosts)))
        else:
            count = 1 if kind == "one" else self.chance.randint(2, 3)
            hosts = self.chance.sample(alive, min(count, len(alive)))
            self.grove.do(*((name, self._deed()) for name in hosts))

    def _start(self) -> None:
        for name, host in self.grove.hosts.items():
            if not host.is_alive:
                host.start()
                self.grove.note(f"{name} starts")

    def _trouble(self, name: str) -> None:
        how = self.chance.choice(["cut", "repair", "snap", "snap"])
        self.grove.is_settled = False
        if how == "snap":
            pieces, last = self.chance.randint(0, 8), self.chance.random() < 0.7
            stays = self.chance.random() < 0.3
            self.grove.cables.snap(name, pieces, delivers_last=last, stays_cut=stays)
            self.grove.note(f"the cable of {name} snaps after {pieces} pieces ({last=}, {stays=})")
        else:
            getattr(self.grove.cables, how)(name)
            self.grove.note(f"{how} the cable of {name}")

    def _deed(self) -> Deed:
        """A random deed; most of them are possible."""
        while True:
            name = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if name.startswith("state_"):
                return Deed(name, self.chance.choice(DOCUMENTS), self._word())
            targets = ROOTS if name == "create" else CHILDREN if name == "child" else [*ROOTS, *CHILDREN]
            target = self.chance.choice(targets)
            exists = self.grove.frontier.any.find(target) is not None
            if exists != (name in ("create", "child", "undelete")) or self.chance.random() < 0.05:
                return Deed(name, target, self._word())

    def _word(self) -> str:
        return f"w{next(self.words)}"


def live(server: PrivateServer, seed: int, steps: int = STEPS) -> list[str]:
    """Run one life; returns what happened."""
    with scratch() as place, world(place, server, NAMES) as grove:
        Life(grove, random.Random(seed)).run(steps)
        return grove.story


def lives(seed: int) -> Iterator[Case]:
    with ExitStack() as stack:
        server = stack.enter_context(running_server())
        for turn in range(ROUNDS):
            yield Case(f"life-{turn}", partial(live, server, seed * ROUNDS + turn))


GROVE = Attack("grove", "three hosts of one grove compared with a model", lives, minutes=5.0, is_endless=True)
