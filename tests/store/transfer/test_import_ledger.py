"""What was deleted, renamed or copied here: an import does not bring back the first, follows the second, and leaves
the third alone."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store import Store, layout
from store.layout import Location
from store.transfer.formats.file_position import SHORT_BYTES, SHORT_LINES
from store.transfer.import_cursors import ImportCursors
from store.transfer.import_ledger import ImportLedger
from tests.builders import make_session
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_chatgpt, make_claude, write_lines

ROOT = Location(CLAUDE_ID)
OTHER_ID = CLAUDE_ID.replace("7", "8")


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "dot-claude")


def project(claude: Path) -> Path:
    return claude / "projects/-home-me-shop"


def grow(claude: Path, id: str = "u9", text: str = "One more thing", session: str = CLAUDE_ID) -> None:
    with (project(claude) / f"{session}.jsonl").open("a") as file:
        turn = {"role": "user", "content": text}
        file.write(json.dumps(claude_line("user", id, turn, "30:00", parentUuid="u5")) + "\n")


def roots(store: Store) -> set[str]:
    return {entry.id for entry in store.entries(kind="root")}


def children(store: Store, root: str) -> set[str]:
    return {entry.id for entry in store.entries(root=root, kind="child")}


def contents(store: Store, id: str) -> list[str]:
    session = store.load(id)
    assert session is not None
    return [message.content for message in session.messages]


# -- deleted --------------------------------------------------------------------------------------------


def test_deleted_session_does_not_come_back(store: Store, claude: Path) -> None:
    """Not with the next import, not when its source has grown, and not by its children."""
    assert store.imports.run(str(claude)).counts == {"new": 4}
    store.delete(CLAUDE_ID)
    left = roots(store)
    for _ in range(2):
        assert store.imports.run(str(claude)).counts["deleted"] == 1
        assert roots(store) == left
    grow(claude)
    again = store.imports.run(str(claude))
    assert (again.counts["deleted"], again.counts["new"], again.problems) == (1, 0, [])
    assert roots(store) == left


@pytest.mark.parametrize("overwrite", [False, True])
def test_deleted_session_is_imported_again_on_request(store: Store, claude: Path, overwrite: bool) -> None:
    """Then it is an imported session like any other: it grows."""
    store.imports.run(str(claude))
    before = contents(store, CLAUDE_ID)
    store.delete(CLAUDE_ID)
    store.imports.run(str(claude))
    assert CLAUDE_ID not in roots(store)
    assert store.imports.run(str(claude), deleted=not overwrite, overwrite=overwrite).counts["deleted"] == 0
    assert contents(store, CLAUDE_ID) == before
    grow(claude)
    assert store.imports.run(str(claude)).counts["updated"] == 1
    assert contents(store, CLAUDE_ID) == [*before, "One more thing"]


def test_dry_run_counts_deleted_sessions_and_remembers_nothing(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    ledger = store.home / layout.IMPORT_LEDGER
    store.delete(CLAUDE_ID)
    before = ledger.read_bytes()
    assert store.imports.run(str(claude), dry_run=True).counts["deleted"] == 1
    assert ledger.read_bytes() == before


def test_deleted_child_does_not_come_back(store: Store, claude: Path) -> None:
    """Its root goes on."""
    store.imports.run(str(claude))
    child = f"{CLAUDE_ID}/{max(children(store, CLAUDE_ID))}"
    store.delete(child, force=True)
    grow(claude)
    counts = store.imports.run(str(claude)).counts
    assert (counts["deleted"], counts["updated"]) == (1, 1)
    assert store.load(child) is None


def test_restored_session_grows_again(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    store.delete(CLAUDE_ID)
    assert store.imports.run(str(claude)).counts["deleted"] == 1
    store.trash.undelete(store.trash.deleted()[0].name)
    grow(claude)
    counts = store.imports.run(str(claude)).counts
    assert (counts["deleted"], counts["updated"]) == (0, 1)
    assert contents(store, CLAUDE_ID)[-1] == "One more thing"


def test_index_and_cursors_can_be_lost(tmp_path: Path, claude: Path) -> None:
    """The ledger is a file of its own. `rm -r` in the home is a deletion too."""
    home = tmp_path / "own"
    with Store.open(home, background=False) as store:
        store.imports.run(str(claude))
    shutil.rmtree(home / ROOT.dir)
    for path in home.glob(f"{layout.INDEX_DB}*"):
        path.unlink()
    with Store.open(home, background=False) as store:
        assert store.imports.run(str(claude)).counts["deleted"] == 1
        assert CLAUDE_ID not in roots(store)
        assert store.check().is_clean


def test_ledger_is_completed_by_the_next_import(store: Store, claude: Path) -> None:
    """A crash may lose it, or leave half a line. Every session that an import finds here is added."""
    store.imports.run(str(claude))
    ledger = store.home / layout.IMPORT_LEDGER
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: len(whole) // 2])
    grow(claude)
    store.imports.run(str(claude), overwrite=True)
    assert ImportLedger(store._core).was_imported(ROOT, "claude-code", CLAUDE_ID)
    store.delete(CLAUDE_ID)
    assert store.imports.run(str(claude)).counts["deleted"] == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_lost_ledger_is_written_again_by_an_import_of_nothing_new(
    store: Store, claude: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted, or the first import was killed before it was written."""
    with monkeypatch.context() as patch:
        if is_killed:
            patch.setattr(ImportLedger, "save", lambda self: None)
        store.imports.run(str(claude))
    (store.home / layout.IMPORT_LEDGER).unlink(missing_ok=True)
    assert store.imports.run(str(claude)).counts == {"unchanged": 4}
    store.delete(CLAUDE_ID)
    assert store.imports.run(str(claude)).counts["deleted"] == 1
    assert CLAUDE_ID not in roots(store)


def test_ledger_is_written_before_the_cursor_of_a_part(
    store: Store, claude: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is killed after a part has remembered the sessions of that part."""
    parts: list[list[Location]] = []

    def check(self: ImportCursors, *args: Any) -> None:
        result = args[-1]
        lines = [json.loads(line) for line in (store.home / layout.IMPORT_LEDGER).read_text().splitlines()]
        assert set(result.locations) <= {Location(line["root"], line["child"]) for line in lines}
        parts.append(result.locations)

    monkeypatch.setattr(ImportCursors, "save", check)
    store.imports.run(str(claude))
    assert parts


KILLED = """
import os, signal, sys
from store import Store

left = int(sys.argv[3])

def report(item):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

with Store.open(sys.argv[1], background=False) as store:
    store.imports.run(sys.argv[2], report=report)
"""


@pytest.mark.parametrize("count", [1, 2, 4])
def test_session_deleted_after_a_killed_import_does_not_come_back(tmp_path: Path, count: int) -> None:
    """The import is killed inside a part of its source, right after a session was committed."""
    export = make_chatgpt(tmp_path / "chatgpt")
    path, home = export / "conversations.json", tmp_path / "home"
    conversations = json.loads(path.read_bytes())
    for number in range(4):
        copy = json.loads(json.dumps(conversations[-1]))
        copy |= {"id": f"copy-{number}", "conversation_id": f"copy-{number}"}
        conversations.append(copy)
    path.write_text(json.dumps(conversations))
    killed = subprocess.run([sys.executable, "-c", KILLED, str(home), str(export), str(count)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with Store.open(home, background=False) as store:
        present = {entry.id for entry in store.entries()}
        assert present
        deleted = {entry.id for entry in store.entries(kind="root")}
        for id in deleted:
            store.delete(id)
        assert not store.imports.run(str(export)).problems
        after = roots(store)
        assert not after & deleted
        assert after | deleted >= {f"copy-{number}" for number in range(4)}  # all others came
        store.trash.empty()
        assert store.imports.run(str(export)).counts["new"] == 0
        assert roots(store) == after
        assert store.check().is_clean


def test_erased_home_can_be_imported_again(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    store.maintenance.erase_all()
    assert store.imports.run(str(claude)).counts == {"new": 4}


def test_other_session_with_the_id_of_a_deleted_one_is_kept(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    store.delete(CLAUDE_ID)
    store.save(make_session(CLAUDE_ID))
    counts = store.imports.run(str(claude)).counts
    assert (counts["deleted"], counts["kept"]) == (3, 1)  # its children were deleted with it


def test_branches_that_an_import_removed_come_back_with_the_source(store: Store, tmp_path: Path) -> None:
    """ChatGPT: the current branch is in the root. Nobody deleted the child that was removed for that."""
    export = make_chatgpt(tmp_path / "chatgpt")
    path = export / "conversations.json"
    first = path.read_bytes()
    store.imports.run(str(export))
    before = children(store, "conv-1")
    conversations = json.loads(first)
    mapping = conversations[0]["mapping"]
    leaves = [id for id, node in mapping.items() if not node["children"] and id != conversations[0]["current_node"]]
    for current in (leaves[0], conversations[0]["current_node"]):
        conversations[0]["current_node"] = current
        path.write_text(json.dumps(conversations))
        assert store.imports.run(str(export)).counts["deleted"] == 0
    assert children(store, "conv-1") == before


# -- renamed --------------------------------------------------------------------------------------------


def test_renamed_session_grows_under_its_new_name(store: Store, claude: Path) -> None:
    """It is not imported a second time, and its children are still its children."""
    store.imports.run(str(claude))
    store.rename(CLAUDE_ID, "my-shop")
    before_children = children(store, "my-shop")
    before = roots(store)
    assert store.imports.run(str(claude)).counts["new"] == 0
    for number in range(2):  # a short file is read as a whole each time
        grow(claude, f"u{number + 20}", f"Line {number}")
        counts = store.imports.run(str(claude)).counts
        assert (counts["updated"], counts["new"], counts["kept"]) == (1, 0, 0)
        assert contents(store, "my-shop")[-1] == f"Line {number}"
    assert roots(store) == before
    assert children(store, "my-shop") == before_children
    assert store.imports.origin("my-shop") == ("claude-code", CLAUDE_ID)


def exchange_names(store: Store, first: Location, second: Location) -> None:
    between = Location(first.root, "for-a-moment") if first.child else Location("for-a-moment")
    for source, target in ((first, between), (second, first), (between, second)):
        store.rename(str(source), str(target))


def grow_agent(claude: Path, agent: str, text: str) -> None:
    path = project(claude) / CLAUDE_ID / f"subagents/agent-{agent}.jsonl"
    line = claude_line("user", text, {"role": "user", "content": text}, "40:00", isSidechain=True, agentId=agent)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("grown", [{"cafe01"}, {"cafe02"}, {"cafe01", "cafe02"}])
def test_children_that_exchanged_their_names_grow(store: Store, claude: Path, grown: set[str]) -> None:
    grow_agent(claude, "cafe01", "Another sub-agent")
    store.imports.run(str(claude))
    first, second = (Location(CLAUDE_ID, f"agent-{agent}") for agent in ("cafe01", "cafe02"))
    exchange_names(store, first, second)
    for number in range(2):
        for agent in grown:
            grow_agent(claude, agent, f"Line {number} of {agent}")
        result = store.imports.run(str(claude))
        assert (result.counts["new"], result.counts["kept"], result.problems) == (0, 0, [])
        for agent, other in (("cafe01", "cafe02"), ("cafe02", "cafe01")):
            last = contents(store, f"agent-{other}")[-1]
            assert (last == f"Line {number} of {agent}") is (agent in grown)


@pytest.mark.parametrize("grown", [{CLAUDE_ID}, {OTHER_ID}, {CLAUDE_ID, OTHER_ID}])
def test_roots_that_exchanged_their_names_grow(store: Store, claude: Path, grown: set[str]) -> None:
    """So do their children, although those of both have the same ids."""
    add_twin(claude)
    store.imports.run(str(claude))
    before = roots(store)
    exchange_names(store, Location(CLAUDE_ID), Location(OTHER_ID))
    for number in range(2):
        for id in grown:
            grow(claude, f"u{number + 20}", f"Line {number} of {id}", id)
        result = store.imports.run(str(claude))
        assert (result.counts["new"], result.counts["kept"], result.problems) == (0, 0, [])
        assert roots(store) == before
        for id, other in ((CLAUDE_ID, OTHER_ID), (OTHER_ID, CLAUDE_ID)):
            assert (contents(store, other)[-1] == f"Line {number} of {id}") is (id in grown)
    assert store.check().is_clean


def test_renamed_session_is_unchanged_if_its_source_is(store: Store, claude: Path) -> None:
    """A rename changes the ids in the documents. That is not an update by the source, and makes no version."""
    store.imports.run(str(claude))
    store.rename(CLAUDE_ID, "my-shop")
    store.append("my-shop", [{"id": "mine", "role": "user", "content": "here"}])
    versions = len(store.history.log("my-shop"))
    assert set(store.imports.run(str(claude)).counts) == {"unchanged"}
    assert len(store.history.log("my-shop")) == versions


def test_session_renamed_twice_grows(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    store.rename(CLAUDE_ID, "one")
    store.imports.run(str(claude))
    store.rename("one", "two")
    grow(claude)
    assert store.imports.run(str(claude)).counts["new"] == 0
    assert contents(store, "two")[-1] == "One more thing"
    store.delete("two")
    grow(claude, "u30")
    assert store.imports.run(str(claude)).counts["deleted"] == 1
    assert not roots(store) & {CLAUDE_ID, "one", "two"}


AGENT = "agent-cafe02"


def add_twin(claude: Path) -> None:
    """A second session of the source, whose sub-agents have the ids of those of the first."""
    base = project(claude)
    text = (base / f"{CLAUDE_ID}.jsonl").read_text()
    (base / f"{OTHER_ID}.jsonl").write_text(text.replace(CLAUDE_ID, OTHER_ID))
    shutil.copytree(base / CLAUDE_ID, base / OTHER_ID)


def grow_agents(claude: Path, text: str) -> None:
    for path in project(claude).rglob(f"{AGENT}.jsonl"):
        turn = {"role": "user", "content": text}
        line = claude_line("user", text, turn, "40:00", isSidechain=True, agentId="cafe02", parentUuid="c1")
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize(("renamed", "other"), [(CLAUDE_ID, OTHER_ID), (OTHER_ID, CLAUDE_ID)])
def test_renamed_child_is_searched_in_its_own_tree(store: Store, claude: Path, renamed: str, other: str) -> None:
    """The sub-agents of the other root have the same ids in the source."""
    add_twin(claude)
    store.imports.run(str(claude))
    before = {root: children(store, root) for root in (renamed, other)}
    assert AGENT in before[renamed] & before[other]
    store.rename(f"{renamed}/{AGENT}", f"{renamed}/worker")
    now = {renamed: before[renamed] - {AGENT} | {"worker"}, other: before[other]}
    for number in range(2):
        grow_agents(claude, f"More {number}")
        assert store.imports.run(str(claude)).counts["new"] == 0
        assert {root: children(store, root) for root in now} == now
        for child in (f"{renamed}/worker", f"{other}/{AGENT}"):
            assert contents(store, child)[-1] == f"More {number}"
    store.delete(f"{renamed}/worker")
    grow_agents(claude, "Much more")
    store.imports.run(str(claude))
    assert children(store, renamed) == now[renamed] - {"worker"}
    assert children(store, other) == now[other]
    assert contents(store, f"{other}/{AGENT}")[-1] == "Much more"


def test_child_deleted_after_its_root_was_renamed_does_not_come_back(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    store.rename(CLAUDE_ID, "my-shop")
    child = min(children(store, "my-shop"))
    store.delete(f"my-shop/{child}")
    left = children(store, "my-shop")
    for number in range(2):
        grow(claude, f"u{number + 20}")
        store.imports.run(str(claude))
        assert children(store, "my-shop") == left


def test_new_lines_name_a_renamed_child_by_its_new_name(store: Store, claude: Path) -> None:
    def report(number: int) -> None:
        """The result of a tool call that the sub-agent answered."""
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"Result {number}"}
        turn = {"role": "user", "content": [result]}
        line = claude_line("user", f"r{number}", turn, "50:00", parentUuid="u5", toolUseResult={"agentId": "cafe02"})
        with (project(claude) / f"{CLAUDE_ID}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    path = project(claude) / f"{CLAUDE_ID}.jsonl"  # a log that contains a sub-agent is always read as a whole
    write_lines(path, [line for line in map(json.loads, path.read_text().splitlines()) if not line.get("isSidechain")])
    for number in range(SHORT_LINES):  # and so is a short one
        grow(claude, f"long{number}", "x" * (SHORT_BYTES // SHORT_LINES))
    report(0)
    store.imports.run(str(claude))
    store.rename(f"{CLAUDE_ID}/{AGENT}", f"{CLAUDE_ID}/worker")
    store.imports.run(str(claude))
    report(1)
    assert store.imports.run(str(claude)).counts["updated"] == 1
    session = store.load(CLAUDE_ID)
    assert session is not None
    last = session.messages[-1]
    assert last.content == "Result 1"
    assert last.metadata is not None
    assert last.metadata["child_session_id"] == "worker"


def test_new_name_is_remembered(store: Store, claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first import after a rename reads all receipts."""
    store.imports.run(str(claude))
    store.rename(CLAUDE_ID, "my-shop")
    store.imports.run(str(claude))
    monkeypatch.setattr(ImportLedger, "_iter_receipts", lambda self: pytest.fail("all receipts are read again"))
    assert ImportLedger(store._core).find_new_id(CLAUDE_ID, None) == "my-shop"


# -- copied ---------------------------------------------------------------------------------------------


def test_copy_is_not_the_imported_session(store: Store, claude: Path) -> None:
    """`cp -r` copies the receipt too, `grovefs fork` does not: neither copy grows, also if the original is deleted."""
    store.imports.run(str(claude))
    store.fork(CLAUDE_ID, "forked")
    copy = store.home / "sessions/copied"
    shutil.copytree(store.home / "sessions/forked", copy)
    shutil.copy(store.home / ROOT.path(layout.RECEIPT), copy / layout.RECEIPT)
    for path in copy.glob("*.json"):
        path.write_text(path.read_text().replace('"forked"', '"copied"'))
    shutil.rmtree(copy / "children", ignore_errors=True)
    before = contents(store, CLAUDE_ID)
    assert store.imports.origin("copied") is None
    grow(claude)
    store.imports.run(str(claude))
    assert contents(store, "copied") == contents(store, "forked") == before
    store.delete(CLAUDE_ID)
    grow(claude, "u30")
    assert store.imports.run(str(claude)).counts["deleted"] == 1
    assert contents(store, "copied") == contents(store, "forked") == before


def test_receipt_of_an_older_version_counts(store: Store, claude: Path) -> None:
    """It does not name its session."""
    store.imports.run(str(claude))
    path = store.home / ROOT.path(layout.RECEIPT)
    receipt = json.loads(path.read_text())
    del receipt["session"]
    path.write_text(json.dumps(receipt, indent=2))
    grow(claude)
    assert store.imports.run(str(claude)).counts["updated"] == 1


def test_ledger_skips_lines_it_cannot_read(store: Store) -> None:
    write_lines(store.home / layout.IMPORT_LEDGER, [{"root": "a"}, ["x"], {"root": "b", "child": None}])
    assert not ImportLedger(store._core).was_imported(Location("a"), "codex", "a")
