"""Following a source: new lines arrive, whatever happens to the file."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import Store
from store.transfer import import_follow
from store.transfer.import_follow import ImportFollower
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, make_codex

DEADLINE_S = 60


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "user/.claude")


@pytest.fixture
def reported(store: Store, claude: Path, tmp_path: Path) -> Iterator[list[Any]]:
    """What a follower of all agents of a user reports."""
    make_codex(tmp_path / "user/.codex")
    items: list[Any] = []
    ready = threading.Event()
    found = store.imports.find(str(tmp_path / "user")).found
    follower = ImportFollower(store.imports, found, items.append, on_ready=ready.set)
    thread = threading.Thread(target=follower.run)
    thread.start()
    assert ready.wait(DEADLINE_S)
    yield items
    follower.stop.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def line(uuid: str, text: str) -> str:
    return json.dumps(claude_line("user", uuid, {"role": "user", "content": text}, "40:00", parentUuid="u5")) + "\n"


def contents(store: Store, id: str = CLAUDE_ID) -> list[str]:
    session = store.load(id)
    return [message.content for message in session.messages] if session else []


def transcript(claude: Path) -> Path:
    return claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_new_line_arrives(store: Store, claude: Path, reported: list[Any]) -> None:
    assert store.count() == 8
    before = len(reported)
    append(transcript(claude), line("n1", "typed later"))
    wait_until(lambda: "typed later" in contents(store))
    changed = {str(item.location) for item in reported[before:] if item.state != "unchanged"}
    assert changed == {CLAUDE_ID}
    assert all(item.location.root == CLAUDE_ID for item in reported[before:])  # nothing else was looked at


def test_half_a_line_arrives_when_it_is_complete(store: Store, claude: Path, reported: list[Any]) -> None:
    text = line("n1", "typed later")
    append(transcript(claude), text[:40])
    wait_until(lambda: any(hasattr(item, "line") for item in reported))
    append(transcript(claude), text[40:])
    wait_until(lambda: "typed later" in contents(store))


def test_new_session_and_new_project_arrive(store: Store, claude: Path, reported: list[Any]) -> None:
    project = claude / "projects/-home-me-zoo"
    project.mkdir()
    (project / "fresh.jsonl").write_text(line("f1", "a new project"))
    wait_until(lambda: contents(store, "fresh") == ["a new project"])
    append(project / "fresh.jsonl", line("f2", "goes on"))
    wait_until(lambda: contents(store, "fresh") == ["a new project", "goes on"])


def test_deleted_and_rewritten_sources_remove_nothing(store: Store, claude: Path, reported: list[Any]) -> None:
    before = contents(store)
    transcript(claude).write_text(line("r1", "rewritten"))
    wait_until(lambda: "rewritten" in contents(store))
    assert contents(store)[: len(before)] == before
    transcript(claude).unlink()
    (claude / "projects/-home-me-shop/other.jsonl").write_text(line("o1", "another"))
    wait_until(lambda: contents(store, "other") == ["another"])
    assert contents(store)[: len(before)] == before


def test_session_changed_here_goes_on(store: Store, claude: Path, reported: list[Any]) -> None:
    session = store.load(CLAUDE_ID)
    assert session is not None
    session.title, session.pinned = "Mine", True
    store.save(session)
    append(transcript(claude), line("n1", "typed later"))
    wait_until(lambda: "typed later" in contents(store))
    now = store.load(CLAUDE_ID)
    assert now is not None
    assert (now.title, now.pinned) == ("Mine", True)


@pytest.mark.warns
def test_refused_writes_are_tried_again(
    store: Store, claude: Path, reported: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_follow, "RETRY_S", 0.2)
    run, refused = type(store.imports).run, threading.Event()

    def refuse(*args: Any, **options: Any) -> Any:
        refused.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(store.imports), "run", refuse)
    append(transcript(claude), line("n1", "typed later"))
    assert refused.wait(DEADLINE_S)
    monkeypatch.setattr(type(store.imports), "run", run)
    wait_until(lambda: "typed later" in contents(store))
