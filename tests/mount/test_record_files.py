"""Artifacts, traces and verification reports through a real mount."""

from __future__ import annotations

import errno
import json
import os
import subprocess

import pytest

from tests.mount.conftest import Mount
from tests.records import make_artifact, make_check, make_event, make_report


def test_records_can_be_read_and_edited_and_are_validated(mounted: Mount) -> None:
    """A record saved by the API can be edited with sed; an invalid edit is rejected with the reason."""
    with mounted.store() as store:
        store.records.save_verification("root", [make_report("login", make_check("failed"))])
    path = mounted.sessions / "root/verification.json"
    before = path.read_bytes()
    assert path.stat().st_size == len(before)
    claimed = subprocess.run(["sed", "-i", '0,/"failed"/s//"passed"/', path], capture_output=True, text=True)
    assert claimed.returncode != 0
    assert path.read_bytes() == before
    reason = (mounted.sessions / "root/verification.json.error").read_text()
    assert "expected 'failed', derived from the checks and risks" in reason
    subprocess.run(["sed", "-i", 's/"failed"/"passed"/', path], check=True)
    with mounted.store() as store:
        assert [r.status for r in store.records.load_verification("root") or []] == ["passed"]
    assert not (mounted.sessions / "root/verification.json.error").exists()


def test_record_is_committed_on_close_or_rejected(mounted: Mount) -> None:
    """Also for a new record; incomplete content is never committed."""
    path = mounted.sessions / "root/children/child/traces.json"
    path.write_text(json.dumps([make_event().model_dump()]))
    with mounted.store() as store:
        assert store.records.load_traces("root/child") == [make_event()]
    with pytest.raises(OSError, match="Bad message") as refused:
        path.write_text("[{]")
    assert refused.value.errno == errno.EBADMSG
    assert json.loads(path.read_bytes()) == [make_event().model_dump()]


def test_reader_keeps_the_version_it_opened(mounted: Mount) -> None:
    """Rule 4."""
    path = mounted.sessions / "root/traces.json"
    path.write_text("[]")
    with path.open() as reader:
        path.write_text(json.dumps([make_event().model_dump()]))
        assert reader.read() == "[]"
    assert len(json.loads(path.read_bytes())) == 1


def test_records_are_copied_by_fork_and_removed_by_rm(mounted: Mount) -> None:
    """`cp -r` copies them; `rm -r` removes them."""
    (mounted.sessions / "root/artifacts.json").write_text(json.dumps({"artifacts": [make_artifact().model_dump()]}))
    subprocess.run(["cp", "-r", mounted.sessions / "root", mounted.sessions / "fork"], check=True)
    with mounted.store() as store:
        found = store.records.load_artifacts("fork")
        assert found is not None
        assert len(found) == 1
    subprocess.run(["rm", "-r", mounted.sessions / "fork"], check=True)
    assert not (mounted.home / "sessions/fork").exists()


def test_stale_record_is_rejected(mounted: Mount) -> None:
    """Rule 8: a copy opened before the agent's change gets ESTALE; the rejected content is kept."""
    path = mounted.sessions / "root/traces.json"
    path.write_text("[]")
    late = os.open(path, os.O_RDWR)
    os.write(late, json.dumps([make_event("late").model_dump()]).encode())
    with mounted.store() as store:
        store.records.add_traces("root", [make_event("early")])
    with pytest.raises(OSError, match="Stale file handle") as refused:
        os.close(late)
    assert refused.value.errno == errno.ESTALE
    assert [event["name"] for event in json.loads(path.read_bytes())] == ["early"]
    assert "late" in (mounted.sessions / "root/traces.json.rejected").read_text()
