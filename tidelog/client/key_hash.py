"""The hash of a key that chooses the partition of its record, by the name of the producer's option `partitioner`.

Producers that write the same topic must agree on it: otherwise the records of one key are in two partitions, and their
order is lost.

murmur2     Kafka's Java client, kafka-python, aiokafka and franz-go by default (partitioner.py)
crc32       librdkafka's `consistent_random`, the default of kcat and of Confluent's clients for Python, Go and .NET.
            Source: librdkafka, `rd_kafka_msg_partitioner_consistent`
a function  the program's own, also for records without a key
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from zlib import crc32

from tidelog.client import routing
from tidelog.client.options import whole_number
from tidelog.client.partitioner import partition_for_key
from tidelog.errors import InvalidConfig, UnknownTopicOrPartition

if TYPE_CHECKING:
    from tidelog.client.routing import Numbers


ChoosePartition: TypeAlias = Callable[[bytes | None, int], int | None]
"""Returns the partition for a key, None for a record without one, among so many partitions; None leaves the choice to
the producer, which takes the sticky partition of records without keys."""

PartitionerOption: TypeAlias = Literal["murmur2", "crc32"] | ChoosePartition


@dataclass(frozen=True, slots=True)
class KeyHash:
    """A hash. A number of partitions is 1 or more."""

    of_key: Callable[[bytes, int], int]
    """Returns the partition of a key among so many."""
    of_keys: Callable[[list[bytes | None], int], Numbers]
    """Returns that of each key, NO_PARTITION for None."""
    choose: ChoosePartition | None = None
    """Chooses instead, if the partitioner is the program's own; its results are checked."""


def _crc32_of_key(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def _crc32_of_keys(keys: list[bytes | None], partitions: int) -> Numbers:
    return array("i", [routing.NO_PARTITION if key is None else crc32(key) % partitions for key in keys])


MURMUR2: Final = KeyHash(partition_for_key, routing.partitions_of)
_BY_NAME: Final[Mapping[str, KeyHash]] = {"murmur2": MURMUR2, "crc32": KeyHash(_crc32_of_key, _crc32_of_keys)}


def key_hash_of(partitioner: object) -> KeyHash:
    """Return the hash of this name, or the program's own. Raises InvalidConfig."""
    if callable(partitioner):
        return _own(partitioner)
    if not isinstance(partitioner, str) or partitioner not in _BY_NAME:
        raise InvalidConfig(
            f'partitioner={partitioner!r}: use "murmur2", as Kafka\'s Java client, "crc32", as librdkafka, or a '
            "function of a key and the number of partitions"
        )
    return _BY_NAME[partitioner]


def _own(function: Callable[[bytes | None, int], object]) -> KeyHash:
    def choose(key: bytes | None, partitions: int) -> int | None:
        chosen = function(key, partitions)
        if chosen is None:
            return None
        index = whole_number("the partition that the partitioner returned", chosen)
        if not 0 <= index < partitions:
            raise UnknownTopicOrPartition(
                f"the partitioner returned partition {index} for key {key!r}: it must be 0 to {partitions - 1}, or None"
            )
        return index

    def of_key(key: bytes | None, partitions: int) -> int:
        chosen = choose(key, partitions)
        return routing.NO_PARTITION if chosen is None else chosen

    def of_keys(keys: list[bytes | None], partitions: int) -> Numbers:
        return array("i", [of_key(key, partitions) for key in keys])

    return KeyHash(of_key, of_keys, choose)
