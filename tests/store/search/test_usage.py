"""Usage statistics: taken from the records, nothing is estimated."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from store import InvalidContent, Location, Message, Store, Timestamp
from store.search.prices import parse_prices
from store.search.usage import Key
from tests.builders import make_session

PRICES = {"big": {"input_tokens": 2.0, "output_tokens": 10.0}}


def record(day: str = "2026-01-02", model: str = "big", **members: object) -> dict[str, object]:
    return {"ts": f"{day}T10:00:00Z", "model": model, "input_tokens": 1000, "output_tokens": 100, **members}


@pytest.fixture
def used(store: Store) -> Store:
    moment = Timestamp("2026-01-01T00:00:00Z")
    session = make_session("one", messages=0, model="big", created_at=moment, updated_at=moment)
    for day in ("01", "01", "02"):
        message = Message.user("x")
        message.created_at = Timestamp(f"2026-01-{day}T23:59:59Z")
        session.messages.append(message)
    store.save(session)
    store.usage.append("one", record())
    return store


def test_sessions_messages_and_tokens_are_counted_by_day_and_model(used: Store) -> None:
    usage = used.usage.totals()
    first, second = usage.by_key[Key("2026-01-01", "big")], usage.by_key[Key("2026-01-02", "big")]
    assert (first.sessions, first.messages, first.calls) == (1, 2, 0)
    assert (second.sessions, second.messages, second.calls, second.total) == (0, 1, 1, 1100)
    assert second.cost is None
    assert usage.total().messages == 3
    assert list(usage.by_model()) == ["big"]


def test_since_limits_the_days(used: Store) -> None:
    assert list(used.usage.totals(since="2026-01-02").by_day()) == ["2026-01-02"]


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_days_and_hours_are_local(used: Store) -> None:
    """Of sessions, messages and calls; a record without a valid time belongs to no day."""
    used.usage.append("one", record() | {"ts": "2026-01-05T04:30:00Z"})
    used.usage.append("one", record() | {"ts": "yesterday"})
    usage = used.usage.totals()
    assert usage.by_day()["2026-01-04"].calls == 1
    assert usage.by_day()["unknown"].calls == 1
    assert usage.by_day()["2025-12-31"].sessions == 1
    assert usage.by_hour == {(3, 18): 2, (4, 18): 1}  # Thursday and Friday, 23:59 UTC
    assert "unknown" not in used.usage.totals(since="2026-01-02").by_day()


def test_every_day_is_on_the_axis(used: Store) -> None:
    used.usage.append("one", record("2026-01-05"))
    assert [*used.usage.totals().every_day()] == [f"2026-01-0{n}" for n in range(1, 6)]
    assert [*used.usage.totals().by_day()] == ["2026-01-01", "2026-01-02", "2026-01-05"]


def test_usage_is_counted_by_project(used: Store) -> None:
    used.move_to_project("one", "house")
    assert {name: totals.calls for name, totals in used.usage.totals().by_project().items()} == {"house": 1}


def test_longest_and_most_expensive_sessions(used: Store) -> None:
    used.save(make_session("short", messages=1, title="Short"))
    used.usage.append("short", record(output_tokens=10**6))
    usage = used.usage.totals(prices=PRICES)
    assert [(one.location.id, one.messages) for one in usage.longest] == [("one", 3), ("short", 1)]
    assert [(one.location.id, one.title) for one in usage.costliest] == [("short", "Short"), ("one", "x")]
    assert usage.costliest[0].used.cost == pytest.approx(10.002)


def test_records_copied_by_a_fork_count_once(used: Store) -> None:
    """New records of the fork count."""
    used.fork("one", "two")
    assert used.usage.totals().total().calls == 1
    used.usage.append("two", record(output_tokens=7))
    used.usage.append("two", record(output_tokens=7))
    assert used.usage.totals().total().calls == 3


def test_cost_comes_from_the_record_or_from_prices(used: Store) -> None:
    assert used.usage.totals(prices=PRICES).total().cost == pytest.approx(0.003)
    used.usage.append("one", record(model="other", cost=0.5))
    assert used.usage.totals().by_model()["other"].cost == 0.5
    assert used.usage.totals().unpriced == 1


def test_missing_price_gives_no_cost(used: Store) -> None:
    """Not even a partial one: tokens without a price are not free."""
    used.usage.append("one", record(cache_read_input_tokens=10**6))
    usage = used.usage.totals(prices=PRICES)
    assert usage.total().cost == pytest.approx(0.003)
    assert usage.unpriced == 1
    assert usage.unpriced_sessions == {Location("one"): ["big"]}


def test_invalid_lines_are_counted_and_skipped(used: Store) -> None:
    with (used.home / "sessions/one/token-usage.jsonl").open("ab") as log:
        log.write(b'[]\n{"ts": 5, "input_tokens": "many"}\n{"ts": "2026')
    usage = used.usage.totals()
    assert usage.unread == 2
    assert usage.by_key[Key("unknown", "")].calls == 1
    assert usage.total().total == 1100


def test_model_names_may_be_patterns(used: Store) -> None:
    """An exact name wins, then the longest pattern."""
    used.usage.append("one", record(model="big-2026"))
    prices = {"b*": {"input_tokens": 1.0, "output_tokens": 1.0}, "big-*": PRICES["big"], "big": PRICES["big"]}
    assert used.usage.totals(prices=prices).total().cost == pytest.approx(0.006)
    assert used.usage.totals(prices={"b*": prices["b*"]}).total().cost == pytest.approx(0.0022)


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"m": 5}', b'{"m": {"input": 1}}', b'{"m": {"input_tokens": "1"}}'])
def test_invalid_price_file_is_rejected(raw: bytes) -> None:
    with pytest.raises(InvalidContent, match="prices"):
        parse_prices(raw, "prices.json")
