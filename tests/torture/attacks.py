"""All attacks, in the order in which they run: the quick and certain ones first."""

from __future__ import annotations

from tests.torture.attack import Attack

ATTACKS: list[Attack] = []
