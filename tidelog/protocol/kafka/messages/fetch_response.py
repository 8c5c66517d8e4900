"""FetchResponse, versions 4 to 18. Generated from FetchResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_records,
    write_string,
    write_tags,
)
from tidelog.types import LeaderEpoch, ProducerId

_w_u = Struct(">16s").pack
_w_i = Struct(">i").pack
_w_ihi = Struct(">ihi").pack
_w_ihqq = Struct(">ihqq").pack
_w_ihqqq = Struct(">ihqqq").pack
_w_ii = Struct(">ii").pack
_w_iq = Struct(">iq").pack
_w_qi = Struct(">qi").pack
_w_qq = Struct(">qq").pack


class EpochEndOffset(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("epoch", "end_offset")
    __match_args__ = ("epoch", "end_offset")

    def __init__(
        self,
        epoch: int,
        end_offset: int,
    ) -> None:
        # The largest epoch.
        self.epoch: Final = epoch
        # The end offset of the epoch.
        self.end_offset: Final = end_offset


_EPOCH_END_OFFSET = EpochEndOffset(-1, -1)


class LeaderIdAndEpoch(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("leader_id", "leader_epoch")
    __match_args__ = ("leader_id", "leader_epoch")

    def __init__(
        self,
        leader_id: int,
        leader_epoch: LeaderEpoch,
    ) -> None:
        # The ID of the current leader or -1 if the leader is unknown.
        self.leader_id: Final = leader_id
        # The latest known leader epoch.
        self.leader_epoch: Final = leader_epoch


_LEADER_ID_AND_EPOCH = LeaderIdAndEpoch(-1, LeaderEpoch(-1))


class SnapshotId(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("end_offset", "epoch")
    __match_args__ = ("end_offset", "epoch")

    def __init__(
        self,
        end_offset: int,
        epoch: int,
    ) -> None:
        # The end offset of the epoch.
        self.end_offset: Final = end_offset
        # The largest epoch.
        self.epoch: Final = epoch


_SNAPSHOT_ID = SnapshotId(-1, -1)


class AbortedTransaction(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("producer_id", "first_offset")
    __match_args__ = ("producer_id", "first_offset")

    def __init__(
        self,
        producer_id: ProducerId,
        first_offset: int,
    ) -> None:
        # The producer id associated with the aborted transaction.
        self.producer_id: Final = producer_id
        # The first offset in the aborted transaction.
        self.first_offset: Final = first_offset


class PartitionData(Structure):
    """A structure of FetchResponse."""

    __slots__ = (
        "partition_index",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "aborted_transactions",
        "records",
        "log_start_offset",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "preferred_read_replica",
    )
    __match_args__ = (
        "partition_index",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "aborted_transactions",
        "records",
        "log_start_offset",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "preferred_read_replica",
    )

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        aborted_transactions: tuple[AbortedTransaction, ...] | None,
        records: Data | None,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset = _EPOCH_END_OFFSET,
        current_leader: LeaderIdAndEpoch = _LEADER_ID_AND_EPOCH,
        snapshot_id: SnapshotId = _SNAPSHOT_ID,
        preferred_read_replica: int = -1,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The error code, or 0 if there was no fetch error.
        self.error_code: Final = error_code
        # The current high water mark.
        self.high_watermark: Final = high_watermark
        # The last stable offset (or LSO) of the partition. This is the last offset such that the state of all
        # transactional records prior to this offset have been decided (ABORTED or COMMITTED).
        self.last_stable_offset: Final = last_stable_offset
        # The aborted transactions.
        self.aborted_transactions: Final = aborted_transactions
        # The record data.
        self.records: Final = records
        # The current log start offset.
        self.log_start_offset: Final = log_start_offset
        # In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
        # indicates the largest epoch and its end offset such that subsequent records are known to diverge.
        self.diverging_epoch: Final = diverging_epoch
        # The current leader of the partition.
        self.current_leader: Final = current_leader
        # In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should
        # be used in the FetchSnapshot request.
        self.snapshot_id: Final = snapshot_id
        # The preferred read replica for the consumer to use on its next fetch request.
        self.preferred_read_replica: Final = preferred_read_replica


class FetchableTopicResponse(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("partitions", "topic", "topic_id")
    __match_args__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        partitions: tuple[PartitionData, ...],
        topic: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The topic partitions.
        self.partitions: Final = partitions
        # The topic name.
        self.topic: Final = topic
        # The unique topic ID.
        self.topic_id: Final = topic_id


class NodeEndpoint(Structure):
    """A structure of FetchResponse."""

    __slots__ = ("node_id", "host", "port", "rack")
    __match_args__ = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        rack: str | None,
    ) -> None:
        # The ID of the associated node.
        self.node_id: Final = node_id
        # The node's hostname.
        self.host: Final = host
        # The node's port.
        self.port: Final = port
        # The rack of the node, or null if it has not been assigned to a rack.
        self.rack: Final = rack


class FetchResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "responses", "error_code", "session_id", "node_endpoints")
    __match_args__ = ("throttle_time_ms", "responses", "error_code", "session_id", "node_endpoints")

    def __init__(
        self,
        throttle_time_ms: int,
        responses: tuple[FetchableTopicResponse, ...],
        error_code: int = 0,
        session_id: int = 0,
        node_endpoints: tuple[NodeEndpoint, ...] = (),
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The response topics.
        self.responses: Final = responses
        # The top level response error code.
        self.error_code: Final = error_code
        # The fetch session ID, or 0 if this is not part of a fetch session.
        self.session_id: Final = session_id
        # Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
        # FENCED_LEADER_EPOCH.
        self.node_endpoints: Final = node_endpoints


def _write_aborted_transaction_4(out: Output, value: AbortedTransaction) -> None:
    out += _w_qq(value.producer_id, value.first_offset)


def _write_partition_data_4(out: Output, value: PartitionData) -> None:
    if value.diverging_epoch is not _EPOCH_END_OFFSET and value.diverging_epoch != _EPOCH_END_OFFSET:
        raise inexpressible("PartitionData.diverging_epoch")
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionData.current_leader")
    if value.snapshot_id is not _SNAPSHOT_ID and value.snapshot_id != _SNAPSHOT_ID:
        raise inexpressible("PartitionData.snapshot_id")
    if value.preferred_read_replica != -1:
        raise inexpressible("PartitionData.preferred_read_replica")
    out += _w_ihqq(value.partition_index, value.error_code, value.high_watermark, value.last_stable_offset)
    write_array(out, value.aborted_transactions, write_length, _write_aborted_transaction_4)
    write_records(out, value.records, write_length)


def _write_fetchable_topic_response_4(out: Output, value: FetchableTopicResponse) -> None:
    write_string(out, value.topic)
    write_array(out, value.partitions, write_length, _write_partition_data_4)


def _write_fetch_response_4(out: Output, value: FetchResponse) -> None:
    if value.session_id != 0:
        raise inexpressible("FetchResponse.session_id")
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_length, _write_fetchable_topic_response_4)


def _write_partition_data_5(out: Output, value: PartitionData) -> None:
    if value.diverging_epoch is not _EPOCH_END_OFFSET and value.diverging_epoch != _EPOCH_END_OFFSET:
        raise inexpressible("PartitionData.diverging_epoch")
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionData.current_leader")
    if value.snapshot_id is not _SNAPSHOT_ID and value.snapshot_id != _SNAPSHOT_ID:
        raise inexpressible("PartitionData.snapshot_id")
    if value.preferred_read_replica != -1:
        raise inexpressible("PartitionData.preferred_read_replica")
    out += _w_ihqqq(
        value.partition_index, value.error_code, value.high_watermark, value.last_stable_offset, value.log_start_offset
    )
    write_array(out, value.aborted_transactions, write_length, _write_aborted_transaction_4)
    write_records(out, value.records, write_length)


def _write_fetchable_topic_response_5(out: Output, value: FetchableTopicResponse) -> None:
    write_string(out, value.topic)
    write_array(out, value.partitions, write_length, _write_partition_data_5)


def _write_fetch_response_5(out: Output, value: FetchResponse) -> None:
    if value.session_id != 0:
        raise inexpressible("FetchResponse.session_id")
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_length, _write_fetchable_topic_response_5)


def _write_fetch_response_7(out: Output, value: FetchResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.session_id)
    write_array(out, value.responses, write_length, _write_fetchable_topic_response_5)


def _write_partition_data_11(out: Output, value: PartitionData) -> None:
    if value.diverging_epoch is not _EPOCH_END_OFFSET and value.diverging_epoch != _EPOCH_END_OFFSET:
        raise inexpressible("PartitionData.diverging_epoch")
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionData.current_leader")
    if value.snapshot_id is not _SNAPSHOT_ID and value.snapshot_id != _SNAPSHOT_ID:
        raise inexpressible("PartitionData.snapshot_id")
    out += _w_ihqqq(
        value.partition_index, value.error_code, value.high_watermark, value.last_stable_offset, value.log_start_offset
    )
    write_array(out, value.aborted_transactions, write_length, _write_aborted_transaction_4)
    out += _w_i(value.preferred_read_replica)
    write_records(out, value.records, write_length)


def _write_fetchable_topic_response_11(out: Output, value: FetchableTopicResponse) -> None:
    write_string(out, value.topic)
    write_array(out, value.partitions, write_length, _write_partition_data_11)


def _write_fetch_response_11(out: Output, value: FetchResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.session_id)
    write_array(out, value.responses, write_length, _write_fetchable_topic_response_11)


def _write_aborted_transaction_12(out: Output, value: AbortedTransaction) -> None:
    out += _w_qq(value.producer_id, value.first_offset)
    out.append(0)


def _write_epoch_end_offset_12(out: Output, value: EpochEndOffset) -> None:
    out += _w_iq(value.epoch, value.end_offset)
    out.append(0)


def _write_leader_id_and_epoch_12(out: Output, value: LeaderIdAndEpoch) -> None:
    out += _w_ii(value.leader_id, value.leader_epoch)
    out.append(0)


def _write_snapshot_id_12(out: Output, value: SnapshotId) -> None:
    out += _w_qi(value.end_offset, value.epoch)
    out.append(0)


def _write_partition_data_12(out: Output, value: PartitionData) -> None:
    out += _w_ihqqq(
        value.partition_index, value.error_code, value.high_watermark, value.last_stable_offset, value.log_start_offset
    )
    write_array(out, value.aborted_transactions, write_compact_length, _write_aborted_transaction_12)
    out += _w_i(value.preferred_read_replica)
    write_records(out, value.records, write_compact_length)
    tags: list[tuple[int, Output]] = []
    if value.diverging_epoch is not _EPOCH_END_OFFSET and value.diverging_epoch != _EPOCH_END_OFFSET:
        tagged = Output()
        _write_epoch_end_offset_12(tagged, value.diverging_epoch)
        tags.append((0, tagged))
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        tagged = Output()
        _write_leader_id_and_epoch_12(tagged, value.current_leader)
        tags.append((1, tagged))
    if value.snapshot_id is not _SNAPSHOT_ID and value.snapshot_id != _SNAPSHOT_ID:
        tagged = Output()
        _write_snapshot_id_12(tagged, value.snapshot_id)
        tags.append((2, tagged))
    write_tags(out, tags)


def _write_fetchable_topic_response_12(out: Output, value: FetchableTopicResponse) -> None:
    write_compact_string(out, value.topic)
    write_array(out, value.partitions, write_compact_length, _write_partition_data_12)
    out.append(0)


def _write_fetch_response_12(out: Output, value: FetchResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.session_id)
    write_array(out, value.responses, write_compact_length, _write_fetchable_topic_response_12)
    out.append(0)


def _write_fetchable_topic_response_13(out: Output, value: FetchableTopicResponse) -> None:
    out += _w_u(value.topic_id.bytes)
    write_array(out, value.partitions, write_compact_length, _write_partition_data_12)
    out.append(0)


def _write_fetch_response_13(out: Output, value: FetchResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("FetchResponse.node_endpoints")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.session_id)
    write_array(out, value.responses, write_compact_length, _write_fetchable_topic_response_13)
    out.append(0)


def _write_node_endpoint_16(out: Output, value: NodeEndpoint) -> None:
    out += _w_i(value.node_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    write_compact_string(out, value.rack)
    out.append(0)


def _write_fetch_response_16(out: Output, value: FetchResponse) -> None:
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.session_id)
    write_array(out, value.responses, write_compact_length, _write_fetchable_topic_response_13)
    tags: list[tuple[int, Output]] = []
    if value.node_endpoints != ():
        tagged = Output()
        write_array(tagged, value.node_endpoints, write_compact_length, _write_node_endpoint_16)
        tags.append((0, tagged))
    write_tags(out, tags)


FETCH_RESPONSE: Final = MessageCodec(
    FetchResponse,
    1,
    readers={},
    writers={
        4: _write_fetch_response_4,
        5: _write_fetch_response_5,
        6: _write_fetch_response_5,
        7: _write_fetch_response_7,
        8: _write_fetch_response_7,
        9: _write_fetch_response_7,
        10: _write_fetch_response_7,
        11: _write_fetch_response_11,
        12: _write_fetch_response_12,
        13: _write_fetch_response_13,
        14: _write_fetch_response_13,
        15: _write_fetch_response_13,
        16: _write_fetch_response_16,
        17: _write_fetch_response_16,
        18: _write_fetch_response_16,
    },
    flexible_from=12,
)
