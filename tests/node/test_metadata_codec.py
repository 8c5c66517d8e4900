"""Metadata records are encoded to the bytes of earlier versions and decoded to equal values; damaged bytes and bytes of
a newer version raise different errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from node.metadata.metadata_codec import decode_batches, decode_record, encode_batch, encode_record
from replication.controller import features
from replication.controller import metadata_records as metadata
from replication.controller.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ClusterRecord,
    DirectoryState,
    GroupConfigsRecord,
    MetadataRecord,
    NodeChangeRecord,
    NodeCordonRecord,
    NodeRegistrationRecord,
    NodeRemovalRecord,
    NodeStateSnapshot,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    SaslSecretRecord,
    ScramCredentialRecord,
    ScramCredentialRemovalRecord,
    TopicConfigsRecord,
    TopicRecord,
    TopicRemovalRecord,
    TopicSnapshotRecord,
    TopicSnapshotRemovalRecord,
    VotersRecord,
)
from replication.raft.voters import Voter
from tidelog.errors import CorruptLog, CorruptRecord, UnsupportedVersion
from tidelog.protocol.v1 import acl_pb2
from tidelog.protocol.v1 import metadata_records_pb2 as pb
from tidelog.records import LeaderChange, control_batch, stamp
from tidelog.security import acls
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.topic_snapshots import LeftOutProducer, SnapshotPartition, SnapshotTopic
from tidelog.types import (
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    PartitionIndex,
    QuotaEntity,
    QuotaValue,
    ScramMechanism,
    TopicId,
)

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "metadata-records.txt"
"""A record and its bytes in a line, written by the hand-written codec of an earlier version."""
CLASSES: dict[str, Any] = {
    **vars(metadata),
    **vars(acls),
    "LeftOutProducer": LeftOutProducer,
    "SnapshotPartition": SnapshotPartition,
    "SnapshotTopic": SnapshotTopic,
    "Endpoint": Endpoint,
    "ScramMechanism": ScramMechanism,
    "UUID": UUID,
    "QuotaEntity": QuotaEntity,
    "QuotaValue": QuotaValue,
}

ids = st.uuids()
numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
nodes = st.lists(st.integers(0, 1000), max_size=5, unique=True).map(tuple)
texts = st.text(max_size=20)
names = st.text("abcXYZ012_-", min_size=1, max_size=20)
listeners = st.dictionaries(texts, st.builds(Endpoint, texts, st.integers(0, 65535)), max_size=3)
directory_states = st.lists(st.builds(DirectoryState, ids, offsets), max_size=3).map(tuple)
directory_ids = st.lists(ids, max_size=3).map(tuple)
maybe_nodes = st.none() | nodes
bindings = st.builds(
    AclBinding,
    st.sampled_from(ResourceType),
    texts,
    st.sampled_from(PatternType),
    texts,
    texts,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
)
records: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(ClusterRecord, texts, st.integers(0, features.LATEST)),
    st.builds(VotersRecord, st.lists(st.builds(Voter, numbers, ids, listeners), max_size=3).map(tuple)),
    st.builds(
        NodeRegistrationRecord,
        numbers,
        ids,
        listeners,
        texts,
        st.binary(max_size=16),
        directory_states,
        st.none()
        | st.builds(NodeStateSnapshot, offsets, st.booleans(), st.booleans(), directory_states, directory_states),
    ),
    st.builds(NodeChangeRecord, numbers, offsets, st.none() | st.booleans(), st.none() | st.booleans(), directory_ids),
    st.builds(NodeRemovalRecord, numbers, offsets),
    st.builds(NodeCordonRecord, numbers, st.booleans(), directory_ids),
    st.builds(
        TopicSnapshotRecord,
        texts,
        st.uuids(),
        offsets,
        offsets,
        offsets,
        st.lists(
            st.builds(
                SnapshotTopic,
                ids,
                names,
                st.lists(
                    st.builds(
                        SnapshotPartition,
                        numbers,
                        offsets,
                        offsets,
                        numbers,
                        numbers,
                        st.lists(st.builds(LeftOutProducer, offsets, offsets), max_size=2).map(tuple),
                    ),
                    max_size=2,
                ).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(TopicSnapshotRemovalRecord, texts),
    st.builds(TopicRecord, names, ids, st.dictionaries(texts, texts, max_size=3)),
    st.builds(TopicConfigsRecord, ids, st.dictionaries(texts, texts, max_size=3)),
    st.builds(TopicRemovalRecord, ids),
    st.builds(AccessControlEntryRecord, bindings),
    st.builds(RemoveAccessControlEntryRecord, bindings),
    st.builds(ProducerIdsRecord, numbers, offsets, offsets),
    st.builds(
        ScramCredentialRecord,
        texts,
        st.sampled_from(ScramMechanism),
        st.binary(max_size=16),
        st.binary(max_size=64),
        st.binary(max_size=64),
        numbers,
    ),
    st.builds(ScramCredentialRemovalRecord, texts, st.sampled_from(ScramMechanism)),
    st.builds(SaslSecretRecord, st.binary(max_size=32)),
    st.builds(GroupConfigsRecord, texts, st.dictionaries(texts, texts, max_size=3)),
    st.builds(
        ClientQuotaRecord,
        st.builds(QuotaEntity, st.none() | texts, st.none() | texts),
        st.lists(st.builds(QuotaValue, texts, st.floats(allow_nan=False)), max_size=4).map(tuple),
    ),
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


@pytest.mark.parametrize("line", VECTORS.read_text(encoding="utf-8").splitlines(), ids=lambda line: line.split("(")[0])
def test_a_record_has_the_bytes_that_earlier_versions_wrote(line: str) -> None:
    written, data = line.rsplit(" = ", 1)
    record = eval(written, CLASSES)
    assert encode_record(record).hex() == data
    assert decode_record(bytes.fromhex(data)) == record


def test_the_vectors_name_every_kind_of_record() -> None:
    kinds = {line.split("(")[0] for line in VECTORS.read_text(encoding="utf-8").splitlines()}
    assert kinds == {record.__name__ for record in get_args(MetadataRecord)}


def mapped(value_type: Any, message: Descriptor) -> Iterator[tuple[Any, Descriptor]]:
    """The class and its message, and those of its fields."""
    yield value_type, message
    for field in message.fields:
        nested = None if field.message_type is None else CLASSES.get(field.message_type.name)
        if is_dataclass(nested):
            assert field.message_type is not None
            yield from mapped(nested, field.message_type)


def test_every_field_of_a_record_has_a_field_of_the_same_name_in_its_message() -> None:
    """The codec names no field: a new one needs a line in the dataclass and a line in the schema."""
    kinds = [field.message_type for field in pb.MetadataRecord.DESCRIPTOR.fields if field.message_type is not None]
    found = [pair for kind in kinds for pair in mapped(CLASSES[kind.name], kind)]
    assert {value_type for value_type, _ in found} == {
        *get_args(MetadataRecord),
        DirectoryState,
        NodeStateSnapshot,
        QuotaEntity,
        QuotaValue,
        Voter,
        AclBinding,
        SnapshotTopic,
        SnapshotPartition,
        LeftOutProducer,
    }
    for value_type, message in found:
        assert {field.name for field in fields(value_type)} == set(message.fields_by_name), message.name


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


def test_an_absent_list_differs_from_an_empty_one() -> None:
    """An absent in-sync set means unchanged; an empty one means that no replica is in sync."""
    topic_id = TopicId(UUID(int=1))
    unchanged = PartitionChangeRecord(topic_id, PartitionIndex(0), leader=NodeId(-1))
    emptied = replace(unchanged, isr=())
    assert decode_record(encode_record(unchanged)) == unchanged
    assert decode_record(encode_record(emptied)) == emptied
    still_fenced = NodeChangeRecord(NodeId(1), NodeEpoch(2), draining=True)
    assert decode_record(encode_record(still_fenced)) == still_fenced


@pytest.mark.parametrize("size", [0, 1, 15, 17])
def test_an_id_that_does_not_have_16_bytes_is_damage(size: int) -> None:
    raw = bytes(size)
    damaged = [
        pb.MetadataRecord(topic_removal=pb.TopicRemovalRecord(topic_id=raw)),
        pb.MetadataRecord(node_change=pb.NodeChangeRecord(offline_directories=[bytes(16), raw])),
        pb.MetadataRecord(partition_change=pb.PartitionChangeRecord(topic_id=bytes(16), directories=[raw])),
        pb.MetadataRecord(voters=pb.VotersRecord(voters=[pb.Voter(node_id=1, directory_id=raw)])),
    ]
    for message in damaged:
        with pytest.raises(CorruptLog, match="cannot be read"):
            decode_record(message.SerializeToString())


def test_an_acl_with_an_unknown_operation_is_damage() -> None:
    """The feature level says which operations there are."""
    binding = acl_pb2.AclBinding(resource_type=2, pattern_type=3, operation=99, permission=3)  # type: ignore[arg-type]
    message = pb.MetadataRecord(access_control_entry=pb.AccessControlEntryRecord(binding=binding))
    with pytest.raises(CorruptLog, match="99 is not a valid AclOperation"):
        decode_record(message.SerializeToString())


def test_a_credential_of_an_unknown_mechanism_is_damage() -> None:
    """The feature level says which mechanisms there are."""
    credential = pb.ScramCredentialRecord(name="alice", mechanism=99)  # type: ignore[arg-type]
    with pytest.raises(CorruptLog, match="99 is not a valid ScramMechanism"):
        decode_record(pb.MetadataRecord(scram_credential=credential).SerializeToString())


def test_a_control_batch_changes_nothing() -> None:
    data = control_batch(LeaderChange(NodeId(1), (), ()), timestamp=7, base_offset=40, leader_epoch=3)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.end, batch.leader_epoch, batch.records) == (40, 41, 3, ())


def test_a_kind_of_record_of_a_newer_version_is_an_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion, match="newer version"):
        decode_record(bytes([0xFA, 0x3E, 0x00]))  # field 1007, empty
    with pytest.raises(UnsupportedVersion):
        decode_record(b"")


def test_a_feature_level_of_a_newer_version_is_an_unsupported_version() -> None:
    """Its records may have fields that this version would ignore."""
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


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/cron.d/x", "/etc", "a\x00b", "a\nb", "x" * 250, "__cluster_metadata"]
)
def test_a_topic_that_would_choose_a_path_is_not_taken_from_a_faulty_controller(name: str) -> None:
    """Every node makes directories with the names of topics."""
    records = (TopicRecord(name, TopicId(UUID(int=1)), {}),)
    data = encode_batch(records, leader_epoch=LeaderEpoch(1), timestamp=Millis(1))
    with pytest.raises(CorruptLog, match="is not allowed: the controller"):
        list(decode_batches(data))
