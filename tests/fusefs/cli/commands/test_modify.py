"""Commands that create, change, delete and restore sessions. None needs a mount."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from store import Message, Session, Store
from tests.builders import files_below, make_document, make_session


def run(home: Path, *arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in a new process, with `text` on standard input."""
    return subprocess.run(
        [sys.executable, "-c", "from fusefs.cli import main; main()", *arguments],
        env={**os.environ, "GROVEFS_HOME": str(home), "PYTHONPATH": os.getcwd(), **environment},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


def load(home: Path, place: str) -> Session | None:
    with Store.open(home, background=False) as store:
        assert store.check().is_clean
        return store.load(place)


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        root = make_session("fix-login", title="Fix the login")
        store.save(root)
        store.save(Session.new_child_of("worker", root, "m", "Look"))
        store.save(make_session("fix-logout", title="Another"))
    return home


# -- new, append, attach ---------------------------------------------------------------------------------


def test_new_creates_a_session_and_its_home(home: Path) -> None:
    made = run(
        home, "new", "a", "-t", "Title", "--model", "m", "--user", "ada", "--system", "Be kind.", "-m", "-", text="Hi"
    )
    assert (made.returncode, made.stdout) == (0, "a\n"), made.stderr
    session = load(home, "a")
    assert session is not None
    assert (session.title, session.model, session.user_id) == ("Title", "m", "ada")
    assert [(m.role, m.content) for m in session.messages] == [("system", "Be kind."), ("user", "Hi")]
    unnamed = json.loads(run(home, "new", "--json").stdout)["id"]
    assert load(home, unnamed) is not None


def test_new_never_replaces_a_session(filled: Path) -> None:
    before = files_below(filled)
    for arguments in (["new", "fix-login"], ["new", "fix-login", "--from", "-"]):
        result = run(filled, *arguments, text=make_document("x").decode())
        assert result.returncode == 1
        assert "`grovefs append fix-login …` adds to it" in result.stderr
    assert run(filled, "new", ".hidden").returncode == 1
    assert files_below(filled) == before


def test_new_creates_a_child(filled: Path) -> None:
    assert run(filled, "new", "second", "--child-of", "work").stdout == "fix-login/second\n"
    child = load(filled, "fix-login/second")
    assert child is not None
    assert (child.parent_session_id, child.spawn_depth) == ("worker", 2)


def test_new_copies_a_document_with_another_id(filled: Path) -> None:
    assert run(filled, "new", "copy", "--from", "-", text=make_document("origin").decode()).stdout == "copy\n"
    copy = load(filled, "copy")
    assert copy is not None
    assert copy.messages[0].content == "hello"
    refused = run(filled, "new", "bad", "--from", "-", text='{"id": "bad"}')
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert run(filled, "new", "x", "--from", "-", "--title", "T").returncode == 2


def test_directory_with_other_files_does_not_become_a_home(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    result = run(tmp_path, "new", "a")
    assert result.returncode == 1
    assert "is not a home" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_append_prints_the_message_number(filled: Path) -> None:
    assert run(filled, "append", "fix-logi", "-", text="from a pipe").stdout == "fix-login#2\n"
    assert run(filled, "append", "fix the login", "done", "--role", "assistant").stdout == "fix-login#3\n"
    message = {**Message.tool_result("call-1", "output").model_dump(), "unknown": 1}
    done = run(filled, "append", "fix-login", "-", "--messages-json", "--json", text=json.dumps([message]))
    assert json.loads(done.stdout) == {"id": "fix-login", "appended": 1, "messages": 5}
    session = load(filled, "fix-login")
    assert session is not None
    assert [m.content for m in session.messages[2:]] == ["from a pipe", "done", "output"]
    assert run(filled, "append", "fix-login", " ").returncode == 2
    assert run(filled, "append", "fix-login", "{", "--messages-json").returncode == 2
    assert run(filled, "append", "fix-login", '{"role": 1}', "--messages-json").returncode == 1


def test_attach_prints_the_url(filled: Path, tmp_path: Path) -> None:
    picture = tmp_path / "screen.png"
    picture.write_bytes(b"\x89PNG")
    url = run(filled, "attach", "fix-login", str(picture)).stdout.strip()
    piped = json.loads(run(filled, "attach", "fix-login", "-", "--mime", "text/plain", "--json", text="note").stdout)
    with Store.open(filled, background=False) as store:
        assert store.attachments.resolve(url) == (b"\x89PNG", "image/png")
        assert store.attachments.resolve(piped["url"]) == (b"note", "text/plain")
    missing = run(filled, "attach", "fix-login", str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


# -- mv, fork, pin, clear ----------------------------------------------------------------------------------


def test_mv_changes_id_title_and_project(filled: Path) -> None:
    assert (
        run(filled, "mv", "fix-login", "signing-in", "--title", "Signing in", "--project", "web").stdout
        == "signing-in\n"
    )
    session, child = load(filled, "signing-in"), load(filled, "signing-in/worker")
    assert session is not None
    assert child is not None
    assert (session.title, session.project_id, child.root_session_id) == ("Signing in", "web", "signing-in")
    run(filled, "mv", "signing-in", "--project", "")
    session = load(filled, "signing-in")
    assert session is not None
    assert session.project_id is None
    assert run(filled, "mv", "signing-in").returncode == 2
    taken = run(filled, "mv", "signing-in", "fix-logout")
    assert (taken.returncode, taken.stderr.count("\n")) == (1, 1)


def test_fork_prints_all_new_sessions(filled: Path) -> None:
    assert run(filled, "fork", "fix-login", "again", "-t", "Again").stdout == "again\nagain/worker-2\n"
    copy, original = load(filled, "again"), load(filled, "fix-login")
    assert copy is not None
    assert original is not None
    assert (copy.title, copy.messages) == ("Again", original.messages)
    assert run(filled, "fork", "fix-login", "again").returncode == 1
    made = json.loads(run(filled, "fork", "fix-login/worker", "free", "--json").stdout)
    assert made == {"sessions": ["free"]}


def test_pin_protects_until_unpin(filled: Path) -> None:
    assert run(filled, "pin", "-", text="fix-login\nfix-logout\n").stdout.splitlines() == [
        "fix-login is pinned",
        "fix-logout is pinned",
    ]
    before = files_below(filled)
    refused = run(filled, "rm", "fix-login")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "it is pinned" in refused.stderr
    assert "`grovefs unpin`" in refused.stderr
    assert files_below(filled) == before
    assert json.loads(run(filled, "unpin", "fix-login", "--json").stdout) == {
        "sessions": ["fix-login"],
        "pinned": False,
    }
    assert run(filled, "rm", "fix-login").returncode == 0


def test_rm_of_a_session_without_files_says_that_it_deleted_nothing(filled: Path) -> None:
    """Its directory was removed on disk, and the index does not know yet. A second name is still deleted."""
    with Store.open(filled, background=False):  # so that the next command does not look for changes
        shutil.rmtree(filled / "sessions/fix-login")
        found = run(filled, "rm", "fix-login", "fix-logout", "--json")
    assert found.returncode == 1
    assert [row["deleted"] for row in json.loads(found.stdout)] == [False, True]
    assert "fix-login was not deleted" in found.stderr


def test_clear_asks_and_can_be_undone(filled: Path) -> None:
    assert run(filled, "clear", "fix-login").returncode == 2  # not a terminal
    done = run(filled, "clear", "fix-login", "--yes")
    assert done.stdout == "fix-login is cleared; `grovefs undelete fix-login` restores it within seven days\n"
    session = load(filled, "fix-login")
    assert session is not None
    assert session.messages == []
    assert run(filled, "undelete", "fix-login").returncode == 0
    session = load(filled, "fix-login")
    assert session is not None
    assert len(session.messages) == 2


# -- rm, undelete, cleanup -----------------------------------------------------------------------------------


def test_rm_prints_the_command_that_restores_it(filled: Path) -> None:
    """And that command restores every byte."""
    before = files_below(filled)
    done = run(filled, "rm", "fix-login")
    assert done.stdout == (
        "deleted fix-login and 1 descendant; `grovefs undelete fix-login` restores it within seven days\n"
    )
    assert load(filled, "fix-login") is None
    assert run(filled, "undelete", "fix-l").stdout == "restored: fix-login, fix-login/worker\n"
    assert files_below(filled) == before
    assert run(filled, "undelete", "fix-login").returncode == 1


def test_rm_deletes_nothing_if_one_name_is_wrong(filled: Path) -> None:
    before = files_below(filled)
    for wrong in ("nobody", "fix"):
        result = run(filled, "rm", "fix-login", wrong)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "fix-login, fix-logout" in result.stderr
    assert files_below(filled) == before


def test_rm_skips_pinned_sessions(filled: Path) -> None:
    run(filled, "pin", "worker")
    result = run(filled, "rm", "fix-login", "fix-logout", "--json")
    assert result.returncode == 1
    assert [(r["id"], r["deleted"]) for r in json.loads(result.stdout)] == [
        ("fix-login", False),
        ("fix-logout", True),
    ]
    assert run(filled, "rm", "--force", "fix-login").returncode == 0


def test_rm_by_prefix_needs_confirmation(filled: Path) -> None:
    """Run again, the command must not delete another session with a similar name."""
    result = run(filled, "rm", "fix-logi")
    assert result.returncode == 2
    assert "fix-login" in result.stderr
    assert run(filled, "show", "fix-login").returncode == 0
    assert run(filled, "rm", "fix-logi", "--yes").returncode == 0
    assert run(filled, "show", "fix-login").returncode == 1


def test_undelete_restores_the_latest_deletion(filled: Path) -> None:
    run(filled, "rm", "fix-logout")
    run(filled, "new", "fix-logout", "--title", "The second")
    run(filled, "rm", "fix-logout")
    slots = json.loads(run(filled, "trash", "--json").stdout)
    assert [slot["id"] for slot in slots] == ["fix-logout", "fix-logout"]
    run(filled, "undelete", "fix-logout")
    session = load(filled, "fix-logout")
    assert session is not None
    assert session.title == "The second"
    there = run(filled, "undelete", slots[1]["name"])
    assert there.returncode == 1
    assert "exists again" in there.stderr


def test_ambiguous_prefix_of_deletions_is_rejected(filled: Path) -> None:
    run(filled, "rm", "fix-login", "fix-logout")
    result = run(filled, "undelete", "fix")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "fix-login, fix-logout" in result.stderr


def test_cleanup_lists_sessions_and_asks(filled: Path) -> None:
    run(filled, "new", "empty-one")
    assert run(filled, "cleanup", "empty", "--dry-run").stdout.splitlines()[-1].startswith("would delete ")
    assert run(filled, "cleanup", "empty").returncode == 2
    done = json.loads(run(filled, "cleanup", "empty", "--yes", "--json").stdout)
    assert "empty-one" in done["to_delete"]
    assert done["deleted"] == len(done["to_delete"])
    assert load(filled, "empty-one") is None
    assert load(filled, "fix-login") is not None
    assert run(filled, "cleanup", "everything").returncode == 2


def test_names_printed_by_ls_are_accepted_by_other_commands(filled: Path) -> None:
    """A child is printed as root/child, because its id may exist under several roots."""
    run(filled, "fork", "fix-login", "again")
    run(filled, "fork", "again/worker-2", "again/worker")
    names = [line.split("\t")[1] for line in run(filled, "ls").stdout.splitlines()]
    assert sorted(names) == ["again", "again/worker", "again/worker-2", "fix-login", "fix-login/worker", "fix-logout"]
    assert run(filled, "pin", "-", text="\n".join(names)).returncode == 0
    assert run(filled, "show", "worker").returncode == 1
