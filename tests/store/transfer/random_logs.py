"""Random logs of agents, with everything that earlier lines can be changed by. Deterministic by seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.store.transfer.foreign import PNG_TEXT

WORDS = ["cart", "order", "price", "tax", "ship", "label", "pick", "pack", "sort", "scan", "数据", "café", "🙂"]


class RandomLog:
    """Lines of one file, each with its newline."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[bytes] = []
        self.seconds = 0

    def text(self, words: int = 8) -> str:
        return " ".join(self.rng.choices(WORDS, k=words))

    def stamp(self) -> str:
        self.seconds += 1
        return f"2026-02-18T{self.seconds // 3600:02}:{self.seconds // 60 % 60:02}:{self.seconds % 60:02}.5Z"

    def add(self, record: dict[str, Any]) -> None:
        self.lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")


class ClaudeLog(RandomLog):
    """A Claude Code session: turns, and now and then a record that concerns earlier ones."""

    def __init__(self, seed: int, turns: int = 6) -> None:
        super().__init__(seed)
        self.uuids: list[str] = []
        self.prompts: list[str] = []  # uuids that prompts followed
        self.queue: list[str] = []
        self.calls = 0
        for _ in range(turns):
            self._turn()

    def _record(self, kind: str, *, parent: str | None = None, **members: Any) -> None:
        uuid = f"u{len(self.lines):04}-{self.rng.getrandbits(32):08x}"
        self.add(
            {
                "parentUuid": parent or (self.uuids[-1] if self.uuids else None),
                "isSidechain": False,
                "cwd": "/home/me/shop",
                "sessionId": "s1",
                "version": "2.1.12",
                "gitBranch": self.rng.choice(("main", "main", "side")),
                "type": kind,
                "uuid": uuid,
                "timestamp": self.stamp(),
                **members,
            }
        )
        self.uuids.append(uuid)

    def _turn(self) -> None:
        self._prompt(self.text())
        for _ in range(self.rng.randint(0, 4)):
            self.rng.choice(self._steps())()
        if self.rng.random() < 0.8:
            self._answer([{"type": "text", "text": self.text(20)}])

    def _steps(self) -> list[Callable[[], None]]:
        usual = [self._call, self._call, self._call, self._stream, self._system, self._other, self._enqueue]
        return [*usual, self._take, self._deliver, self._title, self._broken, self._rewind, self._pop_all, self._large]

    def _prompt(self, text: str, parent: str | None = None) -> None:
        self.prompts.append(self.uuids[-1] if self.uuids else "")
        self._record("user", parent=parent, message={"role": "user", "content": text})

    def _answer(self, content: list[Any], id: str = "", **members: Any) -> None:
        usage = {"input_tokens": self.rng.randint(1, 9), "output_tokens": self.rng.randint(1, 99)}
        id = id or f"msg_{self.rng.getrandbits(40):010x}"
        model = self.rng.choice(("claude-sonnet-4-5", "claude-sonnet-4-5", "claude-opus-4"))
        message = {"model": model, "id": id, "type": "message", "role": "assistant", "content": content, "usage": usage}
        self._record("assistant", message=message, **members)

    def _call(self) -> None:
        self.calls += 1
        call = f"toolu_{self.calls}"
        self._answer([{"type": "tool_use", "id": call, "name": "Read", "input": {"path": self.text(1)}}])
        if self.rng.random() < 0.9:
            content: Any = self.rng.choice((self.text(30), [{"type": "text", "text": self.text()}, self._image()]))
            result = {"type": "tool_result", "tool_use_id": call, "content": content}
            more: dict[str, Any] = {"toolUseResult": {"agentId": f"a{self.calls}"}} if self.rng.random() < 0.1 else {}
            self._record("user", message={"role": "user", "content": [result]}, **more)

    def _image(self) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}}

    def _stream(self) -> None:
        """One answer in several records, each with its usage so far."""
        id = f"msg_{self.rng.getrandbits(40):010x}"
        self._answer([{"type": "thinking", "thinking": self.text(), "signature": "Eq"}], id)
        self._answer([{"type": "text", "text": self.text()}], id)
        if self.rng.random() < 0.3:
            self._answer([{"type": "text", "text": "in between"}])
            self._answer([{"type": "text", "text": "late"}], id)

    def _system(self) -> None:
        members = {"subtype": "compact_boundary", "content": "Conversation compacted"}
        self._record("system", **(members if self.rng.random() < 0.5 else {"subtype": "turn_duration"}))
        if self.rng.random() < 0.3:
            self._record("user", message={"role": "user", "content": self.text()}, isCompactSummary=True)

    def _other(self) -> None:
        self.add({"type": "file-history-snapshot", "messageId": self.text(1), "snapshot": {}})

    def _large(self) -> None:
        """A record with more unmapped members than a message keeps."""
        self._record("user", message={"role": "user", "content": self.text()}, toolUseResult={"log": "x" * 40_000})

    def _enqueue(self) -> None:
        self.queue.append(self.text(12))
        self.add(
            {"type": "queue-operation", "operation": "enqueue", "content": self.queue[-1], "timestamp": self.stamp()}
        )

    def _take(self) -> None:
        self.add({"type": "queue-operation", "operation": "dequeue", "timestamp": self.stamp()})

    def _pop_all(self) -> None:
        self.queue.clear()
        self.add({"type": "queue-operation", "operation": "popAll", "timestamp": self.stamp()})

    def _deliver(self) -> None:
        if self.queue:
            self._prompt(self.queue.pop(0))

    def _title(self) -> None:
        kinds = {"custom-title": "customTitle", "ai-title": "aiTitle"}
        kind = self.rng.choice([*kinds, "summary"])
        if kind == "summary":
            self.add({"type": kind, "summary": self.text(4), "leafUuid": self.rng.choice([*self.uuids, "elsewhere"])})
        else:
            self.add({"type": kind, kinds[kind]: self.text(4), "sessionId": "s1"})

    def _broken(self) -> None:
        self.lines.append(self.rng.choice((b'{"type": "user", "mess\n', b"[1, 2]\n", b"\n", b'{"a": 1}{"b": 2}\n')))

    def _rewind(self) -> None:
        self._prompt(self.text(), parent=self.rng.choice(self.prompts) or None)


class CodexLog(RandomLog):
    """A Codex thread."""

    def __init__(self, seed: int, turns: int = 6) -> None:
        super().__init__(seed)
        self.total = 0
        self.calls = 0
        meta = {"id": "0199aaaa-0000-7000-8000-000000000001", "cwd": "/home/me/shop", "timestamp": self.stamp()}
        self._line("session_meta", {**meta, "cli_version": "0.80.0", "originator": "codex_cli_rs"})
        for _ in range(turns):
            self._turn()

    def _line(self, kind: str, payload: dict[str, Any], **outer: Any) -> None:
        self.add({"timestamp": self.stamp(), "type": kind, "payload": payload, **outer})

    def _turn(self) -> None:
        self._line("turn_context", {"model": self.rng.choice(("gpt-5", "gpt-5-codex"))})
        self._line("event_msg", {"type": "task_started"})
        self._message("user", self.text())
        for _ in range(self.rng.randint(0, 4)):
            self.rng.choice((self._call, self._call, self._think, self._count, self._usage, self._spawn))()
        self._message("assistant", self.text(20))
        self._line("event_msg", {"type": self.rng.choice(("task_complete", "turn_aborted"))})

    def _message(self, role: str, text: str) -> None:
        kind = "input_text" if role == "user" else "output_text"
        content = [{"type": kind, "text": text}]
        self._line("response_item", {"type": "message", "role": role, "content": content}, ordinal=len(self.lines))

    def _call(self) -> None:
        self.calls += 1
        call = {"type": "function_call", "name": "shell", "arguments": json.dumps({"cmd": self.text(3)})}
        self._line("response_item", {**call, "call_id": f"c{self.calls}"})
        output = f"Exit code: {self.rng.randint(0, 1)}\nOutput:\n{self.text(30)}"
        self._line("response_item", {"type": "function_call_output", "call_id": f"c{self.calls}", "output": output})

    def _think(self) -> None:
        self._line("response_item", {"type": "reasoning", "summary": [{"type": "summary_text", "text": self.text()}]})

    def _count(self) -> None:
        self.total += self.rng.choice((0, 10))
        usage = {"input_tokens": self.total, "output_tokens": self.total, "total_tokens": 2 * self.total}
        info = {"total_token_usage": usage, "last_token_usage": usage}
        self._line("event_msg", {"type": "token_count", "info": info})

    def _usage(self) -> None:
        usage = {"input_tokens": 5, "output_tokens": self.rng.randint(1, 9)}
        self._line("token_usage_record", {"response_id": f"r{self.rng.randint(1, 4)}", "usage": usage})

    def _spawn(self) -> None:
        if self.rng.random() < 0.2:
            self.calls += 1
            call = {"type": "function_call", "name": "spawn_agent", "arguments": '{"task_name": "look"}'}
            self._line("response_item", {**call, "call_id": f"c{self.calls}"})
