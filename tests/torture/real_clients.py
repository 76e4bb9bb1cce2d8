"""The real clients of Codex and Claude Code, from npm, continue a conversation that was repaired here.

A client starts a conversation with a mock model on loopback. It is imported, an answer is changed, and the export is
resumed by the same client: the model must get the changed answer, and the import must take what the client adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from store import Store
from tests.torture.attack import Case
from tests.torture.mock_models import MockModel, mock_model

CODEX_VERSIONS = ("0.166.0", "0.120.0", "0.80.0", "0.42.0")  # 0.21 cannot resume without a terminal
CLAUDE_VERSIONS = ("2.1.325", "2.1.40", "2.0.50", "1.0.128", "1.0.35")
LIMIT_S = 300
REPAIRED = "an answer repaired by hand"


def cases(seed: int) -> Iterator[Case]:
    """Each version once; the seed is not used."""
    for version in CODEX_VERSIONS:
        yield Case(f"codex-{version}", partial(resume_in_codex, version))
    for version in CLAUDE_VERSIONS:
        yield Case(f"claude-{version}", partial(resume_in_claude, version))


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
            _repair(store, entry.id, model.answer)
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


# -- Claude Code -----------------------------------------------------------------------------------------


def resume_in_claude(version: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, mock_model() as model:
        place = Path(scratch)
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", scratch, f"@anthropic-ai/claude-code@{version}")
        (place / "work").mkdir()
        _claude(place, model, "say something, then say it with a tool")
        with Store.open(place / "home", background=False) as store:
            agent = place / "claude-home"
            assert store.imports.run(str(agent), format="claude-code").problems == []
            id = _conversation(store)
            _check_claude_import(store, id, model)
            _repair(store, id, model.answer)
            project = next(agent.glob(f"projects/*/{id}.jsonl")).parent
            for item in store.exports.write_for_agent("claude-code", store.exports.select([id]), project):
                assert hasattr(item, "location"), item
            _claude(place, model, "go on", "--resume", id)
            sent = json.dumps(model.requests[-1]["messages"])
            assert REPAIRED in sent
            assert model.answer not in sent
            assert "said-by-the-tool" in sent
            store.imports.run(str(agent), format="claude-code")
            texts = [m.content for entry in store.entries() for m in _messages(store, entry.id)]
            assert {REPAIRED, "go on", model.answer} <= set(texts)
            assert store.check().findings == []


def _claude(place: Path, model: MockModel, prompt: str, *arguments: str) -> None:
    """Run the client without a terminal. It gets nothing of the user who runs this."""
    client = str(place / "node_modules/.bin/claude")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "CLAUDE_CONFIG_DIR": str(place / "claude-home"),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "sk-ant-mock",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    _run(client, "--print", "--allowedTools", "Bash", *arguments, "--", prompt, cwd=place / "work", env=environment)


def _conversation(store: Store) -> str:
    """The session with the conversation; a client may start others for itself."""
    found = [e.id for e in store.entries() if any(m.role == "tool" for m in _messages(store, e.id))]
    assert len(found) == 1
    return found[0]


def _messages(store: Store, id: str) -> list[Any]:
    session = store.load(id)
    return list(session.messages) if session is not None else []


def _check_claude_import(store: Store, id: str, model: MockModel) -> None:
    messages = _messages(store, id)
    assert any("say something" in m.content for m in messages if m.role == "user")
    assert any("said-by-the-tool" in m.content for m in messages if m.role == "tool")
    assert messages[-1].content == model.answer
    assert "toolu_mock1" in {call.id for m in messages for call in m.tool_calls or ()}


def _repair(store: Store, id: str, answer: str) -> None:
    session = store.load(id)
    assert session is not None
    next(m for m in reversed(session.messages) if m.content == answer).content = REPAIRED
    store.save(session)


def _run(*command: str, **options: Any) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


def _config(port: int) -> str:
    provider = f'name = "mock"\nbase_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n'
    return f'model = "gpt-5-codex"\nmodel_provider = "mock"\n[model_providers.mock]\n{provider}'
