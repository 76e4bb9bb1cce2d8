"""`from store import …`: the lazy names are those that type checkers see, and importing one is cheap."""

from __future__ import annotations

import subprocess
import sys

import store
from store import public
from store.public_modules import MODULES


def test_lazy_names_are_the_public_names() -> None:
    assert sorted(MODULES) == public.__all__ == sorted(name for name in dir(store) if name in MODULES)
    for name, module in MODULES.items():
        assert getattr(store, name) is getattr(public, name), (name, module)


def test_importing_one_name_imports_nothing_else() -> None:
    code = "from store import Location; import sys; print(*sorted(m for m in sys.modules if m.startswith('store')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == ["store", "store.errors", "store.layout", "store.public_modules"]


def test_threads_may_be_the_first_to_use_a_record() -> None:
    """Validators are built on first use. Threads that come together must all get a working one."""
    code = """
import sys, threading
sys.setswitchinterval(1e-5)
from store import Message, Session
problems, barrier = [], threading.Barrier(16)
def work():
    barrier.wait()
    try:
        session = Session.new("s1", "m")
        session.messages = [Message.user("hello")]
        assert Session.model_validate(session.model_dump()).messages[0].content == "hello"
    except BaseException as error:
        problems.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
print(problems)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout == "[]\n"
