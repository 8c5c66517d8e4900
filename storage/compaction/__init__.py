"""Compaction of one log: the keys of its dirty part, and its segments written anew."""
