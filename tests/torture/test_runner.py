"""The torture runner itself: failures are reported with the command to repeat them, and nothing is left over."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torture
from rich.console import Console

from tests.mount.conftest import wait_until
from tests.torture import runner
from tests.torture.attack import AROUND, Attack, Case, Tally
from tests.torture.attacks import ATTACKS, DEFAULT_MINUTES
from tests.torture.places import places_of, scratch, small_disk


def _fail() -> None:
    raise AssertionError("torn")


def _cases(seed: int) -> Iterator[Case]:
    yield Case(f"passes-{seed}", lambda: None)
    yield Case(f"fails-{seed}", _fail)
    yield Case(f"passes-too-{seed}", lambda: None)


def _endless(seed: int) -> Iterator[Case]:
    while True:
        yield Case("again", partial(time.sleep, 0.01))


def _dying(seed: int) -> Iterator[Case]:
    yield Case("last", lambda: os.kill(os.getpid(), signal.SIGKILL))


def _stuck(seed: int) -> Iterator[Case]:
    yield Case("for ever", partial(time.sleep, 600))


def _broken(seed: int) -> Iterator[Case]:
    yield Case("passes", lambda: None)
    raise AssertionError("not cleaned up")


TOY = Attack("toy", "nothing", _cases, minutes=1.0)
ENDLESS = Attack("endless", "nothing", _endless, minutes=1.0, is_endless=True)


def _run(*attacks: Attack, only: str | None = None, seconds: float = 60.0) -> tuple[list[Tally], str]:
    console = Console(record=True, file=io.StringIO(), width=200)
    screen = torture.Screen(7, console)
    return runner.run_all(list(attacks), 7, seconds, only, 2, screen), console.export_text()


def test_a_failure_is_counted_and_reported_with_its_command() -> None:
    (tally,), said = _run(TOY)
    assert (tally.cases, tally.failures, tally.is_complete) == (3, ["fails-7"], True)
    assert "AssertionError: torn" in said
    assert "scripts/torture toy --seed 7 --case 'fails-7'" in said


def test_one_case_can_be_run_alone() -> None:
    (tally,), _ = _run(TOY, only="fails-7")
    assert (tally.cases, tally.failures, tally.is_complete) == (1, ["fails-7"], True)
    (tally,), said = _run(TOY, only="missing")
    assert (tally.cases, tally.failures, tally.is_complete) == (0, [AROUND], False)
    assert "no case is named missing" in said


def test_endless_attacks_use_the_remaining_time() -> None:
    tallies, _ = _run(ENDLESS, TOY, seconds=1.0)
    by_name = {tally.attack: tally for tally in tallies}
    assert by_name["toy"].is_complete
    assert by_name["endless"].cases > 1
    assert not by_name["endless"].is_complete


def test_an_attack_that_dies_or_fails_to_close_has_failed() -> None:
    tallies, said = _run(
        Attack("dying", "itself", _dying, minutes=1.0), Attack("broken", "itself", _broken, minutes=1.0)
    )
    by_name = {tally.attack: tally for tally in tallies}
    assert by_name["dying"].failures == ["last"]
    assert by_name["broken"].failures == [AROUND]
    assert "not cleaned up" in said
    assert "scripts/torture broken --seed 7\n" in said


def test_a_stuck_attack_fails_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STUCK_S", 0.2)
    (tally,), said = _run(Attack("stuck", "for ever", _stuck, minutes=1.0))
    assert tally.failures == ["for ever"]
    assert "no progress for" in said
    assert "scripts/torture stuck --seed 7 --case 'for ever'" in said


def _held(mark: str, seed: int) -> Iterator[Case]:
    with scratch() as place, small_disk(place) as disk:
        Path(mark).write_text(f"{os.getsid(0)} {disk.path}")
        yield Case("held", partial(time.sleep, 600))


def _hold_a_mount(mark: str) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with suppress(KeyboardInterrupt):
        _run(Attack("holds", "a mount", partial(_held, mark), minutes=1.0), seconds=600.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_removes_all_mounts(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "mark"
    run = runner.processes.Process(target=_hold_a_mount, args=(str(mark),))
    run.start()
    wait_until(lambda: mark.exists() and " " in mark.read_text(), 60.0)
    session, _, path = mark.read_text().partition(" ")
    assert os.path.ismount(path)
    os.kill(run.pid or 0, number)
    run.join(60.0)
    assert not run.is_alive()
    assert path not in Path("/proc/self/mountinfo").read_text()
    assert not places_of(int(session))


def test_attacks_have_unique_names_and_fit_into_the_time() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert sum(attack.minutes for attack in ATTACKS) <= 2 * DEFAULT_MINUTES, "on two processors"
