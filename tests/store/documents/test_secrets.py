"""Secrets: API keys are not stored in sessions, and keys in conversations are found."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import InvalidContent, Message, Session, Store
from store.commit.write_request import WriteRequest
from store.documents.secrets import (
    PATTERNS,
    find_api_key,
    find_secret_kinds,
    find_secrets,
    without_api_key_members,
    without_api_keys,
)
from store.path_kinds import classify_path
from tests.builders import files_below, make_document, make_session, read_json

KEY = "k3y-That-must-not-be-stored"
LLM = {"provider": "anthropic", "model": "m", "api_key": KEY, "base_url": None}


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """A pseudo-random string, the same in every run."""
    return "".join(random.Random(count).choices(alphabet, k=count))


HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + string.digits
# In two parts each, so that secret scanners do not report this file.
SAMPLES = {
    "an Anthropic key": ("sk-ant-", f"api03-{letters(90)}"),
    "an OpenRouter key": ("sk-or-", f"v1-{letters(64, HEX)}"),
    "an OpenAI key": ("sk-", f"proj-{letters(60)}"),
    "a Google API key": ("AIza", letters(35)),
    "a Google OAuth token": ("ya29.", letters(60)),
    "a Google client secret": ("GOCSPX-", letters(28)),
    "an AWS access key": ("AKIA", letters(16, UPPER)),
    "an Azure storage key": ("AccountKey=", f"{letters(86)}=="),
    "a GitHub token": ("ghp_", letters(36)),
    "a GitLab token": ("glpat-", letters(20)),
    "a Slack token": ("xoxb-", f"{letters(12, '0123456789')}-{letters(24)}"),
    "a Slack webhook": (
        "https://hooks.slack.com/",
        f"services/T{letters(8, UPPER)}/B{letters(8, UPPER)}/{letters(24)}",
    ),
    "a Stripe key": ("sk_live_", letters(24)),
    "a Hugging Face token": ("hf_", letters(34)),
    "a Groq key": ("gsk_", letters(52)),
    "an xAI key": ("xai-", letters(80)),
    "a Perplexity key": ("pplx-", letters(48)),
    "a Replicate token": ("r8_", letters(37)),
    "an npm token": ("npm_", letters(36)),
    "a PyPI token": ("pypi-", letters(100)),
    "a SendGrid key": ("SG.", f"{letters(22)}.{letters(43)}"),
    "a DigitalOcean token": ("dop_v1_", letters(64, HEX)),
    "a Telegram bot token": ("123456789:", f"AA{letters(33)}"),
    "a JSON web token": ("eyJ", f"{letters(20)}.eyJ{letters(30)}.{letters(40)}"),
    "a private key": ("-----BEGIN RSA ", "PRIVATE KEY-----"),
    "a bearer token": ("Authorization: Bearer ", letters(40)),
    "a password in a URL": ("postgresql://", f"app:{letters(12)}@db.internal/x"),
    "a key by its name": ('"api_key": "', letters(30)),
}


# -- members that contain keys ----------------------------------------------------------------------------


def test_api_key_members_are_found() -> None:
    """An empty value is not a key."""
    assert find_api_key({"llm_config": LLM}) == ("llm_config", "api_key")
    assert find_api_key({"metadata": {"api_key": KEY}}) == ("metadata", "api_key")
    for harmless in ({}, {"llm_config": {**LLM, "api_key": None}}, {"metadata": {"api_key": ""}}, {"llm_config": "x"}):
        assert find_api_key(harmless) is None
        assert without_api_key_members(harmless) is harmless


def test_removing_keys_keeps_every_other_byte() -> None:
    """Rule 5."""
    raw = json.dumps({"a": 1, "llm_config": LLM, "metadata": {"api_key": KEY, "x": "y"}, "z": 2.50}, indent=3).encode()
    raw = raw.replace(b"2.5", b"2.50")
    clean = without_api_keys(raw, json.loads(raw))
    assert KEY.encode() not in clean
    assert b"2.50" in clean
    expected = {"provider": "anthropic", "model": "m", "base_url": None}
    assert json.loads(clean) == {"a": 1, "llm_config": expected, "metadata": {"x": "y"}, "z": 2.5}


def with_keys(id: str = "s1") -> Session:
    session = Session.model_validate(make_session(id).model_dump() | {"llm_config": LLM})
    session.metadata = {"api_key": KEY, "kept": "yes"}
    return session


def stored(home: Path) -> bytes:
    return b"".join(files_below(home).values())


def test_save_omits_keys(store: Store, home: Path) -> None:
    """The session in memory keeps them; other members of the configuration are written."""
    session = with_keys()
    store.save(session)
    assert KEY.encode() not in stored(home)
    for name in ("session.json", "runtime.json"):
        document = read_json(home / "sessions/s1" / name)
        assert document["llm_config"] == {k: v for k, v in LLM.items() if k != "api_key"}
        assert document["metadata"] == {"kept": "yes"}
    assert session.metadata["api_key"] == KEY


def test_no_operation_writes_a_key(store: Store, home: Path) -> None:
    """Save, save_runtime, update, append, move to a project, rename."""
    session = with_keys()
    store.save(session)
    before = files_below(home)
    store.save(session)
    assert files_below(home) == before, "a key alone is not a change"
    session.title = "Other"
    store.save(session)
    store.save_runtime(session)
    session.metadata["more"] = "x"
    store.save_runtime(session)
    store.append(session, [Message.user("hello")])

    def change(loaded: Session) -> None:
        loaded.metadata["api_key"] = KEY
        loaded.title = "Third"

    store.update("s1", change)
    store.move_to_project("s1", "p")
    store.rename("s1", "s2")
    assert KEY.encode() not in stored(home)
    loaded = store.load("s2")
    assert loaded is not None
    assert (loaded.title, loaded.metadata["more"], len(loaded.messages)) == ("Third", "x", 3)


@pytest.mark.parametrize("side", [True, False])
def test_next_write_removes_a_key_from_disk(store: Store, home: Path, side: bool) -> None:
    """An append and the creation of a sidecar do it too."""
    store.save(make_session("s1"))
    for name in ("session.json", "runtime.json"):
        path = home / "sessions/s1" / name
        document = read_json(path) | {"llm_config": LLM, "metadata": {"api_key": KEY}}
        path.write_text(json.dumps(document))
    if not side:
        (home / "sessions/s1/runtime.json").unlink()
    store.maintenance.sweep()
    assert KEY.encode() in stored(home)
    store.append("s1", [Message.user("hello")])
    assert KEY.encode() not in stored(home)
    assert read_json(home / "sessions/s1/session.json")["llm_config"]["provider"] == "anthropic"


def test_migrated_sidecar_has_no_key(store: Store, home: Path) -> None:
    """Even if session.json contains one."""
    store.save(make_session("s1"))
    (home / "sessions/s1/runtime.json").unlink()
    path = home / "sessions/s1/session.json"
    path.write_text(json.dumps(read_json(path) | {"llm_config": LLM}))
    store.maintenance.sweep()
    assert store.maintenance.migrate_sidecars() == 1
    assert KEY not in (home / "sessions/s1/runtime.json").read_text()


# -- through the mount -------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [{"llm_config": LLM}, {"metadata": {"api_key": KEY}}])
@pytest.mark.parametrize("name", ["session.json", "runtime.json"])
def test_document_with_a_key_is_rejected(store: Store, home: Path, members: Any, name: str) -> None:
    """With position and advice. The error does not show the key; the rejected bytes are kept (rule 3)."""
    store.save(make_session("s1"))
    before = files_below(home)
    raw = make_document("s1", updated_at="2030-01-01T00:00:00Z", **members)
    raw = raw if name == "session.json" else make_document("s1", messages=[], **members)
    with pytest.raises(InvalidContent, match=r"api_key: API keys are not stored") as rejected:
        store.names.commit(WriteRequest(classify_path(f"sessions/s1/{name}"), raw))
    assert rejected.value.problem.line is not None
    assert files_below(home) == before
    kept = store.names.rejects.names("sessions/s1")
    assert KEY not in (home / kept[f"{name}.error"]).read_text()
    assert (home / kept[f"{name}.rejected"]).read_bytes() == raw
    assert KEY.encode() not in store.names.rejects.recent()


def test_document_with_an_empty_key_is_accepted(store: Store) -> None:
    assert store.put_document("s1", "session.json", make_document("s1", llm_config={**LLM, "api_key": None}))


def test_escaped_member_name_is_found(store: Store) -> None:
    raw = make_document("s1", llm_config=LLM).replace(b'"api_key"', b'"api\\u005fkey"')
    with pytest.raises(InvalidContent, match="API keys are not stored"):
        store.put_document("s1", "session.json", raw)


# -- patterns -----------------------------------------------------------------------------------


def test_every_pattern_has_a_sample() -> None:
    assert {pattern.name for pattern in PATTERNS} == set(SAMPLES)


@pytest.mark.parametrize("kind", SAMPLES)
def test_keys_of_common_providers_are_found(kind: str) -> None:
    """Alone, in a sentence, and in JSON inside a string; each with exactly one kind."""
    key = "".join(SAMPLES[kind])
    for text in (key, f"use {key}, please", f"({key})", json.dumps({"cmd": f"export X={key}"}), f"a\\n{key}"):
        assert list(find_secret_kinds(text)) == [kind]


@pytest.mark.parametrize(
    "harmless",
    [
        "",
        "ask-proj-" + letters(40),
        "the task-ant-api03 is done",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-your-key-here-and-nothing-else-at-all-12345",
        "postgresql://user:password@localhost/db",
        "https://example.com/a:b@c",
        'api_key = os.environ["OPENAI_API_KEY_OF_MINE"]',
        "Bearer tokens are a kind of token",
        "commit 2f86c96f3b6a2f86c96f3b6a2f86c96f3b6a2f86",
        "-----BEGIN PUBLIC KEY-----",
        "hf_ and gsk_ and npm_ are prefixes",
        str(Path("/a") / ("b" * 60)),
    ],
)
def test_other_text_is_not_reported_as_a_key(harmless: str) -> None:
    """Placeholders in documentation, words that contain a prefix, digests."""
    assert list(find_secret_kinds(harmless)) == []


def test_secrets_have_a_path() -> None:
    """Through objects and arrays."""
    key = "".join(SAMPLES["a GitHub token"])
    value = {"messages": [{"content": "hi"}, {"tool_calls": [{"function": {"arguments": key}}]}]}
    assert [(s.kind, s.path) for s in find_secrets(value)] == [
        ("a GitHub token", ("messages", 1, "tool_calls", 0, "function", "arguments"))
    ]


@given(st.text())
def test_any_text_can_be_searched(text: str) -> None:
    list(find_secret_kinds(text))


@pytest.mark.parametrize(
    "piece", ["://", "a://b:", "Bearer ", "eyJaaaaaaaaaaa.", '"api_key": "', "sk-", "-----BEGIN ", "-eyJ", "eyJ"]
)
def test_search_takes_linear_time(piece: str) -> None:
    """A megabyte of what looks like the start of a key."""
    list(find_secret_kinds(piece * (1_000_000 // len(piece))))


# -- check ---------------------------------------------------------------------------------------------------


def test_check_reports_positions_of_keys_but_not_keys(store: Store, home: Path) -> None:
    """In sessions, sidecars, records, logs, attachments, mail and state; only on request."""
    token, aws = "".join(SAMPLES["a GitHub token"]), "".join(SAMPLES["an AWS access key"])
    session = make_session("s1", title=f"about {aws}")
    session.add_message(Message.user(f"my token is {token}"))
    store.save(session)
    store.usage.append("s1", {"note": "fine"})
    store.usage.append("s1", {"note": aws})
    store.attach("s1", f"first\n{token}\n".encode(), "text/plain")
    store.state.save_json("memory/facts", "keys", {"list": [token]})
    assert store.check().findings == []
    report = store.check(secrets=True)
    found = {(f.path.rpartition("/")[2], f.text) for f in report.findings if "attachments" not in f.path}
    assert found == {
        ("session.json", "title: looks like an AWS access key"),
        ("session.json", "messages[2].content: looks like a GitHub token"),
        ("runtime.json", "title: looks like an AWS access key"),
        ("token-usage.jsonl", "line 2: looks like an AWS access key"),
        ("keys.json", "list[0]: looks like a GitHub token"),
    }
    (attached,) = [f for f in report.findings if "attachments" in f.path]
    assert attached.text == "line 2: looks like a GitHub token"
    assert {f.kind for f in report.findings} == {"secret"}
    assert report.exit_code == 4
    text = "\n".join(map(str, report.findings))
    assert token not in text
    assert aws not in text


def test_check_reports_the_api_key_member(store: Store, home: Path) -> None:
    """Whatever its value looks like; and keys in a file that is not JSON."""
    store.save(make_session("s1"))
    path = home / "sessions/s1/session.json"
    good = path.read_bytes()
    path.write_text(json.dumps(read_json(path) | {"llm_config": {**LLM, "api_key": "short"}}))
    texts = [f.text for f in store.check(secrets=True).findings if f.kind == "secret"]
    assert texts == ["llm_config.api_key: looks like a key, by the name of its member"]
    path.write_text("{\n broken " + "".join(SAMPLES["a GitHub token"]))
    texts = [f.text for f in store.check(secrets=True).findings if f.kind == "secret"]
    assert texts == ["line 2: looks like a GitHub token"]
    path.write_bytes(good)
    store.maintenance.sweep()
