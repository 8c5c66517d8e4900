"""The codecs of the Data service: every value survives the conversion, and malformed ids are refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.api import deletions, fetch, offsets, produce, producers
from node.api import marker_requests as markers
from node.api import remote_ranges as ranges
from node.api import snapshot_requests as snapshots
from node.api.api import Api
from node.api.table import (
    DATA_ABORT_TRANSACTION,
    DATA_DELETE_RECORDS,
    DATA_DESCRIBE_PRODUCERS,
    DATA_DESCRIBE_REMOTE_LOGS,
    DATA_FETCH,
    DATA_FETCH_STREAM,
    DATA_GET_REPLICA_LOG_INFO,
    DATA_INIT_PRODUCER_ID,
    DATA_LIST_OFFSETS,
    DATA_LOOK_AT_ENDS,
    DATA_OFFSET_FOR_LEADER_EPOCH,
    DATA_PRODUCE,
    DATA_PRODUCE_STREAM,
    DATA_WRITE_TXN_MARKERS,
)
from node.listeners.grpc import codecs
from node.listeners.grpc.codec import ApiCodec
from testbed.message_bytes import bytes_of
from tests.node.message_services import codecs_of
from tests.node.wires import CALLER, TOPIC, Cluster, batch, endpoint_of, fetch_request
from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import (
    InvalidRecord,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
    UnknownTopicId,
)
from tidelog.protocol import methods, status, wire
from tidelog.protocol.rpc import CallKind
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import AbortedStart, FetchAnswer, FetchedPartition, ProduceBatch, ProduceRequest
from tidelog.tiering.remote_segment import (
    CopyProgress,
    LostRemoteSegment,
    ObjectSection,
    RemoteSegment,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.topic_snapshots import LeftOutProducer, SnapshotPartition
from tidelog.types import (
    BatchReceipt,
    Durability,
    EpochEnd,
    EpochStart,
    Isolation,
    LeaderEpoch,
    NodeAddress,
    NodeId,
    Offset,
    RecordError,
)
from tidelog.types import Endpoint as Address

int32: Any = st.integers(-(2**31), 2**31 - 1)
int64: Any = st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=8)
uuids: Any = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
topic_ids = st.binary(min_size=16, max_size=16) | st.binary(max_size=20)
records = st.binary(max_size=100)
isolation = st.sampled_from(Isolation)
addresses = st.builds(NodeAddress, int32, st.builds(Address, text, st.integers(0, 65_535)), text, int32)
errors = st.builds(
    lambda kind, message, leader: kind(message, leader=leader),
    st.sampled_from([InvalidRequest, NotLeaderOrFollower, OffsetOutOfRange, UnknownTopicId]),
    text,
    st.none() | addresses,
)
rejected = st.builds(
    lambda message, found: InvalidRecord(message, record_errors=tuple(found)),
    text,
    st.lists(st.builds(RecordError, int32, text), max_size=3),
)
epoch_ends = st.builds(EpochEnd, int32, int64)


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3)


def tuples(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return lists(values).map(tuple)


snapshot_partitions = st.builds(
    SnapshotPartition, int32, int64, int64, int32, int32, tuples(st.builds(LeftOutProducer, int64, int64))
)
produce_requests = st.builds(
    ProduceRequest,
    int32,
    int32,
    lists(st.builds(ProduceBatch, topic_ids, int32, records, int32, int64)),
    text,
    int32,
    st.booleans(),
)
receipts = st.builds(
    BatchReceipt, uuids, int64, st.integers(0, 2**32 - 1), tuples(int32), tuples(int32), st.sampled_from(Durability)
)
produce_answers = st.builds(
    produce.ProduceAnswer,
    lists(
        st.builds(
            produce.ProducedBatch,
            st.none() | errors | rejected,
            int64,
            int64,
            int64,
            int32,
            st.booleans(),
            st.none() | receipts,
            int64,
        )
    ),
)
remote_segments = st.builds(
    RemoteSegment,
    uuids,
    uuids,
    int32,
    int64,
    int64,
    tuples(st.builds(EpochStart, int32, int64)),
    int64,
    int64,
    int32,
    int32,
    int64,
    st.sampled_from(RemoteSegmentState),
    tuples(st.builds(ObjectSection, st.sampled_from(SectionKind), int64, int64, st.integers(0, 2**32 - 1))),
)
fetches = st.builds(
    fetch.PartitionFetch, topic_ids, int32, int64, int32, int32, int64, int64, int32, st.booleans(), int64
)
positions = st.builds(fetch.DurablePosition, topic_ids, int32, int32, int64, int64)
consumers_fetches = st.builds(
    fetch.FetchRequest, st.none(), int32, int32, isolation, lists(fetches), lists(positions), text
)
followers_fetches = st.builds(
    fetch.FetchRequest,
    st.builds(fetch.FetchingReplica, int32, uuids),
    int32,
    int32,
    st.just(Isolation.READ_UNCOMMITTED),
    lists(fetches),
    lists(positions),
    text,
)
fetch_answers = st.builds(
    FetchAnswer,
    lists(
        st.builds(
            FetchedPartition,
            topic_ids,
            int32,
            int32,
            int64,
            int64,
            int64,
            st.none() | errors,
            st.none() | epoch_ends,
            tuples(st.builds(EpochStart, int32, int64)),
            tuples(st.builds(AbortedStart, int64, int64)),
            int32,
            st.booleans(),
            int64,
            records,
            int64,
            int64,
        )
    ),
    st.none(),
    st.integers(0, 1_000),
)
partition_ids = st.builds(markers.PartitionId, topic_ids, int32)
active_producers = st.builds(KnownProducer, int64, int32, int32, int64, int32, int64)
VALUES: dict[Api[Any, Any], tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    DATA_PRODUCE: (produce_requests, produce_answers),
    DATA_PRODUCE_STREAM: (produce_requests, produce_answers),
    DATA_FETCH: (consumers_fetches | followers_fetches, fetch_answers),
    DATA_FETCH_STREAM: (consumers_fetches | followers_fetches, fetch_answers),
    DATA_LIST_OFFSETS: (
        st.builds(
            offsets.ListOffsetsRequest,
            isolation,
            tuples(st.builds(offsets.ListOffsetsPartition, topic_ids, int32, int32, int64)),
        ),
        st.builds(
            offsets.ListOffsetsAnswer,
            tuples(st.builds(offsets.ListedOffset, topic_ids, int32, st.none() | errors, int64, int64, int32)),
        ),
    ),
    DATA_OFFSET_FOR_LEADER_EPOCH: (
        st.builds(
            offsets.OffsetForLeaderEpochRequest,
            tuples(st.builds(offsets.EpochQuestion, topic_ids, int32, int32, int32)),
        ),
        st.builds(
            offsets.OffsetForLeaderEpochAnswer,
            tuples(st.builds(offsets.EpochAnswer, topic_ids, int32, st.none() | errors, st.none() | epoch_ends)),
        ),
    ),
    DATA_GET_REPLICA_LOG_INFO: (
        st.builds(offsets.ReplicaLogInfoRequest, topic_ids, int32, int32),
        st.builds(offsets.ReplicaLogInfo, int32, int64, st.none() | uuids, text),
    ),
    DATA_LOOK_AT_ENDS: (
        st.builds(snapshots.LookAtEndsRequest, tuples(partition_ids), int64),
        st.builds(
            snapshots.LookAtEndsAnswer,
            tuples(
                st.builds(
                    snapshots.PartitionEnd,
                    topic_ids,
                    int32,
                    st.none() | errors,
                    int64,
                    st.booleans(),
                    st.none() | snapshot_partitions,
                )
            ),
        ),
    ),
    DATA_INIT_PRODUCER_ID: (
        st.builds(producers.InitProducerIdRequest, int64, int32),
        st.builds(producers.InitProducerIdAnswer, int64, int32),
    ),
    DATA_WRITE_TXN_MARKERS: (
        st.builds(
            markers.WriteTxnMarkersRequest,
            tuples(
                st.builds(markers.TransactionMarker, int64, int32, int32, st.booleans(), tuples(partition_ids), int32)
            ),
        ),
        st.builds(
            markers.WriteTxnMarkersAnswer,
            tuples(
                st.builds(
                    markers.WrittenMarker,
                    tuples(st.builds(markers.MarkedPartition, topic_ids, int32, st.none() | errors)),
                )
            ),
        ),
    ),
    DATA_DELETE_RECORDS: (
        st.builds(
            deletions.DeleteRecordsRequest,
            tuples(st.builds(deletions.PartitionDeletion, topic_ids, int32, int64)),
            int32,
        ),
        st.builds(
            deletions.DeleteRecordsAnswer,
            tuples(st.builds(deletions.DeletedRecords, topic_ids, int32, st.none() | errors, int64)),
        ),
    ),
    DATA_DESCRIBE_PRODUCERS: (
        st.builds(markers.DescribeProducersRequest, tuples(partition_ids)),
        st.builds(
            markers.DescribeProducersAnswer,
            tuples(
                st.builds(
                    markers.DescribedProducers,
                    topic_ids,
                    int32,
                    st.none() | errors,
                    int64,
                    tuples(active_producers),
                )
            ),
        ),
    ),
    DATA_DESCRIBE_REMOTE_LOGS: (
        st.builds(
            ranges.DescribeRemoteLogsRequest,
            tuples(st.builds(ranges.RemoteLogQuestion, topic_ids, int32, int32, int64, int64, st.booleans())),
        ),
        st.builds(
            ranges.DescribeRemoteLogsAnswer,
            tuples(
                st.builds(
                    ranges.DescribedRemoteLog,
                    topic_ids,
                    int32,
                    st.none() | errors,
                    tuples(remote_segments),
                    int64,
                    text,
                    tuples(st.builds(LostRemoteSegment, remote_segments, int64, int64)),
                    st.none() | st.builds(CopyProgress, int32, int64, text, int64),
                )
            ),
        ),
    ),
    DATA_ABORT_TRANSACTION: (
        st.builds(markers.AbortTransactionRequest, topic_ids, int32, int64, int32, int64),
        st.builds(markers.AbortTransactionAnswer),
    ),
}
DATA_CODECS = codecs_of("Data")
every_codec = pytest.mark.parametrize("codec", DATA_CODECS, ids=lambda codec: str(codec.api))


def codec_of(api: Api[Any, Any]) -> ApiCodec[Any, Any]:
    return codecs.codec_of(api.name)


def message_of(kind: type[Any], value: object) -> Any:
    """The slow twin of the codecs: a protobuf message, filled by the names of the fields."""
    generated = getattr(data_pb2, wire.name_of(kind))
    return generated(**_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case TidelogError():
            return status.to_proto(value)
        case UUID():
            return value.bytes
        case produce.ProducedBatch(error=TidelogError() as error):
            found = [{"index": each.index, "message": each.message} for each in error.record_errors]
            return {**_correlated(value, "batch_id"), "record_errors": found}
        case ProduceBatch() | produce.ProducedBatch():
            return _correlated(value, "batch_id")
        case fetch.PartitionFetch() | FetchedPartition():
            return _correlated(value, "fetch_id")
        case fetch.FetchRequest():  # messages limit single partitions only; sessions are those of Kafka's listener
            return _named(value, (name for name in value._fields if name not in ("max_bytes", "session")))
        case FetchAnswer():
            return _named(value, (name for name in value._fields if name != "session_id"))
        case BatchReceipt():
            named = _named(value, ("topic_id", "last_offset", "checksum", "replicas", "durable_replicas"))
            return {**named, "fsync": value.durability is Durability.FSYNC}
        case tuple() if hasattr(value, "_fields"):
            return _named(value, value._fields)
        case list() | tuple():
            return [_plain(each) for each in value]
        case _ if is_dataclass(value):
            return _named(value, (field.name for field in fields(value) if field.compare))
        case _:
            return value


def _correlated(value: Any, name: str) -> dict[str, Any]:
    """name: of the correlation id in the message."""
    return {
        name if field == "correlation_id" else field: plain for field, plain in _named(value, value._fields).items()
    }


def _named(value: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: plain for name in names if (plain := _plain(getattr(value, name))) is not None}


def test_every_rpc_of_the_service_has_a_codec_that_names_it() -> None:
    assert {codec.method for codec in DATA_CODECS} == set(methods.of_service(methods.DATA))
    assert [str(codec.api) for codec in DATA_CODECS] == [str(codec.method) for codec in DATA_CODECS]
    assert {codec.api for codec in DATA_CODECS} == set(VALUES)
    assert all(codec.api.is_stream is (codec.method.kind is CallKind.STREAM) for codec in DATA_CODECS)


@every_codec
@given(data=st.data())
def test_a_request_is_read_as_it_was_asked(codec: ApiCodec[Any, Any], data: st.DataObject) -> None:
    asked = data.draw(VALUES[codec.api][0])
    assert isinstance(asked, codec.api.asked)
    message = message_of(codec.method.request, asked)
    assert _plain(codec.decode(message.SerializeToString())) == _plain(asked)


@every_codec
@given(data=st.data())
def test_an_answer_is_written_as_it_was_given(codec: ApiCodec[Any, Any], data: st.DataObject) -> None:
    answered = data.draw(VALUES[codec.api][1])
    assert isinstance(answered, codec.api.answered)
    expected = message_of(codec.method.answer, answered)
    assert type(expected).FromString(codec.encode(answered, 0)) == expected


@pytest.mark.parametrize("api", [DATA_FETCH_STREAM, DATA_GET_REPLICA_LOG_INFO], ids=str)
@given(data=st.data())
def test_requests_between_nodes_are_decoded_as_sent(api: Api[Any, Any], data: st.DataObject) -> None:
    codec = codec_of(api)
    assert codec.write_request is not None
    asked, answered = data.draw(VALUES[api][0]), data.draw(VALUES[api][1])
    request = codec.method.request.FromString(codec.write_request(asked).SerializeToString())
    assert _plain(codec.decode(request.SerializeToString())) == _plain(asked)
    answer = wire.reader(codec.method.answer)(codec.encode(answered, 0))
    assert _plain(answer if codec.read_answer is None else codec.read_answer(answer)) == _plain(answered)


def test_records_are_passed_on_and_not_copied() -> None:
    large = bytes(100_000)
    data = bytes_of(ProduceRequest(-1, 0, [ProduceBatch(TOPIC.bytes, 0, large)]))
    [batch] = codec_of(DATA_PRODUCE).decode(data).partitions
    assert isinstance(batch.records, memoryview)
    assert batch.records.obj is data


def test_the_records_of_an_answer_are_copied_once_into_the_encoded_message() -> None:
    large = bytes(1_000_000)
    fetched = FetchedPartition(b"", 0, LeaderEpoch(3), Offset(1), Offset(1), Offset(0), records=large)
    encode = codec_of(DATA_FETCH).encode
    tracemalloc.start()
    try:
        written = encode(FetchAnswer([fetched]), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(large) < len(written) <= peak < 1.5 * len(large)


@given(incarnation=st.binary(max_size=40).filter(lambda raw: len(raw) != 16))
def test_a_replica_without_a_whole_incarnation_is_refused(incarnation: bytes) -> None:
    message = data_pb2.FetchRequest(replica=data_pb2.Replica(node_id=2, incarnation=incarnation))
    for api in (DATA_FETCH, DATA_FETCH_STREAM):
        with pytest.raises(InvalidRequest, match="node 2 fetches without an incarnation of 16 bytes"):
            codec_of(api).decode(message.SerializeToString())


def test_a_malformed_request_ends_its_stream_with_the_error_and_no_other() -> None:
    cluster = Cluster(1)
    cluster.set(leader=1)
    cluster.produce(1, batch(b"a"))
    malformed, sound = (
        cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_FETCH_STREAM)) for _ in range(2)
    )
    cluster.wait(malformed.send(data_pb2.FetchRequest(replica=data_pb2.Replica(node_id=2, incarnation=b"short"))))
    with pytest.raises(InvalidRequest, match="node 2 fetches without an incarnation of 16 bytes"):
        cluster.wait(malformed.receive())
    cluster.wait(sound.send(fetch_request(0)))
    assert [answer.correlation_id for answer in cluster.next(sound).partitions] == [1]
    cluster.close()


def test_an_unknown_isolation_level_is_refused() -> None:
    for api, message in (
        (DATA_FETCH, data_pb2.FetchRequest(isolation_level=7)),  # type: ignore[arg-type]
        (DATA_LIST_OFFSETS, data_pb2.ListOffsetsRequest(isolation_level=7)),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidRequest, match=r"^isolation level 7: it must be 0") as refused:
            codec_of(api).decode(message.SerializeToString())
        assert refused.value.message.endswith("or 1 (read_committed)")


def test_the_isolation_level_of_a_follower_has_no_effect() -> None:
    replica = data_pb2.Replica(node_id=2, incarnation=bytes(16))
    message = data_pb2.FetchRequest(replica=replica, isolation_level=7)  # type: ignore[arg-type]
    asked = codec_of(DATA_FETCH_STREAM).decode(message.SerializeToString())
    assert asked.replica == (NodeId(2), UUID(int=0))


def test_a_malformed_topic_id_refuses_its_entry_and_no_other() -> None:
    cluster = Cluster(1)
    cluster.set(leader=1)
    request = fetch_request(0)
    request.partitions.add(fetch_id=2, topic_id=b"short", partition=0, fetch_offset=0, current_leader_epoch=-1)
    answers = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
    by_id = {answer.correlation_id: answer.error for answer in answers}
    assert by_id[1] is None
    assert (type(by_id[2]), by_id[2].message) == (InvalidRequest, "a topic id has 16 bytes, 5 were sent")
    cluster.close()


def test_a_directory_id_of_another_length_is_no_answer() -> None:
    read = codec_of(DATA_GET_REPLICA_LOG_INFO).read_answer
    assert read is not None
    with pytest.raises(ValueError, match="16"):
        read(data_pb2.GetReplicaLogInfoResponse(directory_id=b"short"))
