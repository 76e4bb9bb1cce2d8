"""Appending the new lines of a source: the same session as a complete import, whatever happens to the file."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import orjson
import pytest

from store import Message, Store
from store.transfer.formats import file_position
from store.transfer.formats.source import Source
from store.transfer.import_append import AppendedLines, GrownFile, LineAppender
from tests.store.transfer.random_logs import ClaudeLog, CodexLog, RandomLog

CLAUDE_PATH = ".claude/projects/-home-me-shop/s1.jsonl"
CODEX_ID = "0199aaaa-0000-7000-8000-000000000001"
CODEX_PATH = f".codex/sessions/2026/02/18/rollout-2026-02-18T00-00-00-{CODEX_ID}.jsonl"


@pytest.fixture(autouse=True)
def _any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short files are read on too: the beginnings of these say nothing about other files."""
    monkeypatch.setattr(file_position, "SHORT_BYTES", 0)
    monkeypatch.setattr(file_position, "SHORT_LINES", 0)


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each try to append new lines: whether they could be read alone."""
    tries: list[bool] = []
    append = LineAppender.append

    def noting(self: LineAppender, file: GrownFile) -> AppendedLines | None:
        done = append(self, file)
        tries.append(done is not None)
        return done

    monkeypatch.setattr(LineAppender, "append", noting)
    return tries


class Followed:
    """A source that grows, the home that follows it, and homes of fresh imports to compare it with."""

    def __init__(self, place: Path, store: Store, path: str) -> None:
        self.place, self.store, self.host = place, store, ""
        self.source, self.name = place / "user" / path.split("/")[0], path.partition("/")[2]
        self.file = self.source / self.name
        self.file.parent.mkdir(parents=True)

    def grow(self, data: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data)

    def follow(self) -> dict[Any, int]:
        names = {"claude": "claude-code", "copilot": "copilot-cli", "qwen": "qwen-code"}
        agent = self.source.name.removeprefix(".")
        format = names.get(agent, agent)
        return dict(self.store.imports.run(str(self.source), format=format, paths={self.name}, host=self.host).counts)

    def session_files(self, home: Path) -> dict[str, Any]:
        """All files of all sessions, parsed where their text may differ; not the receipts' positions."""
        found: dict[str, Any] = {}
        for path in sorted((home / "sessions").rglob("*")):
            if path.is_file():
                name, data = str(path.relative_to(home)), path.read_bytes()
                found[name] = orjson.loads(data) if path.suffix == ".json" else data
        for name in [name for name in found if name.endswith(".import.json")]:
            receipt = found.pop(name)
            found[name] = {key: receipt[key] for key in ("format", "source_id", "members", "messages")}
        return found

    def check(self) -> None:
        """The home is as a fresh import of the file would be, and undamaged."""
        fresh = self.place / "fresh"
        with Store.open(fresh, background=False) as other:
            other.imports.run(str(self.source), host=self.host)
        assert self.session_files(self.store.home) == self.session_files(fresh)
        shutil.rmtree(fresh)
        assert self.store.check().findings == []

    def messages(self) -> list[dict[str, Any]]:
        data = orjson.loads((self.store.home / "sessions/s1/session.json").read_bytes())
        return list(data["messages"])


@pytest.fixture
def claude(tmp_path: Path, store: Store) -> Followed:
    return Followed(tmp_path, store, CLAUDE_PATH)


@pytest.fixture
def codex(tmp_path: Path, store: Store) -> Followed:
    return Followed(tmp_path, store, CODEX_PATH)


def pieces(log: RandomLog, count: int) -> Iterator[bytes]:
    """The log in pieces: most are whole lines, some end within one."""
    data = b"".join(log.lines)
    ends = list(accumulate(map(len, log.lines)))
    cuts = set(log.rng.sample(ends[:-1], min(count, len(ends) - 1)))
    cuts |= set(log.rng.sample(range(ends[0], ends[-1]), count // 6))
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        yield data[start:end]


@pytest.mark.parametrize("seed", range(16))
def test_claude_log_in_pieces_is_the_whole_log(claude: Followed, appended: list[bool], seed: int) -> None:
    for piece in pieces(ClaudeLog(seed), 12):
        claude.grow(piece)
        claude.follow()
    claude.check()
    assert appended.count(True) >= 3
    assert dict(claude.store.imports.run(str(claude.source)).counts) == {"unchanged": 1}


@pytest.mark.parametrize("seed", range(6))
def test_codex_log_in_pieces_is_the_whole_log(codex: Followed, appended: list[bool], seed: int) -> None:
    for piece in pieces(CodexLog(seed), 12):
        codex.grow(piece)
        codex.follow()
    codex.check()
    assert appended.count(True) >= 3


def copilot_event(number: int) -> dict[str, Any]:
    kinds = ("user.message", "assistant.message", "session.usage_record", "session.info")
    data = {"content": f"text {number}", "model": "gpt-5", "usage": {"apiCallId": f"c{number}", "inputTokens": number}}
    stamp = f"2026-02-18T00:00:{number:02}Z"
    return {"type": kinds[number % 4], "id": f"e{number}", "timestamp": stamp, "data": data}


def qwen_record(number: int) -> dict[str, Any]:
    kind = ("user", "assistant")[number % 2]
    message = {"role": kind, "parts": [{"text": f"text {number}"}]}
    usage = {"usageMetadata": {"promptTokenCount": number, "candidatesTokenCount": 2}}
    stamp = f"2026-02-18T00:00:{number:02}Z"
    members = {"uuid": f"e{number}", "parentUuid": None, "sessionId": "s1", "type": kind, "cwd": "/home/me/shop"}
    return {**members, "timestamp": stamp, "message": message, **(usage if number % 2 else {})}


@pytest.mark.parametrize(
    ("path", "first", "make"),
    [
        (".copilot/session-state/s1/events.jsonl", {"type": "session.start", "data": {}}, copilot_event),
        (".qwen/projects/shop/chats/s1.jsonl", qwen_record(0), qwen_record),
    ],
)
def test_other_logs_are_read_on(
    tmp_path: Path,
    store: Store,
    appended: list[bool],
    path: str,
    first: dict[str, Any],
    make: Callable[[int], dict[str, Any]],
) -> None:
    followed = Followed(tmp_path, store, path)
    lines = [orjson.dumps(record) + b"\n" for record in (first, *map(make, range(1, 20)))]
    for start in range(0, len(lines), 4):
        followed.grow(b"".join(lines[start : start + 4]))
        followed.follow()
    followed.check()
    assert appended == [True] * 4


# -- what happens to the source ------------------------------------------------------------------------------


def start(followed: Followed, seed: int = 3) -> ClaudeLog:
    """Import a log that ends with a whole line."""
    log = ClaudeLog(seed, turns=3)
    followed.grow(b"".join(log.lines))
    followed.follow()
    return log


def said(uuid: str, text: str, kind: str = "user", **more: Any) -> bytes:
    message = {"role": kind, "content": text}
    stamp = "2026-02-18T20:00:00Z"
    members = {"type": kind, "uuid": uuid, "message": message, "timestamp": stamp, "sessionId": "s1", "cwd": "/home"}
    return orjson.dumps({"parentUuid": None, "isSidechain": False, **members, **more}) + b"\n"


def test_new_line_is_read_alone(claude: Followed, appended: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    start(claude)
    monkeypatch.setattr(Source, "iter_lines", None)  # would read the whole file
    claude.grow(said("n1", "one more"))
    assert claude.follow() == {"updated": 1}
    assert claude.follow() == {"unchanged": 1}
    assert appended == [True]
    monkeypatch.undo()
    assert claude.messages()[-1]["content"] == "one more"


@pytest.mark.parametrize("whole", [True, False])
def test_truncated_source_is_merged(claude: Followed, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    if not whole:
        monkeypatch.setattr(file_position, "_CHECKED_BYTES", 0)
    log = start(claude)
    before = [message["id"] for message in claude.messages()]
    claude.file.write_bytes(b"".join(log.lines[:4]) + said("n1", "after the cut"))
    assert claude.follow() == {"updated": 1}
    assert [message["id"] for message in claude.messages()] == [*before, "n1"]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_rewritten_source_is_merged(claude: Followed, appended: list[bool], is_replaced: bool) -> None:
    """A word in the middle is replaced by another of the same length, and a line is added."""
    log = start(claude)
    text = b"".join(log.lines).replace(b"cart", b"XXXX", 1) + said("n1", "one more")
    if is_replaced:
        claude.file.with_suffix(".new").write_bytes(text)
        claude.file.with_suffix(".new").rename(claude.file)
    else:
        claude.file.write_bytes(text)
    claude.follow()
    assert appended == [False]
    claude.check()


def test_long_file_is_checked_at_both_ends(claude: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_position, "_CHECKED_BYTES", 0)
    log = start(claude)
    text = b"".join(log.lines)
    for changed in (text.replace(b"parentUuid", b"parentUUID", 1), text[:-3] + b" }\n", text[1:]):
        claude.file.write_bytes(changed + said("n1", "one more"))
        claude.follow()
        claude.file.write_bytes(text)
        claude.follow()
    assert [m["content"] for m in claude.messages()].count("one more") == 1


def test_replaced_file_with_the_same_beginning_is_read_on(claude: Followed, appended: list[bool]) -> None:
    log = start(claude)
    claude.file.with_suffix(".new").write_bytes(b"".join(log.lines) + said("n1", "one more"))
    claude.file.with_suffix(".new").rename(claude.file)  # as rsync does
    assert claude.follow() == {"updated": 1}
    assert appended == [True]
    claude.check()


def test_deleted_source_leaves_the_session(claude: Followed) -> None:
    start(claude)
    before = claude.messages()
    claude.file.unlink()
    assert claude.follow() == {}
    claude.grow(said("n1", "a new file"))
    assert claude.follow() == {"updated": 1}
    assert [m["id"] for m in claude.messages()] == [*(m["id"] for m in before), "n1"]


def test_resumed_and_forked_sources_are_linked(claude: Followed) -> None:
    log = start(claude)
    fork = b"".join(log.lines).replace(b'"isSidechain"', b'"forkedFrom": {"sessionId": "s1"}, "isSidechain"', 1)
    (claude.file.parent / "s2.jsonl").write_bytes(fork)
    copy = b"".join(log.lines) + said("n1", "goes on in a new file")
    (claude.file.parent / "s3.jsonl").write_bytes(copy.replace(b'"sessionId": "s1"', b'"sessionId": "s3"'))
    assert dict(claude.store.imports.run(str(claude.source)).counts) == {"new": 2, "unchanged": 1}
    forked, resumed = claude.store.load("s2"), claude.store.load("s3")
    assert forked is not None
    assert resumed is not None
    assert forked.metadata["forked_from"] == "s1"
    assert resumed.metadata["resumed_from"] == "s1"
    with (claude.file.parent / "s3.jsonl").open("ab") as file:
        file.write(said("n2", "and on"))
    counts = claude.store.imports.run(str(claude.source), paths={"projects/-home-me-shop/s3.jsonl"}).counts
    assert counts == {"updated": 1}
    claude.check()


def test_log_of_another_machine_is_read_on(claude: Followed, appended: list[bool]) -> None:
    claude.host = "far"
    start(claude)
    claude.grow(said("n1", "one more", "assistant"))
    assert claude.follow() == {"updated": 1}
    assert appended == [True]
    claude.check()
    claude.host = ""
    claude.follow()  # the same file of this machine is another session
    assert sorted(entry.id for entry in claude.store.entries()) == ["s1", "s1-far"]


def test_compaction_keeps_earlier_messages(claude: Followed, appended: list[bool]) -> None:
    start(claude)
    before = claude.messages()
    claude.grow(said("c1", "Conversation compacted", "system", content="Conversation compacted"))
    claude.grow(said("c2", "What happened so far", isCompactSummary=True))
    assert claude.follow() == {"updated": 1}
    assert claude.messages()[: len(before)] == before
    assert claude.messages()[-1]["content"] == "What happened so far"
    assert appended == [True]
    claude.check()


def test_incomplete_line_waits_and_is_reported_by_a_complete_import(claude: Followed, appended: list[bool]) -> None:
    start(claude)
    line = said("n1", "one more")
    claude.grow(line[:30])
    assert claude.follow() == {"unchanged": 1}
    claude.grow(line[30:-1])  # complete, but for its newline
    assert claude.follow() == {"updated": 1}
    assert claude.messages()[-1]["content"] == "one more"
    claude.grow(b"\n" + said("n2", "and more"))
    claude.follow()
    claude.check()
    claude.grow(b'{"type": "user", "cut')
    summary = claude.store.imports.run(str(claude.source))
    assert summary.problems[-1].line == len(claude.file.read_bytes().splitlines())


def test_new_file_of_a_session_is_imported(claude: Followed) -> None:
    """A sub-agent and a long tool result, which are files of their own."""
    start(claude)
    below = claude.file.with_suffix("") / "subagents"
    below.mkdir(parents=True)
    agent = below / "agent-x1.jsonl"
    agent.write_bytes(said("a1", "look for it", isSidechain=True, agentId="x1"))
    name = "projects/-home-me-shop/s1/subagents/agent-x1.jsonl"
    claude.store.imports.run(str(claude.source), paths={name})
    with agent.open("ab") as file:
        file.write(said("a2", "found", "assistant", isSidechain=True, agentId="x1"))
    counts = claude.store.imports.run(str(claude.source), paths={name}).counts
    assert counts == {"updated": 1, "unchanged": 1}
    claude.check()


# -- what happens to the session ---------------------------------------------------------------------------


def test_session_changed_here_goes_on_growing(claude: Followed, appended: list[bool]) -> None:
    start(claude)
    session = claude.store.load("s1")
    assert session is not None
    session.title, session.pinned, session.messages[1].content = "Mine", True, "edited here"
    deleted = session.messages.pop(2)
    claude.store.save(session, shorten=True)
    for number in range(3):
        claude.grow(said(f"n{number}", f"line {number}"))
        assert claude.follow() == {"updated": 1}
    now = claude.store.load("s1")
    assert now is not None
    assert (now.title, now.pinned, now.messages[1].content) == ("Mine", True, "edited here")
    assert deleted.id not in {message.id for message in now.messages}
    assert [message.content for message in now.messages[-3:]] == ["line 0", "line 1", "line 2"]
    assert appended == [True, True, True]
    claude.store.imports.run(str(claude.source))  # a complete import merges, too
    assert claude.store.load("s1") == now
    assert claude.store.check().findings == []


def test_message_added_here_stays_before_the_new_ones(claude: Followed) -> None:
    start(claude)
    claude.store.append("s1", [Message.user("typed here")])
    claude.grow(said("n1", "one more"))
    claude.follow()
    assert [m["content"] for m in claude.messages()[-2:]] == ["typed here", "one more"]


def test_document_in_another_format_goes_on(claude: Followed, appended: list[bool]) -> None:
    start(claude)
    path = claude.store.home / "sessions/s1/session.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes())))
    claude.store.maintenance.sweep()
    claude.grow(said("n1", "one more"))
    assert claude.follow() == {"updated": 1}
    assert claude.messages()[-1]["content"] == "one more"
    assert appended == [False]


def test_edited_receipt_costs_one_complete_import(claude: Followed, appended: list[bool]) -> None:
    start(claude)
    path = claude.store.home / "sessions/s1/.import.json"
    receipt = orjson.loads(path.read_bytes())
    del receipt["cursor"]["builder"]["period"]
    path.write_bytes(orjson.dumps(receipt, option=orjson.OPT_INDENT_2))
    claude.grow(said("n1", "one more"))
    claude.follow()
    claude.grow(said("n2", "one more"))
    claude.follow()
    assert appended == [False, True]
    claude.check()


@pytest.mark.parametrize("name", ["token-usage.jsonl", "trajectory.jsonl", "attachments/records.jsonl"])
def test_log_changed_here_is_kept(claude: Followed, name: str) -> None:
    start(claude, seed=5)
    path = claude.store.home / "sessions/s1" / name
    path.write_bytes(path.read_bytes() + b"{}\n")
    log = ClaudeLog(6, turns=2)
    claude.grow(b"".join(log.lines))
    assert claude.follow() == {"updated": 1}
    assert path.read_bytes().endswith(b"{}\n")


@pytest.fixture
def closed(tmp_path: Path) -> Followed:
    """A followed log whose home is not open."""
    with Store.open(tmp_path / "origin", background=False) as store:
        followed = Followed(tmp_path, store, CLAUDE_PATH)
        start(followed)
    return followed


def test_lost_index_costs_one_complete_import(closed: Followed, appended: list[bool]) -> None:
    home = closed.store.home
    for path in home.rglob("index.db*"):
        path.unlink()
    with Store.open(home, background=False) as store:
        closed.store = store
        for number in range(2):
            closed.grow(said(f"n{number}", "one more"))
            assert closed.follow() == {"updated": 1}
        assert appended == [True]
        closed.check()


def test_kill_at_every_step_loses_and_repeats_nothing(closed: Followed, tmp_path: Path) -> None:
    closed.grow(said("n1", "one more", "assistant", model="m"))
    origin, home = closed.store.home, tmp_path / "killed"
    for at in count(1):
        shutil.copytree(origin, home)
        is_killed = follow_and_kill(closed, home, at)
        with Store.open(home, background=False) as store:
            closed.store = store
            closed.follow()
            closed.check()
        shutil.rmtree(home)
        if not is_killed:
            assert at > 10
            return


@pytest.mark.parametrize("step", ["write-temp", "journal", "move"])
def test_refused_write_leaves_the_cursor(closed: Followed, appended: list[bool], step: str) -> None:
    """A full disk: nothing changes, and the next try catches up."""
    refused: list[bool] = []

    def fail(name: str) -> None:
        if refused and name == step:
            refused.clear()
            raise OSError(errno.ENOSPC, "No space left on device")

    with Store.open(closed.store.home, background=False, step=fail) as store:
        closed.store = store
        before = closed.session_files(store.home)
        closed.grow(said("n1", "one more"))
        refused.append(True)
        with pytest.raises(OSError, match="No space left"):
            closed.follow()
        assert closed.session_files(store.home) == before
        closed.grow(said("n2", "and more"))
        assert closed.follow() == {"updated": 1}
        assert appended == [True]
        closed.check()


def follow_and_kill(followed: Followed, home: Path, at: int) -> bool:
    """Follow in a child that is killed at the durable step `at`; whether it was."""
    pid = os.fork()
    if pid == 0:
        steps = iter(range(10_000))
        armed: list[bool] = []

        def step(name: str) -> None:
            if armed and next(steps) + 1 == at:
                os.kill(os.getpid(), signal.SIGKILL)

        followed.store = Store.open(home, background=False, step=step)
        armed.append(True)
        followed.follow()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
