"""The first lives of the attack `grove`: always the same, within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store.grove.private_server import PrivateServer
from tests.torture.hosts.model_lives import live
from tests.torture.hosts.world import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with running_server() as running:
        yield running


@pytest.mark.parametrize("seed", [1, 7])
def test_three_hosts_match_the_model(server: PrivateServer, seed: int) -> None:
    """Deeds at the same time, cut cables and killed hosts: all homes are what the model allows, and identical."""
    story = live(server, seed, steps=30)
    assert story.count("settled") == 3
