"""A generated home for search benchmarks: prose, code, Chinese, Japanese, emoji, tool calls. Deterministic."""

from __future__ import annotations

import os
import random
import uuid
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson
from rich.progress import Progress

STAMP = "2026-06-20T08:15:30.123456789Z"
_LETTERS = "etaoinshrdlucmfwyp"
_HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而"
_KANA = "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん"
_EMOJI = "😀🚀🎉🐛🔥✨📎🧪🛠🤖"
_CODE = """def {0}_{1}(self, {2}: dict[str, int]) -> list[str]:
    if not {2}.get("{3}"):
        raise ValueError(f"no {3} in {{{2}!r}}")
    return [f"{{key}}={{value:>{4}}}" for key, value in sorted({2}.items())]
"""


class Author:
    """Generates texts like those of agents and users. Each session has its own seed, so order does not matter."""

    def __init__(self) -> None:
        rng = random.Random(7)
        self._words = ["".join(rng.choices(_LETTERS, k=rng.randint(2, 10))) for _ in range(20_000)]
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(len(self._words))))

    def words(self, rng: random.Random, number: int) -> list[str]:
        return rng.choices(self._words, cum_weights=self._weights, k=number)

    def content(self, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.6:
            return " ".join(self.words(rng, 110))
        if kind < 0.8:
            parts = (_CODE.format(*self.words(rng, 4), rng.randint(2, 40)) for _ in range(3))
            return "```python\n" + "\n".join(parts) + "```"
        if kind < 0.9:
            return "".join(rng.choices(_HAN, k=160)) + "。" + "".join(rng.choices(_KANA, k=60)) + rng.choice(_EMOJI)
        return f"/srv/{'/'.join(self.words(rng, 4))}.rs:{rng.randint(1, 999)}: {' '.join(self.words(rng, 90))}"

    def message(self, rng: random.Random, number: int) -> dict[str, Any]:
        role = ("user", "assistant", "tool")[number % 3]
        message: dict[str, Any] = {
            "id": str(uuid.UUID(int=rng.getrandbits(128))),
            "role": role,
            "content": self.content(rng),
            "created_at": STAMP,
        }
        if role == "assistant" and number % 2:
            arguments = orjson.dumps({"path": "/".join(self.words(rng, 3)), "limit": number}).decode()
            call = {"id": f"call_{rng.getrandbits(64):016x}", "type": "function"}
            message["tool_calls"] = [{**call, "function": {"name": "read_file", "arguments": arguments}}]
        return message

    def session(self, number: int, root: str, messages: int) -> dict[str, Any]:
        rng = random.Random(number)
        name = session_name(number)
        found = [self.message(rng, i) for i in range(messages)]
        if number % 997 == 0:  # the words that benchmarks search for: in one session of a thousand
            found[-1]["content"] += f" the zyzzyva{number} of the quixotic 希少な単語 is here"
        return {
            "id": name,
            "title": " ".join(self.words(rng, 5)),
            "kind": "root" if root == name else "child",
            **({} if root == name else {"parent_session_id": root}),
            "root_session_id": root,
            "spawn_depth": int(root != name),
            "messages": found,
            "created_at": STAMP,
            "updated_at": f"2026-06-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:{number % 59:02}Z",
            "model": "some-model",
        }


def session_name(number: int) -> str:
    return str(uuid.UUID(int=random.Random(-number - 1).getrandbits(128)))


def write_sessions(home: Path, number: int, meter: Progress, messages: int = 16) -> int:
    """Write sessions directly to disk, as an agent would; every fifth is a child. Returns the total document bytes."""
    task = meter.add_task(f"writing {number:,} sessions", total=number)
    author = Author()
    root, size = "", 0
    for i in range(number):
        name = session_name(i)
        root = root if i % 5 == 4 else name
        directory = f"{home}/sessions/{name}" if root == name else f"{home}/sessions/{root}/children/{name}"
        for made in (f"{directory}/attachments", *([f"{directory}/children"] if root == name else [])):
            os.makedirs(made, exist_ok=True)
        session = author.session(i, root, messages)
        for file, document in (("runtime", {**session, "messages": []}), ("session", session)):
            data = orjson.dumps(document, option=orjson.OPT_INDENT_2)
            size += len(data)
            with open(f"{directory}/{file}.json", "wb", buffering=0) as out:
                out.write(data)
        meter.advance(task)
    os.sync()  # otherwise the write-back would slow down a measurement
    return size
