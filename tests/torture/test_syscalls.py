"""Rules 2, 3 and 7 at every system call of some changes; scripts/torture does it for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.scenarios import BESIDES, SCENARIOS, Scenario
from tests.torture.attack import Case
from tests.torture.ground import scratch
from tests.torture.syscalls import Struck, faults_in, kills_in
from tests.torture.traced import Blow

CHANGES = {scenario.name: scenario for scenario in [*SCENARIOS, *BESIDES]}


@pytest.fixture(scope="module")
def here() -> Iterator[Struck]:
    with scratch(in_memory=True) as place:
        yield Struck(place)


def fallen(cases: Iterator[Case]) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in cases:
        try:
            case.run()
        except AssertionError as error:
            found[case.name] = str(error)
    return found


def test_killed_at_any_call_it_is_the_old_one_or_the_new_one(here: Struck) -> None:
    assert fallen(kills_in(here, CHANGES["edit in place"])) == {}


@pytest.mark.parametrize("name", ["rename-replace", "token usage"])
def test_failing_at_any_call_it_says_so_and_changes_nothing(here: Struck, name: str) -> None:
    assert fallen(faults_in(here, CHANGES[name], seed=0)) == {}


def test_the_blow_falls_where_it_was_aimed(here: Struck) -> None:
    """An attack that never lands would find nothing wrong: here a change is none of the store's, and falls."""

    def plainly(path: Path) -> None:
        path.write_text("half")
        path.rename(path.with_name("whole"))

    careless = Scenario("careless", lambda s: plainly(s.home / "sessions/root/notes.txt"), lambda s: False)
    assert here.count(careless) == {"write": 1, "rename": 1}
    with pytest.raises(AssertionError, match="neither the old one nor the new one"):
        here.kill(careless, Blow("rename", 1, "kill"))
    with pytest.raises(AssertionError, match="something has changed"):
        here.fail(careless, Blow("rename", 1, "EIO"))
    with pytest.raises(AssertionError, match="neither the old one nor the new one"):  # emptied, and not yet written
        here.kill(careless, Blow("write", 1, "kill"))
