"""A few cases of `scripts/torture documents giants names`."""

from __future__ import annotations

import random

import pytest

from tests.torture import corpus, fuzz

pytestmark = pytest.mark.warns  # an unreadable sidecar is logged


@pytest.mark.parametrize("number", range(8))
def test_documents_are_accepted_and_valid_or_rejected_without_change(number: int) -> None:
    """Rules 3, 6 and 7; the corpus must contain both kinds."""
    accepted, refused = fuzz.batch(7, number, check_each=5)
    assert accepted > 20
    assert refused > 50


def test_a_giant_is_handled_quickly() -> None:
    fuzz.giant("one-repeated-key")


@pytest.mark.parametrize("number", range(2))
def test_names_are_rejected_or_used_exactly(number: int) -> None:
    assert fuzz.names_batch(7, number) > 20


def test_the_same_seed_gives_the_same_documents() -> None:
    def drawn() -> list[bytes]:
        draw = random.Random(3)
        return [corpus.document("session", draw) for _ in range(50)]

    assert drawn() == drawn()
    assert len(set(drawn())) > 40
