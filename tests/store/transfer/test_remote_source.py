"""Import over ssh, from a real sshd on loopback: one way, incremental, hosts kept apart."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import InvalidName, NotFound, Store
from store.transfer.remote_source import RemoteSource, parse_url
from tests.store.transfer.foreign import CLAUDE_ID, CODEX_ID, claude_line, make_claude, make_codex

DEADLINE_S = 60


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory reachable by ssh as the hosts alpha and beta."""
    place, home = tmp_path / "sshd", tmp_path / "remote"
    place.mkdir(mode=0o700)
    home.mkdir()
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = [f"HostKey {place}/host_key", f"AuthorizedKeysFile {place}/user_key.pub", "StrictModes no", "UsePAM no"]
    server += [f'ForceCommand cd {home} && eval "$SSH_ORIGINAL_COMMAND"', "PidFile none", "PermitRootLogin yes"]
    (place / "sshd_config").write_text("\n".join([f"ListenAddress 127.0.0.1:{port}", *server]) + "\n")
    client = [f"Port {port}", "HostName 127.0.0.1", f"IdentityFile {place}/user_key", "IdentitiesOnly yes"]
    client += ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "LogLevel ERROR"]
    (place / "ssh_config").write_text("Host alpha beta\n" + "".join(f"  {line}\n" for line in client))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root wants it
    daemon = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", place / "sshd_config"])
    monkeypatch.setenv("RSYNC_RSH", f"ssh -F {place}/ssh_config")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        _wait_for_port(port)
        yield home
    finally:
        daemon.terminate()
        daemon.wait(DEADLINE_S)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def import_from(store: Store, url: str) -> dict[str, int]:
    """Import all agents found at a URL; returns the number of sessions by state."""
    counts: dict[str, int] = {}
    for found in store.imports.find(url).found:
        summary = store.imports.run(found.path, format=found.format, host=found.host)
        assert summary.problems == []
        for state, count in summary.counts.items():
            counts[state] = counts.get(state, 0) + count
    return counts


def test_home_of_another_machine_is_imported(store: Store, remote: Path) -> None:
    make_claude(remote / ".claude")
    make_codex(remote / ".codex")
    (remote / ".codex/auth.json").write_text('{"key": "secret"}')
    (remote / ".claude/.credentials.json").write_text('{"key": "secret"}')
    assert import_from(store, "ssh://alpha") == {"new": 8}
    assert store.load(f"{CLAUDE_ID}-alpha") is not None
    assert len(store.entries(host="alpha")) == 8
    assert store.entries(host="beta") == []
    assert {str(hit.location).partition("/")[0] for hit in store.search("cart host:alpha")} == {f"{CLAUDE_ID}-alpha"}
    assert store.search("cart host:beta") == []
    cache = Path(os.environ["XDG_CACHE_HOME"])
    assert not [*cache.rglob("*auth*"), *cache.rglob("*credentials*")]
    assert store.check().is_clean


def test_children_and_links_stay_in_their_session(store: Store, remote: Path) -> None:
    make_codex(remote / ".codex")
    import_from(store, "ssh://alpha")
    root = f"{CODEX_ID}-alpha"
    children = [entry for entry in store.entries() if entry.root_session_id == root and entry.kind == "child"]
    assert len(children) == 2
    assert all(entry.id.endswith("-alpha") for entry in children)
    assert {entry.parent_session_id for entry in children} == {root, "019a2d7b-0000-7000-8000-000000000001-alpha"}


def test_only_what_changed_is_imported_again(store: Store, remote: Path) -> None:
    make_claude(remote / ".claude")
    import_from(store, "ssh://alpha")
    assert set(import_from(store, "ssh://alpha")) == {"unchanged"}
    say = claude_line("user", "n1", {"role": "user", "content": "typed there"}, "40:00", parentUuid="u5")
    with (remote / f".claude/projects/-home-me-shop/{CLAUDE_ID}.jsonl").open("a") as file:
        file.write(json.dumps(say) + "\n")
    assert import_from(store, "ssh://alpha")["updated"] == 1
    session = store.load(f"{CLAUDE_ID}-alpha")
    assert session is not None
    assert session.messages[-1].content == "typed there"


def test_deleted_there_stays_here(store: Store, remote: Path) -> None:
    make_claude(remote / ".claude")
    import_from(store, "ssh://alpha")
    shutil.rmtree(remote / ".claude")
    import_from(store, "ssh://alpha")
    assert len(store.entries(host="alpha")) == 4


def test_same_id_of_two_hosts_is_two_sessions(store: Store, remote: Path) -> None:
    """And a third one of this machine."""
    claude = make_claude(remote / "work/.claude")
    for url in ("ssh://alpha" + str(remote / "work"), "ssh://beta/~/work"):
        assert import_from(store, url) == {"new": 4}
    store.imports.run(str(claude))
    for id in (CLAUDE_ID, f"{CLAUDE_ID}-alpha", f"{CLAUDE_ID}-beta"):
        assert store.load(id) is not None
    assert store.count() == 12


def test_unreachable_host_changes_nothing(store: Store, remote: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing was imported. Check that `ssh gamma` works"):
        store.imports.find("ssh://gamma:1")
    with pytest.raises(NotFound, match="nothing was imported"):
        store.imports.find("ssh://alpha/no/such/directory")
    assert store.count() == 0


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("ssh://box", RemoteSource("box", "", None, "")),
        ("ssh://box/", RemoteSource("box", "", None, "")),
        ("ssh://ada@Box:2222/srv/a%20b", RemoteSource("Box", "ada", 2222, "/srv/a b")),
        ("ssh://box/~/work", RemoteSource("box", "", None, "work")),
        ("ssh://box/~", RemoteSource("box", "", None, "")),
    ],
)
def test_urls(url: str, source: RemoteSource) -> None:
    assert parse_url(url) == source


@pytest.mark.parametrize("url", ["ssh://", "ssh://-oProxyCommand=x/", "ssh://-l@box", "ssh://box:x", "ssh://a b/"])
def test_invalid_urls_are_refused(url: str) -> None:
    """A host that begins with a dash would be an option of ssh."""
    with pytest.raises(InvalidName):
        parse_url(url)
