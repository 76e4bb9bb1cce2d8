"""The model of a grove: one set of sessions and state documents, whatever host changes it. Pure.

A deed whose outcome is not known (its host was killed, or the database did not answer) leaves several possible
states, and so do deeds of several hosts at the same time. `Frontier` keeps all of them; what is seen afterwards must
be one of them, and is then the only one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.torture.hosts.deeds import Deed
from tests.torture.hosts.host import Answer

Words = frozenset[str]
DRAINED = 2  # messages at once


class Claim(NamedTuple):
    """A message in cur/. Without a host: it came back with a deleted session."""

    word: str
    host: str
    is_unsure: bool = False  # the host did not learn that it has claimed it


class SessionState(NamedTuple):
    title: str
    messages: tuple[str, ...] = ()
    counted: int = 0
    pinned: bool = False
    attached: Words = frozenset()
    artifacts: Words = frozenset()
    new: Words = frozenset()
    claims: frozenset[Claim] = frozenset()

    def claims_of(self, host: str) -> list[Claim]:
        return [claim for claim in self.claims if claim.host in (host, "")]

    def seen(self) -> dict[str, Any]:
        """As `Worker.do_see` shows it."""
        return {
            "title": self.title,
            "messages": list(self.messages),
            "count": self.counted,
            "pinned": self.pinned,
            "attached": sorted(self.attached),
            "artifacts": sorted(self.artifacts),
            "new": sorted(self.new),
            "claimed": sorted(claim.word for claim in self.claims),
        }


Sessions = tuple[tuple[str, SessionState], ...]


class Edit(NamedTuple):
    """A message that another program wrote on disk, in place of `base`. It is published or rejected later."""

    target: str
    base: str
    word: str


class GroveState(NamedTuple):
    sessions: Sessions = ()
    documents: tuple[tuple[str, tuple[str, ...]], ...] = ()
    trash: tuple[tuple[str, Sessions], ...] = ()  # deleted trees, the newest last
    edits: frozenset[Edit] = frozenset()

    def find(self, target: str) -> SessionState | None:
        return dict(self.sessions).get(target)

    def tree(self, target: str) -> Sessions:
        """A session and, of a root, its children."""
        return tuple((name, found) for name, found in self.sessions if name == target or name.startswith(f"{target}/"))

    def put(self, *sessions: tuple[str, SessionState]) -> GroveState:
        return self._replace(sessions=tuple(sorted({**dict(self.sessions), **dict(sessions)}.items())))

    def without(self, names: Iterable[str]) -> GroveState:
        gone = set(names)
        return self._replace(sessions=tuple(item for item in self.sessions if item[0] not in gone))

    def seen(self) -> dict[str, Any]:
        return {
            "sessions": {name: session.seen() for name, session in self.sessions},
            "state": {name: list(words) for name, words in self.documents},
        }


class Outcome(NamedTuple):
    """A possible outcome of a deed that succeeds: its value (None: any) and the state after it."""

    value: Any
    state: GroveState


def outcomes(state: GroveState, deed: Deed, host: str) -> list[Outcome]:
    """The ways in which a deed can succeed; none if it must be refused."""
    found = state.find(deed.target)
    name, word = deed.name, deed.word
    if name == "create":
        return [] if found else [_changed(state, deed, SessionState(word))]
    if name == "child":
        root = state.find(deed.target.partition("/")[0])
        return [] if found or not root else [_changed(state, deed, SessionState(word))]
    if name.startswith("state_"):
        return _documents(state, deed)
    if name == "undelete":
        return _undeleted(state, deed)
    if found is None:
        return []
    if name == "delete":
        return _deleted(state, deed)
    if name in ("drain", "recover", "ack", "send"):
        return _mail(state, deed, found, host)
    if name == "save_held":
        return [Outcome(found.title, state.put((deed.target, found._replace(title=word))))]
    if name == "edit_outside":
        return _edited(state, deed, found)
    changes: dict[str, SessionState] = {
        "append": found._replace(messages=(*found.messages, word)),
        "count": found._replace(counted=found.counted + 1),
        "retitle": found._replace(title=word),
        "pin": found._replace(pinned=True),
        "unpin": found._replace(pinned=False),
        "hold": found,
        "remove_outside": found,
        "attach": found._replace(attached=found.attached | {word}),
        "attach_long": found._replace(attached=found.attached | {word}),
        "record": found._replace(artifacts=found.artifacts | {word}),
    }
    return [_changed(state, deed, changes[name])]


def _edited(state: GroveState, deed: Deed, session: SessionState) -> list[Outcome]:
    """An edit of the agreed text, or of one that was written on disk and is not published yet: both become one."""
    new = [(base, Edit(deed.target, base, deed.word), state.edits) for base in session.messages[:1]]
    waiting = [edit for edit in state.edits if edit.target == deed.target]
    again = [(edit.word, edit._replace(word=deed.word), state.edits - {edit}) for edit in waiting]
    return [Outcome(seen, state._replace(edits=others | {edit})) for seen, edit, others in [*new, *again]]


def _changed(state: GroveState, deed: Deed, session: SessionState) -> Outcome:
    return Outcome(None, state.put((deed.target, session)))


def _documents(state: GroveState, deed: Deed) -> list[Outcome]:
    documents = dict(state.documents)
    if deed.name == "state_delete" and deed.target not in documents:
        return []
    if deed.name == "state_delete":
        del documents[deed.target]
    elif deed.name == "state_put":
        documents[deed.target] = (deed.word,)
    else:
        documents[deed.target] = (*documents.get(deed.target, ()), deed.word)
    return [Outcome(None, state._replace(documents=tuple(sorted(documents.items()))))]


def _deleted(state: GroveState, deed: Deed) -> list[Outcome]:
    tree = state.tree(deed.target)
    if any(session.pinned for _, session in tree):
        return []
    left = state.without(name for name, _ in tree)
    return [Outcome(None, left._replace(trash=(*state.trash, (deed.target, tree))))]


def _undeleted(state: GroveState, deed: Deed) -> list[Outcome]:
    """A host that is not up to date may restore an older deletion than the newest, which comes first here."""
    root, _, child = deed.target.partition("/")
    if state.find(deed.target) or (child and not state.find(root)):
        return []
    trees = [tree for target, tree in reversed(state.trash) if target == deed.target]
    return [Outcome(None, state.put(*((name, _unowned(session)) for name, session in tree))) for tree in trees]


def _unowned(session: SessionState) -> SessionState:
    return session._replace(claims=frozenset(claim._replace(host="") for claim in session.claims))


def _mail(state: GroveState, deed: Deed, session: SessionState, host: str) -> list[Outcome]:
    mine = session.claims_of(host)
    if deed.name == "send":
        return [_changed(state, deed, session._replace(new=session.new | {deed.word}))]
    if deed.name == "recover":
        sure = {claim.word for claim in mine if not claim.is_unsure}
        found = [sure | extra for extra in _subsets({claim.word for claim in mine} - sure)]
        return [Outcome(sorted(words), state) for words in found]
    if deed.name == "ack":
        return [
            Outcome(claim.word, state.put((deed.target, session._replace(claims=session.claims - {claim}))))
            for claim in mine
        ]
    return [*_drained(state, deed, session, host)]


def _drained(state: GroveState, deed: Deed, session: SessionState, host: str) -> Iterator[Outcome]:
    """A drain claims messages, and may return again what an earlier one of unknown outcome has claimed."""
    given = {claim.word: claim for claim in session.claims if claim.host == host and claim.is_unsure}
    for words in _subsets({*session.new, *given}, DRAINED):
        claims = {claim for claim in session.claims if claim.word not in words}
        claims |= {Claim(word, host) for word in words}
        changed = session._replace(new=session.new - words, claims=frozenset(claims))
        yield Outcome(sorted(words), state.put((deed.target, changed)))


def _subsets(words: Iterable[str], most: int | None = None) -> Iterator[Words]:
    ordered = sorted(words)
    for size in range(min(len(ordered), len(ordered) if most is None else most), -1, -1):
        yield from map(frozenset, itertools.combinations(ordered, size))


class Event(NamedTuple):
    """A deed of a host, and its answer."""

    host: str
    deed: Deed
    answer: Answer

    def __str__(self) -> str:
        return (
            f"{self.host}: {self.deed} {self.answer.how} {self.answer.value or ''} {self.answer.error[:160]}".rstrip()
        )


@dataclass
class Frontier:
    """All states that the grove may be in."""

    states: set[GroveState]

    def advance(self, events: Sequence[Event], *, is_settled: bool) -> None:
        """Take in deeds that ran at the same time. Of a settled grove, a refusal must be the right answer."""
        after: set[GroveState] = set()
        for order in itertools.permutations(events):
            states = self.states
            for event in order:
                states = {new for state in states for new in _after(state, event, is_settled=is_settled)}
                states = {new for state in states for new in _with_edits(state, is_settled=is_settled)}
            after |= states
        assert after, f"impossible: {'; '.join(map(str, events))}, from {_shown(self.states)}"
        self.states = after

    def observe(self, seen: dict[str, Any]) -> None:
        """Keep the states that look as the grove does."""
        found = self._like(seen)
        assert found, f"the grove is in no possible state:\n{seen}\npossible:\n{_shown(self.states)}"
        self.states = found

    def allows(self, seen: dict[str, Any]) -> bool:
        return bool(self._like(seen))

    def _like(self, seen: dict[str, Any]) -> set[GroveState]:
        return {state for state in self.states if not state.edits and state.seen() == seen}

    @property
    def any(self) -> GroveState:
        """One of the states, always the same one."""
        return min(self.states, key=repr)


def _after(state: GroveState, event: Event, *, is_settled: bool) -> Iterator[GroveState]:
    found = outcomes(state, event.deed, event.host)
    answer = event.answer
    if answer.how == "done":
        value = sorted(answer.value) if isinstance(answer.value, list) else answer.value
        possible = [outcome.state for outcome in found if outcome.value is None or outcome.value == value]
        yield from possible[:1] if is_settled else possible
        if not is_settled and event.deed.name == "edit_outside":
            yield from _edited_elsewhen(state, event)
        elif not is_settled and _may_be_stale(state, event):
            yield state
    elif answer.is_unknown:
        yield state
        yield from (_unsure(state, outcome.state, event) for outcome in found)
    elif not is_settled or not found or event.deed.name == "save_held":
        yield state


def _with_edits(state: GroveState, *, is_settled: bool) -> set[GroveState]:
    """The states that edits on disk may lead to.

    One that fits is published, one that clashes is rejected. If a host is killed, or does not reach the database,
    between setting a text aside and merging it, the text stays rejected.
    """
    found, waiting = {state}, [state]
    while waiting:
        now = waiting.pop()
        for edit in now.edits:
            rejected = now._replace(edits=now.edits - {edit})
            session = now.find(edit.target)
            fits = session is not None and edit.base in session.messages
            possible = [] if fits and is_settled else [rejected]
            if session is not None and fits:
                messages = tuple(edit.word if text == edit.base else text for text in session.messages)
                possible.append(rejected.put((edit.target, session._replace(messages=messages))))
            new = [state for state in possible if state not in found]
            found.update(new)
            waiting += new
    return found


def _may_be_stale(state: GroveState, event: Event) -> bool:
    """Whether a deed changed nothing, so that a host that is not up to date has answered it alone."""
    name, value = event.deed.name, event.answer.value
    if name == "recover":
        session = state.find(event.deed.target)
        others = {claim.word for claim in session.claims if claim.host not in (event.host, "")} if session else set()
        return not others & set(value)
    return name in ("hold", "pin", "unpin", "remove_outside") or (name == "drain" and not value)


def _edited_elsewhen(state: GroveState, event: Event) -> Iterator[GroveState]:
    """An edit of a text that the session does not have: its host has not heard that it was deleted or changed.

    The edit is not published, unless the text comes back with a deleted session.
    """
    session, seen = state.find(event.deed.target), event.answer.value
    if session is None or seen not in session.messages:
        yield state
        yield state._replace(edits=state.edits | {Edit(event.deed.target, seen, event.deed.word)})


def _unsure(before: GroveState, after: GroveState, event: Event) -> GroveState:
    """A host that did not learn of its claim gets it again."""
    session, earlier = after.find(event.deed.target), before.find(event.deed.target)
    if event.deed.name != "drain" or session is None or earlier is None:
        return after
    claims = frozenset(c if c in earlier.claims else c._replace(is_unsure=True) for c in session.claims)
    return after.put((event.deed.target, session._replace(claims=claims)))


def _shown(states: Iterable[GroveState]) -> str:
    return "\n".join(repr(state.seen()) for state in itertools.islice(states, 4))
