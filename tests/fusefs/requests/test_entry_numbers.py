"""The shown number is written next to the node's, which stays."""

from __future__ import annotations

from pyfuse3 import EntryAttributes

from fusefs.requests import entry_numbers


def test_place_is_found_in_the_supported_pyfuse3() -> None:
    """Without it readdir shows the node's number and getattr the other one. tests/mount compares both."""
    assert entry_numbers._OFFSET is not None


def test_node_and_other_attributes_are_kept() -> None:
    attrs = EntryAttributes()
    attrs.st_ino, attrs.generation, attrs.st_mode, attrs.st_size, attrs.entry_timeout = 7, 3, 0o100600, 99, 1.5
    entry_numbers.show_number(attrs, 8)
    assert (attrs.st_ino, attrs.generation, attrs.st_mode, attrs.st_size) == (7, 3, 0o100600, 99)
    assert attrs.entry_timeout == 1.5
