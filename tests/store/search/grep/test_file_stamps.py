"""File stamps: comparing many at once finds the same changes as comparing each."""

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
    """More files than one batch; one with an mtime before 1970, and a symlink."""
    place = tmp_path_factory.mktemp("files")
    for number in range(file_stamps._BATCH + 40):
        (place / f"{number:04}").write_text("x" * (number % 3))
    os.utime(place / "0007", ns=(0, -1_500_000_001))
    (place / "link").symlink_to("0001")
    return place


def test_unchanged_files_are_not_reported(place: Path) -> None:
    """Also directories, symlinks and times before 1970; with and without a prefix."""
    rows = rows_of(place)
    assert file_stamps.changed_paths(os.fsencode(place) + b"/", rows) == []
    assert file_stamps.changed_paths(b"", [(os.fsencode(place), file_stamps.pack(place.lstat()))]) == []
    assert file_stamps.changed_paths(b"", []) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.integers(0, file_stamps._BATCH + 39),
        st.one_of(
            st.tuples(st.integers(0, 5), st.integers(1, 2**31)), st.sampled_from([b"", file_stamps.NEVER, b"short"])
        ),
        max_size=4,
    )
)
def test_every_difference_is_found(place: Path, changed: dict[int, tuple[int, int] | bytes]) -> None:
    """In any field of any stamp, and for invalid stamps."""
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


def test_missing_paths_are_reported(place: Path) -> None:
    """Names that do not exist, and names below a file."""
    rows = rows_of(place)
    missing = [(b"nothing", rows[0][1]), (b"0001/inside", rows[0][1])]
    assert file_stamps.changed_paths(os.fsencode(place) + b"/", [*rows[:3], *missing, *rows[3:]]) == [
        p for p, _ in missing
    ]


def test_stamp_of_a_recent_change_is_not_trusted(tmp_path: Path) -> None:
    """Another change may follow within the same tick of the clock."""
    (tmp_path / "f").write_text("x")
    info = (tmp_path / "f").lstat()
    assert file_stamps.pack_if_settled(info, info.st_ctime_ns + 1_000) == file_stamps.NEVER
    assert file_stamps.pack_if_settled(info, info.st_ctime_ns + 10**9) == file_stamps.pack(info)
