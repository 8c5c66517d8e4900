"""The hash of a key that chooses the partition of its record, by the name of the producer's option `partitioner`.

Producers that write the same topic must agree on it: otherwise the records of one key are in two partitions, and their
order is lost.

murmur2     Kafka's Java client, kafka-python, aiokafka and franz-go by default (partitioner.py)
crc32       librdkafka's `consistent_random`, the default of kcat and of Confluent's clients for Python, Go and .NET.
            Source: librdkafka, `rd_kafka_msg_partitioner_consistent`
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tidelog.client import routing
from tidelog.client.partitioner import partition_for_key
from tidelog.errors import InvalidConfig

if TYPE_CHECKING:
    from tidelog.client.routing import Numbers


@dataclass(frozen=True, slots=True)
class KeyHash:
    """A hash. A number of partitions is 1 or more."""

    of_key: Callable[[bytes, int], int]
    """Returns the partition of a key among so many."""
    of_keys: Callable[[list[bytes | None], int], Numbers]
    """Returns that of each key, NO_PARTITION for None."""


def _crc32_of_key(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def _crc32_of_keys(keys: list[bytes | None], partitions: int) -> Numbers:
    return array("i", [routing.NO_PARTITION if key is None else crc32(key) % partitions for key in keys])


MURMUR2: Final = KeyHash(partition_for_key, routing.partitions_of)
_BY_NAME: Final[Mapping[str, KeyHash]] = {"murmur2": MURMUR2, "crc32": KeyHash(_crc32_of_key, _crc32_of_keys)}


def key_hash_of(name: object) -> KeyHash:
    """Return the hash of this name. Raises InvalidConfig."""
    if not isinstance(name, str) or name not in _BY_NAME:
        raise InvalidConfig(f'partitioner={name!r}: use "murmur2", as Kafka\'s Java client, or "crc32", as librdkafka')
    return _BY_NAME[name]
