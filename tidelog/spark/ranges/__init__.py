"""Ranges of offsets: how a batch query is planned, and how a task reads one range as Arrow batches."""
