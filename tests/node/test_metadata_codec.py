"""Metadata records cross into bytes and back unchanged; damaged or newer bytes are told apart."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.metadata.metadata_codec import decode_batches, decode_record, encode_batch, encode_record
from replication.controller import features
from replication.controller.metadata import (
    ClusterRecord,
    DirectoryState,
    MetadataRecord,
    NodeChangeRecord,
    NodeRegistrationRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicConfigsRecord,
    TopicRecord,
    TopicRemovalRecord,
    VotersRecord,
)
from replication.raft.voters import Voter
from tidelog.errors import CorruptLog, CorruptRecord, UnsupportedVersion
from tidelog.records import LeaderChange, control_batch, stamp
from tidelog.types import Endpoint, LeaderEpoch, Millis, NodeEpoch, NodeId

ids = st.uuids()
numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
nodes = st.lists(st.integers(0, 1000), max_size=5, unique=True).map(tuple)
texts = st.text(max_size=20)
listeners = st.dictionaries(texts, st.builds(Endpoint, texts, st.integers(0, 65535)), max_size=3)
directory_states = st.lists(st.builds(DirectoryState, ids, offsets), max_size=3).map(tuple)
directory_ids = st.lists(ids, max_size=3).map(tuple)
maybe_nodes = st.none() | nodes
records: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(ClusterRecord, texts, st.integers(0, features.LATEST)),
    st.builds(VotersRecord, st.lists(st.builds(Voter, numbers, ids, listeners), max_size=3).map(tuple)),
    st.builds(NodeRegistrationRecord, numbers, ids, listeners, texts, st.binary(max_size=16), directory_states),
    st.builds(NodeChangeRecord, numbers, offsets, st.none() | st.booleans(), st.none() | st.booleans(), directory_ids),
    st.builds(TopicRecord, texts, ids, st.dictionaries(texts, texts, max_size=3)),
    st.builds(TopicConfigsRecord, ids, st.dictionaries(texts, texts, max_size=3)),
    st.builds(TopicRemovalRecord, ids),
    st.builds(ProducerIdsRecord, numbers, offsets, offsets),
    st.builds(
        PartitionRecord,
        ids,
        numbers,
        nodes,
        st.lists(ids, max_size=5).map(tuple),
        nodes,
        nodes,
        nodes,
        st.integers(-1, 1000),
        numbers,
        numbers,
        adding=nodes,
        removing=nodes,
    ),
    st.builds(
        PartitionChangeRecord,
        ids,
        numbers,
        leader=st.none() | st.integers(-1, 1000),
        isr=maybe_nodes,
        elr=maybe_nodes,
        last_known_elr=maybe_nodes,
        replicas=maybe_nodes,
        directories=st.none() | st.lists(ids, min_size=1, max_size=5).map(tuple),
        adding=maybe_nodes,
        removing=maybe_nodes,
    ),
)


@given(records)
def test_a_record_reads_back_as_it_was_written(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.lists(records, min_size=1, max_size=6), st.integers(0, 2**40), st.integers(0, 1000))
def test_a_batch_reads_back_with_its_offsets_and_epoch(changes: list[MetadataRecord], base: int, epoch: int) -> None:
    data = bytearray(encode_batch(changes, leader_epoch=LeaderEpoch(0), timestamp=Millis(5)))
    stamp(data, 0, base_offset=base, leader_epoch=epoch)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.end, batch.leader_epoch) == (base, base + len(changes), epoch)
    assert batch.records == tuple((base + index, change) for index, change in enumerate(changes))


def test_nothing_said_differs_from_an_empty_list() -> None:
    """An in-sync set that is left out stays as it is; one that is given empty would be emptied."""
    unchanged = PartitionChangeRecord(UUID(int=1), 0, leader=NodeId(-1))  # type: ignore[arg-type]
    emptied = PartitionChangeRecord(UUID(int=1), 0, leader=NodeId(-1), isr=())  # type: ignore[arg-type]
    assert decode_record(encode_record(unchanged)) == unchanged
    assert decode_record(encode_record(emptied)) == emptied
    still_fenced = NodeChangeRecord(NodeId(1), NodeEpoch(2), draining=True)
    assert decode_record(encode_record(still_fenced)).fenced is None  # type: ignore[union-attr]


def test_a_control_batch_changes_nothing() -> None:
    data = control_batch(LeaderChange(NodeId(1), (), ()), timestamp=7, base_offset=40, leader_epoch=3)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.end, batch.leader_epoch, batch.records) == (40, 41, 3, ())


def test_a_kind_of_record_from_a_later_version_is_refused_by_that_name() -> None:
    with pytest.raises(UnsupportedVersion, match="newer version"):
        decode_record(bytes([0xFA, 0x3E, 0x00]))  # field 1007, empty
    with pytest.raises(UnsupportedVersion):
        decode_record(b"")


def test_a_feature_level_of_a_later_version_is_refused_by_that_name() -> None:
    """Its records may have fields that this version would pass over, to decide by the rest."""
    newest = ClusterRecord("cluster", features.LATEST)
    assert decode_record(encode_record(newest)) == newest
    with pytest.raises(UnsupportedVersion, match=f"feature level {features.LATEST + 1}"):
        decode_record(encode_record(replace(newest, feature_level=features.LATEST + 1)))


@given(st.binary(max_size=60))
def test_garbage_is_a_record_or_one_of_two_errors(data: bytes) -> None:
    with contextlib.suppress(CorruptLog, UnsupportedVersion):
        decode_record(data)


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(encode_batch([ClusterRecord("c", 1)], leader_epoch=LeaderEpoch(1), timestamp=Millis(1)))
    data[-2] ^= 1
    with pytest.raises(CorruptRecord):
        list(decode_batches(data))
