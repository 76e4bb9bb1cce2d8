"""What a host can be asked to do, on its open store, and what can be seen of its home afterwards.

A deed returns a value, or raises Refused or an error of the store. Every word is written once in a case, so that a
change that is lost, or made twice, is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from store import InboxMessage, Message, Session, Store
from store.errors import StoreError
from store.grove.agreeing import GroveAgreement
from tests.records import make_artifact

COUNTER = "n"
LONG_BYTES = 1_500_000  # more than a row of the log holds: sent as chunks


class Refused(StoreError):
    """The deed had no effect, which its return value says."""


class Deed(NamedTuple):
    """A deed by name. `target` is a session, a state document, or "" """

    name: str
    target: str = ""
    word: str = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(filter(None, self[1:]))})"


@dataclass
class Worker:
    """The deeds of one host."""

    store: Store
    held: dict[str, Session] = field(default_factory=dict)  # loaded earlier, for stale saves

    def do(self, deed: Deed) -> Any:
        work: Callable[..., Any] = getattr(self, f"do_{deed.name}")
        return work(deed.target, deed.word)

    # -- sessions ----------------------------------------------------------------------------------

    def do_create(self, target: str, word: str) -> None:
        session = Session.new(target, "m")
        session.title = word
        self.store.save(session)

    def do_child(self, target: str, word: str) -> None:
        root, child = target.split("/")
        self.store.new_child(root, child, title=word)

    def do_append(self, target: str, word: str) -> None:
        self.store.append(target, [Message.user(word)])

    def do_count(self, target: str, word: str) -> None:
        def increment(session: Session) -> None:
            session.metadata[COUNTER] = str(int(session.metadata.get(COUNTER, "0")) + 1)

        _require(self.store.update(target, increment))

    def do_retitle(self, target: str, word: str) -> None:
        session = self._loaded(target)
        session.title = word
        self.store.save(session)

    def do_pin(self, target: str, word: str) -> None:
        _require(self.store.update(target, lambda session: setattr(session, "pinned", True)))

    def do_unpin(self, target: str, word: str) -> None:
        _require(self.store.update(target, lambda session: setattr(session, "pinned", False)))

    def do_hold(self, target: str, word: str) -> None:
        self.held[target] = self._loaded(target)

    def do_save_held(self, target: str, word: str) -> str:
        """Save what was loaded earlier, merged. Returns the title that it had then."""
        session = self.held.pop(target, None)
        if session is None:
            raise Refused("nothing is held")
        before, session.title = session.title, word
        self.store.save(session, on_conflict="merge")
        return before

    def do_delete(self, target: str, word: str) -> None:
        _require(self.store.delete(target))

    def do_undelete(self, target: str, word: str) -> None:
        slots = [slot for slot in self.store.trash.deleted() if _is_of(slot.moves, target)]
        if not slots:
            raise Refused("not in the trash")
        self.store.trash.undelete(max(slots, key=lambda slot: slot.name).name)

    def do_attach(self, target: str, word: str) -> None:
        self.store.attach(target, word.encode(), "text/plain")

    def do_attach_long(self, target: str, word: str) -> None:
        padding = word.encode() * (LONG_BYTES // len(word))
        self.store.attach(target, word.encode() + b"\n" + padding, "text/plain")

    def do_record(self, target: str, word: str) -> None:
        self.store.records.add_artifacts(target, [make_artifact(word)])

    # -- past the store ------------------------------------------------------------------------------

    def do_edit_outside(self, target: str, word: str) -> str:
        """Change the first message on disk, as another program does. Returns what it was."""
        path = self._document(target)
        text = path.read_text()
        messages = json.loads(text)["messages"]
        before: str = messages[0]["content"] if messages else _require(None)
        temporary = path.with_name("an-editor.tmp")
        temporary.write_text(text.replace(f'"{before}"', f'"{word}"'))
        temporary.rename(path)
        return before

    def do_remove_outside(self, target: str, word: str) -> None:
        """Remove the document on disk: it has to come back."""
        self._document(target).unlink()

    def _document(self, target: str) -> Path:
        location = _require(self.store.location(target))
        path = self.store.home / str(location.dir) / "session.json"
        return path if path.exists() else _require(None)

    def _loaded(self, target: str) -> Session:
        session: Session = _require(self.store.load(target))
        return session

    # -- mail and state ------------------------------------------------------------------------------

    def do_send(self, target: str, word: str) -> None:
        self.store.mail.at(target).deliver(InboxMessage.new("x", "reply", {"word": word}))

    def do_drain(self, target: str, word: str) -> list[str]:
        return [str(found.message.body["word"]) for found in self.store.mail.at(target).drain(limit=2)]

    def do_recover(self, target: str, word: str) -> list[str]:
        return [str(found.message.body["word"]) for found in self.store.mail.at(target).recover()]

    def do_ack(self, target: str, word: str) -> str:
        """Acknowledge one message that this host has claimed. Returns its word."""
        box = self.store.mail.at(target)
        for found in box.recover():
            if not box.ack_delivered(found):
                raise Refused("acknowledged before")
            return str(found.message.body["word"])
        raise Refused("nothing is claimed")

    def do_state_add(self, target: str, word: str) -> None:
        def add(value: Any) -> Any:
            return [*(value or []), word]

        self.store.state.update_json("memory", target, add)

    def do_state_put(self, target: str, word: str) -> None:
        self.store.state.save_json("memory", target, [word])

    def do_state_delete(self, target: str, word: str) -> None:
        _require(self.store.state.delete("memory", target))

    # -- for the attack ------------------------------------------------------------------------------

    def do_ready(self, target: str, word: str) -> None:
        """Raises the reason why nothing can be written now."""
        self.store.maintenance.check_writable()
        self._agreement.check()

    def do_position(self, target: str, word: str) -> tuple[dict[int, int], list[str]]:
        """How far the log was followed, by shard, and the units that are behind."""
        replica = self._agreement.replica
        cursors = {shard: position.seq for shard, position in replica.cursors().items()}
        return cursors, [f"{unit.unit}: {unit.why}" for unit in replica.behind()]

    def do_check(self, target: str, word: str) -> list[str]:
        return [str(finding) for finding in self.store.check().findings]

    def do_history(self, target: str, word: str) -> list[int]:
        """The numbers of all versions of a session, the newest first."""
        return [version.number for version in self.store.history.log(target, limit=100_000)]

    def do_see(self, target: str, word: str) -> dict[str, Any]:
        """Everything that the model predicts, as values of JSON."""
        ids = self.store.ids()
        state = self.store.state
        return {
            "sessions": {name: self._session(name) for name in ids},
            "state": {name: state.load_json("memory", name) for name in state.names("memory")},
        }

    def _session(self, name: str) -> dict[str, Any]:
        session = self._loaded(name)
        location = self.store.location(name)
        assert location is not None
        directory = self.store.home / location.dir
        artifacts = self.store.records.load_artifacts(name)
        return {
            "title": session.title,
            "messages": [str(message.content) for message in session.messages],
            "count": int(session.metadata.get(COUNTER, "0")),
            "pinned": session.pinned,
            "attached": sorted(_first_line(path) for path in _files(directory / "attachments")),
            "artifacts": sorted(a.artifact_id.rpartition(":")[2] for a in artifacts.artifacts) if artifacts else [],
            "new": sorted(_word_of(path) for path in _files(directory / "mailbox/new")),
            "claimed": sorted(_word_of(path) for path in _files(directory / "mailbox/cur")),
        }

    @property
    def _agreement(self) -> GroveAgreement:
        found = self.store._core.agreement
        assert isinstance(found, GroveAgreement)
        return found


def _require(value: Any) -> Any:
    if value is None or value is False:
        raise Refused("there is none")
    return value


def _is_of(moves: list[tuple[str, str]], target: str) -> bool:
    root, _, child = target.partition("/")
    return bool(moves) and moves[0][0] == (f"sessions/{root}/children/{child}" if child else f"sessions/{root}")


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []


def _first_line(path: Path) -> str:
    return path.read_bytes().split(b"\n")[0].decode()


def _word_of(path: Path) -> str:
    return str(json.loads(path.read_bytes())["body"]["word"])
