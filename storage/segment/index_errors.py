"""Errors of the indexes of a segment. None of them reaches a client.

A segment rolls if an index cannot take an entry. An invalid index is rebuilt from the log.
Source: the exceptions of Kafka's AbstractIndex and its subclasses; `kafka_name` is Kafka's name.
"""

from __future__ import annotations

from typing import ClassVar


class IndexRefusal(Exception):
    """Base of the index errors."""

    kafka_name: ClassVar[str]


class IndexFull(IndexRefusal):
    """No slot is free: the segment must be rolled."""

    kafka_name = "IllegalArgumentException"


class IndexOffsetOverflow(IndexRefusal):
    """The offset does not fit into 31 bits relative to the base offset."""

    kafka_name = "IndexOffsetOverflowException"


class InvalidIndexOffset(IndexRefusal):
    """The entry's offset is not larger than the last one."""

    kafka_name = "InvalidOffsetException"


class InvalidIndexTimestamp(IndexRefusal):
    """The entry's timestamp is smaller than the last one."""

    kafka_name = "IllegalStateException"


class CorruptIndex(IndexRefusal):
    """The file is not a valid index and must be rebuilt."""

    kafka_name = "CorruptIndexException"
