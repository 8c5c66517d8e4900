"""Compaction of one log: collects the keys of its dirty part and rewrites its segments."""
