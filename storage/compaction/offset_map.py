"""Where the last record of each key lies: what compaction goes by, in memory whose size is fixed beforehand.

    bucket    32 slots: a digest of 16 bytes (BLAKE2b of the key) and an offset of 8 each, filled from the first one on

A key belongs to the bucket that its digest names, or, where that is full, to the next one behind it with room. The keys
themselves are not kept: that two have one digest is as unlikely as that memory lies, and nobody can make two such keys
on purpose (with the MD5 of Kafka's map one can).
Kept true: a key that was put is found with the largest offset it was put with; nothing is ever forgotten; what is full
says so before anything is put.
Left to others: which records are put (cleaner.py). Source: Kafka's SkimpyOffsetMap; KIP-58 for the size in bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from tidelog.types import Offset

DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = DIGEST_BYTES + 8
BUCKET_SLOTS: Final = 32
"""So many digests are compared by one search in C: fewer buckets overflow, and none costs a loop in Python."""
BUCKET_BYTES: Final = BUCKET_SLOTS * SLOT_BYTES + 1
LOAD_MAX: Final = 0.9
"""Kafka's `log.cleaner.io.buffer.load.factor`."""
_DIGESTS: Final = BUCKET_SLOTS * DIGEST_BYTES


class OffsetMap:
    """A map from keys to offsets. `latest_offset`: everything up to this one has been put, -1 for nothing."""

    __slots__ = ("_buckets", "_counts", "_digests", "_offsets", "entries", "entries_max", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        """memory_bytes: what the map may take, at least one bucket's 769 bytes. It is taken as it is filled."""
        if memory_bytes < BUCKET_BYTES:
            raise ValueError(f"an offset map of {memory_bytes} bytes has no room for one bucket of {BUCKET_BYTES}")
        self._buckets = memory_bytes // BUCKET_BYTES
        self._digests = bytearray(self._buckets * _DIGESTS)
        self._offsets = memoryview(bytearray(8 * self._buckets * BUCKET_SLOTS)).cast("q")
        self._counts = bytearray(self._buckets)
        self.entries = 0
        self.entries_max = max(int(self._buckets * BUCKET_SLOTS * LOAD_MAX), 1)
        self.latest_offset = Offset(-1)

    @classmethod
    def for_records(cls, records: int, memory_bytes_max: int) -> OffsetMap:
        """A map with room for so many keys, as far as the memory allows."""
        buckets = int(records / LOAD_MAX) // BUCKET_SLOTS + 2
        return cls(max(min(buckets * BUCKET_BYTES, memory_bytes_max), BUCKET_BYTES))

    @property
    def memory_bytes(self) -> int:
        """What the map takes once it has been filled."""
        return self._buckets * BUCKET_BYTES

    @property
    def is_full(self) -> bool:
        """No room for another key."""
        return self.entries >= self.entries_max

    def put(self, key: bytes, offset: int) -> bool:
        """Remember the offset, which is above all those before it. Returns False, with nothing changed, where the map
        is full and does not know the key."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        bucket = int.from_bytes(digest[:8]) % self._buckets
        digests, counts = self._digests, self._counts
        while True:
            start, count = bucket * _DIGESTS, counts[bucket]
            at = digests.find(digest, start, start + count * DIGEST_BYTES)
            if at >= 0:
                self._offsets[at // DIGEST_BYTES] = offset
                return True
            if count < BUCKET_SLOTS:
                break
            bucket = (bucket + 1) % self._buckets
        if self.is_full:
            return False
        at = start + count * DIGEST_BYTES
        digests[at : at + DIGEST_BYTES] = digest
        self._offsets[at // DIGEST_BYTES] = offset
        counts[bucket] = count + 1
        self.entries += 1
        return True

    def get(self, key: bytes) -> int:
        """The largest offset of the key, -1 where it was never put."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        bucket = int.from_bytes(digest[:8]) % self._buckets
        digests, counts = self._digests, self._counts
        while True:
            start, count = bucket * _DIGESTS, counts[bucket]
            at = digests.find(digest, start, start + count * DIGEST_BYTES)
            if at >= 0:
                return self._offsets[at // DIGEST_BYTES]
            if count < BUCKET_SLOTS:
                return -1
            bucket = (bucket + 1) % self._buckets
