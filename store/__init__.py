"""Session store of GroveFS: sessions of AI agents as plain files, with an index, full-text search and crash recovery.

    from store import Message, Session, Store

    with Store.open("~/.grovefs") as store:
        store.save(Session.new("s1", "some-model"))
        store.append("s1", [Message.user("hello")])

Synchronous, and safe to use from many threads and processes at once. It knows nothing of FUSE. `help(Store)` lists
what a store can do; `store.layout` describes the files of a home.

The rules. Code, tests and README cite them by number.

1.  Files are the truth. `sessions.json`, `children.json` and `index.json` can be deleted and are rebuilt. So can
    `index.db` while no process has the home open. Deleting index.db starts a new epoch of the change feed and
    drops unknown keys found in sessions.json. `history.db` is data: losing it loses old versions, never the current
    files.
2.  What reported success survives kill -9 of any process and, with durability "full" (the default), power loss.
3.  What reported failure changed nothing, and the rejected text is kept. One exception, named in its error: the
    database of a grove did not answer in time (Unsure).
4.  A reader sees one version of a document from open to close, never a mixture of two.
5.  Bytes are stored as written. Unknown fields, key order and digits survive every rewrite. Exceptions: a fork gets
    its new id, API keys in `llm_config` and `metadata` are never stored, and a merged save is the typed text with
    the changes of others spliced in.
6.  A committed document loads in the agent that owns it.
7.  Index and search are updated in the same commit. No crash leaves them wrong. Other processes see a change within a
    second.
8.  No update is lost silently. A text that was edited from an older version is merged with what others stored
    since, by the mount, `grovefs edit` and, on request, the API. If both changed the same thing, or the version it
    was edited from is not known, it is rejected, and the error shows both values.
9.  A document's id, kind and root match its path.
10. The cost of a save does not grow with the number of sessions.
11. Every change can be seen and undone (who, when, what) for as long as the history keeps it.

Where things are. A save goes from `Store.save` (through a mount: `fusefs.requests`, `fusefs.tree`, then `namespace`) to
`sessions.save` or `sessions.put`, becomes a `Commit` in `commit.commits`, and `commit.journal` runs it. A search is
parsed and run in `search`, on rows that `index.fulltext` keeps. A new check is a function in `check`, whose docstring
says how to add one.

The packages, from the bottom up. Each imports only those before it; `tests/test_house.py` enforces the order.

    errors, layout, path_kinds   exceptions; paths and ids; the kind of every path
    model/       pydantic records of sessions, messages and timestamps
    documents/   documents as bytes: parse, validate, splice, merge, render
    disk/        the only code that changes files: durable writes, locks, trash, rejected writes
    index/       index.db: catalog, full text, change feed
    history/     history.db: every version of every kept file
    commit/      one change is one commit: lock, write, journal, rename, sync, history, index
    sessions/    operations on one session: save, append, put, delete, rename, fork, prune
    workspace/   what sessions share: mail, state documents, projects
    search/      queries, names, summaries, transcripts, token usage; grep/: the trigram index
    namespace/   what a filesystem may do to a path
    undo/        versions as people name them, differences in words, revert, undo
    transfer/    import, export, backup, restore
    home/        an open home: opening, recovery, housekeeping, watching, Bamboo servers
    grove/       one grove on many hosts, agreed to by PostgreSQL
    check/       every kind of damage, and its repair
    store, grouped, groups   the class Store and its groups of methods
    backend, memory_store    a small protocol for programs' tests, and an in-memory backend
    public, public_modules   the names that `from store import …` provides, and their modules
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from store.public import *  # noqa: F403
    from store.public import __all__ as __all__


def __dir__() -> list[str]:
    """The public names, for `dir(store)`, completion and pydoc."""
    from store.public_modules import MODULES

    return sorted({*globals(), *MODULES})


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use: commands must not wait for what they do not use."""
    from store.public_modules import MODULES

    if name == "__all__":
        return sorted(MODULES)
    if name not in MODULES:  # perhaps a submodule: let the import system find it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(MODULES[name]), name)
    globals()[name] = value
    return value
