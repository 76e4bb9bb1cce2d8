"""GroveFS's session store: sessions on disk that survive anything.

    from store import Message, Session, Store

    with Store.open("~/.grovefs") as store:
        store.save(Session.new("s1", "some-model"))
        store.append("s1", [Message.user("hello")])

Synchronous from top to bottom, and safe to use from many threads and processes at once. It knows nothing of FUSE.

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

What lies in a home:

    sessions/<root>/session.json            the conversation, complete
    sessions/<root>/runtime.json            the same record without its messages: the sidecar
    sessions/<root>/token-usage.jsonl       one line per call of the model
    sessions/<root>/trajectory.jsonl        one line per tool call
    sessions/<root>/attachments/<id>.<ext>
    sessions/<root>/artifacts.json traces.json verification.json
    sessions/<root>/mailbox/{new,cur,corrupt}/
    sessions/<root>/children/<child>/…      sub-agents at any depth, flat below their root
    projects/<key>/sessions/<parent>/…      sessions by workspace, any JSON object; index.json, children.json derived
    state/<category>/<name>.{md,json}       plain documents
    sessions.json                           the index in Bamboo's format: an export
    .grovefs/                               ours: index.db, trigrams/, trash/, rejects/, tmp/, locks

A commit, each step safe to be the last before a crash: lock the session (`lock`); write the new files beside their
places and sync them (`atomic`); note in index.db what is about to move (`journal`); rename, the sidecar first; sync
the directory; one SQLite transaction for index, search and change feed, which takes the note away (`commits`). Who
next takes the lock, or opens the home, finishes what a crash left. The rename of session.json is the point of no
return: an index that cannot be written then is success all the same, retried, and shown by `store.status()`; a
directory that cannot be synced then is an error that says the new version is in place; a commit that a failing disk
lets neither finish nor undo is an error that says it will be finished once the disk works again. `durability="normal"`
leaves the syncs out: that survives kill -9, but not a power cut.

What can be asked of a store; `store.py` has it all:

    save(session)  load(id)  update(id, fn)  append(id, messages)  get_or_create(id)     whole sessions; `save` of an
        outdated copy raises Conflict and never shortens unless asked, `update` and `append` never conflict
    save_runtime(session)  load_runtime(id)       all but the messages, at the same cost at any length
    put_document(location, name, raw)  get_document(location, name)                      byte for byte, or the reason
    transcript(id)  transcript(id, message=-1)    Markdown to read
    resolve(name)                                 what a person means: an id, a unique beginning of it, a title
    rename(id, target)  fork(id, target)  move_to_project(id, project)
    delete(id)  undelete(name)  clear(id)  deleted()  empty_trash()     pinned sessions and their ancestors are
        protected; what goes is in the trash for seven days
    plan_cleanup(mode)  cleanup(plan)  pruner.plan(Keep(days=90, newest=500))  pruner.apply(plan)    look at it first;
        nothing goes by itself, unless a store is opened with auto_prune=AutoPrune(…)
    entry(id)  entries(…)  children(id)  summaries(…)  iter_changed(since)  ids()  exists(id)  count()     the index
    search(query)  changes(since)  wait_changes(since)      full text; every commit once, in order, across processes
    attach(id, data, mime)  read_attachment(id, attachment)     bytes, base64 or data: URLs
    trajectory.append(id, steps)  trajectory.read(id, start, end)  usage()     what was done, and what it took
    records.save_artifacts(id, …)  .load_traces(id)  .add_verification(id, …)    what runs left; of artifacts 256 and
        16 MiB a session, a save evicts the oldest and says which
    mail.at(id)       deliver, drain, receive (sleeps until something comes), ack, recover; each at least once. Who must
        do a thing only once keeps an AdmittedSet
    state             save_json, load_json, update_json (under the lock), save_markdown, load_markdown, names, delete
    projects          save, load, update, upsert_root, upsert_child, remove_child, roots, children, resolve, rebuild,
        key_of(path); using(extractor) reads titles and statuses that are not at the top level of a payload
    imports  exports  check(repair=False)  rebuild()  sweep()  health()  status()

`load`, `entry` and their like answer None for an unknown id, `delete` and `clear` False; damage raises Corrupt with
line and column. An id that lies under several roots is Ambiguous, `"root/child"` is exact, and an id with any other
separator is refused, never rewritten: two sessions must not become one. `MemoryStore` keeps the same small protocol
(`Backend`) without a disk.

A Bamboo V2 home opens as it is. Nothing in it is migrated or rewritten but `sessions.json`, whose version and unknown
keys are kept; its search database, locks and keys are left alone. A Bamboo server keeps its sessions in memory and
overwrites what others change, so while one is seen at work (it holds its locks, or rewrites `sessions.json`) every
write is refused with the reason, unless `beside_bamboo=True`. Where we differ on purpose: a runtime save refreshes
the index; a lost or broken `sessions.json` costs nothing; deleting a nested child deletes its descendants; a pinned
descendant at any depth protects its ancestors; cleaning up empty sessions spares an empty root whose children hold
something; an attachment keeps its type whatever it is.

Limits: one local filesystem. A document may have 256 MiB (`limit_bytes`). An edit made straight on the files is noticed
within a second while a store or mount has the session in use (a store watches up to 8,192 of them, a mount every
directory that was looked at, up to half of what `fs.inotify.max_user_watches` allows); one made while nobody has the
home open is noticed by `sweep`, `check` or the next write to that session, not by merely opening. Two edits of equal
size within one tick of the filesystem's clock cannot be told apart by their stamps; what was read less than 50 ms after
it changed is therefore read again.

Where to look. "Why this path?": layout, places. "May it be stored?": documents, codec, faults. "Who wins, session.json
or runtime.json?": overlay. "When is it on disk?": atomic, journal, commits. "Who may write now?": lock, bamboo. "Why is
it found?": words, query, search, find; for grep patterns, trigrams, known, upkeep. "What is derived, and is it right?":
index, pieces, check*. "What may a filesystem do to it?": namespace, relocate, rejects. From the ground up the modules
stand in a list in tests/test_house.py; each imports only those before it, and begins with its one law.
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
