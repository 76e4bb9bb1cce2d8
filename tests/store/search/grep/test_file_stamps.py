"""Stamps: whether many files are as they were, a column at a time, as one by one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.search.grep import file_stamps


def rows_of(place: Path) -> list[tuple[bytes, bytes]]:
    return [(os.fsencode(path.name), file_stamps.pack(path.lstat())) for path in sorted(place.iterdir())]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More files than are compared at once; one of before 1970, and a link."""
    place = tmp_path_factory.mktemp("files")
    for number in range(file_stamps._AT_A_TIME + 40):
        (place / f"{number:04}").write_text("x" * (number % 3))
    os.utime(place / "0007", ns=(0, -1_500_000_001))
    (place / "link").symlink_to("0001")
    return place


def test_what_did_not_change_is_as_it_was(place: Path) -> None:
    """Directories, links and times before 1970 too; with a prefix as without one."""
    rows = rows_of(place)
    assert file_stamps.changed_paths(os.fsencode(place) + b"/", rows) == []
    assert file_stamps.changed_paths(b"", [(os.fsencode(place), file_stamps.pack(place.lstat()))]) == []
    assert file_stamps.changed_paths(b"", []) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.integers(0, file_stamps._AT_A_TIME + 39),
        st.one_of(
            st.tuples(st.integers(0, 5), st.integers(1, 2**31)), st.sampled_from([b"", file_stamps.NEVER, b"short"])
        ),
        max_size=4,
    )
)
def test_every_difference_is_seen(place: Path, changed: dict[int, tuple[int, int] | bytes]) -> None:
    """In any field of any stamp, and where a stamp is none."""
    rows = rows_of(place)
    for number, change in changed.items():
        path, stamp = rows[number]
        if isinstance(change, tuple):
            fields = list(file_stamps._STAMP.unpack(stamp))
            fields[change[0]] += change[1]
            change = file_stamps._STAMP.pack(*fields)
        rows[number] = (path, change)
    expected = [rows[number][0] for number in sorted(changed)]
    assert file_stamps.changed_paths(os.fsencode(place) + b"/", rows) == expected


def test_what_cannot_be_looked_at_differs(place: Path) -> None:
    """A name that is not there, or leads through a file."""
    rows = rows_of(place)
    missing = [(b"nothing", rows[0][1]), (b"0001/inside", rows[0][1])]
    assert file_stamps.changed_paths(os.fsencode(place) + b"/", [*rows[:3], *missing, *rows[3:]]) == [
        p for p, _ in missing
    ]


def test_a_change_just_made_is_not_trusted(tmp_path: Path) -> None:
    """It may be followed by another within the same tick of the clock."""
    (tmp_path / "f").write_text("x")
    info = (tmp_path / "f").lstat()
    assert file_stamps.pack_if_settled(info, info.st_ctime_ns + 1_000) == file_stamps.NEVER
    assert file_stamps.pack_if_settled(info, info.st_ctime_ns + 10**9) == file_stamps.pack(info)
