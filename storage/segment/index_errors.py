"""Errors of the indexes of a segment. None of them reaches a client.

A segment rolls if an index cannot take an entry. An invalid index is rebuilt from the log.
Source: the exceptions of Kafka's AbstractIndex and its subclasses.
"""

from __future__ import annotations


class IndexFailure(Exception):
    """Base of the index errors."""


class IndexFull(IndexFailure):
    """No slot is free: the segment must be rolled."""


class IndexOffsetOverflow(IndexFailure):
    """The offset does not fit into 31 bits relative to the base offset."""


class InvalidIndexOffset(IndexFailure):
    """The entry's offset is not larger than the last one."""


class InvalidIndexTimestamp(IndexFailure):
    """The entry's timestamp is smaller than the last one."""


class CorruptIndex(IndexFailure):
    """The file is not a valid index and must be rebuilt."""
