"""The quick cases of `scripts/torture life`."""

from __future__ import annotations

import signal

from tests.torture import life


def test_a_kill_under_load_loses_no_acknowledged_save() -> None:
    life.ended_by(signal.SIGKILL)


def test_a_stopped_daemon_loses_nothing() -> None:
    life.stopped(0.5)


def test_open_files_are_committed_after_a_lazy_unmount() -> None:
    life.unmounted_lazily()


def test_a_clock_set_back_causes_no_conflicts() -> None:
    life.clock_set_back()
