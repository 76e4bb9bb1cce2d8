"""The frame of the torture itself: what fell is told, with how to see it again."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import torture
from rich.console import Console
from rich.progress import Progress

from tests.torture.attack import Attack, Case
from tests.torture.attacks import ATTACKS


def _fall() -> None:
    raise AssertionError("torn")


def _cases(seed: int) -> Iterator[Case]:
    yield Case(f"stands-{seed}", lambda: None)
    yield Case(f"falls-{seed}", _fall)
    yield Case(f"stands-too-{seed}", lambda: None)


TOY = Attack("toy", "nothing", _cases, minutes=1.0)


def _run(only: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[torture.Tally, str]:
    console = Console(record=True, file=io.StringIO(), width=200)
    monkeypatch.setattr(torture, "console", console)
    return torture.run_attack(TOY, 7, 60.0, only, Progress(console=console)), console.export_text()


def test_a_failure_is_counted_and_told_with_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tally, said = _run(None, monkeypatch)
    assert (tally.cases, tally.failures, tally.is_complete) == (3, ["falls-7"], True)
    assert "AssertionError: torn" in said
    assert "scripts/torture toy --seed 7 --case 'falls-7'" in said


def test_one_case_can_be_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tally, _ = _run("falls-7", monkeypatch)
    assert (tally.cases, tally.failures) == (1, ["falls-7"])


def test_attacks_have_names_of_their_own_and_fit_into_the_time() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert sum(attack.minutes for attack in ATTACKS) <= 30
