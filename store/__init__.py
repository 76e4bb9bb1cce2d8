"""GroveFS's session store: sessions on disk that survive anything.

    from store import Message, Session, Store

    with Store.open("~/.grovefs") as store:
        store.save(Session.new("s1", "some-model"))
        store.append("s1", [Message.user("hello")])

The rules everything here keeps; code and tests cite them by number.

1.  Files are the truth. `index.db` and `sessions.json` can be deleted and come back the same, but for the
    change feed, which starts a new epoch, and unknown keys found in sessions.json.
2.  What reported success survives: after a call returned, the change survives kill -9 of any process and,
    with durability "full" (the default), loss of power.
3.  What reported failure changed nothing, and what the user had typed is still somewhere.
4.  A reader sees one version of a document from open to close, never a mixture, never half a write.
5.  Bytes that were given are stored as they are. Unknown fields survive every rewrite, in their place;
    timestamps keep their digits, numbers their form. One exception: a document arriving where another one
    belongs and none is yet (a fork) is made to say who it is now.
6.  A commit that succeeds leaves a document the owning agent can load.
7.  Index and search follow within the same commit; there is no moment, and no crash, after which they stay
    wrong. Other processes learn of it within a second.
8.  No update is lost silently. Who writes from an outdated copy is told so instead of winning.
9.  Path and identity are one: `id`, `kind` and `root_session_id` agree with where a document lies.
10. The cost of a save does not grow with the number of sessions.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from store.public import *  # noqa: F403
    from store.public import __all__ as __all__


def __getattr__(name: str) -> object:
    """Everything at once, but only when it is wanted: `grovefs grep` has ended before pydantic would be there."""
    if name != "__all__" and not name[:1].isupper():  # a module of ours, which the import finds by itself
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("store.public"), name)
