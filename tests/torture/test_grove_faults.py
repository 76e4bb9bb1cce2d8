"""The quick cases of the attack `grove-faults`, and small ones of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.torture.hosts import faults
from tests.torture.hosts.three_hosts import Amounts

pytestmark = [pytest.mark.timeout(600), pytest.mark.warns]


@pytest.mark.parametrize("case", faults.QUICK, ids=lambda case: str(case.__name__))
def test_a_fault_is_survived_or_noticed(case: Callable[[], None]) -> None:
    case()


def test_an_old_copy_of_a_home_undoes_nothing() -> None:
    """Restored in place: the host is behind, and follows. `grove-faults` restores it in other ways too."""
    faults.restore_a_home_from_an_old_copy(faults.put_back_in_place)


def test_no_acknowledged_change_is_lost_by_a_synchronous_failover() -> None:
    found = faults.fail_over_to_a_synchronous_standby(
        Amounts(counted=10, appended=10, merged=2, saved=2, sent=3, deleted=1)
    )
    assert all(report["sure"] + report["unknown"] == 10 for report in found["count"])
