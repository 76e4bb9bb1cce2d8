"""Many hosts of one grove under attack: every host is a process with a home of its own, and a cable that can be cut."""
