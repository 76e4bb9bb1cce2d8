"""Invocation by mount(8): options are translated, unknown ones rejected."""

from __future__ import annotations

import pytest

from fusefs.cli import fstab


def test_mount_options_are_translated() -> None:
    words = ["/home/ada/.grovefs", "/mnt", "-o", "rw,nosuid,noatime,allow_other,durability=normal,x-systemd.automount"]
    assert fstab.translate(words) == [
        *["mount", "--home", "/home/ada/.grovefs", "--kernel-option", "nosuid", "--kernel-option", "noatime"],
        *["--allow-other", "--durability", "normal", "--", "/mnt"],
    ]
    assert fstab.translate(["/h", "/m"]) == ["mount", "--home", "/h", "--", "/m"]
    assert fstab.translate(["/h", "/m", "-n", "-s", "-oro,dev"]) == ["mount", "--home", "/h", "--read-only", "--", "/m"]
    assert fstab.translate(["-t", "fuse.grovefs", "/h", "/m"]) == ["mount", "--home", "/h", "--", "/m"]


@pytest.mark.parametrize("words", ["/h /m -o r0", "/h /m -o durability=", "/h", "/h /m /x"])
def test_unknown_options_are_rejected(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled `ro` must not become a writable mount."""
    with pytest.raises(SystemExit) as ended:
        fstab.run(words.split())
    assert ended.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_calls_by_mount_are_recognised() -> None:
    assert fstab.is_call(["grovefs", "/home/ada/.grovefs", "/mnt", "-o", "rw"])
    assert fstab.is_call(["/sbin/mount.grovefs", "home", "/mnt"])
    assert not fstab.is_call(["grovefs", "show", "root/child"])
    assert not fstab.is_call(["grovefs", "root/child", "show"])  # a typo must not create a home
    assert not fstab.is_call(["grovefs", "--home=/x", "ls", "-o"])
