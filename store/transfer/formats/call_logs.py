"""The logs of an imported session: token usage by API answer, and tool calls with their results.

An agent may store the usage of one answer several times, once for each part that was streamed. The last one counts.
A tool call is a step once its result is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from store import layout
from store.model.timestamp import Timestamp

SUMMARY_CHARS = 500  # of a tool result; the whole result is a message
MAX_ARGUMENT_BYTES = 16 * 1024  # of a step; longer arguments are in the message with the call


class TokenCounts(NamedTuple):
    """Tokens of one API answer. `input` excludes cached tokens; `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


def count_of(value: Any) -> int:
    """A token count of a source; 0 if it is not a count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


class _PendingCall(NamedTuple):
    name: str
    arguments: Any
    at: Timestamp | None


class CallLogs:
    """Collect the usage and the tool calls of one session."""

    def __init__(self) -> None:
        self.usage: dict[str, dict[str, Any]] = {}  # by API answer
        self.steps: list[bytes] = []
        self.pending: dict[str, _PendingCall] = {}

    def add_usage(
        self, answer: str, at: Timestamp | None, model: str, tokens: TokenCounts, cost: float | None = None
    ) -> None:
        """Count the tokens of an answer. A later call for the same answer replaces the counts."""
        known = self.usage.get(answer)
        record = {
            "ts": known["ts"] if known else at,
            "model": model,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
            "input_tokens": tokens.input,
            "output_tokens": tokens.output,
            "thinking_tokens": tokens.reasoning,
            "answer": answer,
        }
        if cost:
            record["cost_usd"] = cost
        self.usage[answer] = record

    def add_call(self, call: dict[str, Any], at: Timestamp | None) -> None:
        function = call["function"]
        arguments = function["arguments"]
        if len(arguments) > MAX_ARGUMENT_BYTES:
            arguments = arguments[: MAX_ARGUMENT_BYTES + 1]  # still too long, so it is not parsed
        self.pending[call["id"]] = _PendingCall(function["name"], arguments, at)

    def add_result(self, call_id: str, content: str, at: Timestamp | None, *, success: bool) -> None:
        """Add the step of a call. A result without a call is not a step."""
        call = self.pending.pop(call_id, None)
        if call is None:
            return
        started = call.at or at
        known = [time.ns for time in (call.at, at) if time is not None]
        step = {
            "tool_name": call.name,
            "tool_args": _arguments(call.arguments),
            "output_summary": content[:SUMMARY_CHARS],
            "duration_ms": max(0, known[-1] - known[0]) // 1_000_000 if len(known) == 2 else 0,
            "is_error": not success,
            "tool_call_id": call_id,
            "timestamp": started or Timestamp.from_ns(0),
        }
        # A copy: what orjson returns occupies the buffer it was made in, eight times as much as the text.
        self.steps.append(memoryview(orjson.dumps(step)).tobytes())

    def usage_lines(self) -> list[bytes]:
        return [orjson.dumps(record) for record in self.usage.values()]

    def files(self) -> dict[str, bytes]:
        """The log files by name; none if there is nothing to log."""
        lines = {layout.TOKEN_USAGE: self.usage_lines(), layout.TRAJECTORY: self.steps}
        return {name: b"\n".join(found) + b"\n" for name, found in lines.items() if found}

    def dump(self) -> dict[str, Any]:
        """The calls without a result, and the last answer: its usage may be stored again."""
        last = next(reversed(self.usage.values()), None)
        return {"usage": last, "pending": {id: [*call] for id, call in self.pending.items()}}

    def restore(self, known: dict[str, Any]) -> None:
        last = known["usage"]
        self.usage = {last["answer"]: last} if last else {}
        for id, (name, arguments, at) in known["pending"].items():
            self.pending[id] = _PendingCall(name, arguments, Timestamp(at) if at else None)


def _arguments(text: str) -> Any:
    """The arguments of a call as JSON; the text if it is not JSON or too long."""
    if len(text) > MAX_ARGUMENT_BYTES:
        return text[:MAX_ARGUMENT_BYTES]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
