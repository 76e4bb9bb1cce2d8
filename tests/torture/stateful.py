"""The attacks that keep a mount open: the model, the crowd, the long life."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.torture.attack import Attack, Case
from tests.torture.crowd import crowd, log_by_all, many_on_one
from tests.torture.long_life import Life
from tests.torture.machine import LIMBO_S, GroveMachine
from tests.torture.mounted_home import MountedHome

EXAMPLES = 10  # examples per case: few, to respect the deadline
STEPS = 30
ROUNDS = 10_000  # more than fit into any time; a stream must end, for running a single case
CROWD_S = 40.0
EDITS = 100
AN_HOUR = 36  # times this number of edits: one per second, without the pauses
WARM_UP = 5


def model_settings(examples: int, steps: int) -> settings:
    """Without a database: a failure is repeated by its seed."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        verbosity=Verbosity.normal,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def run_model(grove: MountedHome, number: int, examples: int, steps: int) -> None:
    """Run the examples of one seed; a failure's notes contain the shortest failing sequence."""
    machine = type("Seeded", (GroveMachine,), {"grove": grove})
    run_state_machine_as_test(seed(number)(machine), settings=model_settings(examples, steps))


def _model(number: int) -> Iterator[Case]:
    grove = MountedHome("--limbo-seconds", LIMBO_S)
    try:
        grove.mount()
        for turn in range(ROUNDS):
            yield Case(f"examples-{turn}", lambda turn=turn: run_model(grove, number * ROUNDS + turn, EXAMPLES, STEPS))  # type: ignore[misc]
    finally:
        grove.close()


def _crowd(number: int) -> Iterator[Case]:
    grove = MountedHome()
    try:
        grove.mount()
        grove.mount()
        yield Case("three-on-a-log", lambda: log_by_all(grove, 1000))
        yield Case("forty-on-a-session", lambda: many_on_one(grove, 40))
        for turn in range(ROUNDS):
            yield Case(f"crowd-{turn}", lambda turn=turn: _crowded(grove, CROWD_S, number + turn))  # type: ignore[misc]
    finally:
        grove.close()


def _crowded(grove: MountedHome, seconds: float, number: int) -> None:
    crowd(grove, seconds, number)


def _long_life(number: int) -> Iterator[Case]:
    grove = MountedHome()
    try:
        grove.mount()
        life = Life(grove)
        life.turn = number % len(life.changes)
        life.run(WARM_UP * EDITS)
        before, nodes = life.size(), life.nodes()

        def live() -> None:
            life.run(EDITS)
            life.check_flat(before, nodes)

        for turn in range(AN_HOUR):
            yield Case(f"edits-{turn}", live)
    finally:
        grove.close()


MODEL = Attack(
    "model",
    "a mounted home compared with a plain model, step by step",
    _model,
    minutes=5.0,
    cases_at_once=EXAMPLES,
    is_endless=True,
)
CROWD = Attack("crowd", "eight processes and two mounts on one home", _crowd, minutes=4.0, is_endless=True)
LONG_LIFE = Attack(
    "long-life", "an hour of edits: memory and descriptors stay flat", _long_life, minutes=2.5, cases_at_once=EDITS
)
