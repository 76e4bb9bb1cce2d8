"""Checks before mounting, and the directory created for the mountpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusefs.daemon import mountpoint
from fusefs.daemon.mountpoint import MountError, MountOptions, check_mountpoint, make_mountpoint
from fusefs.daemon.profile import profiled


@pytest.fixture
def options(tmp_path: Path) -> MountOptions:
    (tmp_path / "home").mkdir()
    return MountOptions(tmp_path / "home", tmp_path / "mnt")


@pytest.fixture(autouse=True)
def with_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountpoint, "which", lambda _: "/bin/fusermount3")
    monkeypatch.setattr(mountpoint, "clear_dead", lambda _: None)


def test_failed_mount_removes_the_directory_it_created(options: MountOptions) -> None:
    with pytest.raises(ValueError, match="created: True"), make_mountpoint(options):
        raise ValueError(f"created: {options.mountpoint.is_dir()}")
    assert not options.mountpoint.exists()


def test_failed_mount_keeps_a_directory_that_existed(options: MountOptions) -> None:
    options.mountpoint.mkdir()
    with pytest.raises(ValueError, match="mount"), make_mountpoint(options):
        raise ValueError("mount failed")
    assert options.mountpoint.is_dir()


def test_only_the_last_directory_is_created(tmp_path: Path) -> None:
    """A mistyped path is an error, not a new tree."""
    options = MountOptions(tmp_path / "home", tmp_path / "no/where")
    with pytest.raises(MountError, match="does not exist"), make_mountpoint(options):
        pass
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", ["home", "home/mnt"])
def test_mountpoint_inside_the_home_is_rejected(tmp_path: Path, name: str) -> None:
    """The daemon would wait for itself."""
    (tmp_path / "home").mkdir()
    with (
        pytest.raises(MountError, match="is inside the home"),
        make_mountpoint(MountOptions(tmp_path / "home", tmp_path / name)),
    ):
        pass
    assert list((tmp_path / "home").iterdir()) == []


def test_mountpoint_must_be_an_empty_directory(options: MountOptions) -> None:
    options.mountpoint.write_text("a file")
    with pytest.raises(MountError, match="not a directory"):
        check_mountpoint(options)
    options.mountpoint.unlink()
    options.mountpoint.mkdir()
    check_mountpoint(options)
    (options.mountpoint / "file").touch()
    with pytest.raises(MountError, match="not empty"):
        check_mountpoint(options)


def test_profile_lists_the_functions_that_ran(tmp_path: Path) -> None:
    with profiled(tmp_path / "profile"):
        sorted([3, 1, 2])
    text = (tmp_path / "profile").read_text()
    assert "sorted" in text
    assert "cumulative" in text


def test_unwritable_profile_fails_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), profiled(tmp_path / "no/profile"):
        pytest.fail("must not run")
