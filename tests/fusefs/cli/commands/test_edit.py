"""`grovefs edit`: rejections are explained, the user's text is kept, and concurrent changes are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store import Store
from store.commit.write_request import WriteRequest
from store.errors import FileGone
from store.path_kinds import classify_path
from tests.builders import files_below, make_session
from tests.fusefs.cli.commands.test_modify import load, run


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("one", title="Before"))
    return home


class Editor:
    """A fake editor: one Python step per invocation; `path` is the edited file."""

    def __init__(self, directory: Path, *steps: str) -> None:
        self.directory = directory
        self.tmp = directory / "tmp"
        self.tmp.mkdir()
        for number, step in enumerate(steps):
            (directory / f"step{number}.py").write_text(step)
        script = directory / "editor.py"
        script.write_text(
            "import sys, pathlib\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"here = pathlib.Path({str(directory)!r})\n"
            "opened = here / 'opened'\n"
            "number = len(opened.read_text()) if opened.exists() else 0\n"
            "opened.write_text('x' * (number + 1))\n"
            "exec((here / f'step{number}.py').read_text())\n"
        )
        self.command = f"{sys.executable} {script}"

    def edit(self, home: Path, *arguments: str, answers: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"VISUAL": "", "EDITOR": self.command, "TMPDIR": str(self.tmp)}
        return run(home, "edit", *arguments, text=answers, **environment)

    @property
    def opened(self) -> int:
        return len((self.directory / "opened").read_text())

    @property
    def left(self) -> list[Path]:
        return sorted(path for path in self.tmp.rglob("*") if path.is_file())


def replace(old: str, new: str) -> str:
    return f"path.write_text(path.read_text().replace({old!r}, {new!r}))"


def title(home: Path) -> str:
    session = load(home, "one")
    assert session is not None
    return session.title


def test_valid_edit_is_saved(filled: Path, tmp_path: Path) -> None:
    editor = Editor(tmp_path, replace("Before", "After"))
    result = editor.edit(filled, "on")
    assert (result.returncode, result.stdout) == (0, "one: saved\n"), result.stderr
    assert title(filled) == "After"
    assert editor.left == []


def test_unchanged_document_is_not_saved(filled: Path, tmp_path: Path) -> None:
    before = files_below(filled)
    editor = Editor(tmp_path, "pass")
    assert editor.edit(filled, "one").stdout == "one: unchanged\n"
    assert files_below(filled) == before
    assert editor.left == []


def test_rejection_shows_the_line_and_reopens_the_editor(filled: Path, tmp_path: Path) -> None:
    """The rejected text is still in the file when the editor opens again."""
    editor = Editor(tmp_path, replace('"Before"', "5"), replace(": 5,", ': "Repaired",'))
    result = editor.edit(filled, "one", answers="y\n")
    assert (result.returncode, result.stdout) == (0, "one: saved\n"), result.stderr
    assert "title: expected a string, got a number" in result.stderr
    assert '"title": 5,' in result.stderr
    assert "^" in result.stderr
    assert (editor.opened, title(filled), editor.left) == (2, "Repaired", [])


@pytest.mark.parametrize("answers", ["n\n", ""])
def test_rejected_text_is_kept_after_giving_up(filled: Path, tmp_path: Path, answers: str) -> None:
    """Rule 3: the old version is unchanged, the rejected text is kept, and the last line says how to continue."""
    before = files_below(filled)
    repaired = "assert path.read_text() == '{ half a thought'\n" + (
        f"path.write_text(open({str(filled / 'sessions/one/session.json')!r}).read().replace('Before', 'After'))"
    )
    editor = Editor(tmp_path, "path.write_text('{ half a thought')", repaired)
    result = editor.edit(filled, "one", answers=answers)
    assert result.returncode == 1
    assert files_below(filled) == before
    assert editor.left == []
    again = "`grovefs edit --rejected one` continues with it"
    assert result.stderr.endswith(f"grovefs: not saved; your text is kept: {again}\n")
    assert editor.edit(filled, "one", "--rejected").stdout == "one: saved\n"
    assert title(filled) == "After"
    gone = editor.edit(filled, "one", "--rejected")
    expected = "grovefs: there is no rejected version of sessions/one/session.json; nothing was changed\n"
    assert (gone.returncode, gone.stderr) == (1, expected)
    assert editor.left == []


def appended_meanwhile(home: Path) -> str:
    return (
        "from store import Message, Store\n"
        f"with Store.open({str(home)!r}, background=False) as store: store.append('one', [Message.user('meanwhile')])\n"
    )


def retitled_meanwhile(home: Path) -> str:
    """Another writer changes what the user changes too, and appends a message."""
    return (
        appended_meanwhile(home)
        + f"with Store.open({str(home)!r}, background=False) as store:\n"
        + "    store.update('one', lambda session: setattr(session, 'title', 'Theirs'))\n"
    )


def test_concurrent_change_is_merged(filled: Path, tmp_path: Path) -> None:
    """Rule 8. Nobody is asked, and both changes are stored."""
    editor = Editor(tmp_path, appended_meanwhile(filled) + replace("Before", "Mine"))
    result = editor.edit(filled, "one")
    assert (result.returncode, result.stdout) == (0, "one: saved\n"), result.stderr
    assert "it has their changes and yours" in result.stderr
    session = load(filled, "one")
    assert session is not None
    assert (session.title, session.messages[-1].content) == ("Mine", "meanwhile")
    assert editor.left == []


def titled_in_the_sidecar_meanwhile(home: Path) -> str:
    return (
        "from store import Store\n"
        f"with Store.open({str(home)!r}, background=False) as store:\n"
        "    session = store.load('one')\n"
        "    session.title = 'Theirs'\n"
        "    store.save_runtime(session)\n"
    )


def test_title_that_an_agent_set_in_the_sidecar_is_not_overwritten(filled: Path, tmp_path: Path) -> None:
    """The agent's title is in runtime.json alone: session.json is the version that the person has read."""
    steps = titled_in_the_sidecar_meanwhile(filled) + replace("Before", "Mine"), replace("Before", "Mine")
    editor = Editor(tmp_path, *steps)
    result = editor.edit(filled, "one", answers="y\n")
    assert result.returncode == 0, result.stderr
    assert "Theirs" in result.stderr
    assert "Mine" in result.stderr
    assert editor.opened == 2
    assert title(filled) == "Mine", "the second time it was opened after the agent's change"


def test_another_member_does_not_clash_with_the_sidecar(filled: Path, tmp_path: Path) -> None:
    step = titled_in_the_sidecar_meanwhile(filled) + replace('"title"', '"note": 1, "title"')
    result = Editor(tmp_path, step).edit(filled, "one")
    assert result.returncode == 0, result.stderr
    assert title(filled) == "Theirs"


def test_a12_an_unchanged_stale_copy_commits_nothing_and_keeps_the_rejected_text(filled: Path, tmp_path: Path) -> None:
    """:wq without a change, while others write."""
    editor = Editor(tmp_path, "path.write_text('{ half a thought')", appended_meanwhile(filled))
    assert editor.edit(filled, "one", answers="n\n").returncode == 1
    result = editor.edit(filled, "one")
    assert (result.returncode, result.stdout) == (0, "one: unchanged\n"), result.stderr
    with Store.open(filled, background=False) as store:
        path = store.names.rejects.path("sessions/one", "session.json.rejected")
        assert path is not None
        assert (filled / path).read_text() == "{ half a thought"


def test_a_change_of_the_same_member_is_shown_and_the_newer_version_opened(filled: Path, tmp_path: Path) -> None:
    """Rule 8. Editing again opens the newer version; the user's text is in a file next to it."""
    editor = Editor(
        tmp_path,
        retitled_meanwhile(filled) + replace("Before", "Mine"),
        "assert 'meanwhile' in path.read_text()\n" + replace("Theirs", "Merged"),
    )
    result = editor.edit(filled, "one", answers="y\n")
    assert (result.returncode, result.stdout) == (0, "one: saved\n"), result.stderr
    shown = [line.strip() for line in result.stderr.splitlines()]
    assert [line for line in shown if line.startswith(("before:", "theirs:", "yours:"))] == [
        'before:  "Before"',
        'theirs:  "Theirs"',
        'yours:  "Mine"',
    ]
    session = load(filled, "one")
    assert session is not None
    assert (session.title, session.messages[-1].content) == ("Merged", "meanwhile")
    (kept,) = editor.left
    assert (kept.name, "Mine" in kept.read_text()) == ("session.json.yours", True)
    assert str(kept.parent) in result.stderr


def given_up(home: Path, tmp_path: Path, *steps: str) -> Editor:
    """An edit that was rejected because of a concurrent change and given up."""
    editor = Editor(tmp_path, retitled_meanwhile(home) + replace("Before", "Mine"), *steps)
    assert editor.edit(home, "one", answers="n\n").returncode == 1
    return editor


def test_text_rejected_for_a_newer_version_can_be_merged(filled: Path, tmp_path: Path) -> None:
    """Its old updated_at does not block it forever; the version it replaces is shown and kept in a file."""
    editor = given_up(filled, tmp_path, replace("Mine", "Mine, after all"))
    result = editor.edit(filled, "one", "--rejected")
    assert (result.returncode, result.stdout) == (0, "one: saved\n"), result.stderr
    session = load(filled, "one")
    assert session is not None
    assert session.title == "Mine, after all"
    assert '-      "content": "meanwhile"' in result.stderr
    assert '+  "title": "Mine",' in result.stderr
    (kept,) = editor.left
    assert (kept.name, "meanwhile" in kept.read_text()) == ("session.json.replaced", True)
    assert str(kept) in result.stderr


@pytest.mark.parametrize(("answers", "expected"), [("y\n", "Mine"), ("\n", "Theirs"), ("", "Theirs")])
def test_replacing_the_newer_version_unchanged_needs_confirmation(
    filled: Path, tmp_path: Path, answers: str, expected: str
) -> None:
    editor = given_up(filled, tmp_path, "")
    result = editor.edit(filled, "one", "--rejected", answers=answers)
    assert "Replace the current version with it? [y/N]" in result.stderr
    assert title(filled) == expected
    assert len(editor.left) == (expected == "Mine")


def test_session_deleted_meanwhile_is_not_recreated(filled: Path, tmp_path: Path) -> None:
    gone = f"from store import Store\nwith Store.open({str(filled)!r}, background=False) as s: s.delete('one')\n"
    editor = Editor(tmp_path, gone + replace("Before", "Mine"))
    result = editor.edit(filled, "one", answers="n\n")
    assert result.returncode == 1
    assert "session.json was rejected; nothing was stored" in result.stderr
    assert "deleted or renamed meanwhile" in result.stderr
    assert load(filled, "one") is None
    assert len(editor.left) == 1


def test_session_restored_after_it_was_deleted_meanwhile_can_be_saved(filled: Path, tmp_path: Path) -> None:
    """The answer is given after `grovefs undelete`: the same text is saved, and none is left behind."""
    opened = f"from store import Store\nwith Store.open({str(filled)!r}, background=False) as store: "
    gone = f"{opened}store.delete('one')\n"
    back = f"{opened}store.trash.undelete(store.trash.deleted()[0].name)\n"
    editor = Editor(tmp_path, gone + replace("Before", "Mine"), back)
    result = editor.edit(filled, "one", answers="y\n")
    assert (result.returncode, title(filled), editor.left) == (0, "Mine", [])


def test_text_rejected_since_its_session_was_deleted_can_be_saved_once_it_is_back(filled: Path, tmp_path: Path) -> None:
    with Store.open(filled, background=False) as store:
        place = classify_path("sessions/one/session.json")
        base, raw = store.names.version(place), store.names.read(place)
        assert raw is not None
        store.delete("one")
        with pytest.raises(FileGone):
            store.names.commit(WriteRequest(place, raw.replace(b"Before", b"Mine"), base=base))
        store.trash.undelete(store.trash.deleted()[0].name)
    result = Editor(tmp_path, "").edit(filled, "one", "--rejected", answers="y\n")
    assert "Replace the current version with it? [y/N]" in result.stderr
    assert (result.returncode, title(filled)) == (0, "Mine")


def test_failing_editor_saves_nothing(filled: Path, tmp_path: Path) -> None:
    editor = Editor(tmp_path, replace("Before", "After") + "\nsys.exit(3)")
    result = editor.edit(filled, "one")
    assert result.returncode == 1
    assert "exited with code 3" in result.stderr
    assert str(editor.left[0]) in result.stderr
    assert title(filled) == "Before"


def test_editor_that_does_not_start_leaves_no_files(filled: Path, tmp_path: Path) -> None:
    editor = Editor(tmp_path, "sys.exit(1)")
    assert editor.edit(filled, "one").stderr == "grovefs: the editor exited with code 1; nothing was changed\n"
    editor.command = "/nowhere/editor"
    missing = editor.edit(filled, "one")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "set $EDITOR" in missing.stderr
    assert list(editor.tmp.iterdir()) == []


def test_sidecar_can_be_edited(filled: Path, tmp_path: Path) -> None:
    editor = Editor(tmp_path, replace("Before", "Fresher"))
    assert '"document": "runtime.json"' in editor.edit(filled, "one", "--runtime", "--json").stdout
    assert title(filled) == "Fresher"
