"""Partitioner: Kafka's partition for a key, sticky partitions for records without a key.

Invariants: a key is mapped to the same partition as by Kafka's Java client, librdkafka's `murmur2_random` and
kafka-python, so that different producers preserve the order of a key. Records without a key stay on one partition for
the bytes of a batch, and then until the batch there is full or sent: no batch is left half full, however many
partitions there are (KIP-480, KIP-794).
Source: Kafka's `BuiltInPartitioner` and `Utils.murmur2`, which is Austin Appleby's MurmurHash2 with a fixed seed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tidelog.records.v2.fast_paths import is_pure_python_requested

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF

DRAWS_MAX: Final = 8
"""Draws of a partition at random before all partitions are searched for one with a leader."""


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 of the bytes as an unsigned 32-bit integer, with Kafka's seed."""
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


def _partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of `partitions` (1 or more) that Kafka's default partitioner assigns to this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


if TYPE_CHECKING:
    partition_for_key = _partition_for_key
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from tidelog.client._routing import partition_for_key
    except ImportError:
        partition_for_key = _partition_for_key


class Partitioner:
    """Partition choice for one topic with a fixed number of partitions."""

    __slots__ = ("_batch_bytes", "_left", "_rng", "partitions", "sticky")

    def __init__(self, partitions: int, *, batch_bytes: int, rng: Random) -> None:
        """partitions: 1 or more. batch_bytes: number of bytes without a key that stay on one partition."""
        self.partitions = partitions
        self._batch_bytes = batch_bytes
        self._rng = rng
        self.sticky = 0
        self._left = 0

    def stays(self, size: int) -> bool:
        """Count a record of `size` bytes without a key. Returns False if `sticky` has the bytes of a batch: then
        `draw` follows, unless the record fits into the open batch there."""
        self._left -= size
        return self._left >= 0

    def draw(self, size: int, queued: Callable[[int], int], led: Callable[[int], bool]) -> None:
        """Choose the next `sticky`, beginning with a record of `size` bytes: draw two partitions at random, among those
        with a leader if there are any, and take the one with the shorter queue.

        queued: returns the bytes queued for a partition. led: returns whether a partition has a leader.
        """
        one, other = self._draw(led), self._draw(led)
        self.sticky = one if queued(one) <= queued(other) else other
        self._left = self._batch_bytes - size

    def _draw(self, led: Callable[[int], bool]) -> int:
        """Return a partition at random other than `sticky`, with a leader if possible."""
        for _ in range(DRAWS_MAX):
            drawn = int(self._rng.random() * self.partitions)
            if drawn != self.sticky and led(drawn):
                return drawn
        usable = [index for index in range(self.partitions) if led(index)] or list(range(self.partitions))
        if len(usable) > 1 and self.sticky in usable:
            usable.remove(self.sticky)
        return self._rng.choice(usable)
