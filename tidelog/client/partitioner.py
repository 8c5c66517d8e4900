"""Which partition a record goes to: Kafka's choice for a key, and one partition after another without a key.

Kept true: a key goes to the partition that Kafka's Java client, librdkafka's `murmur2_random` and kafka-python choose
(so that producers of both kinds keep a key's order together); records without a key stay on one partition until a
batch is full, so that batches fill (KIP-480, KIP-794).
Source: Kafka's `BuiltInPartitioner` and `Utils.murmur2`, which is Austin Appleby's MurmurHash2 with a fixed seed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF

KEYS_REMEMBERED_MAX: Final = 16_384
"""Hashing a key costs microseconds in Python, a dictionary 0.1: streams repeat their keys. Bounded, so that a stream of
unique keys costs some megabytes at most."""


def murmur2(data: bytes) -> int:
    """MurmurHash2 of the bytes as an unsigned 32-bit integer, with Kafka's seed."""
    size = len(data)
    hashed = _SEED ^ size
    words = size >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX
        hashed = (hashed * _MIX ^ word) & _MASK
    tail = data[words << 2 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of `partitions` (1 or more) that Kafka's default partitioner gives this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """The choices for one topic with a fixed number of partitions."""

    __slots__ = ("_batch_bytes", "_by_key", "_left", "_rng", "partitions", "sticky")

    def __init__(self, partitions: int, *, batch_bytes: int, rng: Random) -> None:
        """partitions: 1 or more. batch_bytes: so many bytes without a key stay together."""
        self.partitions = partitions
        self._batch_bytes = batch_bytes
        self._rng = rng
        self._by_key: dict[bytes, int] = {}
        self.sticky = 0
        self._left = 0

    def for_key(self, key: bytes) -> int:
        """The partition of a key."""
        found = self._by_key.get(key)
        if found is None:
            if len(self._by_key) >= KEYS_REMEMBERED_MAX:
                self._by_key.clear()
            found = self._by_key[key] = partition_for_key(key, self.partitions)
        return found

    def stays(self, size: int) -> bool:
        """Count a record of `size` bytes without a key. False: `sticky` has had its batch, draw the next one."""
        self._left -= size
        if self._left >= 0:
            return True
        self._left = self._batch_bytes - size
        return False

    def draw(self, queued: Sequence[int], led: Sequence[bool]) -> None:
        """Choose the next `sticky`: the shorter queue of two drawn by lot, among those with a leader where any has one.

        queued: bytes that wait for each partition. led: whether each has a leader.
        """
        usable = [index for index in range(self.partitions) if led[index]] or list(range(self.partitions))
        if len(usable) > 1 and self.sticky in usable:
            usable.remove(self.sticky)
        one, other = self._rng.choice(usable), self._rng.choice(usable)
        self.sticky = one if queued[one] <= queued[other] else other
