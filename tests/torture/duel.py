"""The duel: an agent appends to a session by the API while people edit it through two mounts, in every way they know.

Everybody edits his own message, so no two edits clash. At the end every message is there once and in order, every
accepted edit is there, nothing was refused, and the store is clean. In the history nobody's edit was ever taken back.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from store import Message, Store
from store.history.lineages import find_lineage
from store.history.thinning import Undecodable, iter_texts
from store.history.versions import FOUND
from tests.builders import make_session
from tests.grove.groves import assert_clean, files, wait_until
from tests.mount.terminals import terminal
from tests.torture.attack import Case
from tests.torture.hosts.crews import create_grove
from tests.torture.hosts.world import new_database, running_server
from tests.torture.mounts import Mounted, mounted
from tests.torture.places import scratch

SESSION = "live"
RESTORED = "restored"  # a session of its own: git restores versions of it, which nobody else may replace
FILES = {"attachments", "children", "runtime.json", "session.json"}
APPEND_EVERY_S = 0.2
_EDIT = re.compile(rb'"content":\s*"(\w+) (\d+)"')
_PYTHON = shlex.quote(sys.executable)
_GROVEFS = f"{_PYTHON} -m fusefs.cli"
_REPLACE = 's/\\"$WHO [0-9]*\\"/\\"$WHO $NEW\\"/'
_JQ = 'jq --arg a "$WHO " --arg n "$WHO $NEW" "(.messages[] | select(.content | startswith(\\$a)).content) = \\$n"'
_GIT = "git --git-dir $ASIDE/repo --work-tree . -c user.name=a -c user.email=a@b"

# Each replaces `"$WHO <number>"` by `"$WHO $NEW"` in ./session.json and exits 0. $ASIDE is on another filesystem.
SCRIPTS = {
    "sed": f'sed -i "{_REPLACE}" session.json',
    "perl": f'perl -pi -e "{_REPLACE}" session.json',
    "jq": f"{_JQ} session.json > t.$WHO && sleep 0.2 && mv t.$WHO session.json",
    "jqacross": f"{_JQ} session.json > $ASIDE/$WHO && sleep 0.2 && mv $ASIDE/$WHO session.json",
    "pipe": f'set -o pipefail; cat session.json | sed "{_REPLACE}" > t.$WHO && mv t.$WHO session.json',
    "across": f'sed "{_REPLACE}" session.json > $ASIDE/$WHO && sleep 0.2 && mv $ASIDE/$WHO session.json',
    "copy": f'sed "{_REPLACE}" session.json > $ASIDE/$WHO && sleep 0.2 && cp $ASIDE/$WHO session.json',
    "git": f"set -e; cd ../{RESTORED}; [ -e $ASIDE/repo ] || git init -q --bare $ASIDE/repo; "
    f'sed -i "{_REPLACE}" session.json; {_GIT} add session.json; {_GIT} commit -qm $NEW; '
    f'sed -i "s/Restored/Wrong title/" session.json; {_GIT} checkout -q -- session.json',
    "edit": f'echo "{_REPLACE}" > $ASIDE/s; EDITOR="sed -i -f $ASIDE/s" {_GROVEFS} edit --home $STORE {SESSION}',
}
# A program that keeps its buffer and saves it several times, each time with one more change of its own.
_BUFFER = """
import os, re, sys, time
who, number, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
text = open("session.json").read()
for _ in range(4):
    time.sleep(0.15)
    number += 1
    text = re.sub(f'"{who} [0-9]*"', f'"{who} {number}"', text)
    if how == "w":  # VS Code, most others
        with open("session.json", "w") as file:
            file.write(text)
    elif how == "r+":
        with open("session.json", "r+") as file:
            text = re.sub(f'"{who} [0-9]*"', f'"{who} {number}"', file.read())
            file.seek(0)
            file.truncate()
            file.write(text)
    elif how == "fsync":
        with open("session.json", "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.3)
            number += 1
            text = re.sub(f'"{who} [0-9]*"', f'"{who} {number}"', text)
            file.seek(0)
            file.truncate()
            file.write(text)
    else:  # a temporary file and rename: VS Code's other way
        with open(f".session.json.{who}", "w") as file:
            file.write(text)
        os.rename(f".session.json.{who}", "session.json")
    print(number, flush=True)
"""
BUFFERS = ["w", "r+", "rename", "fsync"]
# Without native compilation: Emacs would compile its JavaScript mode in the background, at every start.
_EMACS_SETUP = (
    "(setq make-backup-files nil auto-save-default nil revert-without-query nil"
    " native-comp-deferred-compilation nil native-comp-jit-compilation nil)"
)
# F5 adds 1 to the number in the message. Keys typed at a prompt may be lost when Emacs notices a change on disk.
_EMACS_COUNT = """
(global-set-key [f5] (lambda () (interactive)
  (goto-char 1)
  (re-search-forward "\\"%s \\\\([0-9]+\\\\)\\"")
  (let ((number (1+ (string-to-number (match-string 1)))))
    (replace-match (number-to-string number) t t nil 1)
    (message "set %%s" number))))
"""
EDITORS = ["vim", "vimcopy", "nano", "emacs"]
# `mv` from another filesystem unlinks the document before it creates it, as on any filesystem: others in the same
# mount, also another `mv`, may find none for a moment, or one that was just created. They try again; an editor would
# have to do that too. mv of coreutils 9.1 then says "cannot overwrite directory", on any filesystem.
_MISSED = "No such file|File exists|cannot overwrite directory"
SECOND_MOUNT = {"across", "jqacross", "copy", "pipe", "perl", "bufferrplus", "bufferrename"}


@dataclass
class Person:
    """Edits one message in one way until the end. `accepted` has the numbers of his saves."""

    name: str
    directory: Path  # of the session, in a mount
    store_home: Path
    aside: Path
    ends: float
    accepted: list[int] = field(default_factory=list)
    missed: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.accepted[-1] if self.accepted else 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.ends

    def save_by(self, script: str) -> None:
        """Run a script again and again."""
        env = os.environ | {"WHO": self.name, "ASIDE": str(self.aside), "STORE": str(self.store_home)}
        env |= {"PYTHONPATH": str(Path(__file__).parent.parent.parent), "HOME": str(self.aside)}
        while not self.is_over:
            number = self.last + 1
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=self.directory,
                env=env | {"NEW": str(number)},
                capture_output=True,
                text=True,
                timeout=120,
            )
            # perl -i exits with 0 if it cannot open the file, and says so.
            is_saved = done.returncode == 0 and "Can't open" not in done.stderr
            self._note(number, is_saved, done.stderr)

    def save_buffer(self, how: str) -> None:
        """Load the document, save it four times without loading it again, and so on."""
        while not self.is_over:
            command = [sys.executable, "-c", _BUFFER, self.name, str(self.last), how]
            done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=120)
            for number in map(int, done.stdout.split()):
                self._note(number, True, "")
            if done.returncode:
                self._note(self.last + 1, False, done.stderr)

    def _note(self, number: int, is_saved: bool, error: str) -> None:
        if is_saved:
            self.accepted.append(number)
        elif self.name in SECOND_MOUNT and re.search(_MISSED, error):
            self.missed += 1
            (self.directory / f"t.{self.name}").unlink(missing_ok=True)  # the script's own; it would try again
        else:
            errors = self.directory.parent.parent / ".grovefs/errors.jsonl"
            self.refused.append("\n".join([f"{self.name}: {error.strip()}", *errors.read_text().splitlines()[-3:]]))

    # -- editors on a terminal ---------------------------------------------------------------------

    def edit(self, editor: str) -> None:
        deed: Callable[[], None] = {
            "vim": lambda: self._vim("vim -n -N -u NONE -i NONE session.json"),
            "vimcopy": lambda: self._vim("vim -n -N -u NONE -i NONE --cmd 'set backupcopy=yes' session.json"),
            "nano": self._nano,
            "emacs": self._emacs,
        }[editor]
        while not self.is_over:
            try:
                deed()
            except AssertionError as error:  # with the screen
                self.refused.append(f"{self.name}: {error}")
                return

    def _vim(self, command: str) -> None:
        with terminal(command, self.directory, self.aside) as vim:
            vim.wait_for('"messages"')
            for _ in range(3):
                number = self.last + 1
                vim.type(f':%s/"{self.name} [0-9]*"/"{self.name} {number}"/ | redraw | echo "set" {number}', "Enter")
                vim.wait_for(f"set {number}")
                vim.type(":w", "Enter")
                found = vim.wait_for("(y/n)?", "written", "E949", "E512", "E667")
                if found == "(y/n)?":
                    time.sleep(0.5)
                    vim.type("y")
                    found = vim.wait_for("written", "E949", "E512", "E667")
                self._note(number, found == "written", vim.screen() if found != "written" else "")
                vim.type("Enter", ":echo 'next'", "Enter")
                vim.wait_for("next")
            vim.type(":q!", "Enter")

    def _nano(self) -> None:
        with terminal("nano --ignorercfiles session.json", self.directory, self.aside) as nano:
            nano.wait_for("GNU nano")
            for _ in range(2):
                number = self.last + 1
                nano.type("M-\\", "C-\\")
                nano.wait_for("Search (to replace)")
                nano.type(f'"{self.name} {self.last}"', "Enter")
                nano.wait_for("Replace with")
                nano.type(f'"{self.name} {number}"', "Enter")
                nano.wait_for("Replace this instance")
                nano.type("A")
                nano.wait_for("Replaced 1 occurrence")
                nano.type("C-s")
                found = nano.wait_for("continue saving", "Wrote", "Error")
                if found == "continue saving":
                    nano.type("Y")
                    found = nano.wait_for("Wrote", "Error")
                self._note(number, found == "Wrote", nano.screen() if found != "Wrote" else "")
            nano.type("C-x")

    def _emacs(self) -> None:
        setup = f"(progn {_EMACS_SETUP} {_EMACS_COUNT % self.name})"
        with terminal(f"emacs -Q -nw --eval {shlex.quote(setup)} session.json", self.directory, self.aside) as emacs:
            emacs.wait_for("(JS", "(Javascript", "(JavaScript", "(Fundamental")
            for _ in range(2):
                number = self.last + 1
                emacs.type("F5")
                found = emacs.wait_for("really edit", f"set {number}")
                if found == "really edit":
                    emacs.type("y")
                    emacs.wait_for(f"set {number}")
                emacs.type("C-x", "C-s")
                found = emacs.wait_for("Save anyway", "Wrote", "rror")
                if found == "Save anyway":
                    emacs.type("yes", "Enter")
                    found = emacs.wait_for("Wrote", "rror")
                self._note(number, found == "Wrote", emacs.screen() if found != "Wrote" else "")
            emacs.type("C-x", "C-c")


def ways() -> dict[str, Callable[[Person], None]]:
    """Every way of editing, by the name of the person that uses it."""
    found: dict[str, Callable[[Person], None]] = {}
    for name, script in SCRIPTS.items():
        found[name] = lambda person, script=script: person.save_by(script)  # type: ignore[misc]
    for how in BUFFERS:
        found[f"buffer{how.replace('+', 'plus')}"] = lambda person, how=how: person.save_buffer(how)  # type: ignore[misc]
    for editor in EDITORS:
        found[editor] = lambda person, editor=editor: person.edit(editor)  # type: ignore[misc]
    return found


@dataclass
class Agent:
    """Appends five messages a second, and counts them in the metadata."""

    home: Path
    ends: float
    said: int = 0
    counted: int = 0

    def run(self) -> None:
        with Store.open(self.home, background=False, author="agent") as store:
            while time.monotonic() < self.ends:
                store.append(SESSION, [Message.assistant(f"answer {self.said}")])
                self.said += 1
                if self.said % 5 == 0:
                    store.update(SESSION, lambda session: session.metadata.update(answers=str(self.said)))
                    self.counted = self.said
                time.sleep(APPEND_EVERY_S)


def fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        session = make_session(SESSION, messages=0, title="Live")
        for name in sorted(ways().keys() - {"git"}):
            session.add_message(Message.user(f"{name} 0"))
        store.save(session)
        restored = make_session(RESTORED, messages=0, title="Restored")
        restored.add_message(Message.user("git 0"))
        store.save(restored)


def duel(seconds: float, names: list[str] | None = None) -> dict[str, int]:
    """Let everybody work for a while. Returns the number of saves by everybody."""
    with mounted(fill) as one, scratch() as aside:
        other = Mounted(one.home, aside / "mnt", aside / "log")
        other.path.mkdir()
        other.mount()
        try:
            return _fight([one, other], aside, seconds, names or list(ways()))
        finally:
            other.unmount(lazily=True)
            other.ended()


def duel_across_hosts(seconds: float, names: list[str] | None = None) -> dict[str, int]:
    """The people are on one host of a grove, with two mounts, and the agent is on another."""
    with running_server() as server, scratch() as place:
        url = server.url(new_database(server))
        fill(place / "people")
        create_grove(url, dict.fromkeys([place / "people", place / "agent"], url))
        mounts = [Mounted(place / "people", place / f"mnt{number}", place / f"log{number}") for number in range(2)]
        with ExitStack() as stack:
            for mount in mounts:
                mount.path.mkdir()
                mount.mount()
                stack.callback(mount.ended)
                stack.callback(mount.unmount, lazily=True)
            (place / "aside").mkdir()
            return _fight(mounts, place / "aside", seconds, names or list(ways()), place / "agent")


def _fight(
    mounts: list[Mounted], aside: Path, seconds: float, names: list[str], agent_home: Path | None = None
) -> dict[str, int]:
    ends = time.monotonic() + seconds
    people = [_person(name, mounts[name in SECOND_MOUNT], aside, ends) for name in names]
    agent = Agent(agent_home or mounts[0].home, ends)
    with ExitStack() as stack:
        for work in [agent.run, *(lambda p=p: ways()[p.name](p) for p in people)]:
            thread = threading.Thread(target=work)
            thread.start()
            stack.callback(thread.join)
    if agent_home is not None:
        _wait_equal(mounts[0].home, agent_home)
    for mount in mounts:
        _check(mount, people, agent)
    damage = mounts[0].damage()
    assert not damage, damage
    _check_history(mounts[0], agent)
    _check_edits_in_history(mounts[0], people)
    missed = {f"{person.name} missed": person.missed for person in people if person.missed}
    return {person.name: len(person.accepted) for person in people} | {"agent": agent.said} | missed


def _wait_equal(home: Path, other: Path) -> None:
    """Wait until the host of the agent has what the people did last, and the other way round."""
    with Store.open(other, author="agent") as store:
        wait_until(lambda: files(home) == files(other))
        assert_clean(store)


def _person(name: str, mount: Mounted, aside: Path, ends: float) -> Person:
    (aside / name).mkdir()
    (mount.sessions / SESSION / "children").mkdir(exist_ok=True)
    (mount.sessions / SESSION / "attachments").mkdir(exist_ok=True)
    return Person(name, mount.sessions / SESSION, mount.home, aside / name, ends)


def _check(mount: Mounted, people: list[Person], agent: Agent) -> None:
    refused = [error for person in people for error in person.refused]
    assert not refused, "\n\n".join([f"{len(refused)} refused", *refused[:5]])
    directory = mount.sessions / SESSION
    document = json.loads((directory / "session.json").read_bytes())
    contents = [message["content"] for message in document["messages"]]
    answers = [content for content in contents if content.startswith("answer ")]
    assert answers == [f"answer {number}" for number in range(agent.said)]
    restored = json.loads((mount.sessions / RESTORED / "session.json").read_bytes())
    assert restored["title"] == "Restored"
    contents.append(restored["messages"][0]["content"])
    assert len(contents) == len(answers) + len(ways()), contents
    found = {match[1]: int(match[2]) for text in contents if (match := re.fullmatch(r"(\w+) (\d+)", text))}
    assert {p.name: p.last for p in people} == {p.name: found[p.name] for p in people}
    assert document["metadata"].get("answers", "0") == str(agent.counted)
    assert set(os.listdir(directory)) == FILES, os.listdir(directory)


def _check_history(mount: Mounted, agent: Agent) -> None:
    """Every commit is a version: no number is missing, and the newest is the file."""
    with mount.store() as store:
        versions = store.history.log(SESSION, limit=1_000_000)
        text = store.history.read(versions[0]).main
    assert [version.number for version in versions] == list(range(len(versions), 0, -1))
    assert len(versions) > agent.said + agent.said // 5
    assert text == (mount.home / "sessions" / SESSION / "session.json").read_bytes()


def _check_edits_in_history(mount: Mounted, people: list[Person]) -> None:
    """From version to version no edit is taken back, and every accepted edit is in a version.

    Only a history that was locked for a moment may lack one: it then has a found version.
    """
    with mount.store() as store:
        for session_id in (SESSION, RESTORED):
            versions = store.history.log(session_id, limit=1_000_000)
            has_missed = any(version.what == FOUND for version in versions)
            numbers: dict[str, list[int]] = {}
            for text in _texts_of(store, session_id):
                for name, number in _EDIT.findall(text):
                    numbers.setdefault(name.decode(), []).append(int(number))
            for person in people:
                if (person.name == "git") == (session_id == RESTORED):
                    found = numbers[person.name]
                    assert found == sorted(found), f"{person.name}: an edit was taken back: {found}"
                    lost = sorted({*person.accepted} - {*found})
                    assert not lost or has_missed, f"{person.name}: accepted, and in no version: {lost}"


def _texts_of(store: Store, session_id: str) -> Iterator[bytes]:
    """The documents of all versions, oldest first; each is built from the one before."""
    db = store._core.history.database.reader
    lineage = find_lineage(db, f"sessions/{session_id}")
    assert lineage is not None
    for _, text, _ in iter_texts(db, lineage.key, "main"):
        assert not isinstance(text, Undecodable), text
        if text is not None:
            yield bytes(text)


def duels(seed: int, seconds: float = 300.0) -> Iterator[Case]:
    """One long duel of all, and one with the agent on another host."""
    yield Case("all against all", lambda: duel(seconds))
    yield Case("across hosts", lambda: duel_across_hosts(seconds / 2))
