"""Some of the cases that `scripts/torture documents giants names` tries."""

from __future__ import annotations

import random

import pytest

from tests.torture import corpus, fuzz

pytestmark = pytest.mark.warns  # a sidecar that nobody can read is told of


@pytest.mark.parametrize("number", range(8))
def test_any_document_is_accepted_and_good_or_refused_and_changes_nothing(number: int) -> None:
    """Rules 3, 6 and 7; both happen, or the corpus is none."""
    accepted, refused = fuzz.batch(7, number, check_each=5)
    assert accepted > 20
    assert refused > 50


def test_a_giant_is_refused_before_long() -> None:
    fuzz.giant("one-repeated-key")


@pytest.mark.parametrize("number", range(2))
def test_any_name_is_refused_or_is_exactly_what_was_asked_for(number: int) -> None:
    assert fuzz.names_batch(7, number) > 20


def test_the_same_seed_gives_the_same_documents() -> None:
    def drawn() -> list[bytes]:
        draw = random.Random(3)
        return [corpus.document("session", draw) for _ in range(50)]

    assert drawn() == drawn()
    assert len(set(drawn())) > 40
