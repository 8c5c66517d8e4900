"""A node as a process: built from its configuration, started, watched and stopped."""
