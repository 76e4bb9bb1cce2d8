"""Rules 2, 3 and 7 at every system call of a few changes; scripts/torture runs all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.scenarios import MOUNT_SCENARIOS, SCENARIOS, Scenario
from tests.torture.attack import Case
from tests.torture.places import scratch
from tests.torture.syscalls import FaultInjector, faults_in, kills_in
from tests.torture.traced import Fault

CHANGES = {scenario.name: scenario for scenario in [*SCENARIOS, *MOUNT_SCENARIOS]}


@pytest.fixture(scope="module")
def here() -> Iterator[FaultInjector]:
    with scratch(in_memory=True) as place:
        yield FaultInjector(place)


def fallen(cases: Iterator[Case]) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in cases:
        try:
            case.run()
        except AssertionError as error:
            found[case.name] = str(error)
    return found


def test_a_kill_at_any_call_leaves_the_old_or_the_new_version(here: FaultInjector) -> None:
    assert fallen(kills_in(here, CHANGES["edit in place"])) == {}


@pytest.mark.parametrize("name", ["rename-replace", "token usage"])
def test_an_error_at_any_call_is_reported_and_changes_nothing(here: FaultInjector, name: str) -> None:
    assert fallen(faults_in(here, CHANGES[name], seed=0)) == {}


def test_faults_hit_the_chosen_call(here: FaultInjector) -> None:
    """An attack that never reaches its target finds nothing: this change bypasses the store and must fail."""

    def plainly(path: Path) -> None:
        path.write_text("half")
        path.rename(path.with_name("whole"))

    careless = Scenario("careless", lambda s: plainly(s.home / "sessions/root/notes.txt"), lambda s: False)
    assert here.count(careless) == {"write": 1, "rename": 1}
    with pytest.raises(AssertionError, match="neither the old nor the new version"):
        here.kill(careless, Fault("rename", 1, "kill"))
    with pytest.raises(AssertionError, match="something changed"):
        here.fail(careless, Fault("rename", 1, "EIO"))
    with pytest.raises(AssertionError, match="neither the old nor the new version"):  # truncated but not yet written
        here.kill(careless, Fault("write", 1, "kill"))
