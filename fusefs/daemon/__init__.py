"""Mount, serve, unmount, and clean up after a killed daemon."""
