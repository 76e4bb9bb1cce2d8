"""Other users of the machine: what they can access, and that they can mount their own homes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_session
from tests.mount.conftest import CODE, Mount, daemons_of, grovefs, wait_until

MountHome = Callable[..., Mount]
USER = "grovefs-test"


@pytest.fixture
def user() -> Iterator[int]:
    """A user created for the test, without home directory and password."""
    if os.geteuid() != 0:
        pytest.fail("to make a user for this test takes root")
    done = subprocess.run(["useradd", "--no-create-home", "--system", USER], capture_output=True, text=True)
    assert done.returncode in (0, 9), done.stderr  # 9: the user exists, left by a killed test
    uid = int(subprocess.run(["id", "-u", USER], check=True, capture_output=True, text=True).stdout)
    yield uid
    subprocess.run(["userdel", USER], check=True, capture_output=True)


def as_user(uid: int, *command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    line = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *map(str, command)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


def test_home_is_accessible_only_to_its_owner(filled: Path) -> None:
    """Directories are 0700 and files 0600, including those in .grovefs."""
    with Store.open(filled, background=False) as store:
        store.usage.append("root", {"n": 1})
        store.state.save_json("facts", "f", 1)
        store.trigrams.sweep()
        store.trigrams.merge()
    for path in [filled, *filled.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path} is {mode:o}"


def test_mount_is_accessible_only_to_its_owner(mounted: Mount, user: int) -> None:
    """Without --allow-other the kernel denies even listing names."""
    mounted.path.parent.chmod(0o755)
    options = subprocess.run(
        ["findmnt", "-no", "OPTIONS", mounted.path], check=True, capture_output=True, text=True
    ).stdout
    assert "default_permissions" in options
    assert "allow_other" not in options
    for program, name in (("ls", "."), ("cat", "README.md"), ("touch", "x")):
        done = as_user(user, program, mounted.path / name)
        assert done.returncode != 0
        assert "Permission denied" in done.stderr


SHOWN = ("README.md", "sessions.json", "transcripts/root.md", "search/child/results.md", ".grovefs/status.json")


def test_allow_other_applies_the_modes_of_the_home(filled: Path, mount_home: MountHome, user: int) -> None:
    """Transcripts, views and sessions.json are as private as the documents they are derived from."""
    mount = mount_home(filled, "--allow-other")
    mount.path.parent.chmod(0o755)
    for path in SHOWN:
        assert (mount.path / path).read_bytes()
        assert as_user(user, "cat", mount.path / path).returncode != 0, path
    for path in ("", "sessions", "transcripts", "views", "search/child", "views/by-title"):
        assert as_user(user, "ls", mount.path / path).returncode != 0, path
    for program, name in (("touch", "x"), ("mkdir", "sessions/new"), ("rm", "README.md")):
        assert as_user(user, program, mount.path / name).returncode != 0, program


def test_world_readable_home_is_readable_by_others(filled: Path, mount_home: MountHome, user: int) -> None:
    """They cannot change anything."""
    subprocess.run(["chmod", "-R", "go+rX", filled / "sessions"], check=True)
    mount = mount_home(filled, "--allow-other")
    mount.path.parent.chmod(0o755)
    for path in (*SHOWN, "sessions/root/session.json"):
        done = as_user(user, "cat", mount.path / path)
        assert done.returncode == 0, done.stderr
    for program, name in (("touch", "root/session.json"), ("mkdir", "new")):
        assert as_user(user, program, mount.sessions / name).returncode != 0, program
    assert os.listdir(mount.sessions) == ["pinned", "root"]


@pytest.fixture
def half_open(filled: Path) -> Path:
    """A home in which other users may read the session `root` and its child `child`, and nothing else."""
    with Store.open(filled, background=False) as store:
        store.state.save_markdown("notes", "secret", "msg in a private document")
        store.save(make_session("broken"))
        (filled / "sessions/broken/session.json").write_text("{")
        store.maintenance.sweep()
    for path in ("", "/root", "/root/children", "/root/children/child"):
        (filled / f"sessions{path}").chmod(0o755)
    for path in ("root", "root/children/child"):
        (filled / f"sessions/{path}/session.json").chmod(0o644)
    return filled


def seen_by(uid: int, mount: Mount) -> dict[str, str]:
    """Every name below the views, and the text of every file, as this user sees them."""
    code = (
        "import os, sys, json\n"
        "found = {}\n"
        "for top in ('transcripts', 'html', 'views', 'search/msg', '.grovefs'):\n"
        "    for folder, folders, files in os.walk(sys.argv[1] + '/' + top):\n"
        "        for name in folders + files:\n"
        "            path = folder + '/' + name\n"
        "            shown = os.readlink(path) if os.path.islink(path) else ''\n"
        "            if os.path.isfile(path) and not shown: shown = open(path).read()\n"
        "            found[path[len(sys.argv[1]) + 1:]] = shown\n"
        "found['sessions.json'] = open(sys.argv[1] + '/sessions.json').read()\n"
        "print(json.dumps(found))\n"
    )
    done = as_user(uid, sys.executable, "-c", code, mount.path)
    assert done.returncode == 0, done.stderr
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


@pytest.mark.warns  # of the broken session
def test_b2_views_show_a_user_the_sessions_whose_files_are_readable(
    half_open: Path, mount_home: MountHome, user: int
) -> None:
    """Names, links, transcripts, search results, sessions.json and .grovefs/; the owner sees all of it."""
    mount = mount_home(half_open, "--allow-other")
    mount.path.parent.chmod(0o755)
    (half_open / "sessions/pinned/session.json").chmod(0o644)  # in a directory without access
    for path in ("root/session.json", "root/children/child/session.json"):
        assert as_user(user, "cat", mount.sessions / path).returncode == 0
    for path in ("pinned/session.json", "root/children/grandchild/session.json"):
        assert as_user(user, "cat", mount.sessions / path).returncode != 0
    everything = seen_by(0, mount)  # also fills the caches of the kernel
    seen = seen_by(user, mount)
    assert {name for name in seen if name.startswith("transcripts/")} == {
        *["transcripts/root", "transcripts/root.md", "transcripts/root/child.md"]
    }
    assert set(json.loads(seen["sessions.json"])["sessions"]) == {"root", "child"}
    links = {text.rpartition("../")[2] for text in seen.values() if text.startswith("../")}
    assert links == {"sessions/root", "sessions/root/children/child"}
    whole = json.dumps(seen)
    for hidden in ("views/by-title/Pinned", "A grandchild", "broken", "private document"):
        assert hidden in json.dumps(everything), hidden
        assert hidden not in whole, hidden
    title = next(name for name in everything if name.startswith("views/by-title/Pinned"))
    for path in ("html/root.html", "html/root/child.html", "html/root.log.html"):
        page = as_user(user, "cat", mount.path / path)
        assert page.returncode == 0, page.stderr
        assert "grandchild" not in page.stdout
        assert "Pinned" not in page.stdout
    assert {name for name in seen if name.startswith("html/")} == {"html/index.html"}
    hidden_paths = ["transcripts/pinned.md", "transcripts/root/grandchild.md", title]
    hidden_paths += ["html/pinned.html", "html/pinned.images", "html/root/grandchild.html", "html/stats.html"]
    for path in hidden_paths:
        assert os.path.lexists(mount.path / path), path
        assert as_user(user, "stat", mount.path / path).returncode != 0, path
    (half_open / "sessions/root/session.json").chmod(0o600)
    wait_until(lambda: as_user(user, "cat", mount.path / "transcripts/root.md").returncode != 0)


def test_log_is_accessible_only_to_its_owner(filled: Path, place: Path) -> None:
    """A link or FIFO in its place is a one-line error: the link is not followed, the FIFO does not block."""
    log, mountpoint, outside = filled / ".grovefs/mount.log", place / "mnt", place / "outside"
    mountpoint.mkdir()
    assert grovefs("mount", "--home", filled, mountpoint).returncode == 0
    assert grovefs("umount", mountpoint).returncode == 0
    wait_until(lambda: not daemons_of(mountpoint))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    plants: tuple[Callable[[], None], ...] = (lambda: log.symlink_to(outside), lambda: os.mkfifo(log))
    for plant in plants:
        log.unlink()
        plant()
        done = grovefs("mount", "--home", filled, mountpoint)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "mount.log" in done.stderr
        assert not outside.exists()


def test_help_explains_allow_other() -> None:
    said = " ".join(grovefs("mount", "--help", env={**os.environ, "COLUMNS": "200"}).stdout.replace("│", " ").split())
    assert "--allow-other" in said
    assert "only the mounting user has access" in said


# Run as the other user, in a mount namespace where /dev/fuse is accessible to all, as on most machines.
SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path
place = Path(sys.argv[1])
command = [sys.executable, "-c", sys.argv[2]]
def grovefs(*arguments):
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
grovefs("mount", "--home", place / "home", place / "mnt")
path = place / "mnt/sessions/mine/session.json"
document = json.loads(path.read_text())
document["title"] = "Edited by another user"
path.write_text(json.dumps(document))
assert json.loads(path.read_text())["title"] == "Edited by another user"
assert path.stat().st_uid == os.getuid() != 0
grovefs("umount", place / "mnt")
print(grovefs("check", "--home", place / "home"))
"""


def test_unprivileged_user_can_mount(place: Path, user: int) -> None:
    """Through fusermount3, which is set-user-ID root."""
    with Store.open(place / "home", background=False) as store:
        store.save(make_session("mine"))
    (place / "mnt").mkdir()
    for path in [place, *place.rglob("*")]:
        os.chown(path, user, user)
    shutil.copytree(Path(__file__).parents[2] / "store", place / "code/store")
    shutil.copytree(Path(__file__).parents[2] / "fusefs", place / "code/fusefs")
    packages, prefix = place / "packages", place / "python"
    packages.mkdir()
    prefix.mkdir()
    prepare = [
        "mount -t tmpfs -o mode=755 tmpfs /dev",
        "mknod -m 666 /dev/null c 1 3",
        "mknod -m 666 /dev/urandom c 1 9",
        "mknod -m 666 /dev/fuse c 10 229",
        f"mount --bind {sysconfig.get_path('purelib')} {packages}",
        f"mount --bind {sys.base_prefix} {prefix}",  # it may be in a directory that only root can access
        f"chmod 755 {place} {place}/code",
    ]
    python = f"{prefix}/bin/{os.path.basename(os.path.realpath(sys.executable))}"
    work = [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "env",
        "-i",
        f"PATH={os.environ['PATH']}",
    ]
    work += [
        f"PYTHONPATH={place}/code:{packages}",
        f"HOME={place}",
        "PYTHONDONTWRITEBYTECODE=1",
        f"LD_LIBRARY_PATH={prefix}/lib",
        python,
        "-c",
        SCRIPT,
    ]
    work += [str(place), CODE]
    script = " && ".join([*prepare, 'exec "$@"'])
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *work], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"is /dev/fuse forbidden here, or fusermount3 not set-uid? {done.stderr}"
    assert "clean" in done.stdout.lower() or "no damage" in done.stdout.lower(), done.stdout
