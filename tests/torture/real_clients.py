"""The real Codex client, from npm, goes on with a conversation that was repaired here.

The client starts a thread with a mock model on loopback. The thread is imported, an answer is changed, and the export
is resumed by the same client: the model must get the changed answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from store import Store
from tests.torture.attack import Case

CODEX_VERSIONS = ("0.80.0",)
LIMIT_S = 300
REPAIRED = "an answer repaired by hand"


def cases(seed: int) -> Iterator[Case]:
    """Each version once; the seed is not used."""
    for version in CODEX_VERSIONS:
        yield Case(f"codex-{version}", partial(resume_in_codex, version))


def resume_in_codex(version: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, mock_model() as model:
        place = Path(scratch)
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", scratch, f"@openai/codex@{version}")
        agent, work = place / "codex-home", place / "work"
        agent.mkdir()
        work.mkdir()
        (agent / "config.toml").write_text(_config(model.server_port))
        _codex(place, "say something")
        with Store.open(place / "home", background=False) as store:
            assert store.imports.run(str(agent), format="codex").problems == []
            (entry,) = store.entries()
            session = store.load(entry.id)
            assert session is not None
            answer = next(m for m in reversed(session.messages) if m.content == model.answer)
            answer.content = REPAIRED
            store.save(session)
            for item in store.exports.write_for_agent("codex", store.exports.select(), agent):
                assert hasattr(item, "location"), item
        _codex(place, "resume", entry.id, "go on")
        sent = json.dumps(model.requests[-1]["input"])
        assert REPAIRED in sent
        assert model.answer not in sent
        assert "go on" in sent


def _codex(place: Path, *arguments: str) -> None:
    client = str(place / "node_modules/.bin/codex")
    environment = {**os.environ, "CODEX_HOME": str(place / "codex-home")}
    _run(client, "exec", "--skip-git-repo-check", *arguments, cwd=place / "work", env=environment)


def _run(*command: str, **options: Any) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


def _config(port: int) -> str:
    provider = f'name = "mock"\nbase_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n'
    return f'model = "gpt-5-codex"\nmodel_provider = "mock"\n[model_providers.mock]\n{provider}'


class MockModel(ThreadingHTTPServer):
    """Answers every request of the Responses API with the same text, and keeps the requests."""

    answer = "the answer of the mock model"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Responder)
        self.requests: list[dict[str, Any]] = []


class _Responder(BaseHTTPRequestHandler):
    server: MockModel

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append(json.loads(body))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        content = [{"type": "output_text", "text": self.server.answer}]
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
        ]
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


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
