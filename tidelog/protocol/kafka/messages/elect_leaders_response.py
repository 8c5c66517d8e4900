"""ElectLeadersResponse, versions 0 to 2. Generated from ElectLeadersResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class PartitionResult(Structure):
    """A structure of ElectLeadersResponse."""

    __slots__ = ("partition_id", "error_code", "error_message")
    __match_args__ = ("partition_id", "error_code", "error_message")

    def __init__(
        self,
        partition_id: int,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The partition id.
        self.partition_id: Final = partition_id
        # The result error, or zero if there was no error.
        self.error_code: Final = error_code
        # The result message, or null if there was no error.
        self.error_message: Final = error_message


class ReplicaElectionResult(Structure):
    """A structure of ElectLeadersResponse."""

    __slots__ = ("topic", "partition_result")
    __match_args__ = ("topic", "partition_result")

    def __init__(
        self,
        topic: str,
        partition_result: tuple[PartitionResult, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # The results for each partition.
        self.partition_result: Final = partition_result


class ElectLeadersResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "replica_election_results", "error_code")
    __match_args__ = ("throttle_time_ms", "replica_election_results", "error_code")

    def __init__(
        self,
        throttle_time_ms: int,
        replica_election_results: tuple[ReplicaElectionResult, ...],
        error_code: int = 0,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The election results, or an empty array if the requester did not have permission and the request asks for
        # all partitions.
        self.replica_election_results: Final = replica_election_results
        # The top level response error code.
        self.error_code: Final = error_code


def _write_partition_result_0(out: Output, value: PartitionResult) -> None:
    out += _w_ih(value.partition_id, value.error_code)
    write_string(out, value.error_message)


def _write_replica_election_result_0(out: Output, value: ReplicaElectionResult) -> None:
    write_string(out, value.topic)
    write_array(out, value.partition_result, write_length, _write_partition_result_0)


def _write_elect_leaders_response_0(out: Output, value: ElectLeadersResponse) -> None:
    if value.error_code != 0:
        raise inexpressible("ElectLeadersResponse.error_code")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.replica_election_results, write_length, _write_replica_election_result_0)


def _write_elect_leaders_response_1(out: Output, value: ElectLeadersResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.replica_election_results, write_length, _write_replica_election_result_0)


def _write_partition_result_2(out: Output, value: PartitionResult) -> None:
    out += _w_ih(value.partition_id, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_replica_election_result_2(out: Output, value: ReplicaElectionResult) -> None:
    write_compact_string(out, value.topic)
    write_array(out, value.partition_result, write_compact_length, _write_partition_result_2)
    out.append(0)


def _write_elect_leaders_response_2(out: Output, value: ElectLeadersResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.replica_election_results, write_compact_length, _write_replica_election_result_2)
    out.append(0)


ELECT_LEADERS_RESPONSE: Final = MessageCodec(
    ElectLeadersResponse,
    43,
    readers={},
    writers={
        0: _write_elect_leaders_response_0,
        1: _write_elect_leaders_response_1,
        2: _write_elect_leaders_response_2,
    },
    flexible_from=2,
)
