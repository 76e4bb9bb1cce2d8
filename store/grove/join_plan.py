"""The plan of joining: what becomes of every unit that this home has. Pure.

publish    the grove has never had it
adopt      the grove has the same files
fetch      this home does not have it
discard    the grove has deleted it, and this home has a version that was agreed to before
conflict   anything else: the grove's version is taken, ours becomes a copy with another name
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

JoinAction = Literal["publish", "adopt", "fetch", "discard", "conflict"]


class GroveUnit(NamedTuple):
    """A unit as the grove has it."""

    version: int
    token: str
    is_gone: bool
    digests: Mapping[str, str]
    was_agreed: bool = False  # of a deleted unit: whether this home has one of its versions


@dataclass
class JoinPlan:
    """What joining does, by unit."""

    actions: dict[str, JoinAction] = field(default_factory=dict)

    def units(self, action: JoinAction) -> list[str]:
        return [unit for unit, chosen in self.actions.items() if chosen == action]

    def counts(self) -> dict[str, int]:
        names: tuple[JoinAction, ...] = ("publish", "adopt", "fetch", "discard", "conflict")
        return {name: len(self.units(name)) for name in names}


def plan_join(local: Mapping[str, Mapping[str, str]], grove: Mapping[str, GroveUnit]) -> JoinPlan:
    """Decide for every unit. `local` are the digests of this home's files by unit."""
    plan = JoinPlan()
    for unit, digests in local.items():
        plan.actions[unit] = _action(digests, grove.get(unit))
    for unit, theirs in grove.items():
        if unit not in local and not theirs.is_gone:
            plan.actions[unit] = "fetch"
    return plan


def _action(ours: Mapping[str, str], theirs: GroveUnit | None) -> JoinAction:
    if theirs is None:
        return "publish"
    if theirs.is_gone:
        return "discard" if theirs.was_agreed else "conflict"
    return "adopt" if dict(ours) == dict(theirs.digests) else "conflict"
