"""The session tree for `bench mount`, generated as plain files; the same seed gives the same files.

The documents are valid and complete, with their sidecars, so the store accepts them unchanged. Sizes are log-normal
around a median; some roots have a child; a few sessions contain the rare word.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

STAMP = "2026-06-20T08:15:30.123456789Z"
RARE = "zyzzyva"  # no generated word contains a z
MESSAGE_BYTES = 790
OVERHEAD_BYTES = 210  # of a message, besides its content


@dataclass(frozen=True)
class Shape:
    roots: int = 2_000
    with_child: float = 0.3
    median_bytes: int = 40_000
    sigma: float = 0.5  # the mean is then 1.13 times the median
    rare_every: int = 250
    seed: int = 6


@dataclass(frozen=True)
class Planned:
    """A session to generate."""

    root: str
    child: str | None
    size_bytes: int
    is_rare: bool

    @property
    def id(self) -> str:
        return self.child or self.root

    @property
    def directory(self) -> str:
        return f"{self.root}/children/{self.child}" if self.child else self.root


class Prose:
    """Paragraphs with few common and many rare words, as a search index meets them."""

    def __init__(self, seed: int, paragraphs: int = 2_000) -> None:
        self._random = random.Random(seed)
        letters = "etaoinshrdlucmfwyp"
        words = ["".join(self._random.choices(letters, k=self._random.randint(2, 10))) for _ in range(8_000)]
        weights = list(accumulate(1 / (rank + 2) for rank in range(len(words))))
        self._paragraphs = [
            " ".join(self._random.choices(words, cum_weights=weights, k=MESSAGE_BYTES // 6 + 2))[:MESSAGE_BYTES]
            for _ in range(paragraphs)
        ]

    def messages(self, size_bytes: int) -> list[dict[str, Any]]:
        number = max(1, round(size_bytes / (MESSAGE_BYTES + OVERHEAD_BYTES)))
        return [
            {
                "id": f"message-{i:05}",
                "role": "assistant" if i % 2 else "user",
                "content": self._random.choice(self._paragraphs),
                "created_at": STAMP,
            }
            for i in range(number)
        ]


def plan(shape: Shape) -> Iterator[Planned]:
    """The sessions to generate. Pure: the same for the same shape."""
    chance = random.Random(shape.seed)
    number = 0
    for i in range(shape.roots):
        root = f"{chance.getrandbits(64):016x}-{i:05}"
        names = [None, f"{root}-sub"] if chance.random() < shape.with_child else [None]
        for child in names:
            size_bytes = round(chance.lognormvariate(math.log(shape.median_bytes), shape.sigma))
            yield Planned(root, child, size_bytes, is_rare=number % shape.rare_every == 0)
            number += 1


def control_plane(planned: Planned, title: str = "A session to be measured") -> dict[str, Any]:
    child = planned.child is not None
    return {
        "id": planned.id,
        "title": title,
        "kind": "child" if child else "root",
        **({"parent_session_id": planned.root} if child else {}),
        "root_session_id": planned.root,
        "spawn_depth": int(child),
        "messages": [],
        "created_at": STAMP,
        "updated_at": STAMP,
        "model": "some-model",
    }


def documents(planned: Planned, prose: Prose) -> dict[str, bytes]:
    """The files of a session, by name."""
    control = control_plane(planned)
    messages = prose.messages(planned.size_bytes)
    if planned.is_rare:
        messages[-1]["content"] += f" {RARE}"
    return {"runtime.json": render(control), "session.json": render({**control, "messages": messages})}


def render(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def write_tree(sessions: Path, shape: Shape, advance: Callable[[], object] = lambda: None) -> int:
    """Write the files below `sessions`; returns the number of sessions."""
    prose = Prose(shape.seed)
    number = 0
    for planned in plan(shape):
        directory = sessions / planned.directory
        directory.mkdir(parents=True, mode=0o700)
        for name, data in documents(planned, prose).items():
            with open(directory / name, "xb", buffering=0, opener=_private) as file:
                file.write(data)
        number += 1
        advance()
    return number


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
