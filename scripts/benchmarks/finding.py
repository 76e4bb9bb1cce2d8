"""The cost of full-text search: queries, and index updates during saves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from rich.progress import Progress

from benchmarks.rows import Row, Target, timed
from store import Message, Session, Store
from store.documents import search_text
from store.index import fulltext
from store.index.text_update import NO_TEXTS, TextUpdate

RARE, MEDIUM = 3, 300  # approximate number of messages with the word
ROUNDS = 15  # per query
_EVICTING = bytes(64 << 20)


def measure_words(home: Path, scale: str) -> list[Row]:
    """The top 20 for words of every frequency, in an indexed home, inside the process."""
    rows = []
    with Store.open(home, background=False) as store:
        questions = [
            *((f"a word in {n:,} messages", word, 3.0) for word, n in (_word(store, RARE), _word(store, MEDIUM))),
            *((f"the most frequent word, in {n:,} messages", word, 60.0) for word, n in [_word(store, None)]),
            ("two words, both frequent", " ".join(_frequent(store, 2)), 60.0),
            ("two Chinese characters", "希少", 3.0),
        ]
        for name, query, bound_ms in questions:
            assert store.search(query), query
            times = [timed(partial(store.search, query, limit=20))() for _ in range(ROUNDS)]
            target = Target(bound_ms)
            rows.append(Row(f"{scale}: store.search, {name}", statistics.median(times), target=target, samples=ROUNDS))
    return rows


def text_bytes(home: Path) -> int:
    """Size of the searchable text of all messages, in bytes of UTF-8."""
    documents = (orjson.loads(path.read_bytes()) for path in home.glob("sessions/**/session.json"))
    return sum(len(search_text.message_text(m).encode()) for document in documents for m in document["messages"])


def _word(store: Store, messages: int | None) -> tuple[str, int]:
    """A word that is in about `messages` messages, and the exact number; None: the most frequent word."""
    order = "doc DESC" if messages is None else f"abs(doc - {messages})"
    db = store._core.db.reader
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, search, row)")
    plain = "term NOT GLOB '*[^a-z]*' AND length(term) > 3"
    word, count = db.execute(f"SELECT term, doc FROM temp.terms WHERE {plain} ORDER BY {order} LIMIT 1").fetchall()[0]
    return str(word), int(str(count))


def _frequent(store: Store, number: int) -> list[str]:
    rows = store._core.db.reader.execute("SELECT term FROM temp.terms ORDER BY doc DESC LIMIT ?", (number,))
    return [str(word) for (word,) in rows]


def measure_updates(place: Path, saves: int, meter: Progress) -> list[Row]:
    """The cost of search in a save of a 40 KB session with one changed message, and in an append."""
    task = meter.add_task("updating the search index", total=3)
    with Store.open(place / "updates", background=False) as store:
        rows = [_measure_save(store, saves)]
        meter.advance(task)
        for name, target in (
            ("search in an append to 5,000 messages", None),
            ("… with caches cold", Target(1.3)),
        ):
            short, long = (_append_times(store, length, saves, cold=target is not None) for length in (10, 5_000))
            rows.append(Row(name, long, "ms", "to 10 messages", short, long / short, target, saves))
            meter.advance(task)
    return rows


def _measure_save(store: Store, saves: int) -> Row:
    session = _conversation("saved", 40)
    store.save(session)
    numbers = iter(range(10**9))

    def save() -> None:
        session.messages[20].content = f"{next(numbers)} " + "some words " * 90
        store.save(session)

    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(saves):
        for enabled in (True, False):
            with _search(enabled=enabled):
                times[enabled].append(timed(save)())
    ours, without = (statistics.median(times[enabled]) for enabled in (True, False))
    name = "save of 40 KB, with search"
    return Row(name, ours, "ms", "without search", without, ours / without, Target(1.6), saves)


@contextmanager
def _search(*, enabled: bool) -> Iterator[None]:
    plan, apply = fulltext._plan, fulltext.apply
    if not enabled:
        fulltext._plan = lambda *_: NO_TEXTS
        fulltext.apply = lambda *_: None
    try:
        yield
    finally:
        fulltext._plan, fulltext.apply = plan, apply


def _append_times(store: Store, length: int, saves: int, *, cold: bool) -> float:
    """The median time that appends spend in search, in milliseconds.

    An append to a long document copies it, which evicts everything else from the CPU's caches. `cold` evicts
    them for a short document too, to compare only the work itself.
    """
    session = _conversation(f"{'cold' if cold else 'warm'}-{length}", length)
    store.save(session)
    spent: list[float] = []
    plan, apply = fulltext.plan_append, fulltext.apply

    def timed_plan(*arguments: Any) -> TextUpdate:
        if cold:
            _EVICTING.count(b"\1")
        began = time.perf_counter()
        update = plan(*arguments)
        spent.append(1000 * (time.perf_counter() - began))
        return update

    def timed_apply(*arguments: Any) -> None:
        spent[-1] += timed(lambda: apply(*arguments))()

    fulltext.plan_append, fulltext.apply = timed_plan, timed_apply  # type: ignore[assignment]
    try:
        for i in range(saves):
            store.append(session, [Message.user(f"one more {i} " + "some words " * 30)])
    finally:
        fulltext.plan_append, fulltext.apply = plan, apply
    return statistics.median(spent)


def _conversation(name: str, messages: int) -> Session:
    session = Session.new(name, "some-model")
    for i in range(messages):
        session.add_message(Message.user(f"{i} " + "some words " * 90))
    return session
