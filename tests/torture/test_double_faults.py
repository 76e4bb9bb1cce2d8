"""A failed change whose rollback fails too, a few cases; scripts/torture runs all of them."""

from __future__ import annotations

import pytest

from tests.crash.scenarios import MOUNT_SCENARIOS
from tests.torture.double_faults import pairs
from tests.torture.places import scratch
from tests.torture.syscalls import FaultInjector

EDIT = next(scenario for scenario in MOUNT_SCENARIOS if scenario.name == "edit in place")


@pytest.mark.warns
def test_a_failed_rollback_is_completed_or_undone() -> None:
    with scratch(in_memory=True) as place:
        cases = list(_run_all(FaultInjector(place)))
    assert len(cases) > 10


def _run_all(here: FaultInjector) -> list[str]:
    names: list[str] = []
    for case in pairs(here, EDIT):
        case.run()
        names.append(case.name)
    return names
