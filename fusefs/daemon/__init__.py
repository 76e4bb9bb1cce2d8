"""Mount, serve, unmount, and clean up after a daemon that was killed."""
