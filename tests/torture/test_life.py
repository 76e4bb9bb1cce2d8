"""What of `scripts/torture life` needs no patience."""

from __future__ import annotations

import signal

from tests.torture import life


def test_a_kill_in_the_midst_of_work_loses_nothing_that_was_saved() -> None:
    life.ended_by(signal.SIGKILL)


def test_a_daemon_that_is_stopped_for_a_while_loses_nothing() -> None:
    life.stopped(0.5)


def test_who_has_a_file_open_at_a_lazy_unmount_finishes_what_he_does() -> None:
    life.unmounted_lazily()


def test_a_clock_that_is_set_back_puts_nobody_in_conflict_with_himself() -> None:
    life.clock_set_back()
