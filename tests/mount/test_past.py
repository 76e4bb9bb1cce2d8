"""history/, at/<time>/ and snapshots/ in a mount, and undo of edits made through one."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Message, Store, Timestamp
from store.history.authors import Author
from tests.builders import make_session, read_json
from tests.mount.conftest import Mount, grovefs, wait_until
from tests.mount.test_other_users import as_user, user  # noqa: F401
from tests.mount.test_rsync import EXACT, inside, rsync

MountHome = Callable[..., Mount]

SESSIONS = 15
LIVE = 3  # sessions in which an agent keeps writing
COMMITS = 500


def now() -> str:
    """A moment after everything so far, and before everything to come, as a name in at/."""
    time.sleep(0.002)
    moment = str(Timestamp.from_ns(time.time_ns() + 1))
    time.sleep(0.002)
    return moment


def append(home: Path, id: str, text: str) -> None:
    with Store.open(home, background=False, author="agent") as store:
        store.append(id, [Message.assistant(text)])


def test_tools_that_walk_the_mount_do_not_meet_the_past(mounted: Mount) -> None:
    """history/ and at/ exist when they are named; snapshots/ contains links only."""
    assert grovefs("snapshot", "--home", mounted.home, "monday").returncode == 0
    top = set(os.listdir(mounted.path))
    assert "snapshots" in top
    assert {"history", "at"}.isdisjoint(top)
    assert os.listdir(mounted.path / "history") == os.listdir(mounted.path / "at") == []
    found = subprocess.run(["find", str(mounted.path)], check=True, capture_output=True, text=True).stdout
    assert "/history" not in found
    assert [line for line in found.splitlines() if "/snapshots/" in line] == [f"{mounted.path}/snapshots/monday"]
    assert sorted(os.listdir(mounted.path / "snapshots/monday/sessions")) == ["pinned", "root"]


def test_versions_are_files(mounted: Mount) -> None:
    """Every save through the mount is one, named after the program that made it."""
    document = mounted.sessions / "root/session.json"
    before = document.read_bytes()
    subprocess.run(["sed", "-i", "s/The root/Another title/", str(document)], check=True)
    versions = sorted((mounted.path / "history/root").glob("*.json"))
    assert [version.name.partition("~")[0] for version in versions] == ["000001", "000002"]
    assert versions[1].name.endswith("~sed.json")
    assert [version.read_bytes() for version in versions] == [before, document.read_bytes()]
    assert [version.stat().st_size for version in versions] == [len(before), document.stat().st_size]
    children = mounted.path / "history/root/children"
    assert sorted(os.listdir(children)) == ["child", "grandchild"]
    [child] = (children / "child").iterdir()
    assert child.read_bytes() == (mounted.sessions / "root/children/child/session.json").read_bytes()


def test_the_past_is_read_only(mounted: Mount) -> None:
    """Every way to change it fails, and nothing can be moved out of it."""
    moment = mounted.path / "at" / now()
    document = moment / "sessions/root/session.json"
    version = next((mounted.path / "history/root").glob("*.json"))
    attempts: list[Callable[[], object]] = [
        lambda: document.write_bytes(b"{}"),
        lambda: version.write_bytes(b"{}"),
        lambda: document.open("r+b"),
        lambda: os.truncate(document, 0),
        document.unlink,
        version.unlink,
        lambda: document.rename(moment / "sessions/root/other.json"),
        lambda: document.rename(mounted.sessions / "root/other.json"),
        lambda: (mounted.sessions / "root/session.json").rename(document),
        lambda: (moment / "sessions/new").mkdir(),
        lambda: (mounted.path / "at/2026-01-01").mkdir(),
        lambda: (moment / "sessions/root").rmdir(),
        lambda: document.chmod(0o777),
        lambda: os.utime(document, (0, 0)),
        lambda: (mounted.path / "snapshots/mine").symlink_to("x"),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match=r".") as caught:
            attempt()
        assert caught.value.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV), caught.value


def test_a_moment_stays_as_it_was(mounted: Mount) -> None:
    """Whatever happens afterwards: an edit, an append, a rename, a deletion."""
    moment = mounted.path / "at" / now()
    then = {
        str(path.relative_to(mounted.sessions)): path.read_bytes()
        for path in mounted.sessions.rglob("*")
        if path.is_file()
    }
    subprocess.run(["sed", "-i", "s/The root/Another title/", str(mounted.sessions / "root/session.json")], check=True)
    append(mounted.home, "root/child", "more")
    os.rename(mounted.sessions / "root", mounted.sessions / "renamed")
    with mounted.store() as store:
        store.delete("pinned", force=True)
    assert sorted(os.listdir(mounted.sessions)) == ["renamed"]
    shown = {
        str(path.relative_to(moment / "sessions")): path.read_bytes()
        for path in (moment / "sessions").rglob("*")
        if path.is_file()
    }
    assert shown == then


def test_moments_that_are_not_kept_do_not_exist(mounted: Mount) -> None:
    """In the future, before the oldest version, or not a time."""
    for name in ("2090-01-01", "1999-12-31", "25:00", "yesterdayish", "7"):
        assert not (mounted.path / "at" / name).exists(), name


def test_times_are_written_as_for_commands(mounted: Mount) -> None:
    """Relative to now, or as `grovefs log` prints them."""
    [line] = grovefs("log", "--home", mounted.home, "pinned").stdout.splitlines()
    day, clock = line.split("\t")[1].split()
    for name in ("now", "0s", f"{day} {clock}", f"{day}T{clock}", f"{day}T{clock.replace(':', '.')}"):
        assert read_json(mounted.path / "at" / name / "sessions/pinned/session.json")["title"] == "Pinned", name


def test_numbers_and_times_survive_a_remount(filled: Path, mount_home: MountHome) -> None:
    """Backup tools compare them."""
    moment = now()

    def facts(mount: Mount) -> list[tuple[int, int, int]]:
        paths = [mount.path / "at" / moment / "sessions/root/session.json", *(mount.path / "history/root").glob("*")]
        return [(info.st_ino, info.st_mtime_ns, info.st_size) for info in map(os.stat, paths)]

    first, second = mount_home(filled), mount_home(filled)
    assert facts(first) == facts(second)
    with first.store() as store:
        newest = store.history.newest("root")
    assert newest is not None
    assert facts(first)[0][1] == newest.at_ns


def test_rsync_link_dest_copies_only_what_changed(mounted: Mount, place: Path) -> None:
    """Two snapshots, one session changed in between: every other file is a hard link to the first copy."""
    for name in ("one", "two"):
        assert grovefs("snapshot", "--home", mounted.home, name).returncode == 0
        source = inside(mounted.path / "snapshots" / name / "sessions")
        rsync(*EXACT, f"--link-dest={place}/copy-one", source, inside(place / f"copy-{name}"))
        append(mounted.home, "pinned", "more")
    first, second = place / "copy-one", place / "copy-two"
    same = {
        str(path.relative_to(first)): os.path.samefile(path, second / path.relative_to(first))
        for path in first.rglob("*")
        if path.is_file()
    }
    assert {path for path, is_same in same.items() if not is_same} == {"pinned/session.json", "pinned/runtime.json"}
    assert len(same) > 5
    source = inside(mounted.path / "snapshots/two/sessions")
    assert rsync(*EXACT, "-n", source, inside(second)).stdout == ""


def test_a_snapshot_is_consistent_while_sessions_change(place: Path, mount_home: MountHome) -> None:
    """rsync of a snapshot during 500 commits copies the state at its moment, byte for byte."""
    home, ids = place / "home", [f"s{number}" for number in range(10)]
    texts: dict[str, list[bytes]] = {id: [] for id in ids}
    with Store.open(home, background=False, durability="normal") as store:
        for id in ids:
            store.save(make_session(id, title=f"Session {id}"))
            texts[id].append((home / f"sessions/{id}/session.json").read_bytes())
    mount = mount_home(home)

    def work() -> None:
        with Store.open(home, background=False, durability="normal", author=Author("api", "agent")) as agent:
            for number in range(COMMITS):
                id = ids[number % len(ids)]
                agent.append(id, [Message.user(f"message {number}")])
                texts[id].append((home / f"sessions/{id}/session.json").read_bytes())

    worker = threading.Thread(target=work)
    worker.start()
    wait_until(lambda: len(texts["s5"]) > 5, 60)
    before = {id: len(found) for id, found in texts.items()}
    with mount.store() as store:
        made = store.history.snapshot("live")
    after = {id: len(found) for id, found in texts.items()}
    rsync("-a", inside(mount.path / "snapshots/live/sessions"), inside(place / "copy"))
    is_still_working = worker.is_alive()
    worker.join()
    assert is_still_working, "the copy was made after all commits"
    with mount.store() as store:
        for id in ids:
            copied = (place / f"copy/{id}/session.json").read_bytes()
            version = store.history.at(id, made.at_ns)
            assert version is not None
            assert store.history.read(version).main == copied
            assert (place / f"copy/{id}/runtime.json").read_bytes() == store.history.read(version).side
            # The writer's own record: a state between those before and after the snapshot was made.
            assert before[id] - 1 <= texts[id].index(copied) <= after[id]
        assert store.check().is_clean


def test_a_wrong_sed_is_undone(place: Path, mount_home: MountHome) -> None:
    """Made through the mount, undone by the command, with --merge where an agent wrote afterwards, and undone again."""
    home = place / "home"
    with Store.open(home, background=False, durability="normal", author="agent") as store:
        for number in range(SESSIONS):
            store.save(make_session(f"s{number:02}", messages=0))
            store.append(f"s{number:02}", [Message.user("because of teh test")])
    mount = mount_home(home)
    documents = sorted(mount.sessions.glob("*/session.json"))
    started = time.strftime("%Y-%m-%dT%H:%M:%S")
    subprocess.run(["sed", "-i", "s/teh/the/", *map(str, documents)], check=True)
    live = [f"s{number:02}" for number in range(LIVE)]
    for id in live:
        append(home, id, "the answer")

    def undo(*options: str) -> subprocess.CompletedProcess[str]:
        return grovefs("undo", "--home", home, "--since", started, *options, "--yes")

    def said() -> dict[str, list[str]]:
        """What a reader of the mount sees."""
        found = {path.parent.name: read_json(path)["messages"] for path in documents}
        return {id: [message["content"] for message in messages] for id, messages in found.items()}

    first = undo("--by", "sed")
    assert first.returncode == 1
    assert first.stdout.count("changed since by agent; --merge keeps those changes") == LIVE
    assert f"undone in {SESSIONS - LIVE} sessions, {LIVE} refused" in first.stdout
    second = undo("--by", "sed", "--merge")
    assert second.returncode == 0
    assert f"undone in {LIVE} sessions, {SESSIONS - LIVE} already as before" in second.stdout
    rest = {id: ["the answer"] if id in live else [] for id in said()}
    assert said() == {id: ["because of teh test", *more] for id, more in rest.items()}
    assert undo("--by", "revert*").returncode == 0
    assert said() == {id: ["because of the test", *more] for id, more in rest.items()}


def test_other_users_see_no_more_of_the_past_than_of_the_present(
    filled: Path,
    mount_home: MountHome,
    user: int,  # noqa: F811
) -> None:
    """A session that is theirs to read today may be read as it was; a deleted one only by its owner."""
    for path in (filled / "sessions", filled / "sessions/pinned", filled / "sessions/root"):
        path.chmod(0o755)
    for id in ("pinned", "root"):
        (filled / f"sessions/{id}/session.json").chmod(0o644)
    with Store.open(filled, background=False) as store:
        store.save(make_session("private"))
    (filled / "sessions/private").chmod(0o700)
    moment = now()
    with Store.open(filled, background=False) as store:
        store.delete("pinned", force=True)
    mount = mount_home(filled, "--allow-other")
    mount.path.parent.chmod(0o755)
    for id, is_shown in (("root", True), ("pinned", False), ("private", False)):
        path = mount.path / "at" / moment / f"sessions/{id}/session.json"
        assert path.read_bytes()
        assert (as_user(user, "cat", path).returncode == 0) == is_shown, id
    listed = as_user(user, "ls", mount.path / "at" / moment / "sessions")
    assert listed.stdout.split() == ["root"]


def test_the_owner_of_a_session_can_read_its_past(
    filled: Path,
    mount_home: MountHome,
    user: int,  # noqa: F811
) -> None:
    """A user who may read session.json as its owner or group may read its older versions too."""
    (filled / "sessions").chmod(0o755)
    for path in (filled / "sessions/root", filled / "sessions/root/session.json"):
        os.chown(path, user, -1)
        path.chmod(0o700 if path.is_dir() else 0o600)
    mount = mount_home(filled, "--allow-other")
    mount.path.parent.chmod(0o755)
    with mount.store() as store:
        store.append("root", [Message.user("one more")])
    version = next((mount.path / "history/root").glob("*.json"))
    moment = mount.path / "at" / now()
    for path in (mount.sessions / "root/session.json", version, moment / "sessions/root/session.json"):
        assert as_user(user, "cat", path).returncode == 0, path


def test_b2_other_users_see_no_more_in_history_and_at_a_snapshot_than_in_sessions(
    filled: Path,
    mount_home: MountHome,
    user: int,  # noqa: F811
) -> None:
    """Neither versions nor names of sessions that they cannot read today. Every user follows the same link."""
    (filled / "sessions").chmod(0o755)
    (filled / "sessions/root").chmod(0o755)
    (filled / "sessions/root/session.json").chmod(0o644)
    assert grovefs("snapshot", "--home", filled, "monday").returncode == 0
    append(filled, "root", "after the snapshot")
    mount = mount_home(filled, "--allow-other")
    mount.path.parent.chmod(0o755)
    monday = mount.path / "snapshots/monday/sessions"
    assert sorted(os.listdir(monday)) == ["pinned", "root"]
    assert as_user(user, "ls", monday).stdout.split() == ["root"]
    for id, is_shown in (("root", True), ("pinned", False)):
        versions = sorted((mount.path / "history" / id).glob("*.json"))
        assert len(versions) == (2 if id == "root" else 1)
        for path in (*versions, monday / id / "session.json"):
            assert path.read_bytes()
            assert (as_user(user, "cat", path).returncode == 0) == is_shown, path
        listed = as_user(user, "ls", mount.path / "history" / id)
        assert (listed.stdout != "") == is_shown, id
    assert as_user(user, "ls", mount.path / "snapshots").stdout.split() == ["monday"]
    assert as_user(user, "ls", mount.path / "snapshots/monday").stdout.split() == ["sessions"]
    old = (monday / "root/session.json").read_bytes()
    assert b"after the snapshot" not in old
    assert as_user(user, "cat", monday / "root/session.json").stdout.encode() == old


def test_a_mount_without_history_keeps_no_versions(filled: Path, mount_home: MountHome) -> None:
    """Saves work, and status.json says that the history is turned off. Earlier versions stay."""
    mount = mount_home(filled, "--no-history")
    for number in range(3):
        subprocess.run(
            ["sed", "-i", f's/"title": *"[^"]*"/"title": "By sed {number}"/', "session.json"],
            check=True,
            cwd=mount.sessions / "root",
        )
    assert read_json(mount.sessions / "root/session.json")["title"] == "By sed 2"
    assert read_json(mount.path / ".grovefs/status.json")["history"]["problem"] == "turned off"
    with Store.open(filled, background=False) as store:
        titles = [store.history.load(version).title for version in store.history.log("root")]
    assert "By sed 0" not in titles
    assert "By sed 1" not in titles
    assert titles[-1] == "The root"


def test_purged_texts_are_gone_from_a_mount(mounted: Mount) -> None:
    """Also those that were read before and are in the kernel's cache."""
    document = mounted.sessions / "root/session.json"
    for old, new in (("The root", "A password"), ("A password", "[redacted]")):
        subprocess.run(["sed", "-i", f"s/{old}/{new}/", str(document)], check=True)
    moment = mounted.path / "at" / now() / "sessions/root/session.json"
    wrong = next((mounted.path / "history/root").glob("000002~*"))
    assert b"A password" in wrong.read_bytes()
    assert b"[redacted]" in moment.read_bytes()
    purged = grovefs("history", "purge", "--home", mounted.home, "--matching", "A password", "--yes")
    assert purged.returncode == 0, purged.stderr
    wait_until(lambda: not wrong.exists(), 60)
    assert b"[redacted]" in moment.read_bytes()
    shown = subprocess.run(["grep", "-rl", "A password", str(mounted.path / "history/root")], capture_output=True)
    assert shown.stdout == b""


def test_a_mount_that_keeps_no_versions_says_so(filled: Path, mount_home: MountHome) -> None:
    """In its status.json, and by the commands that read it."""
    mount = mount_home(filled, "--no-history")
    history = read_json(mount.path / ".grovefs/status.json")["history"]
    assert (history["is_working"], history["problem"]) == (False, "turned off")
    assert not [name for name in history if name.endswith("_ns")]
    status = grovefs("status", "--home", filled).stdout
    assert (
        f"mounted  {mount.path} of {filled}: versions are NOT KEPT: turned off; mount again without --no-history"
        in status
    )
    size = grovefs("history", "size", "--home", filled)
    assert size.returncode == 1
    assert f"versions are not being kept by the mount {mount.path}: turned off" in size.stdout
