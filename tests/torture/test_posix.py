"""The first operations of the comparison with the native filesystem; scripts/torture runs many more."""

from __future__ import annotations

import pytest

from tests.torture.posix import compare

OPERATIONS, SEEDS = 1_000, (3, 7, 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_files_of_a_mount_behave_as_on_the_native_filesystem(seed: int) -> None:
    """Attachments, foreign files and state texts: bytes, sizes, modes, offsets, listings and errno."""
    compare(OPERATIONS, seed)
