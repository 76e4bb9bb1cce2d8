"""Being called by mount(8): its words become ours, and none is guessed at."""

from __future__ import annotations

import pytest

from fusefs.cli import fstab


def test_the_words_of_mount_become_ours() -> None:
    words = ["/home/ada/.grovefs", "/mnt", "-o", "rw,nosuid,noatime,allow_other,durability=normal,x-systemd.automount"]
    assert fstab.translate(words) == [
        *["mount", "--home", "/home/ada/.grovefs", "--kernel-option", "nosuid", "--kernel-option", "noatime"],
        *["--allow-other", "--durability", "normal", "--", "/mnt"],
    ]
    assert fstab.translate(["/h", "/m"]) == ["mount", "--home", "/h", "--", "/m"]
    assert fstab.translate(["/h", "/m", "-n", "-s", "-oro,dev"]) == ["mount", "--home", "/h", "--read-only", "--", "/m"]
    assert fstab.translate(["-t", "fuse.grovefs", "/h", "/m"]) == ["mount", "--home", "/h", "--", "/m"]


@pytest.mark.parametrize("words", ["/h /m -o r0", "/h /m -o durability=", "/h", "/h /m /x"])
def test_what_is_not_known_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong spelling of `ro` must not become a mount that can be written to."""
    with pytest.raises(SystemExit) as ended:
        fstab.run(words.split())
    assert ended.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_call_of_mount_is_told_from_a_command() -> None:
    assert fstab.is_call(["grovefs", "/home/ada/.grovefs", "/mnt", "-o", "rw"])
    assert fstab.is_call(["/sbin/mount.grovefs", "home", "/mnt"])
    assert not fstab.is_call(["grovefs", "show", "root/child"])
    assert not fstab.is_call(["grovefs", "root/child", "show"])  # a slip, which must not make a home
    assert not fstab.is_call(["grovefs", "--home=/x", "ls", "-o"])
