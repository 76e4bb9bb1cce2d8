"""The follower: what it takes for lost history, and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store import Message, Session
from store.grove import follower, log_query
from store.grove.following import follow
from tests.grove.homes import assert_same_and_clean, texts, unfollowed_hosts


def test_a_commit_after_a_page_was_read_is_not_lost_history(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host commits between the query of its follower and the comparison: the page cannot have that row."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        followed = follow(a._core, background=False)
        real = log_query.read_page

        def read_and_commit(*args: Any) -> Any:
            page = real(*args)
            a.append("s", [Message.user("meanwhile")])
            return page

        monkeypatch.setattr(follower, "read_page", read_and_commit)
        followed.step()
        a.append("s", [Message.user("later")])
        assert texts(a, "s") == ["meanwhile", "later"]
        assert_same_and_clean(a)
