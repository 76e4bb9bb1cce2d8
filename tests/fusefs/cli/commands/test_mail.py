"""`grovefs mail`: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from store import Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs


def test_message_is_sent_listed_drained_and_acknowledged(home: Path) -> None:
    """A plain text becomes the body that receivers of its kind expect."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    sent = grovefs(home, "mail", "send", "s1", "how far?", "--kind", "ask", "--from", "boss").stdout.strip()
    [line] = grovefs(home, "mail", "list", "s1").stdout.splitlines()
    assert line.split("\t")[1:] == [sent, "ask", "boss", '{"question":"how far?"}']
    assert grovefs(home, "mail", "drain", "s1").stdout.startswith(line)
    assert grovefs(home, "mail", "drain", "S").stderr.startswith("grovefs: there is no session 'S'")
    assert grovefs(home, "mail", "drain", "s").returncode == 1  # a prefix of the id is enough
    [again] = json.loads(grovefs(home, "mail", "drain", "s1", "--again", "--json").stdout)
    assert again["message"]["body"] == {"question": "how far?"}
    assert (home / again["path"]).exists()
    assert grovefs(home, "mail", "ack", "s1", sent).returncode == 0
    assert not (home / again["path"]).exists()
    assert grovefs(home, "mail", "ack", "s1", sent).stderr.startswith("grovefs: no message")


def test_drain_with_ack_deletes_messages(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    grovefs(home, "mail", "send", "s1", '{"n": 1}', "--body-json", "--kind", "event")
    assert json.loads(grovefs(home, "mail", "drain", "s1", "--ack", "--json").stdout)[0]["message"]["body"] == {"n": 1}
    assert grovefs(home, "mail", "drain", "s1", "--again").returncode == 1


def test_send_errors_are_one_line(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    nobody = grovefs(home, "mail", "send", "nobody", "x")
    assert (nobody.returncode, nobody.stderr) == (1, "grovefs: there is no session 'nobody'; `grovefs ls` lists them\n")
    assert "expected a lower-case word" in grovefs(home, "mail", "send", "s1", "x", "--kind", "No Word").stderr
    assert grovefs(home, "mail", "send", "s1", "{", "--body-json").returncode == 2
    assert "projects/" in grovefs(home, "mail", "--help").stdout
