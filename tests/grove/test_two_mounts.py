"""Two mounts of two hosts: an edit on one is seen by cat, ls and search on the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from store import Message, Session, Store
from tests.grove.groves import assert_clean, create, join, wait_until
from tests.mount.conftest import Mount, mount_home, place  # noqa: F401  (fixtures)

VIM = [
    "vim",
    "-N",
    "-u",
    "NONE",
    "-i",
    "NONE",
    "-es",
    "-c",
    "%s/walrus/narwhal/",
    "-c",
    "wq",
    "-c",
    "cq",
    "session.json",
]


def test_an_edit_with_vim_is_seen_on_the_other_mount(
    place: Path,  # noqa: F811
    mount_home: Callable[..., Mount],  # noqa: F811
    url: str,
) -> None:
    """The pages that the kernel of the other host had cached are replaced."""
    create(url)
    with Store.open(place / "one", background=False) as store:
        store.save(Session.new("s1", "m"))
        store.append("s1", [Message.user("a walrus")])
    for name in ("one", "two"):
        join(place / name, url)
    one = mount_home(place / "one")
    two = mount_home(place / "two")
    seen = two.path / "sessions/s1/session.json"
    assert "walrus" in seen.read_text()
    subprocess.run(VIM, cwd=one.path / "sessions/s1", check=True, timeout=60)
    wait_until(lambda: "narwhal" in seen.read_text())
    wait_until(lambda: [*(two.path / "search/narwhal").iterdir()])
    (one.path / "state/notes").mkdir(parents=True, exist_ok=True)
    (one.path / "state/notes/plan.md").write_text("a plan")
    wait_until(lambda: (two.path / "state/notes/plan.md").exists())
    assert (two.path / "state/notes/plan.md").read_text() == "a plan"
    subprocess.run(["rm", "-r", str(two.path / "sessions/s1")], check=True, timeout=60)
    wait_until(lambda: "s1" not in [path.name for path in (one.path / "sessions").iterdir()])
    for name in ("one", "two"):
        with Store.open(place / name, background=False) as store:
            wait_until(lambda store=store: not store.ids())  # type: ignore[misc]
            assert_clean(store)
