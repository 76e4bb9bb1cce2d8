"""Generated logs of Claude Code: prompts, thoughts, tool calls and results in realistic shares. Deterministic."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.texts import Author

_PARAGRAPHS = 4_000


class LogWriter:
    """Writes sessions of a given size, with their records linked as the agent links them."""

    def __init__(self) -> None:
        rng, author = random.Random(11), Author()
        self._rng = rng
        paragraphs = [author.content(rng) for _ in range(_PARAGRAPHS)]
        self._ascii = [text for text in paragraphs if text.isascii()]
        self._other = [text for text in paragraphs if not text.isascii()]

    def write(self, project: Path, sessions: int, size_bytes: int) -> int:
        """Write session files of about `size_bytes` each; returns the number of bytes written."""
        project.mkdir(parents=True, exist_ok=True)
        return sum(self.write_session(project, size_bytes) for _ in range(sessions))

    def write_session(self, project: Path, size_bytes: int) -> int:
        id, written = self._uuid(), 0
        with (project / f"{id}.jsonl").open("wb") as file:
            for line in self.iter_lines(id):
                written += file.write(line)
                if written >= size_bytes:
                    return written
        return written

    def iter_lines(self, session: str) -> Iterator[bytes]:
        """Endless turns of a session. Their size is mostly that of tool results, as in real logs."""
        parent: str | None = None
        for number, record in enumerate(self._records()):
            uuid = self._uuid()
            envelope = {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": "/home/ada/work",
                "sessionId": session,
                "version": "2.1.12",
                "gitBranch": "main",
            }
            stamp = f"2026-06-20T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.123Z"
            yield orjson.dumps({**envelope, **record, "uuid": uuid, "timestamp": stamp}) + b"\n"
            parent = uuid

    def _records(self) -> Iterator[dict[str, Any]]:
        while True:
            yield {"type": "user", "message": {"role": "user", "content": self._text(1)}}
            for _ in range(self._rng.randint(2, 12)):
                yield from self._step()
            yield self._answer([{"type": "text", "text": self._text(2)}])
            yield {"type": "system", "subtype": "turn_duration", "durationMs": 7697, "isMeta": False}

    def _step(self) -> Iterator[dict[str, Any]]:
        call, text = f"toolu_{self._rng.getrandbits(96):024x}", self._text(self._rng.choice((1, 2, 4, 9)))
        thought = {"type": "thinking", "thinking": self._text(1), "signature": f"{self._rng.getrandbits(1600):0400x}"}
        yield self._answer([thought])
        arguments = {"file_path": f"/home/ada/work/{call[-4:]}.py", "limit": 400}
        yield self._answer([{"type": "tool_use", "id": call, "name": "Read", "input": arguments}])
        result = {"type": "tool_result", "tool_use_id": call, "content": text}
        file = {"filePath": arguments["file_path"], "content": text, "numLines": 40, "startLine": 1, "totalLines": 40}
        yield {
            "type": "user",
            "message": {"role": "user", "content": [result]},
            "toolUseResult": {"type": "text", "file": file},
        }

    def _answer(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"input_tokens": 4, "cache_creation_input_tokens": 812, "cache_read_input_tokens": 51_234}
        message = {
            "model": "claude-sonnet-4-5",
            "id": f"msg_{self._rng.getrandbits(96):024x}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": None,
            "usage": {**usage, "output_tokens": 220, "service_tier": "standard"},
        }
        return {"type": "assistant", "message": message, "requestId": f"req_{self._rng.getrandbits(64):016x}"}

    def _text(self, paragraphs: int) -> str:
        """Paragraphs of one language: a file is hardly ever half English and half Chinese."""
        pool = self._other if self._rng.random() < 0.1 else self._ascii
        return "\n\n".join(self._rng.choices(pool, k=paragraphs))

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128)))
