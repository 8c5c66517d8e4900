"""Closed segments in an object store: what a remote segment is, its object, and reading it."""
