"""scripts/trace: the calls behind an operation are counted, and the operation really happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trace_calls

ROOT = Path(__file__).parent.parent


def test_table_has_a_row_for_each_operation() -> None:
    """Every number is greater than zero, but for requests: the API makes none."""
    command = [sys.executable, str(ROOT / "scripts/trace_calls.py")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    heads, *rows = result.stdout.splitlines()
    assert heads.split()[1:] == list(trace_calls.HEADS)
    assert len(rows) == len(trace_calls.OPERATIONS) + len(trace_calls.WRITES)
    for row in rows:
        numbers = list(map(int, row.split()[-len(trace_calls.HEADS) :]))
        assert all(numbers[1:]), row


@pytest.mark.parametrize("operation", ["vim :wq", "vim :wq after reading", "save in place"])
def test_traced_save_reaches_the_disk(operation: str) -> None:
    """A save that were rejected would be a short way, and a wrong number."""
    traced = trace_calls.measure(operation, show=False)
    names = {code.co_name for code in traced.functions}
    assert {"commit", "write_temps", "move", "_finish"} <= names
