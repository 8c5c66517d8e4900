"""The state of a partition's producers: the bytes of Kafka's .snapshot files.

    version            int16    0   1
    CRC-32C            uint32   2   over all bytes after this field
    count              int32    6   producers, 46 bytes each:
      producer id      int64    0
      producer epoch   int16    8
      last sequence    int32   10   of its last batch, -1 if its epoch has none yet
      last offset      int64   14   of that batch, -1 if there is none
      offset delta     int32   22   from the first offset of that batch to its last
      timestamp        int64   26   of its last batch or marker
      coordinator epoch int32  34   of the last marker, -1 if there was none
      open transaction int64   38   its first offset, -1 if none is open

Invariants: a snapshot that decodes is complete, has the right checksum, and encodes to the same bytes again. Anything
else raises CorruptLog. The order of the entries has no meaning: Kafka's is that of a hash map.
Not here: files (storage/producers/snapshot_files.py), the choice of the snapshot for an offset
(storage/producers/producer_state.py).
Source: KIP-98; Kafka's ProducerStateManager.readSnapshot and writeSnapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptLog
from tidelog.records.v2.checksum import crc32c
from tidelog.types import Millis, Offset, ProducerId

NO_OFFSET: Final = Offset(-1)

_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_ENTRIES_AT: Final = _HEAD.size + _COUNT.size


class ProducerSnapshot(NamedTuple):
    """Entry of one producer in a snapshot file. Offsets are -1 for none."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: Millis
    coordinator_epoch: int
    transaction_start: Offset


def encode_snapshot(entries: Iterable[ProducerSnapshot]) -> bytes:
    """The contents of a snapshot file, entries in the given order."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> list[ProducerSnapshot]:
    """The entries in file order. path: for messages. Raises CorruptLog if version, checksum or size are wrong."""
    if len(data) < _ENTRIES_AT:
        raise _damaged(path, f"its {len(data)} bytes are fewer than those of an empty snapshot")
    version, checksum = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise _damaged(path, f"its version is {version}, supported is {_VERSION}")
    if crc32c(memoryview(data)[_HEAD.size :]) != checksum:
        raise _damaged(path, "its checksum is wrong")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if len(data) != _ENTRIES_AT + count * _ENTRY.size:
        raise _damaged(path, f"it declares {count} producers in {len(data)} bytes")
    return [ProducerSnapshot._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_ENTRIES_AT:])]


def _damaged(path: str, why: str) -> CorruptLog:
    return CorruptLog(
        f"{path} is not a producer snapshot: {why}; loading rebuilds the state from an older snapshot and the log"
    )
