"""A few cases of `scripts/torture mount-documents mount-names`."""

from __future__ import annotations

from tests.torture import fuzz_mount
from tests.torture.mounts import mounted


def test_through_a_mount_documents_and_names_are_accepted_or_rejected() -> None:
    with mounted(fuzz_mount.fill) as mount:
        assert fuzz_mount.batch(mount, 7, 0, size=50) > 2
        assert fuzz_mount.names_batch(mount, 7, 0, size=50) > 5
