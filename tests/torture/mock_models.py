"""Mock models on loopback, for real clients: every request gets an answer made here, and is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = dict[str, Any]


class MockModel(ThreadingHTTPServer):
    """Speaks the Responses API of OpenAI and the Messages API of Anthropic."""

    answer = "the answer of the mock model"
    command = "echo said-by-the-tool"  # that the model of Anthropic calls once

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Responder)
        self.requests: list[dict[str, Any]] = []
        self.has_called = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def openai_events(self) -> Iterator[Event]:
        content = [{"type": "output_text", "text": self.answer}]
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield {"type": "response.created", "response": {"id": "resp_1"}}
        yield {"type": "response.output_item.done", "item": item}
        yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}

    def anthropic_events(self, request: dict[str, Any]) -> Iterator[Event]:
        """The first answer to a request with tools is a call, every other one is a text."""
        names = [tool.get("name") for tool in request.get("tools") or ()]
        is_call = "Bash" in names and not self.has_called
        self.has_called |= is_call
        call = {"type": "tool_use", "id": "toolu_mock1", "name": "Bash", "input": {}}
        block: Event = call if is_call else {"type": "text", "text": ""}
        arguments = json.dumps({"command": self.command, "description": "Say it"})
        delta = (
            {"type": "input_json_delta", "partial_json": arguments}
            if is_call
            else {"type": "text_delta", "text": self.answer}
        )
        message = {"id": f"msg_{len(self.requests)}", "type": "message", "role": "assistant", "content": []}
        usage = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
        empty = {"model": request.get("model", "mock"), "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": {**message, **empty}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 11}}
        yield {"type": "message_stop"}


class _Responder(BaseHTTPRequestHandler):
    server: MockModel

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            return self._send_json({"input_tokens": 10})
        if not path.endswith(("/messages", "/responses")):
            return self._send_json({})
        request = json.loads(body)
        self.server.requests.append(request)
        is_openai = path.endswith("/responses")
        events = self.server.openai_events() if is_openai else self.server.anthropic_events(request)
        if not is_openai and not request.get("stream"):
            return self._send_json(_whole_answer([*events]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def do_GET(self) -> None:
        self._send_json({})

    def do_HEAD(self) -> None:
        self._send_json({})

    def _send_json(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


def _whole_answer(events: list[Event]) -> dict[str, Any]:
    """The answer for a client that does not stream."""
    message: dict[str, Any] = next(event["message"] for event in events if event["type"] == "message_start")
    text = next(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    return {**message, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


@contextmanager
def mock_model() -> Iterator[MockModel]:
    with MockModel() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
