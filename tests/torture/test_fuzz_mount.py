"""Some of what `scripts/torture mount-documents mount-names` tries."""

from __future__ import annotations

from tests.torture import fuzz_mount
from tests.torture.mounts import mounted


def test_through_a_mount_every_document_and_every_name_is_taken_whole_or_refused() -> None:
    with mounted(fuzz_mount.fill) as mount:
        assert fuzz_mount.batch(mount, 7, 0, size=50) > 2
        assert fuzz_mount.names_batch(mount, 7, 0, size=50) > 5
