"""What the indexes of a segment refuse, and what makes one unusable. None of it reaches a client.

An index that cannot take an entry makes its segment roll; one that cannot be right is rebuilt from the log.
Source: the exceptions of Kafka's AbstractIndex and its subclasses, whose names are `kafka_name`.
"""

from __future__ import annotations

from typing import ClassVar


class IndexRefusal(Exception):
    """Base of these."""

    kafka_name: ClassVar[str]


class IndexFull(IndexRefusal):
    """No slot is free: the segment must be rolled."""

    kafka_name = "IllegalArgumentException"


class IndexOffsetOverflow(IndexRefusal):
    """The offset does not fit into 31 bits above the base offset."""

    kafka_name = "IndexOffsetOverflowException"


class InvalidIndexOffset(IndexRefusal):
    """The entry's offset does not grow over the last one."""

    kafka_name = "InvalidOffsetException"


class InvalidIndexTimestamp(IndexRefusal):
    """The entry's timestamp is below the last one."""

    kafka_name = "IllegalStateException"


class CorruptIndex(IndexRefusal):
    """The file cannot be this index: rebuild it."""

    kafka_name = "CorruptIndexException"
