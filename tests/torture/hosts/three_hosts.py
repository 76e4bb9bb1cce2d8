"""Three hosts write one grove as fast as they can: nothing is lost, nothing is made twice.

Each host counts with update(), appends, saves, saves stale copies that are merged, sends mail and deletes sessions
that the others append to. Two processes of each host drain the mail.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from store import InboxMessage, Message, Session, Store
from store.errors import Conflict, NotFound
from store.layout import Location
from store.workspace.mailbox import Delivered
from tests.torture.hosts.crews import At, Job, Shift, anywhere, insist, require_same, run_crew

COUNTED, SHARED, MERGED, BOX, VICTIM = "counted", "shared", "merged", "box", "victim"
SESSIONS = (COUNTED, SHARED, MERGED, BOX)
DRAINERS = 2  # on each host
PAUSE_S = 0.05


class Amounts(NamedTuple):
    """How often each host does something."""

    counted: int
    appended: int
    merged: int
    saved: int
    sent: int
    deleted: int


def fill(home: Path) -> None:
    with Store.open(home, background=False, durability="normal") as store:
        for name in (*SESSIONS, VICTIM):
            store.save(Session.new(name, "m"))


# -- jobs ----------------------------------------------------------------------------------------------


def count(store: Store, shift: Shift, times: int) -> dict[str, int]:
    """Increment the counter; returns how often that was acknowledged, and how often it is unknown."""

    def increment(session: Session) -> None:
        session.metadata["n"] = str(int(session.metadata.get("n", "0")) + 1)

    sure = sum(insist(shift, lambda: store.update(COUNTED, increment)) for _ in range(times))
    return {"sure": sure, "unknown": times - sure}


def append(store: Store, shift: Shift, times: int) -> dict[str, bool]:
    """Append words; returns each, and whether it was acknowledged."""
    words = [f"{store.home.name}-{number}" for number in range(times)]
    return {word: insist(shift, lambda word=word: store.append(SHARED, [Message.user(word)])) for word in words}  # type: ignore[misc]


def merge(store: Store, shift: Shift, times: int) -> int:
    """Save copies that others have changed since, each time with one change of our own.

    A save of unknown outcome may be made after all. The next one, of a copy that was loaded before, then clashes.
    """
    acknowledged, is_unknown = 0, False
    for number in range(1, times + 1):
        session = store.load(MERGED)
        assert session is not None
        time.sleep(PAUSE_S)
        session.metadata[store.home.name] = str(number)
        try:
            is_sure = insist(shift, lambda session=session: store.save(session, on_conflict="merge"))  # type: ignore[misc]
        except Conflict:
            assert is_unknown, "nobody else sets this member"
            continue
        acknowledged, is_unknown = (number, False) if is_sure else (acknowledged, True)
    return acknowledged


def save(store: Store, shift: Shift, times: int) -> dict[str, int]:
    """Save without merging: each copy is stored, or refused because another host was faster."""
    stored = refused = 0
    for number in range(times):
        session = store.load(COUNTED)
        assert session is not None
        session.title = f"{store.home.name} {number}"
        try:
            stored += insist(shift, lambda session=session: store.save(session))  # type: ignore[misc]
        except Conflict:
            refused += 1
    return {"stored": stored, "refused": refused}


def send(store: Store, shift: Shift, times: int) -> dict[str, bool]:
    def deliver(word: str) -> None:
        store.mail.at(BOX).deliver(InboxMessage.new("x", "reply", {"word": word}))

    words = [f"{store.home.name}-{number}" for number in range(times)]
    return {word: insist(shift, lambda word=word: deliver(word)) for word in words}  # type: ignore[misc]


def write(store: Store, shift: Shift, amounts: Amounts) -> dict[str, Any]:
    """Do all of the above, each in a thread of its own."""
    with ThreadPoolExecutor() as threads:
        running: dict[str, Future[Any]] = {
            "count": threads.submit(count, store, shift, amounts.counted),
            "append": threads.submit(append, store, shift, amounts.appended),
            "merge": threads.submit(merge, store, shift, amounts.merged),
            "save": threads.submit(save, store, shift, amounts.saved),
            "send": threads.submit(send, store, shift, amounts.sent),
        }
        return {name: future.result() for name, future in running.items()}


def drain(store: Store, shift: Shift) -> list[str]:
    """Claim and acknowledge mail until there is none; returns the words."""
    found: list[str] = []
    box = store.mail.at(BOX)
    while True:
        is_last = shift.is_over
        claimed: list[Delivered] = []
        insist(shift, lambda claimed=claimed: claimed.extend(box.drain(limit=5)))  # type: ignore[misc]
        for delivered in claimed:
            found.append(str(delivered.message.body["word"]))
            insist(shift, partial(box.ack_delivered, delivered))
        if not claimed and is_last and insist(shift, partial(_refresh, store)) and box.is_empty():
            return found
        if not claimed:
            time.sleep(PAUSE_S)


def recover(home: Path, at: At, processed: set[str]) -> list[str]:
    """What this host has claimed in a drain of unknown outcome, and not processed."""
    with at(home), Store.open(home, durability="normal") as store:
        found = [str(delivered.message.body["word"]) for delivered in store.mail.at(BOX).recover()]
    return [word for word in found if word not in processed]


def _refresh(store: Store) -> None:
    location = store.location(BOX)
    assert location is not None
    store._core.agreement.refresh(location.part("mailbox"))


def delete_and_undelete(store: Store, shift: Shift, times: int) -> int:
    """Delete the session that others append to, and restore it; returns how often both were acknowledged.

    After an unknown outcome the host first learns what became of it. The session is then there or in the trash.
    """
    done = 0
    for _ in range(times):
        is_sure = _settled(store, shift, lambda: store.delete(VICTIM))
        if not store.exists(VICTIM):
            done += _undelete(store, shift) and is_sure
        time.sleep(PAUSE_S)
    while not store.exists(VICTIM):
        _undelete(store, shift)
    return done


def _undelete(store: Store, shift: Shift) -> bool:
    slots = [slot.name for slot in store.trash.deleted() if slot.session_id == VICTIM]
    assert slots, "the session was deleted, and is not in the trash"
    return _settled(store, shift, partial(store.trash.undelete, max(slots)))


def _settled(store: Store, shift: Shift, work: Callable[[], Any]) -> bool:
    """Do something, and learn its outcome if that is unknown. False if it was."""
    is_sure = insist(shift, work)
    if not is_sure:
        insist(shift, partial(store._core.agreement.refresh, Location(VICTIM)))
    return is_sure


def append_to_victim(store: Store, shift: Shift) -> dict[str, bool]:
    """Append until the deleter has finished; returns the words, and whether each was acknowledged."""
    words: dict[str, bool] = {}
    for number in itertools.count():
        if shift.is_over:
            return words
        word = f"{store.home.name}-{number}"
        try:
            words[word] = insist(shift, lambda word=word: store.append(VICTIM, [Message.user(word)]))  # type: ignore[misc]
        except NotFound:
            words.pop(word, None)
        time.sleep(PAUSE_S)
    raise AssertionError("not reached")


# -- the whole -----------------------------------------------------------------------------------------


def fight(
    url: str,
    homes: Sequence[Path],
    amounts: Amounts,
    *,
    is_rough: bool = False,
    at: At = anywhere,
    meanwhile: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Let all hosts work, and compare what they were promised with what is there. Returns a summary."""
    work: dict[str, list[Job]] = {
        "write": [Job(home, lambda store, shift: write(store, shift, amounts)) for home in homes],
        "delete": [Job(homes[0], lambda store, shift: delete_and_undelete(store, shift, amounts.deleted))],
        "victim": [Job(home, append_to_victim, waits=True) for home in homes[1:]],
        "drain": [Job(home, drain, waits=True) for home in homes for _ in range(DRAINERS)],
    }
    jobs = [job for group in work.values() for job in group]
    reports = iter(run_crew(jobs, is_rough=is_rough, at=at, meanwhile=meanwhile))
    found = {name: [next(reports) for _ in group] for name, group in work.items()}
    written = found.pop("write")
    found |= {name: [report[name] for report in written] for name in written[0]}
    require_same(url, homes, SESSIONS, at)
    if is_rough:
        for number, home in enumerate(homes):
            mine = found["drain"][number * DRAINERS : (number + 1) * DRAINERS]
            mine[0] += recover(home, at, {word for words in mine for word in words})
    _compare(homes, found)
    return found


def _compare(homes: Sequence[Path], found: dict[str, list[Any]]) -> None:
    documents = {name: _document(homes[0], name) for name in SESSIONS}
    sure, unknown = (sum(report[key] for report in found["count"]) for key in ("sure", "unknown"))
    assert sure <= int(documents[COUNTED]["metadata"]["n"]) <= sure + unknown
    _require_words(_words(documents[SHARED]), found["append"])
    merged = documents[MERGED]["metadata"]
    for home, number in zip(homes, found["merge"], strict=True):
        assert int(merged[home.name]) >= number, f"{home.name}: {merged[home.name]} is older than {number}"
    drained = [word for words in found["drain"] for word in words]
    _require_words(drained, found["send"])
    _require_words(_words(_document(homes[0], VICTIM)), found["victim"])


def _require_words(found: list[str], reports: Sequence[Mapping[str, bool]]) -> None:
    """Every acknowledged word is there, none is there twice, and no other one is there."""
    promised = {word: is_sure for report in reports for word, is_sure in report.items()}
    twice = [word for word, times in Counter(found).items() if times > 1]
    lost = [word for word, is_sure in promised.items() if is_sure and word not in set(found)]
    assert not twice, f"twice: {twice[:10]}"
    assert not lost, f"lost: {lost[:10]}"
    assert set(found) <= set(promised), f"never acknowledged: {sorted(set(found) - set(promised))[:10]}"


def _document(home: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((home / "sessions" / name / "session.json").read_bytes())
    return document


def _words(document: dict[str, Any]) -> list[str]:
    return [message["content"] for message in document["messages"]]
