"""A case of `scripts/torture merges`."""

from __future__ import annotations

from tests.torture import merges


def test_a_batch_contains_merges_and_clashes() -> None:
    assert 150 < merges.batch(7, 0) < merges.BATCH
