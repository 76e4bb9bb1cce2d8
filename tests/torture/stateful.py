"""The attacks that hold a mount open and use it: the model, the crowd, the long life."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.torture.attack import Attack, Case
from tests.torture.crowd import crowd, log_by_all, many_on_one
from tests.torture.grove import Grove
from tests.torture.long_life import Life
from tests.torture.machine import LIMBO_S, GroveMachine

EXAMPLES = 10  # in a case: few, so that the time is kept
STEPS = 30
ROUNDS = 10_000  # more than any time has room for; a stream must end, for one case to be had alone
CROWD_S = 40.0
EDITS = 100
AN_HOUR = 36  # times so many edits: one a second, if it were not for the pauses that are left out
WARM_UP = 5


def model_settings(examples: int, steps: int) -> settings:
    """No database: a failure is had again by its seed."""
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


def run_model(grove: Grove, number: int, examples: int, steps: int) -> None:
    """Examples of one seed; if one fails, the shortest sequence that does is in the error's notes."""
    machine = type("Seeded", (GroveMachine,), {"grove": grove})
    run_state_machine_as_test(seed(number)(machine), settings=model_settings(examples, steps))


def _model(number: int) -> Iterator[Case]:
    grove = Grove("--limbo-seconds", LIMBO_S)
    try:
        grove.mount()
        for turn in range(ROUNDS):
            yield Case(f"examples-{turn}", lambda turn=turn: run_model(grove, number * ROUNDS + turn, EXAMPLES, STEPS))  # type: ignore[misc]
    finally:
        grove.close()


def _crowd(number: int) -> Iterator[Case]:
    grove = Grove()
    try:
        grove.mount()
        grove.mount()
        yield Case("three-on-a-log", lambda: log_by_all(grove, 1000))
        yield Case("forty-on-a-session", lambda: many_on_one(grove, 40))
        for turn in range(ROUNDS):
            yield Case(f"crowd-{turn}", lambda turn=turn: _crowded(grove, CROWD_S, number + turn))  # type: ignore[misc]
    finally:
        grove.close()


def _crowded(grove: Grove, seconds: float, number: int) -> None:
    crowd(grove, seconds, number)


def _long_life(number: int) -> Iterator[Case]:
    grove = Grove()
    try:
        grove.mount()
        life = Life(grove)
        life.turn = number % len(life.changes)
        life.run(WARM_UP * EDITS)
        before, nodes = life.size(), life.nodes()

        def live() -> None:
            life.run(EDITS)
            life.see_flat(before, nodes)

        for turn in range(AN_HOUR):
            yield Case(f"edits-{turn}", live)
    finally:
        grove.close()


MODEL = Attack(
    "model",
    "a mounted home beside a plain model of it, step by step",
    _model,
    minutes=5.9,
    cases_at_once=EXAMPLES,
    is_endless=True,
)
CROWD = Attack("crowd", "eight processes and two mounts on one home", _crowd, minutes=4.0, is_endless=True)
LONG_LIFE = Attack(
    "long-life", "an hour of edits: memory and descriptors flat", _long_life, minutes=2.5, cases_at_once=EDITS
)
