"""The first cases of the attacks that keep a mount open: always the same, within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.crowd import ROLES, crowd, log_by_all, many_on_one
from tests.torture.long_life import Life
from tests.torture.machine import LIMBO_S
from tests.torture.mounted_home import MountedHome
from tests.torture.stateful import run_model


@pytest.fixture
def grove(request: pytest.FixtureRequest) -> Iterator[MountedHome]:
    made = MountedHome(*request.param)
    try:
        made.mount()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("grove", [("--limbo-seconds", LIMBO_S)], indirect=True)
def test_a_mounted_home_matches_the_model(grove: MountedHome) -> None:
    run_model(grove, 1, examples=4, steps=25)


@pytest.mark.parametrize("grove", [()], indirect=True)
def test_a_crowd_loses_no_update(grove: MountedHome) -> None:
    grove.mount()
    assert crowd(grove, 6.0, 1) > len(ROLES)
    log_by_all(grove, 100)
    many_on_one(grove, 8)


@pytest.mark.parametrize("grove", [()], indirect=True)
def test_a_long_running_mount_does_not_leak(grove: MountedHome) -> None:
    life = Life(grove)
    life.run(40)
    before, nodes = life.size(), life.nodes()
    life.run(40)
    life.check_flat(before, nodes)
