"""Map from keys to their last offsets, for compaction. Its memory size is fixed at construction.

    bucket    32 slots: a digest of 16 bytes (BLAKE2b of the key) and an offset of 8 each, filled from the first one on

A key is stored in the bucket that its digest selects or, if that is full, in the next bucket with a free slot. The keys
themselves are not stored: an accidental collision of two digests is as unlikely as a memory error, and no known attack
can produce one (for the MD5 of Kafka's map one exists).
Invariants: a key is found with the largest offset that was put for it. Entries are never removed. A full map rejects a
new key without changing anything.
Not here: which records are put (cleaning.py). Source: Kafka's SkimpyOffsetMap; KIP-58 for the size in bytes.
"""

from __future__ import annotations

from typing import Final

from tidelog.types import Offset

DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = DIGEST_BYTES + 8
BUCKET_SLOTS: Final = 32
"""One search in C compares this many digests: fewer buckets overflow, without a loop in Python."""
BUCKET_BYTES: Final = BUCKET_SLOTS * SLOT_BYTES + 1
LOAD_MAX: Final = 0.9
"""Kafka's `log.cleaner.io.buffer.load.factor`."""
_DIGESTS: Final = BUCKET_SLOTS * DIGEST_BYTES


class OffsetMap:
    """A map from keys to offsets. `latest_offset`: all records up to this offset have been put, -1 for none."""

    __slots__ = ("_blake2b", "_buckets", "_counts", "_digests", "_offsets", "entries", "entries_max", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        """memory_bytes: maximum memory of the map, at least one bucket (769 bytes). Pages are used as the map fills."""
        if memory_bytes < BUCKET_BYTES:
            raise ValueError(
                f"an offset map of {memory_bytes} bytes is smaller than one bucket of {BUCKET_BYTES} bytes"
            )
        from hashlib import blake2b  # with OpenSSL's functions: a node that compacts nothing does not load them

        self._blake2b = blake2b
        self._buckets = memory_bytes // BUCKET_BYTES
        self._digests = bytearray(self._buckets * _DIGESTS)
        self._offsets = memoryview(bytearray(8 * self._buckets * BUCKET_SLOTS)).cast("q")
        self._counts = bytearray(self._buckets)
        self.entries = 0
        self.entries_max = max(int(self._buckets * BUCKET_SLOTS * LOAD_MAX), 1)
        self.latest_offset = Offset(-1)

    @classmethod
    def for_records(cls, records: int, memory_bytes_max: int) -> OffsetMap:
        """A map for `records` keys, limited to `memory_bytes_max`."""
        buckets = int(records / LOAD_MAX) // BUCKET_SLOTS + 2
        return cls(max(min(buckets * BUCKET_BYTES, memory_bytes_max), BUCKET_BYTES))

    @property
    def memory_bytes(self) -> int:
        return self._buckets * BUCKET_BYTES

    @property
    def is_full(self) -> bool:
        """True if no further key fits."""
        return self.entries >= self.entries_max

    def put(self, key: bytes, offset: int) -> bool:
        """Store the offset of a key; it must be above all offsets stored before. Returns False, without a change, if
        the map is full and does not contain the key."""
        digest = self._blake2b(key, digest_size=DIGEST_BYTES).digest()
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
        """The largest offset of the key, -1 if the map does not contain it."""
        digest = self._blake2b(key, digest_size=DIGEST_BYTES).digest()
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
