"""The plan of joining a grove."""

from __future__ import annotations

from store.grove.join_plan import GroveUnit, plan_join

ONE, OTHER = {"session.json": "1"}, {"session.json": "2"}


def test_every_unit_gets_one_action() -> None:
    """Equal files are adopted, unknown units published, differences kept as copies."""
    local = {"sessions/same": ONE, "sessions/new": ONE, "sessions/differs": ONE}
    grove = {
        "sessions/same": GroveUnit(3, "t", False, ONE),
        "sessions/differs": GroveUnit(1, "t", False, OTHER),
        "sessions/theirs": GroveUnit(1, "t", False, ONE),
    }
    assert plan_join(local, grove).actions == {
        "sessions/same": "adopt",
        "sessions/new": "publish",
        "sessions/differs": "conflict",
        "sessions/theirs": "fetch",
    }


def test_a_deleted_unit_is_not_brought_back_by_an_old_copy() -> None:
    """A version that was agreed to before goes to the trash; anything else is a copy. Neither is published."""
    local = {"sessions/old": ONE, "sessions/edited": ONE}
    gone = GroveUnit(4, "t", True, {}, was_agreed=True)
    plan = plan_join(local, {"sessions/old": gone, "sessions/edited": gone._replace(was_agreed=False)})
    assert plan.actions == {"sessions/old": "discard", "sessions/edited": "conflict"}


def test_deleted_units_that_this_home_lacks_are_left_out() -> None:
    plan = plan_join({}, {"sessions/gone": GroveUnit(2, "t", True, {})})
    assert plan.counts() == {"publish": 0, "adopt": 0, "fetch": 0, "discard": 0, "conflict": 0}
