"""Control records: encoding and decoding of transaction markers and leader changes."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord, TidelogError, UnsupportedVersion
from tidelog.records import (
    ControlVoter,
    EndTxnMarker,
    LeaderChange,
    Record,
    RecordBatch,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_control,
)
from tidelog.records.v2.control import Control, ControlType, encode_control
from tidelog.types import DirectoryId, Millis, NodeId, Offset

CONTROLS = [
    EndTxnMarker(committed=True, coordinator_epoch=7),
    EndTxnMarker(committed=False, coordinator_epoch=-1),
    LeaderChange(NodeId(1), (ControlVoter(NodeId(1)),), (ControlVoter(NodeId(1)),)),
    LeaderChange(
        NodeId(300),
        tuple(ControlVoter(NodeId(node), DirectoryId(UUID(int=node))) for node in (1, 2, 300)),
        (ControlVoter(NodeId(300), DirectoryId(UUID(int=300))),),
    ),
    LeaderChange(NodeId(0), (), ()),
    SnapshotHeader(Millis(1_700_000_000_000)),
    SnapshotFooter(),
]


@pytest.mark.parametrize("control", CONTROLS, ids=repr)
def test_a_control_batch_is_decoded_to_its_content(control: Control) -> None:
    data = control_batch(control, timestamp=1700, base_offset=42, leader_epoch=3, producer_id=1000, producer_epoch=5)
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert batch.is_control
    assert batch.is_transactional == isinstance(control, EndTxnMarker)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.count) == (42, 3, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1000, 5, -1)
    (record,) = batch.records()
    assert decode_control(record) == control


def test_a_voter_set_without_directory_ids_is_written_in_the_version_that_has_none() -> None:
    key, value = encode_control(LeaderChange(NodeId(1), (ControlVoter(NodeId(1)),), (ControlVoter(NodeId(1)),)))
    assert key.hex() == "00000002"
    assert value.hex() == "00000000000102000000010002000000010000"


def _record(key: bytes | None, value: bytes | None) -> Record:
    return Record(Offset(9), Millis(0), key, value)


def test_unused_types_are_named_and_unknown_types_are_none() -> None:
    assert decode_control(_record(b"\0\0\0\5", b"\0\0\0\1")) is ControlType.KRAFT_VERSION
    assert decode_control(_record(b"\0\0\0\x63", None)) is None


def test_tagged_fields_of_later_releases_are_skipped() -> None:
    _, value = encode_control(LeaderChange(NodeId(1), (ControlVoter(NodeId(2)),), ()))
    with_tag = value[:11] + b"\x01\x05\x02hi" + value[12:]
    assert decode_control(_record(b"\0\0\0\2", with_tag)) == LeaderChange(NodeId(1), (ControlVoter(NodeId(2)),), ())


@pytest.mark.parametrize("control", CONTROLS, ids=repr)
def test_a_truncated_control_record_is_corrupt_or_lacks_only_its_tags(
    control: Control,
) -> None:
    key, value = encode_control(control)
    for length in range(len(key)):
        with pytest.raises(CorruptRecord):
            decode_control(_record(key[:length], value))
    for length in range(len(value) - 1):
        with pytest.raises(CorruptRecord):
            decode_control(_record(key, value[:length]))


@given(st.integers(0, 7), st.none() | st.binary(max_size=60), st.binary(max_size=6))
def test_any_control_record_is_decoded_or_rejected_with_a_documented_error(
    kind: int, value: bytes | None, key: bytes
) -> None:
    for control_key in (b"\0\0\0" + bytes([kind]), key):
        with suppress(CorruptRecord, UnsupportedVersion):
            decode_control(_record(control_key, value))


def test_a_null_key_is_corrupt() -> None:
    with pytest.raises(CorruptRecord):
        decode_control(_record(None, b""))


def test_a_leader_change_of_a_later_version_is_rejected() -> None:
    with pytest.raises(TidelogError, match="newer release"):
        decode_control(_record(b"\0\0\0\2", b"\0\x09\0\0\0\1"))
