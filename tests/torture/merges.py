"""Random edits of random documents by two sides: the laws of the merge hold for each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from tests.store.documents.merge_samples import check_laws
from tests.torture.attack import Case

BATCH = 250
BATCHES = 80


def laws(seed: int) -> Iterator[Case]:
    """20,000 merges."""
    for number in range(BATCHES):
        yield Case(f"merges-{number}", partial(batch, seed, number))


def batch(seed: int, number: int) -> int:
    """Check the laws for one batch; returns the number of cases that could be merged."""
    draw = random.Random(f"{seed}-{number}")
    merged = 0
    for _ in range(BATCH):
        case = draw.randrange(2**32)
        try:
            merged += check_laws(case)
        except Exception as error:
            raise AssertionError(f"check_laws({case}) of tests/store/documents/merge_samples.py fails") from error
    return merged
