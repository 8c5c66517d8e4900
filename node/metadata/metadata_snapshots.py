"""Snapshots of the metadata log: files beside it, in Kafka's format and under Kafka's names.

    END-EPOCH.checkpoint     a batch with the header's control record, batches of records, a batch with the footer's;
                             END (20 digits) is one past the last record that went in, EPOCH (10 digits) that record's

Kept true: a file under that name is whole: it is written beside it, fsynced and renamed; whoever reads one checks its
header, every CRC and its footer. Only the newest is kept.
Left to others: when one is written, and the log's start (metadata_log.py), sending it in pieces (quorum_service.py).
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
from replication.controller.metadata import LocatedRecord, MetadataRecord
from replication.raft.log_view import SnapshotId
from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptLog, CorruptRecord, InvalidRequest, OffsetOutOfRange
from tidelog.records import SnapshotFooter, SnapshotHeader, control_batch, decode_control, iter_batches
from tidelog.types import LeaderEpoch, Millis, Offset

NAME: Final = re.compile(r"(?P<end>\d{20})-(?P<epoch>\d{10})\.checkpoint")
RECORDS_PER_BATCH: Final = 1_000


def encode_snapshot(image: ClusterImage, epoch: LeaderEpoch, timestamp: Millis) -> bytes:
    """A whole snapshot. timestamp: when the last record in it was appended (milliseconds since 1970)."""
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
        raise CorruptLog("a snapshot of the metadata log is not whole: it lacks its header or its footer")
    try:
        image = apply(EMPTY, located)
    except (KeyError, ValueError, AssertionError) as error:
        raise CorruptLog(f"the records in a snapshot of the metadata log do not go together ({error!r})") from error
    if image.offset > snapshot.end_offset:
        raise CorruptLog("a snapshot of the metadata log has more records than the log that it stands for")
    return advance(image, snapshot.end_offset)


class MetadataSnapshots:
    """The snapshots in the metadata log's directory. Files are read on the loop, written wherever the caller is."""

    def __init__(self, files: Files, directory: str) -> None:
        """Raises OSError."""
        self._files, self._directory = files, directory
        found = [match for name in files.list(directory) if (match := NAME.fullmatch(name))]
        ids = [SnapshotId(Offset(int(match["end"])), LeaderEpoch(int(match["epoch"]))) for match in found]
        self.latest = max(ids, key=lambda each: each.end_offset, default=None)
        """The newest one."""

    def load(self, snapshot: SnapshotId) -> ClusterImage:
        """The image in it. Raises CorruptLog, UnsupportedVersion, OSError."""
        data = read_file(self._files, self._path(snapshot))
        if data is None:
            raise CorruptLog(f"{self._path(snapshot)} is gone: the metadata before it are lost here")
        return decode_snapshot(data, snapshot)

    def read(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Its whole size, and a piece of it. Raises OffsetOutOfRange where it is gone, InvalidRequest, OSError."""
        try:
            file = self._files.open(self._path(snapshot), read_only=True)
        except FileNotFoundError:
            raise OffsetOutOfRange(f"there is no snapshot {self._name(snapshot)} any more: fetch again") from None
        try:
            size = file.size()
            if not 0 <= position <= size or max_bytes <= 0:
                raise InvalidRequest(f"{max_bytes} bytes from {position} on of a snapshot of {size} bytes")
            return size, file.pread(min(max_bytes, size - position), position)
        finally:
            file.close()

    def write(self, snapshot: SnapshotId, data: bytes) -> None:
        """Put one in place, durably; it is not `latest` yet. Any thread. Raises OSError."""
        write_file(self._files, self._path(snapshot), data)

    def remove_older(self, snapshot: SnapshotId) -> None:
        """Remove those before it. Any thread. Raises OSError."""
        for name in self._files.list(self._directory):
            found = NAME.fullmatch(name)
            if found is not None and int(found["end"]) <= snapshot.end_offset and name != self._name(snapshot):
                self._files.remove(f"{self._directory}/{name}")

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{self._name(snapshot)}"

    @staticmethod
    def _name(snapshot: SnapshotId) -> str:
        return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
