"""The commands as `grovefs --help` lists them: headings, names and summaries.

A table, so that listing the commands imports none of them: that would take longer than everything else
`grovefs --help` does. A test compares the summaries with the help texts of the commands.
"""

from __future__ import annotations

import typer

# Heading → command → first paragraph of its help, in the order shown.
PANELS = {
    "Mount": {
        "mount": "Mount a home as a filesystem. Returns when the mount is ready; the daemon runs in the background.",
        "umount": "Unmount, also a dead mount. `grovefs status` lists mounts.",
        "status": "Show the GroveFS mounts on this machine and the state of the home.",
    },
    "Read and search": {
        "ls": "List sessions, newest first. Untitled sessions show the first words of the user instead.",
        "show": "Print a conversation; on a terminal with Markdown rendered and times in the local time zone.",
        "open": "Open a conversation, or the list of all sessions, in a browser.",
        "tail": "Print the last messages of a session; with -f follow it.",
        "search": "Search messages, titles, summaries and state documents, best match first.",
        "grep": "Search the files with grep, using an index to read only files that can match.",
        "stats": "Count new sessions, messages, tokens and costs by day, model and project.",
    },
    "Create and change": {
        "new": "Create a session and print its id. Creates the home if there is none.",
        "append": "Append a message to a session.",
        "attach": "Attach a file to a session and print the URL to use in messages.",
        "edit": "Edit a session's document in $VISUAL or $EDITOR and save it when the editor exits.",
        "mv": "Change the id, title or project of a session. References to the id are updated, also in children.",
        "fork": "Copy a session with its children and attachments, to continue it under another id.",
        "pin": "Protect sessions from deletion.",
        "unpin": "Allow the deletion of pinned sessions again.",
    },
    "See and take back changes": {
        "log": "List the versions of a session, newest first: number, time, author, and what changed.",
        "diff": "Show what differs between two versions, message by message and member by member.",
        "revert": "Bring a version of a session back, as a new version: session.json and runtime.json as they were "
        "then.",
        "undo": "Take back all changes of a span of time, or only those by one author, such as a wrong sed.",
        "snapshot": "Give the present moment a name, or list such names, newest first.",
        "history": "Show how much of the past is kept, and remove parts of it.",
    },
    "Delete and restore": {
        "rm": "Delete sessions and their descendants. They stay in the trash for seven days.",
        "clear": "Remove the messages and attachments of a session; only its first system message stays.",
        "cleanup": "Delete all sessions of a kind, after listing them and asking. They stay in the trash for seven "
        "days.",
        "prune": "Delete old sessions: those not changed for some days, or all but the newest.",
        "trash": "List deletions of the last seven days, newest first. Files deleted together are one line.",
        "undelete": "Restore a deleted session with its children and files, a single file, or pruned agent records.",
    },
    "Import, export, backup": {
        "import": "Import the sessions of other agents.",
        "export": "Export sessions as plain files.",
        "resume": "Continue an imported session in the agent it came from, in its workspace.",
        "backup": "Copy all sessions, projects and state documents to another disk.",
        "restore": "Restore sessions from a backup.",
    },
    "Maintenance": {
        "check": "Check all files and the index for damage.",
        "rebuild": "Rebuild the index of sessions, full text and grep trigrams from the files.",
        "health": "Test that the home works; for people and for monitoring.",
        "schema": "Print the JSON Schema of a document, for completion and validation in editors.",
        "help": "Show a page of the documentation: layout, promises, search, recipes, limits and more.",
        "man": "Show the manual page; when piped, print its roff source.",
    },
    "Mail, state, projects": {
        "mail": "Send messages to sessions and receive them.",
        "state": "Store documents that belong to no session: notes, facts, configuration.",
        "projects": "Show projects: sessions grouped by workspace.",
    },
    "Many hosts": {
        "grove": "Share one grove of sessions among many hosts, with a PostgreSQL database.",
    },
}


def add_placeholders(app: typer.Typer) -> None:
    """Register all commands that no imported module has registered, by name and summary. They cannot be run."""
    app.registered_commands = [command for command in app.registered_commands if command.callback is not _not_loaded]
    present = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    present |= {group.name or "" for group in app.registered_groups}
    for summaries in PANELS.values():
        for name, summary in summaries.items():
            if name not in present:
                app.command(name, help=summary)(_not_loaded)


def _not_loaded() -> None:
    raise NotImplementedError("a placeholder was run")
