"""Mail in a grove: one claimant across hosts, and nothing that was claimed is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import InboxMessage, Session, Store
from store.errors import Unsure
from tests.grove.homes import agreement_of, assert_same_and_clean, be_unsure, pull, unfollowed_hosts


def deliver(store: Store, *numbers: int) -> None:
    for number in numbers:
        store.mail.at("s").deliver(InboxMessage.new("boss", "reply", {"n": number}))


def drained(store: Store, limit: int | None = None) -> list[int]:
    return [found.message.body["n"] for found in store.mail.at("s").drain(limit)]


def recovered(store: Store) -> list[int]:
    return [found.message.body["n"] for found in store.mail.at("s").recover()]


def test_a_drain_pulls_first(tmp_path: Path, url: str) -> None:
    """Without a follower too, a host claims what was just delivered elsewhere, and not what was claimed there."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        deliver(a, 1, 2)
        assert drained(b, 1) == [1]
        deliver(b, 3)
        assert drained(a) == [2, 3]
        assert drained(b) == []
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_recovering_returns_what_this_host_claimed(tmp_path: Path, url: str) -> None:
    """Also if another host acknowledged some of it meanwhile."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        deliver(a, 1, 2, 3)
        pull(b, "s")
        assert drained(a, 2) == [1, 2]
        assert drained(b) == [3]
        assert recovered(b) == [3]
        [first, _] = a.mail.at("s").recover()
        assert b.mail.at("s").ack(first.message.id)
        assert recovered(a) == [2]
        pull(b, "s")
        assert_same_and_clean(a, b)


@pytest.mark.parametrize("is_stored", [True, False])
def test_the_next_drain_returns_what_an_unsure_one_claimed(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """Once, before anything new, also in another process of the host; no other host gets it."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        deliver(a, 1, 2)
        pull(b, "s")
        be_unsure(monkeypatch, is_stored=is_stored)
        with pytest.raises(Unsure):
            a.mail.at("s").drain()
        deliver(b, 3)
        if is_stored:
            assert drained(b, 1) == [3]
            deliver(b, 4)
        a.close()
        with Store.open(a.home, background=False) as again:
            assert drained(again, 2) == [1, 2]
            assert drained(again) == ([4] if is_stored else [3])
            assert drained(again) == []
            assert agreement_of(again).replica.unsure_claims("sessions/s/mailbox") == []
            pull(b, "s")
            assert_same_and_clean(again, b)


def test_what_an_unsure_drain_claimed_is_not_returned_after_it_was_acknowledged(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        deliver(a, 1)
        be_unsure(monkeypatch, is_stored=True)
        with pytest.raises(Unsure):
            a.mail.at("s").drain()
        agreement_of(a).refresh(a._core.locate("s").part("mailbox"))  # type: ignore[union-attr]
        [found] = a.mail.at("s").recover()
        assert a.mail.at("s").ack(found.message.id)
        assert drained(a) == []
        assert_same_and_clean(a)
