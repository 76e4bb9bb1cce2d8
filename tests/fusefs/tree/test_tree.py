"""The namespace of the mount: which names the extension may answer."""

from __future__ import annotations

import pytest

from fusefs.fast import PROBED_NAMES
from fusefs.tree import tree
from store.path_kinds import PathKind, classify_path


@pytest.mark.parametrize(
    "path", ["sessions", "sessions/root", "sessions/root/children", "sessions/root/children/child"]
)
def test_probed_names_are_foreign_files(path: str) -> None:
    """They exist if they are on the disk, and for everybody. So the extension can answer for them."""
    assert classify_path(path).kind in tree._SHOWS_PROBED
    assert {classify_path(f"{path}/{name}").kind for name in PROBED_NAMES} == {PathKind.FOREIGN}
