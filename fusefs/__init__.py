"""The FUSE mount and the command line. They turn requests into store calls and hold no rules about
sessions.

The packages, from the bottom up; each imports only those before it:

    switches    features that can be turned off with GROVEFS_WITHOUT
    prices      the user's price file
    fast        the C extension `_fast.c`, which opens versions that have not changed
    views/      virtual directories and files: transcripts/, html/, search/, views/, history/, at/, status files
    tree/       the mount in memory: nodes, handles, write buffers. Plain Python without trio or pyfuse3
    requests/   pyfuse3 handlers: kernel request in, errno out
    daemon/     mount, serve, unmount, clean up after a killed daemon
    cli/        the command `grovefs`, one module per command family

A request goes from `request_loop` to a handler in `operations`, which asks `tree` for the node
and the store for the rest. Short indexed reads run in the event loop. Whatever syncs, scans or
renders runs in a worker thread (`requests.threads`), queued per session. Between two awaits a
handler owns all in-memory state. `errnos` has the only table from exceptions of the store to
errno.

What writing a file means, in `sessions/`, `projects/` and `state/`:

    session.json, runtime.json     validated and committed on close, fsync or rename; invalid: EBADMSG, nothing changed
    artifacts.json, traces.json, verification.json    the same; a report's status must follow from its checks
    attachments/*                  any bytes, committed as a whole on close
    *.jsonl                        appended in place, by many writers at once
    mailbox/new/*.json             validated as a message; deleting it from mailbox/cur/ acknowledges it
    index.json, children.json      derived, read-only (EROFS)
    session.json.rejected, .error  the rejected text and the reason; removed by the next successful save
    anything else                  a foreign file (editor backup, note, link): stored, not indexed

Readers see whole versions (rule 4). The kernel caches size and pages per inode, so a writer on
the readers' node would change what they see. The first open for writing is therefore answered
ESTALE; the kernel repeats the lookup, and that thread gets a private node (`tree.pending_opens`)
with a write buffer. The commit renames the buffer's file into place. A new version is a new node, so cached pages
never become stale.

Commit points are flush (every close), fsync, and rename onto the name; write(2) never validates.
If nothing was written, or the file was only truncated, nothing is committed: `> session.json`
changes nothing, and in `jq . f > f`, jq still reads the committed version. Invalid bytes fail
with an error and stay in the write buffer, so a later flush may succeed. Equal bytes make no new
version.

A directory is a session: `mkdir` and a session.json create one, `cp -r` forks it, `mv` changes
its id or root, `rm -r` moves it to the trash; pinned sessions are protected (EPERM). Removing
session.json hides it for ten seconds, because vim, Emacs, git and tar remove a file before they
replace it; if no replacement comes, it goes to the trash.

A stale save is merged with what others have committed since (rule 8). The base is a version that
the writing process is known to have opened, or its own last save. If both sides changed the same
thing, or no base is found, the save fails with ESTALE. `mount --on-conflict reject` merges
nothing; `overwrite` is for restores.

The kernel may cache names, attributes and bytes without a timeout, because the daemon watches
every directory the kernel knows and invalidates what changes. Opening a file returns the newest
version at once; a listing follows within a second. `.grovefs/stats.json` counts and times the
remaining requests; `mount --profile FILE` profiles them.

Not supported: hard links (EPERM: one file is one identity), extended attributes (ENOSYS, so the
kernel stops asking before every write), writable shared memory maps, SQLite databases in
attachments/ (each version is a separate file; for the same reason flock on a document excludes
no other writer). A transcript needs an id of at most 252 bytes.
"""
