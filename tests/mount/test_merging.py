"""Programs that edit a live session through a mount: their saves are merged, or refused with both values."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Message
from tests.builders import make_document, read_json
from tests.mount.conftest import Mount
from tests.records import make_artifact


@pytest.fixture
def document(mounted: Mount) -> Path:
    return mounted.sessions / "root/session.json"


def append(mounted: Mount, text: str) -> None:
    """What an agent does, in another process than the mount."""
    with mounted.store() as store:
        store.append("root", [Message.user(text)])


def contents(document: Path) -> list[str]:
    return [message["content"] for message in read_json(document)["messages"]]


def sh(script: str, document: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "F": str(document)}
    return subprocess.run(["bash", "-ec", script], env=environment, capture_output=True, text=True, timeout=120)


def test_a2_two_loops_of_sed_lose_nothing(document: Path) -> None:
    """Each adds its own key; both start from what the other has just saved, or has not yet."""

    def loop(name: str) -> None:
        keys = 'for i in $(seq 40); do sed -i \'s/^  "id":/  "\'NAME$i\'": 1,\\n  "id":/\' $F; done'
        results[name] = sh(keys.replace("NAME", name), document)

    results: dict[str, subprocess.CompletedProcess[str]] = {}
    threads = [threading.Thread(target=loop, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.returncode for result in results.values()] == [0, 0], results
    found = read_json(document)
    assert {f"{name}{number}" for name in "ab" for number in range(1, 41)} <= found.keys()


@pytest.mark.parametrize("temporary", ["/dev/shm/grovefs-$$", "$F.new"])
def test_a1_jq_and_mv_keep_a_message_of_others(mounted: Mount, document: Path, temporary: str) -> None:
    """Across filesystems mv unlinks and creates; within one it renames."""
    append(mounted, "before")
    script = f'jq .title=\\"T\\" $F > {temporary}; read -r go < $F.go; mv {temporary} $F'
    os.mkfifo(mounted.home / "sessions/root/session.json.go")
    gate = mounted.home / "sessions/root/session.json.go"
    script = script.replace("$F.go", str(gate))
    with subprocess.Popen(["bash", "-ec", script], env={**os.environ, "F": str(document)}) as process:
        with gate.open("w") as go:  # opened once jq has ended
            append(mounted, "meanwhile")
            go.write("\n")
        assert process.wait(60) == 0
    gate.unlink()
    assert read_json(document)["title"] == "T"
    assert contents(document)[-2:] == ["before", "meanwhile"]


def test_python_saves_a_stale_buffer_five_times(mounted: Mount, document: Path) -> None:
    """Second and later saves never delete the messages of others, nor clash with the first."""
    text = document.read_text()
    for number in range(5):
        append(mounted, f"agent-{number}")
        text = text.replace(f'"title": "{"The root" if not number else f"T{number - 1}"}"', f'"title": "T{number}"')
        with document.open("w") as file:
            file.write(text)
    assert read_json(document)["title"] == "T4"
    assert contents(document)[3:] == [f"agent-{number}" for number in range(5)]


def test_a_clash_is_refused_with_both_values(mounted: Mount, document: Path) -> None:
    """Rules 3 and 8."""
    text = document.read_text()
    with mounted.store() as store:
        store.update("root", lambda session: setattr(session, "title", "Theirs"))
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)) as refused, document.open("w") as file:
        file.write(text.replace("The root", "Yours"))
    assert refused.value.errno == errno.ESTALE
    assert read_json(document)["title"] == "Theirs"
    reason = Path(f"{document}.error").read_text()
    for line in ('before:  "The root"', 'theirs:  "Theirs"', 'yours:  "Yours"'):
        assert line in reason
    assert "Yours" in Path(f"{document}.rejected").read_text()


def test_a3_a_fixed_temporary_name_works_again_after_a_clash(mounted: Mount, document: Path) -> None:
    """The file is truncated and written from the newest version: its creation does not matter."""
    temporary = document.with_name("session.json.tmp")
    temporary.write_text(document.read_text().replace("The root", "Yours"))
    with mounted.store() as store:
        store.update("root", lambda session: setattr(session, "title", "Theirs"))
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        temporary.rename(document)
    temporary.write_text(document.read_text().replace("Theirs", "Both"))
    temporary.rename(document)
    assert read_json(document)["title"] == "Both"


@pytest.fixture
def archived(document: Path, tmp_path: Path) -> Path:
    """A directory with an archive of the session, made with each tool."""
    script = (
        "cd $(dirname $F); tar cf T/s.tar session.json; zip -q T/s.zip session.json\n"
        "git init -q T/repo; git --git-dir T/repo/.git --work-tree . add session.json\n"
        "git --git-dir T/repo/.git -c user.name=a -c user.email=a@b commit -qm x"
    )
    made = sh(script.replace("T/", f"{tmp_path}/"), document)
    assert made.returncode == 0, made.stderr
    return tmp_path


@pytest.mark.parametrize(
    "restore",
    ["tar xf T/s.tar", "unzip -qo T/s.zip", "git --git-dir T/repo/.git --work-tree . checkout -- session.json"],
    ids=["tar", "unzip", "git"],
)
def test_an_old_version_is_restored_and_what_it_replaced_is_kept(
    mounted: Mount, document: Path, archived: Path, restore: str
) -> None:
    old = document.read_bytes()
    append(mounted, "later")
    sh("sed -i 's/The root/Changed/' $F", document)
    result = sh(f"cd $(dirname $F); {restore}".replace("T/", f"{archived}/"), document)
    assert result.returncode == 0, result.stderr
    assert document.read_bytes() == old
    with mounted.store() as store:
        texts = [store.history.read(version).main or b"" for version in store.history.log("root")]
    assert any(b"Changed" in text and b"later" in text for text in texts)


def test_a_copy_of_an_old_version_is_refused(mounted: Mount, document: Path, tmp_path: Path) -> None:
    """cp does not say that it restores; the error names the command that does."""
    (tmp_path / "old").write_bytes(document.read_bytes())
    append(mounted, "later")
    result = sh(f"cp {tmp_path}/old $F", document)
    assert result.returncode != 0
    assert contents(document)[-1] == "later"
    assert "grovefs revert root@" in Path(f"{document}.error").read_text()


def test_a_program_that_read_and_wrote_nothing_else_may_keep_its_copy(mounted: Mount, document: Path) -> None:
    """Read, wait, write, by two processes: both edits stay."""
    code = (
        "import sys, time\n"
        "path, old, new = sys.argv[1:]\n"
        "text = open(path).read()\n"
        "print('read', flush=True); sys.stdin.readline()\n"
        "open(path, 'w').write(text.replace(old, new))\n"
    )
    edits = [("The root", "Root"), ("msg-0", "changed")]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(document), *edit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for edit in edits
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "read\n"
    for program in programs:
        program.communicate("\n", timeout=60)
        assert program.returncode == 0
    assert (read_json(document)["title"], contents(document)[0]) == ("Root", "changed")


# -- programs started by one parent: a text made by one of them is stored by another ---------------------


def test_an_edit_between_jq_and_mv_of_one_shell_is_kept(document: Path, place: Path) -> None:
    """mv has read nothing itself. What sed saved meanwhile is not what jq has read."""
    script = f'jq .title=\\"T\\" $F > {place}/n; sed -i \'s/"id": "root"/"id": "root", "sed": 1/\' $F; mv {place}/n $F'
    done = sh(script, document)
    assert done.returncode == 0, done.stderr
    found = read_json(document)
    assert (found["title"], found.get("sed")) == ("T", 1)


@pytest.mark.parametrize("store_it", ["cp", "mv"])
def test_two_texts_made_from_one_version_are_both_kept(document: Path, place: Path, store_it: str) -> None:
    script = (
        f'jq \'.messages += [{{"id": "x1", "role": "user", "content": "by A"}}]\' $F > {place}/a; '
        f'jq .title=\\"B\\" $F > {place}/b; {store_it} {place}/a $F; {store_it} {place}/b $F'
    )
    done = sh(script, document)
    assert done.returncode == 0, done.stderr
    assert "by A" in contents(document)
    assert read_json(document)["title"] == "B"


@pytest.mark.parametrize("store_it", ["cp", "mv"])
def test_two_threads_of_one_program_lose_nothing(document: Path, place: Path, store_it: str) -> None:
    """Every command is a child of this process: all of them are related. A clash may be refused, nothing is lost."""
    accepted: list[str] = []
    lock = threading.Lock()

    def loop(name: str) -> None:
        for number in range(8):
            key, copy = f"{name}{number}", place / name
            with copy.open("wb") as file:
                made = subprocess.run(["jq", f".{key} = 1", document], stdout=file, stderr=subprocess.DEVNULL)
            if made.returncode or not copy.stat().st_size:
                continue  # mv of the other thread has just unlinked the document, as on any filesystem
            if subprocess.run([store_it, copy, document], stderr=subprocess.DEVNULL).returncode == 0:
                with lock:
                    accepted.append(key)

    threads = [threading.Thread(target=loop, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) > 4, accepted
    assert set(accepted) <= read_json(document).keys()


def test_a_status_that_goes_back_and_forth_is_set(document: Path, place: Path) -> None:
    """A text that was stored is not taken for one that is still on its way, though it is more like the next."""
    script = (
        "for i in 1 2 3 4 5; do for status in busy idle; do "
        f'jq ".state = \\"$status\\" | .n$i$status = 1" $F > {place}/n; cp {place}/n $F; '
        "[ $(jq -r .state $F) = $status ]; done; done"
    )
    done = sh(script, document)
    assert done.returncode == 0, done.stderr
    found = read_json(document)
    assert found["state"] == "idle"
    assert {f"n{i}{status}" for i in range(1, 6) for status in ("busy", "idle")} <= found.keys()


def test_a_value_that_is_set_back_is_stored_or_refused(mounted: Mount, document: Path, place: Path) -> None:
    """B, then the old title again, while somebody has looked at each version: the text may be an old one.

    What was accepted is there. A text that was made next to the document is always accepted.
    """
    script = (
        "cat $F > /dev/null; jq '.title = \"B\"' $F > T/n; cp T/n $F; jq '.title = \"The root\"' $F > T/n; cp T/n $F"
    )
    done = sh(script.replace("T/", f"{place}/"), document)
    assert done.returncode == 1
    assert "Stale file handle" in done.stderr
    assert "it is not clear whether this text was made before" in Path(f"{document}.error").read_text()
    assert read_json(document)["title"] == "B"
    done = sh("jq '.title = \"The root\"' $F > $F.new; mv $F.new $F", document)
    assert done.returncode == 0, done.stderr
    assert read_json(document)["title"] == "The root"


COPIERS = {
    "timeout": "timeout 60 cp T/n $F",
    "find": "find T/n -exec cp {} $F ';'",
    "xargs": "echo T/n | xargs -I {} cp {} $F",
    "session": "setsid -w cp T/n $F",
}


@pytest.mark.parametrize("is_looked_at", [False, True])
@pytest.mark.parametrize("copier", COPIERS)
def test_what_another_program_copies_is_stored_or_refused(
    mounted: Mount, document: Path, place: Path, copier: str, is_looked_at: bool
) -> None:
    """cp is not a command of the shell itself. In a session of its own nothing is known of it.

    find(1) exits with 0 whatever cp says.
    """
    stored = mounted.home / "sessions/root/session.json"
    refused = []
    for number, title in enumerate(["B", "C", "B", "The root", "D"]):
        edit = f'.title = "{title}" | .number = {number}'
        done = sh(f"jq '{edit}' $F > T/n; {COPIERS[copier]}".replace("T/", f"{place}/"), document)
        if done.returncode or done.stderr:
            refused.append(title)
        else:
            found = read_json(document if is_looked_at else stored)
            assert (found["title"], found["number"]) == (title, number)
    assert is_looked_at or copier == "session" or not refused


def test_a_clash_with_another_terminal_is_refused_though_the_shell_has_looked(document: Path, place: Path) -> None:
    """grep has read what the other terminal saved, but jq made its text before."""
    script = (
        "jq '.title = \"A\"' $F > T/n; setsid -w sed -i 's/The root/B/' $F; grep -q nothing $F || true; cp T/n $F"
    ).replace("T/", f"{place}/")
    done = sh(script, document)
    assert "Stale file handle" in done.stderr
    assert read_json(document)["title"] == "B"


def test_a_script_that_looks_before_it_copies_does_not_undo_what_others_saved(document: Path, place: Path) -> None:
    """cat has read the present version, but the text was made before, by the program that runs the script."""
    script = (
        "jq '.title = \"A\"' $F > T/n; setsid -w sed -i 's/msg-0/changed/' $F; "
        "bash -c 'cat $F > /dev/null; cp T/n $F; exit $?'"
    ).replace("T/", f"{place}/")
    done = sh(script, document)
    assert "Stale file handle" in done.stderr
    assert (read_json(document)["title"], contents(document)[0]) == ("The root", "changed")


def test_a_pipeline_knows_what_it_has_read(document: Path) -> None:
    """Whatever the program that runs it has read before."""
    edit = 'cat $F | sed \'s/"title": *"[^"]*"/"title": "{}"/\' > $F.new && mv $F.new $F; exit $?'
    for title in ("A", "B", "C"):
        document.read_bytes()
        done = subprocess.run(["bash", "-c", edit.format(title)], env={**os.environ, "F": str(document)})
        assert done.returncode == 0
        assert read_json(document)["title"] == title
        sh('setsid -w sed -i \'s/"title": *"[^"]*"/"title": "by another"/\' $F', document)


def test_what_a_relative_has_saved_is_not_what_a_text_was_made_from(
    mounted: Mount, document: Path, place: Path
) -> None:
    """The text is made from the file in the home, which no mount sees. sed of the same shell saves meanwhile."""
    home = mounted.home / "sessions/root/session.json"
    script = f"sed 's/msg-0/changed/' {home} > T/n; sed -i 's/The root/B/' $F; cp T/n $F".replace("T/", f"{place}/")
    done = sh(script, document)
    assert "Stale file handle" in done.stderr
    assert (read_json(document)["title"], contents(document)[0]) == ("B", "msg-0")


READ_THEN_SAVE = """
import os, subprocess, sys
path, edit = sys.argv[1:]
text = open(path).read()
subprocess.run(["setsid", "-w", "sed", "-i", edit, path], check=True)
text = text.replace("msg-0", "changed").replace('"x": 1', '"x": 2').replace("first", "mine")
if os.environ.get("BY_RENAME"):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)
else:
    with open(path, "w") as file:
        file.write(text)
"""


@pytest.mark.parametrize("by_rename", ["", "1"])
@pytest.mark.parametrize("option", ["--on-conflict=reject", "--no-history"])
def test_without_merging_an_older_copy_is_refused(
    filled: Path, mount_home: Callable[..., Mount], option: str, by_rename: str
) -> None:
    """Also one whose writer opens the document again to write, and that says the same updated_at."""
    document = mount_home(filled, option).sessions / "root/session.json"
    command = [sys.executable, "-c", READ_THEN_SAVE, str(document), "s/The root/B/"]
    done = subprocess.run(command, env={**os.environ, "BY_RENAME": by_rename}, capture_output=True, text=True)
    assert "Stale file handle" in done.stderr, done.stderr
    assert (read_json(document)["title"], contents(document)[0]) == ("B", "msg-0")


def test_an_older_copy_of_a_record_is_refused(mounted: Mount) -> None:
    """artifacts.json and the like are not merged."""
    record = mounted.sessions / "root/artifacts.json"
    record.write_text(json.dumps({"artifacts": [make_artifact(content="first").model_dump()]}))
    command = [sys.executable, "-c", READ_THEN_SAVE, str(record), "s/first/theirs/"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Stale file handle" in done.stderr, done.stderr
    assert "theirs" in record.read_text()


CREATE = """
import json, os, sys
text, go = sys.argv[2], os.fdopen(int(sys.argv[3]))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("open", flush=True)
go.readline()
os.write(fd, text.encode())
os.close(fd)
"""


@pytest.mark.parametrize("later", [0, 1])
def test_of_two_that_create_a_session_the_second_is_refused(mounted: Mount, later: int) -> None:
    """It opened a name that did not exist, so it cannot have read what the first one stored there."""
    directory = mounted.sessions / "new"
    directory.mkdir()
    texts = []
    for number in range(2):
        data = json.loads(make_document("new"))
        data["messages"] = [{"id": f"m{number}", "role": "user", "content": f"by {number}"}]
        data["updated_at"] = f"2026-01-01T00:00:0{number * later}Z"
        texts.append(json.dumps(data))
    gates, creators = [os.pipe() for _ in texts], []
    for text, (reading, _) in zip(texts, gates, strict=True):
        command = [sys.executable, "-c", CREATE, str(directory / "session.json"), text, str(reading)]
        creator = subprocess.Popen(
            command, pass_fds=[reading], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert creator.stdout is not None
        assert creator.stdout.readline() == "open\n"
        creators.append(creator)
    codes = []
    for creator, (reading, writing) in zip(creators, gates, strict=True):
        os.write(writing, b"\n")
        codes.append(creator.wait(60))
        assert creator.stdout is not None
        creator.stdout.close()
        os.close(reading)
        os.close(writing)
    assert (codes[0], codes[1] != 0) == (0, True)
    assert contents(directory / "session.json") == ["by 0"]
