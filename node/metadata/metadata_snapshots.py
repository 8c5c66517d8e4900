"""Snapshots of the metadata log: files in its directory, with Kafka's format and names.

    END-EPOCH.checkpoint     a batch with the header control record, batches of records, a batch with the footer record;
                             END (20 digits) is one past the last record of the log that it covers, EPOCH (10 digits)
                             the epoch of that record

Invariants: a file with such a name is complete: it is written under another name, fsynced and renamed. A reader checks
the header, every CRC and the footer. Only the latest snapshot is kept.
Not here: when to write one, and the log's start (metadata_log.py), serving it in parts (node/quorum/handlers.py).
Source: KIP-630.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from node.metadata.metadata_codec import decode_batches, encode_batch
from replication.controller.image import EMPTY, ClusterImage, advance, apply
from replication.controller.image_records import records_of
from replication.controller.metadata_records import LocatedRecord, MetadataRecord
from replication.raft.log_view import SnapshotId
from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptLog, CorruptRecord, InvalidRequest, OffsetOutOfRange
from tidelog.records import SnapshotFooter, SnapshotHeader, control_batch, decode_control, iter_batches
from tidelog.types import LeaderEpoch, Millis, Offset

NAME: Final = re.compile(r"(?P<end>\d{20})-(?P<epoch>\d{10})\.checkpoint")
RECORDS_PER_BATCH: Final = 1_000


def encode_snapshot(image: ClusterImage, epoch: LeaderEpoch, timestamp: Millis) -> bytes:
    """The bytes of a snapshot. timestamp: when its last record was appended (milliseconds since 1970)."""
    pieces = [control_batch(SnapshotHeader(timestamp), timestamp=timestamp, base_offset=0, leader_epoch=epoch)]
    offset = 1
    records: Iterator[MetadataRecord] = records_of(image)
    while batch := list(islice(records, RECORDS_PER_BATCH)):
        pieces.append(encode_batch(batch, leader_epoch=epoch, timestamp=timestamp, base_offset=Offset(offset)))
        offset += len(batch)
    pieces.append(control_batch(SnapshotFooter(), timestamp=timestamp, base_offset=offset, leader_epoch=epoch))
    return b"".join(pieces)


def decode_snapshot(data: bytes, snapshot: SnapshotId) -> ClusterImage:
    """The image in a snapshot. Raises CorruptLog, UnsupportedVersion."""
    try:
        controls = [
            decode_control(record) for batch in iter_batches(data) if batch.is_control for record in batch.records()
        ]
        located: list[LocatedRecord] = [record for batch in decode_batches(data) for record in batch.records]
    except CorruptRecord as error:
        raise CorruptLog(f"a snapshot of the metadata log is damaged: {error.message}") from error
    if len(controls) != 2 or not (isinstance(controls[0], SnapshotHeader) and isinstance(controls[1], SnapshotFooter)):
        raise CorruptLog("a snapshot of the metadata log is incomplete: its header or its footer is missing")
    try:
        image = apply(EMPTY, located)
    except (KeyError, ValueError, AssertionError) as error:
        raise CorruptLog(f"the records in a snapshot of the metadata log contradict each other ({error!r})") from error
    if image.offset > snapshot.end_offset:
        raise CorruptLog("a snapshot of the metadata log has more records than the part of the log that it covers")
    return advance(image, snapshot.end_offset)


class MetadataSnapshots:
    """The snapshots in the metadata log's directory. Reads run on the event loop, writes on any thread."""

    def __init__(self, files: Files, directory: str) -> None:
        """Raises OSError."""
        self._files, self._directory = files, directory
        found = [match for name in files.list(directory) if (match := NAME.fullmatch(name))]
        ids = [SnapshotId(Offset(int(match["end"])), LeaderEpoch(int(match["epoch"]))) for match in found]
        self.latest = max(ids, key=lambda each: each.end_offset, default=None)
        """The latest snapshot; None if there is none."""

    def load(self, snapshot: SnapshotId) -> ClusterImage:
        """The image in a snapshot. Raises CorruptLog, UnsupportedVersion, OSError."""
        data = read_file(self._files, self._path(snapshot))
        if data is None:
            raise CorruptLog(f"{self._path(snapshot)} is missing: this node has lost the metadata below its offset")
        return decode_snapshot(data, snapshot)

    def read(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """The size in bytes, and a part. Raises OffsetOutOfRange if the snapshot is gone, InvalidRequest, OSError."""
        try:
            file = self._files.open(self._path(snapshot), read_only=True)
        except FileNotFoundError:
            raise OffsetOutOfRange(f"the snapshot {self._name(snapshot)} no longer exists: fetch again") from None
        try:
            size = file.size()
            if not 0 <= position <= size or max_bytes <= 0:
                raise InvalidRequest(f"cannot read {max_bytes} bytes at {position} of a snapshot of {size} bytes")
            return size, file.pread(min(max_bytes, size - position), position)
        finally:
            file.close()

    def write(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write a snapshot durably; `latest` is unchanged. Any thread. Raises OSError."""
        write_file(self._files, self._path(snapshot), data)

    def remove_older(self, snapshot: SnapshotId) -> None:
        """Remove the snapshots that are older than this one. Any thread. Raises OSError."""
        for name in self._files.list(self._directory):
            found = NAME.fullmatch(name)
            if found is not None and int(found["end"]) <= snapshot.end_offset and name != self._name(snapshot):
                self._files.remove(f"{self._directory}/{name}")

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{self._name(snapshot)}"

    @staticmethod
    def _name(snapshot: SnapshotId) -> str:
        return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
