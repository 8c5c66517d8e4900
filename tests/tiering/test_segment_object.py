"""The object of a segment and its manifest: what is written is found again, and no bytes from a store do harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fake_object_store import FakeObjectStore
from tests.storage.filled_logs import filled
from tests.tiering.remote_bench import TOPIC, build, contents, copy, copy_all, described
from tidelog.errors import CorruptLog, UnsupportedVersion
from tidelog.records.v2.checksum import crc32c
from tidelog.tiering.remote_errors import (
    ObjectStoreFull,
    ObjectStoreUnavailable,
    RemoteObjectDamaged,
    RemoteObjectMissing,
)
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegmentId,
    SectionKind,
)
from tidelog.tiering.segment_manifest import (
    encode_manifest,
    manifest_key,
    parse_key,
    parse_manifest,
    partition_prefix,
    read_manifest,
    segment_key,
)
from tidelog.tiering.segment_object import (
    CHECKSUM_RANGE_BYTES,
    TRAILER_BYTES_MAX,
    SegmentObjectBuilder,
    object_size,
    parse_trailer,
    verify_object,
)
from tidelog.types import Buffer, Offset, PartitionIndex, TopicId


@settings(max_examples=25)
@given(
    size=st.sampled_from([0, 1, CHECKSUM_RANGE_BYTES - 1, CHECKSUM_RANGE_BYTES, 2 * CHECKSUM_RANGE_BYTES + 5]),
    pieces=st.lists(st.integers(200_000, 3_000_000), min_size=1, max_size=3),
    index=st.binary(max_size=40),
)
def test_an_object_tells_what_is_in_it_wherever_its_pieces_end(size: int, pieces: list[int], index: bytes) -> None:
    log = bytes(size)
    segment, data = build(log, pieces, offset_index=index, leader_epochs=b"0\n0\n")
    assert data.startswith(log)  # an object begins as the .log file does
    assert len(data) == object_size(segment.sections)

    found = parse_trailer(data[-TRAILER_BYTES_MAX:], len(data), "the object")

    assert found.sections == segment.sections
    assert (found.segment_id, found.topic_id) == (segment.segment_id, segment.topic_id)
    assert (found.partition, found.start_offset, found.end_offset) == (3, 100, 200)
    for section in found.sections:
        assert crc32c(data[section.start : section.start + section.size]) == section.crc
    checksums = found.sections[-1]
    due = [crc32c(log[at : at + CHECKSUM_RANGE_BYTES]) for at in range(0, size, CHECKSUM_RANGE_BYTES)]
    assert data[checksums.start :][: checksums.size] == b"".join(each.to_bytes(4, "big") for each in due)


def test_building_takes_one_piece_at_a_time() -> None:
    """No piece of the log is taken before the one before it was handed on: a segment is never in memory."""
    taken: list[int] = []

    def pieces() -> Iterator[Buffer]:
        for number in range(4):
            taken.append(number)
            yield bytes(1000)

    segment = replace(build(b"", [1])[0], log_size=4000, sections=())
    parts = SegmentObjectBuilder(segment, [(SectionKind.LOG, pieces())]).parts()
    for number in range(4):
        next(parts)
        assert taken == list(range(number + 1))


def test_a_log_that_ends_early_is_not_copied() -> None:
    """The file was truncated under the copy: no object may claim bytes that it has not."""
    segment = replace(build(b"", [1])[0], log_size=10, sections=())
    store = FakeObjectStore()
    with pytest.raises(CorruptLog, match="has 9 bytes instead of 10"):
        store.put("key", SegmentObjectBuilder(segment, [(SectionKind.LOG, [bytes(9)])]).parts())
    assert store.objects == {}


def test_an_object_is_read_back_before_it_counts() -> None:
    store = FakeObjectStore()
    segment = copy(filled().log, 0, store)
    key = segment_key(TOPIC, segment)
    verify_object(store, key, segment)

    whole = store.objects[key]
    for at in range(len(whole)):
        store.tamper(key, at)
        with pytest.raises(RemoteObjectDamaged, match=f"the object {key} in fake://bucket is damaged"):
            verify_object(store, key, segment)
        store.objects[key] = whole
    for size in (0, 1, len(whole) - 1):
        store.truncate(key, size)
        with pytest.raises(RemoteObjectDamaged, match=f"it has {size} bytes instead of {len(whole)}"):
            verify_object(store, key, segment)
        store.objects[key] = whole
    store.objects[key] = whole + b"x"
    with pytest.raises(RemoteObjectDamaged):
        verify_object(store, key, segment)
    store.lose(key)
    with pytest.raises(RemoteObjectMissing):
        verify_object(store, key, segment)


def test_the_object_of_another_segment_is_noticed() -> None:
    """The same bytes under another segment's key: only the trailer can tell."""
    store, log = FakeObjectStore(), filled().log
    segment = copy(log, 0, store)
    other = replace(segment, segment_id=RemoteSegmentId(UUID(int=99)))
    store.objects[segment_key(TOPIC, other)] = store.objects[segment_key(TOPIC, segment)]
    with pytest.raises(RemoteObjectDamaged, match="its trailer is not the one that was written"):
        verify_object(store, segment_key(TOPIC, other), other)


def test_a_store_that_fails_leaves_what_it_says() -> None:
    store, log = FakeObjectStore(), filled().log
    segment = described(log, 0)

    store.fail("put")
    with pytest.raises(ObjectStoreUnavailable):
        copy(log, 0, store)
    assert store.objects == {}

    store.capacity = 100
    with pytest.raises(ObjectStoreFull):
        copy(log, 0, store)
    assert store.objects == {}

    store.capacity = None
    store.answer_late("put")
    with pytest.raises(ObjectStoreUnavailable):
        copy(log, 0, store)
    assert list(store.objects) == [segment_key(TOPIC, segment)]  # it was written, and its writer does not know
    verify_object(store, segment_key(TOPIC, segment), copy(log, 0, store))  # the repeated copy is the same object


@given(tail=st.binary(max_size=TRAILER_BYTES_MAX), size=st.integers(0, 1 << 41))
def test_bytes_that_are_no_trailer_are_refused(tail: bytes, size: int) -> None:
    with pytest.raises(RemoteObjectDamaged):
        parse_trailer(tail, size, "the object")


@settings(max_examples=60)
@given(st.data())
def test_a_changed_trailer_is_refused(data: st.DataObject) -> None:
    """Also one whose checksum was made to fit: it may claim anything, and claims only what an object can be."""
    segment, whole = build(bytes(50), [50], offset_index=b"12345678")
    changed = bytearray(whole)
    trailer = len(whole) - sum(section.size for section in segment.sections)
    at = data.draw(st.integers(len(whole) - trailer, len(whole) - 13))
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteObjectDamaged):
        parse_trailer(changed[-TRAILER_BYTES_MAX:], len(whole), "the object")

    changed[-12:-8] = crc32c(bytes(changed[len(whole) - trailer : -12])).to_bytes(4, "big")
    with suppress(RemoteObjectDamaged, UnsupportedVersion):
        found = parse_trailer(changed[-TRAILER_BYTES_MAX:], len(whole), "the object")
        assert object_size(found.sections) == len(whole)
        assert found.sections[0].kind is SectionKind.LOG


def test_a_newer_object_is_refused_as_such() -> None:
    _, whole = build(bytes(50), [50])
    changed = bytearray(whole)
    changed[-14:-12] = (2).to_bytes(2, "big")
    covered = changed[50 + 4 : -12]  # log, its checksum
    changed[-12:-8] = crc32c(bytes(covered)).to_bytes(4, "big")
    with pytest.raises(UnsupportedVersion, match="in version 2, supported is 1"):
        parse_trailer(bytes(changed[-TRAILER_BYTES_MAX:]), len(whole), "the object")


# --- manifest -----------------------------------------------------------------------------------------------------


def test_a_manifest_is_the_segment_for_a_person() -> None:
    store = FakeObjectStore()
    segment = copy(filled().log, 1, store)
    data = store.objects[manifest_key(TOPIC, segment)]
    assert read_manifest(store, manifest_key(TOPIC, segment)) == (TOPIC, segment)
    fields = json.loads(data)
    assert fields["state"] == "COPY_SEGMENT_FINISHED"
    assert [each["kind"] for each in fields["sections"]] == [kind.name for kind in SectionKind]
    assert len(data.splitlines()) > 20


def test_a_manifest_with_unknown_fields_is_read() -> None:
    segment, _ = build(bytes(5), [5])
    fields = json.loads(encode_manifest(TOPIC, segment))
    fields["colour"] = "blue"
    assert parse_manifest(json.dumps(fields).encode(), "the manifest").segment == segment


def test_a_newer_manifest_is_refused_as_such() -> None:
    segment, _ = build(bytes(5), [5])
    newer = encode_manifest(TOPIC, segment).replace(b'"version": 1', b'"version": 2')
    with pytest.raises(UnsupportedVersion, match="in version 2, supported is 1"):
        parse_manifest(newer, "the manifest")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=40)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteObjectDamaged):
        parse_manifest(data, "the manifest")


def test_a_manifest_of_nested_brackets_is_refused() -> None:
    with pytest.raises(RemoteObjectDamaged):
        parse_manifest(b"[" * 200_000, "the manifest")


@settings(max_examples=40)
@given(st.data())
def test_a_changed_field_is_refused_or_possible(data: st.DataObject) -> None:
    segment, _ = build(bytes(50), [50], offset_index=b"12345678")
    fields = json.loads(encode_manifest(TOPIC, segment))
    where = data.draw(st.sampled_from([fields, *fields["sections"], *fields["leader_epochs"]]))
    name = data.draw(st.sampled_from(sorted(where)))
    where[name] = data.draw(JSON | st.integers(-5, 300))
    with suppress(RemoteObjectDamaged, UnsupportedVersion):
        found = parse_manifest(json.dumps(fields).encode(), "the manifest").segment
        assert found.end_offset > found.start_offset >= 0
        assert object_size(found.sections) == object_size(segment.sections)


def test_a_huge_manifest_is_not_read() -> None:
    store = FakeObjectStore()
    store.objects["a.manifest"] = b" " * (5 << 20)
    with pytest.raises(RemoteObjectDamaged, match="it has 5242880 bytes"):
        read_manifest(store, "a.manifest")
    assert [call.operation for call in store.calls] == ["size"]


# --- keys ---------------------------------------------------------------------------------------------------------


def test_a_listing_has_the_objects_of_a_partition_in_the_order_of_the_log() -> None:
    store, log = FakeObjectStore(), filled().log
    segments = copy_all(log, store)
    keys = sorted(found.key for found in store.list(partition_prefix(TOPIC, segments[0].topic_id, PartitionIndex(0))))
    assert len(keys) == 2 * len(segments)
    names = [parse_key(key) for key in keys]
    assert [name.start_offset for name in names if name and name.suffix == ".segment"] == [
        segment.start_offset for segment in segments
    ]
    assert {(name.topic, name.topic_id, name.partition) for name in names if name} == {(TOPIC, segments[0].topic_id, 0)}


@settings(max_examples=40)
@given(
    topic=st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True),
    topic_id=st.uuids(),
    segment_id=st.uuids(),
    partition=st.integers(0, 2**31 - 1),
    start=st.integers(0, 2**63 - 1),
)
def test_a_key_says_what_it_was_made_of(
    topic: str, topic_id: UUID, segment_id: UUID, partition: int, start: int
) -> None:
    segment = replace(
        build(b"", [1])[0],
        topic_id=TopicId(topic_id),
        segment_id=RemoteSegmentId(segment_id),
        partition=PartitionIndex(partition),
        start_offset=Offset(start),
    )
    assert parse_key(segment_key(topic, segment)) == (topic, topic_id, partition, start, segment_id, ".segment")
    assert parse_key(manifest_key(topic, segment)) == (topic, topic_id, partition, start, segment_id, ".manifest")


@given(st.text(max_size=120))
def test_a_foreign_key_is_none_of_ours(key: str) -> None:
    """The sweep must not take another program's object for an orphan."""
    assert parse_key(key) is None


def test_sections_must_follow_each_other() -> None:
    segment, _ = build(bytes(50), [50], offset_index=b"12345678")
    moved = replace(segment.sections[1], start=49)
    crossed = (segment.sections[0], moved, *segment.sections[2:])
    with pytest.raises(RemoteObjectDamaged, match="section OFFSET_INDEX cannot be 8 bytes from byte 49 on"):
        parse_manifest(encode_manifest(TOPIC, replace(segment, sections=crossed)), "the manifest")
    huge = (ObjectSection(SectionKind.LOG, 0, 1 << 60, 0), *segment.sections[1:])
    with pytest.raises(RemoteObjectDamaged):
        parse_manifest(encode_manifest(TOPIC, replace(segment, sections=huge)), "the manifest")


def test_the_sections_are_those_of_the_files() -> None:
    store, log = FakeObjectStore(), filled().log
    segment = copy(log, 0, store)
    data = store.objects[segment_key(TOPIC, segment)]
    for (kind, pieces), section in zip(contents(log, segment), segment.sections, strict=False):
        assert section.kind is kind
        assert data[section.start : section.start + section.size] == b"".join(pieces)
