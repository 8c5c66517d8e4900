"""The object of a closed segment: its layout, building it as a stream, checking it.

    LOG                  the record batches, as in the segment's file: the object begins as a `.log` does
    OFFSET_INDEX         Kafka's .index
    TIME_INDEX           Kafka's .timeindex
    PRODUCER_SNAPSHOT    Kafka's .snapshot, of the segment's end
    TRANSACTION_INDEX    Kafka's .txnindex
    LEADER_EPOCHS        Kafka's leader-epoch-checkpoint
    LOG_CHECKSUMS        uint32  of each MiB of LOG (the last one may be shorter)
    trailer
      for each section   int8    kind
                         int64   byte at which it begins
                         int64   bytes
                         uint32  CRC-32C of them
      identity           16      segment id
                         16      topic id
                         int32   partition
                         int64   start offset
                         int64   end offset
      end                uint16  number of sections
                         uint16  version, 1
                         uint32  CRC-32C of the trailer up to here
                         8       "TIDE-SEG"

Sections may be empty. The trailer repeats what the coordinator knows of the segment: an object tells whose it is, even
if everything else is lost.

Invariants:
  1. Bytes from a store are used only after a comparison with a checksum that the coordinator, the manifest or the
     trailer gives. Sizes are compared with the object's before anything is read by them.
  2. Building needs memory for one part at a time.
Not here: what the sections contain (storage/log/segment_copy.py), reading records (remote_segment_reader.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from struct import Struct, error
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.errors import CorruptLog, UnsupportedVersion
from tidelog.records.v2.checksum import crc32c
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_errors import RemoteObjectDamaged
from tidelog.tiering.remote_segment import ObjectSection, RemoteSegment, RemoteSegmentId, SectionKind
from tidelog.types import Buffer, Offset, PartitionIndex, TopicId

CHECKSUM_RANGE_BYTES: Final = 1 << 20
"""Bytes of the log that a checksum of LOG_CHECKSUMS covers. Part of version 1."""
OBJECT_BYTES_MAX: Final = 1 << 40
"""No object is larger: a claim beyond it is damage."""
_READ_BYTES: Final = 4 << 20
"""Of one request of a check."""
_VERSION: Final = 1
_MAGIC: Final = b"TIDE-SEG"
_SECTION: Final = Struct(">bqqI")
_IDENTITY: Final = Struct(">16s16siqq")
_COUNT: Final = Struct(">HH")
_CRC: Final = Struct(">I")
_END_BYTES: Final = _COUNT.size + _CRC.size + len(_MAGIC)
TRAILER_BYTES_MAX: Final = _SECTION.size * len(SectionKind) + _IDENTITY.size + _END_BYTES
"""The last bytes of an object that contain its trailer, whatever its sections are."""


class SegmentTrailer(NamedTuple):
    """What an object says of itself."""

    segment_id: RemoteSegmentId
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset
    end_offset: Offset
    sections: tuple[ObjectSection, ...]


def object_size(sections: Sequence[ObjectSection]) -> int:
    """Bytes of the object with these sections."""
    end = sections[-1].start + sections[-1].size if sections else 0
    return end + _SECTION.size * len(sections) + _IDENTITY.size + _END_BYTES


def sections_problem(sections: Sequence[ObjectSection], log_size: int | None = None) -> str | None:
    """What is impossible in the sections of an object; None if nothing is. log_size: bytes of the log, if known."""
    at = 0
    for section in sections:
        if section.start != at or not 0 <= section.size <= OBJECT_BYTES_MAX - at or not 0 <= section.crc <= 0xFFFFFFFF:
            return f"section {section.kind.name} cannot be {section.size} bytes from byte {section.start} on"
        at += section.size
    kinds = [section.kind for section in sections]
    if len(set(kinds)) < len(kinds) or not kinds or kinds[0] is not SectionKind.LOG:
        return f"its sections are {', '.join(kind.name for kind in kinds) or 'missing'}"
    if log_size is not None and sections[0].size != log_size:
        return f"its log has {sections[0].size} bytes instead of {log_size}"
    checksums = next((section.size for section in sections if section.kind is SectionKind.LOG_CHECKSUMS), None)
    due = _CRC.size * -(-sections[0].size // CHECKSUM_RANGE_BYTES)
    return None if checksums == due else f"it has {checksums} bytes of checksums for its log instead of {due}"


class SegmentObjectBuilder:
    """The object of one copy of a segment, as a stream of parts. Each attempt to write it needs its own."""

    def __init__(self, segment: RemoteSegment, contents: Iterable[tuple[SectionKind, Iterable[Buffer]]]) -> None:
        """contents: the bytes of each section, the log first, in parts that must not change later."""
        self._segment, self._contents = segment, contents
        self._sections: list[ObjectSection] = []
        self._at = 0

    def parts(self) -> Iterator[Buffer]:
        """The parts of the object. Raises CorruptLog if the log is not as long as the segment says."""
        checksums: list[int] = []
        for kind, pieces in self._contents:
            yield from self._section(kind, pieces, checksums if kind is SectionKind.LOG else None)
            if kind is SectionKind.LOG and self._at != self._segment.log_size:
                raise CorruptLog(
                    f"the segment at offset {self._segment.start_offset} has {self._at} bytes instead of "
                    f"{self._segment.log_size}: its file was truncated from outside; it is not copied"
                )
        yield from self._section(SectionKind.LOG_CHECKSUMS, [b"".join(map(_CRC.pack, checksums))], None)
        yield encode_trailer(self._segment, self._sections)

    def _section(self, kind: SectionKind, pieces: Iterable[Buffer], checksums: list[int] | None) -> Iterator[Buffer]:
        start, crc = self._at, 0
        for piece in pieces:
            crc = crc32c(piece, crc)
            if checksums is not None:
                _add_checksums(checksums, piece, self._at - start)
            self._at += len(piece)
            if len(piece):
                yield piece
        self._sections.append(ObjectSection(kind, start, self._at - start, crc))

    def finished(self) -> RemoteSegment:
        """The segment with the sections of the object that has been built."""
        segment = replace(self._segment, sections=tuple(self._sections))
        assert sections_problem(segment.sections, segment.log_size) is None, "the parts were not taken to their end"
        return segment


def _add_checksums(checksums: list[int], piece: Buffer, at: int) -> None:
    """Add bytes of the log, from byte `at` on, to its checksums."""
    left = memoryview(piece)
    while left:
        room = CHECKSUM_RANGE_BYTES - at % CHECKSUM_RANGE_BYTES
        if room == CHECKSUM_RANGE_BYTES:
            checksums.append(0)
        checksums[-1] = crc32c(left[:room], checksums[-1])
        at += len(left[:room])
        left = left[room:]


def encode_trailer(segment: RemoteSegment, sections: Sequence[ObjectSection]) -> bytes:
    """The last bytes of a segment's object."""
    entries = b"".join(_SECTION.pack(each.kind, each.start, each.size, each.crc) for each in sections)
    identity = _IDENTITY.pack(
        segment.segment_id.bytes, segment.topic_id.bytes, segment.partition, segment.start_offset, segment.end_offset
    )
    covered = entries + identity + _COUNT.pack(len(sections), _VERSION)
    return covered + _CRC.pack(crc32c(covered)) + _MAGIC


def parse_trailer(tail: Buffer, size: int, name: str) -> SegmentTrailer:
    """The trailer of an object of `size` bytes. tail: its last TRAILER_BYTES_MAX bytes, or all. name: for messages.
    Raises RemoteObjectDamaged, UnsupportedVersion."""
    data = bytes(tail)
    try:
        count, version = _COUNT.unpack_from(data, len(data) - _END_BYTES)
        (crc,) = _CRC.unpack_from(data, len(data) - len(_MAGIC) - _CRC.size)
    except error as short:
        raise damaged(name, f"it has only {size} bytes") from short
    trailer_size = _SECTION.size * count + _IDENTITY.size + _END_BYTES
    if not data.endswith(_MAGIC) or trailer_size > len(data):
        raise damaged(name, "it does not end as the object of a segment")
    covered = data[len(data) - trailer_size : -len(_MAGIC) - _CRC.size]
    if crc32c(covered) != crc:
        raise damaged(name, "the checksum of its trailer is wrong")
    if version != _VERSION:
        raise UnsupportedVersion(
            f"{name} is the object of a segment in version {version}, supported is {_VERSION}: read it with a newer "
            "Tidelog"
        )
    try:
        sections = tuple(
            ObjectSection(SectionKind(kind), start, length, section_crc)
            for kind, start, length, section_crc in _SECTION.iter_unpack(covered[: _SECTION.size * count])
        )
    except ValueError as unknown:
        raise damaged(name, f"it has an unknown section: {unknown}") from unknown
    problem = sections_problem(sections)
    if problem is None and object_size(sections) != size:
        problem = f"it has {size} bytes instead of {object_size(sections)}"
    if problem is not None:
        raise damaged(name, problem)
    segment_id, topic_id, partition, start, end = _IDENTITY.unpack_from(covered, _SECTION.size * count)
    return SegmentTrailer(
        RemoteSegmentId(UUID(bytes=segment_id)),
        TopicId(UUID(bytes=topic_id)),
        PartitionIndex(partition),
        Offset(start),
        Offset(end),
        sections,
    )


def verify_object(store: ObjectStore, key: str, segment: RemoteSegment) -> None:
    """Read the object back, all of it, and compare it with what was written: each section with its checksum, the
    trailer, the size. Raises RemoteObjectDamaged, and as the store does."""
    name, due = f"the object {key} in {store.url}", object_size(segment.sections)
    size = store.size(key)
    if size != due:
        raise damaged(name, f"it has {size} bytes instead of {due}")
    for section in segment.sections:
        crc = 0
        for at in range(section.start, section.start + section.size, _READ_BYTES):
            crc = crc32c(store.get_range(key, at, min(_READ_BYTES, section.start + section.size - at)), crc)
        ensure_crc(name, section, crc)
    trailer = encode_trailer(segment, segment.sections)
    if bytes(store.get_range(key, size - len(trailer), len(trailer))) != trailer:
        raise damaged(name, "its trailer is not the one that was written")


def ensure_crc(name: str, section: ObjectSection, crc: int) -> None:
    """Raise RemoteObjectDamaged unless the bytes of a section have this checksum."""
    if crc != section.crc:
        raise damaged(name, f"section {section.kind.name} has checksum {crc:#010x} instead of {section.crc:#010x}")


def damaged(name: str, problem: str) -> RemoteObjectDamaged:
    """The error for an object whose bytes are not those that were written."""
    return RemoteObjectDamaged(
        f"{name} is damaged: {problem}; restore it from a backup of the store, or delete the records up to the end of "
        "its segment"
    )
