"""The attack `grove-faults`: the database crashes, fails over or forgets; a host stops, fills up or is restored.

What was acknowledged is there afterwards, or its loss is noticed and nothing is overwritten.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from store import Message, Session, Store
from store.errors import ReadOnly, StoreError
from store.grove import administration, queries
from tests.grove.groves import assert_clean, files, wait_equal, wait_until
from tests.torture.attack import Attack, Case
from tests.torture.hosts import three_hosts
from tests.torture.hosts.crews import create_grove, require_same
from tests.torture.hosts.standby import new_pair
from tests.torture.hosts.three_hosts import Amounts
from tests.torture.hosts.world import NAMES, new_database, running_server
from tests.torture.places import scratch, small_disk

SOME = Amounts(counted=150, appended=100, merged=30, saved=30, sent=50, deleted=20)
ONE, TWO = "one", "two"


def texts(store: Store, name: str) -> list[str]:
    session = store.load(name)
    assert session is not None
    return [str(message.content) for message in session.messages]


def grove_of_two(place: Path, url: str) -> list[Path]:
    """Two homes of a new grove, with the session `s`."""
    homes = [place / ONE, place / TWO]
    with Store.open(homes[0], background=False) as store:
        store.save(Session.new("s", "m"))
        store.append("s", [Message.user("first")])
    create_grove(url, dict.fromkeys(homes, url))
    return homes


def append(home: Path, *words: str) -> None:
    with Store.open(home, background=False) as store:
        store.append("s", [Message.user(word) for word in words])


# -- the database ----------------------------------------------------------------------------------------


def kill_the_database_under_load(amounts: Amounts, kills: int) -> dict[str, Any]:
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = [place / name for name in NAMES]
        three_hosts.fill(homes[0])
        create_grove(url, dict.fromkeys(homes, url))

        def kill() -> None:
            for number in range(kills):
                time.sleep(1.5)
                server.kill()
                time.sleep(0.5 * number)
                server.start()

        return three_hosts.fight(url, homes, amounts, is_rough=True, meanwhile=kill)


def fail_over_to_a_synchronous_standby(amounts: Amounts) -> dict[str, Any]:
    """No acknowledged change is lost, and nobody has to do anything."""
    with scratch() as place, new_pair() as pair:
        url = pair.url(new_database(pair.primary))
        pair.make_synchronous()
        homes = [place / name for name in NAMES]
        three_hosts.fill(homes[0])
        create_grove(url, dict.fromkeys(homes, url))

        def fail_over() -> None:
            time.sleep(2.0)
            pair.fail_over()

        found = three_hosts.fight(url, homes, amounts, is_rough=True, meanwhile=fail_over)
        for home in homes:
            assert administration.status(home).frozen is None
        return found


def fail_over_to_a_standby_that_lags() -> None:
    """The standby lacks the last commits: the first host that sees it freezes the grove."""
    with scratch() as place, new_pair() as pair:
        url = pair.url(new_database(pair.primary))
        homes = grove_of_two(place, url)
        for home in homes:
            Store.open(home, background=False).close()
        pair.stop_replication()
        append(homes[0], "lost by the database")
        pair.fail_over()
        _require_frozen_and_rejoin(homes, "lost by the database")


def restore_the_database_from_an_old_copy() -> None:
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = grove_of_two(place, url)
        server.stop()
        data, copy = server.directory / "data", server.directory / "copy"
        subprocess.run(["cp", "-a", data, copy], check=True)
        server.start()
        append(homes[0], "lost by the database")
        server.stop()
        shutil.rmtree(data)
        copy.rename(data)
        server.start()
        _require_frozen_and_rejoin(homes, "lost by the database")


def _require_frozen_and_rejoin(homes: Sequence[Path], lost: str) -> None:
    """Nothing is overwritten on the host that has more; afterwards its text is kept as a copy."""
    before = files(homes[0])
    for home in homes:
        with Store.open(home, background=False) as store:
            wait_until(partial(_is_refused, store))
            assert store.exists("s")
        assert administration.status(home).frozen, f"{home.name} does not see a frozen grove"
    assert files(homes[0]) == before
    administration.rejoin(homes[0], thaw=True)
    administration.rejoin(homes[1])
    with Store.open(homes[0]) as one, Store.open(homes[1]) as two:
        assert texts(one, f"s~{ONE}") == ["first", lost]
        one.append("s", [Message.user("goes on")])
        two.append("s", [Message.user("goes on too")])
        wait_until(lambda: texts(one, "s") == texts(two, "s") == ["first", "goes on", "goes on too"])
        assert_clean(one, two)


def _is_refused(store: Store) -> bool:
    """Whether writing is refused because history was lost. Anything but that, and an absent server, is wrong."""
    with pytest.raises(StoreError) as caught:
        store.append("s", [Message.user("must not be stored")])
    return caught.type is not None and isinstance(caught.value, ReadOnly) and "frozen" in str(caught.value)


# -- hosts -----------------------------------------------------------------------------------------------


def stop_a_host_that_holds_a_row() -> None:
    """SIGSTOP: the database ends its transaction, others continue, and so does it after SIGCONT."""
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = grove_of_two(place, url)
        reader, writer = os.pipe()
        is_open, opened = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _append_and_stop(homes[1], reader, opened)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(opened)  # a child that dies ends the wait
        try:
            os.read(is_open, 1)  # opening a home catches up, so it must be open before
            append(homes[0], "second")
            os.write(writer, b"x")  # the other home is stale now, so it has to take the row
            ended = os.waitpid(pid, os.WUNTRACED)[1]
            assert os.WIFSTOPPED(ended), "it did not come to hold the row"
            append(homes[0], "third")
            os.kill(pid, signal.SIGCONT)
            ended = os.waitpid(pid, 0)[1]
        finally:
            os.close(is_open)
            os.close(reader)
            os.close(writer)
            if os.WIFSTOPPED(ended):
                os.kill(pid, signal.SIGKILL)
        assert ended == 0, "the stopped host failed"
        require_same(url, homes, ["s"])
        with Store.open(homes[0], background=False) as store:
            assert texts(store, "s") == ["first", "second", "third", "stopped"]


def _append_and_stop(home: Path, reader: int, opened: int) -> None:
    """Append with a row held; stop in between, once."""
    real = queries.lock_rows
    stopped: list[bool] = []

    def lock_and_stop(*args: Any) -> None:
        real(*args)
        if not stopped:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)

    with Store.open(home, background=False, lock_timeout_s=60.0) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "lock_rows", lock_and_stop)
        os.write(opened, b"x")
        os.read(reader, 1)
        store.append("s", [Message.user("stopped")])


def fill_the_disk_after_the_agreement() -> None:
    """The change is made, since other hosts have it. This home gets it from the log when there is space again."""
    with scratch() as place, running_server() as server, small_disk(place, size="128m", names=2000) as disk:
        url = server.url(new_database(server))
        homes = [disk.path / ONE, place / TWO]
        with Store.open(homes[0], background=False) as store:
            store.save(Session.new("s", "m"))
        create_grove(url, dict.fromkeys(homes, url))
        is_armed: list[bool] = []

        def fill(name: str) -> None:
            if is_armed and name == "journal":
                disk.fill(0)

        with Store.open(homes[0], background=False, step=fill) as store:
            is_armed.append(True)
            store.append("s", [Message.user("agreed")])
            is_armed.clear()
            assert texts(store, "s") == []
        with Store.open(homes[1], background=False) as store:
            assert texts(store, "s") == ["agreed"]
        disk.free()
        with Store.open(homes[0]) as one, Store.open(homes[1]) as two:
            wait_equal(one, two)
            one.append("s", [Message.user("goes on")])
            wait_until(lambda: texts(two, "s") == ["agreed", "goes on"])
            assert not administration.status(homes[0]).behind
            assert_clean(one, two)


def upgrade_the_index_while_behind() -> None:
    """index.db of an older schema is built again; what was agreed to is in grove.db."""
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = grove_of_two(place, url)
        Store.open(homes[1], background=False).close()
        append(homes[0], "second", "third")
        db = apsw.Connection(str(homes[1] / ".grovefs/index.db"))
        db.execute("PRAGMA user_version = 1")
        db.close()
        with Store.open(homes[1]) as two, Store.open(homes[0]) as one:
            wait_equal(one, two)
            two.append("s", [Message.user("fourth")])
            wait_until(lambda: texts(one, "s") == ["first", "second", "third", "fourth"])
            assert two.search("third")
            assert_clean(one, two)


def restore_a_home_from_an_old_copy(how: Callable[[Path, Path], object]) -> None:
    """The old copy undoes nothing: it writes nothing until it rejoins, or it is a host that is behind."""
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = grove_of_two(place, url)
        Store.open(homes[1], background=False).close()
        copy = place / "copy"
        subprocess.run(["cp", "-a", homes[1], copy], check=True)
        append(homes[1], "by the home that is restored")
        with Store.open(homes[0], background=False) as one:
            one.save(Session.new("t", "m"))
            one.append("s", [Message.user("by the other")])
        expected = ["first", "by the home that is restored", "by the other"]
        how(copy, homes[1])
        _require_up_to_date(homes, expected)


def _require_up_to_date(homes: Sequence[Path], expected: list[str]) -> None:
    if administration.status(homes[1]).problem:
        before = files(homes[1])
        with Store.open(homes[1], background=False) as two, pytest.raises(ReadOnly, match="rejoin"):
            two.append("s", [Message.user("must not be stored")])
        assert files(homes[1]).keys() <= {*before, *files(homes[0])}
        administration.rejoin(homes[1])
    with Store.open(homes[0]) as one, Store.open(homes[1]) as two:
        wait_until(lambda: texts(two, "s") == expected)
        two.append("s", [Message.user("goes on")])
        wait_until(lambda: texts(one, "s") == [*expected, "goes on"])
        wait_until(lambda: two.exists("t"))
        assert_clean(one, two)


def put_back_whole(copy: Path, home: Path) -> None:
    """The directory is replaced."""
    shutil.rmtree(home)
    subprocess.run(["cp", "-a", copy, home], check=True)


def put_back_in_place(copy: Path, home: Path) -> None:
    subprocess.run(["rsync", "-a", "--delete", f"{copy}/", f"{home}/"], check=True)


def put_back_sessions(copy: Path, home: Path) -> None:
    """Only the documents, as from a backup of plain files."""
    subprocess.run(["rsync", "-a", "--delete", f"{copy}/sessions/", f"{home}/sessions/"], check=True)


def rejoin_after_a_deletion() -> None:
    """A session that was deleted meanwhile goes to the trash; one that is newer than the grove's last is a copy."""
    with scratch() as place, running_server() as server:
        url = server.url(new_database(server))
        homes = grove_of_two(place, url)
        with Store.open(homes[0], background=False) as one:
            one.save(Session.new("t", "m"))
        Store.open(homes[1], background=False).close()
        moved = place / "moved"
        subprocess.run(["cp", "-a", homes[1], moved], check=True)
        with Store.open(homes[0], background=False) as one:
            assert one.delete("s")
            assert one.delete("t")
        administration.leave(moved)
        with Store.open(moved, background=False) as alone:
            alone.append("t", [Message.user("written alone")])
        administration.join(moved, url, "moved")
        with Store.open(homes[0]) as one, Store.open(moved) as other:
            assert not one.exists("s")
            assert not other.exists("s")
            assert "s" in [slot.session_id for slot in other.trash.deleted()]
            assert texts(other, "t~moved") == ["written alone"]
            assert not one.exists("t")
            other.save(Session.new("u", "m"))
            wait_until(lambda: one.exists("u"))
            assert_clean(one, other)


def faults(seed: int) -> Iterator[Case]:
    yield Case("database killed under load", partial(kill_the_database_under_load, SOME, 4))
    yield Case("synchronous failover under load", partial(fail_over_to_a_synchronous_standby, SOME))
    for case in QUICK:
        yield Case(case.__name__.replace("_", " "), case)
    for how in PUT_BACK:
        yield Case(f"home {how.__name__.replace('_', ' ')}", partial(restore_a_home_from_an_old_copy, how))


QUICK: list[Callable[[], None]] = [
    fail_over_to_a_standby_that_lags,
    restore_the_database_from_an_old_copy,
    stop_a_host_that_holds_a_row,
    fill_the_disk_after_the_agreement,
    upgrade_the_index_while_behind,
    rejoin_after_a_deletion,
]
PUT_BACK = [put_back_whole, put_back_in_place, put_back_sessions]
GROVE_FAULTS = Attack("grove-faults", "databases that crash or forget; hosts that stop or are restored", faults, 6.0)
