"""How a kernel, or a person at a terminal, asks the store. Holds no rules about sessions.

A request comes from the kernel to `loop`, is handed to a handler of `operations`, asks `tree` what a name leads to,
and the store for the rest. Short indexed reads are done at once; whatever syncs, scans or renders goes through
`threads.run_blocking`, queued per session. Between two awaits a handler owns all in-memory state. `errors` has the one
table from what the store raises to what a caller gets.

    operations  decode, call, encode                 loop, companion  requests without detours through the scheduler
    tree        which nodes exist, what is listed    nodes            inode ↔ node, a node for each version
    files       open, flush, fsync, release          shadows          bytes written and not yet committed
    writers     private nodes, limbo                 renames, entries names that come, go and move
    attrs       attributes, every cache timeout      watches, follow  what others change is noticed, and told
    invalidate  tells the kernel, never from inside the handler it would block
    views/      search/, transcripts/, views/: one file each, all of the shape in views/shape.py
    mount       set up, serve, unmount               cli/             the command line, one file per family

Names, and what writing them means (in `projects/` and `state/` the same):

    session.json, runtime.json     checked and committed when closed, synced, or renamed onto; else EBADMSG ("Bad
                                   message") and nothing changed
    artifacts.json, traces.json, verification.json    the same; a report's status must follow from its checks
    attachments/*                  any bytes, committed as a whole on close
    *.jsonl                        appended to in place, by many at once
    mailbox/new/*.json             checked as a message; to delete it from mailbox/cur/ is to acknowledge it
    index.json, children.json      derived, read-only (EROFS)
    session.json.rejected, .error  what was refused and why; gone with the next good save
    anything else                  yours: editor backups, notes, links; stored, not indexed

Readers see whole versions. The kernel keeps size and pages per inode, so a writer that opened the node readers use
would change under them what they see. The first open for writing is therefore answered ESTALE, the kernel looks the
name up once more, and that lookup, known by its thread, is given a private node (`writers`), whose shadow becomes the
document by rename at the commit. A new version is a new node, so pages in the kernel's cache are right for ever.

Commit points are flush (every close), fsync, and rename onto the name; write never decides. Nothing written, or only
truncated: nothing is committed, so `> session.json` and `jq . f > f` change nothing. Bytes not (yet) valid: the error,
and the shadow stays; a later flush may succeed. The same bytes: no new version, no new time.

Directories are sessions: `mkdir` and a session.json make one, `cp -r` forks it, `mv` gives it another id or root,
`rm -r` deletes it, pinned ones refuse (EPERM). Taking session.json away only hides it for ten seconds (limbo), since
vim, Emacs, git, tar and others do that before they bring the new one; if none comes, it goes to the trash.

Who is late is told: ESTALE for a save onto a version that was replaced since it was opened, for a file renamed onto
a version newer than itself, and for an older `updated_at`; `mount --on-conflict overwrite` is for restores.

The kernel remembers names, attributes and bytes for as long as it likes, because every directory it knows is watched,
and it is told of every change. What is opened is the newest version at once; what is listed follows within a second.
Requests that remain are counted and timed in `.grovefs/stats.json`; `mount --profile FILE` says what they cost, and
GROVEFS_WITHOUT (see `switches`) turns off what makes it fast.

Not possible, and why: hard links (EPERM: one file is one identity), extended attributes (ENOSYS: the kernel then stops
asking before every write), writing through a shared memory map, SQLite writing a database in attachments/ (each version
is a file of its own; for the same reason flock on a document excludes nobody). An id of more than 252 bytes has no room
for `.md` in transcripts/.
"""
