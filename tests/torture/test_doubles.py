"""A change that fails, and fails to be taken back; scripts/torture does it for all kinds of changes."""

from __future__ import annotations

import pytest

from tests.crash.scenarios import BESIDES
from tests.torture.doubles import pairs
from tests.torture.ground import scratch
from tests.torture.syscalls import Struck

EDIT = next(scenario for scenario in BESIDES if scenario.name == "edit in place")


@pytest.mark.warns
def test_what_is_half_taken_back_is_finished_or_not_there() -> None:
    with scratch(in_memory=True) as place:
        cases = list(_run_all(Struck(place)))
    assert len(cases) > 10


def _run_all(here: Struck) -> list[str]:
    names: list[str] = []
    for case in pairs(here, EDIT):
        case.run()
        names.append(case.name)
    return names
