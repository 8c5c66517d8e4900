"""Errors of the indexes of a segment. None of them reaches a client.

A segment rolls if an index cannot take an entry. An invalid index is rebuilt from the log.
Source: the exceptions of Kafka's AbstractIndex and its subclasses.
"""

from __future__ import annotations


class IndexRefusal(Exception):
    """Base of the index errors."""


class IndexFull(IndexRefusal):
    """No slot is free: the segment must be rolled."""


class IndexOffsetOverflow(IndexRefusal):
    """The offset does not fit into 31 bits relative to the base offset."""


class InvalidIndexOffset(IndexRefusal):
    """The entry's offset is not larger than the last one."""


class InvalidIndexTimestamp(IndexRefusal):
    """The entry's timestamp is smaller than the last one."""


class CorruptIndex(IndexRefusal):
    """The file is not a valid index and must be rebuilt."""
