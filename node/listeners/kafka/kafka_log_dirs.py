"""DescribeLogDirs and AlterReplicaLogDirs of Kafka's protocol: the logs of the node that is asked, with their sizes,
and their moves between its directories.

Sources: KIP-113, KIP-827 (bytes of the volume), KIP-1066 (cordoned directories).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from node.api.admin_requests import (
    AlterReplicaLogDirsRequest,
    ChangedPartitions,
    DescribeReplicaLogsAnswer,
    DescribeReplicaLogsRequest,
    LogDirMove,
    TopicPartitionId,
)
from node.api.table import ADMIN_ALTER_REPLICA_LOG_DIRS, ADMIN_DESCRIBE_REPLICA_LOGS
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.cluster_descriptions import PartitionResult, ReplicaLog, ReplicaLogDir
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages import alter_replica_log_dirs_request as to_move
from tidelog.protocol.kafka.messages import describe_log_dirs_request as asked
from tidelog.protocol.kafka.messages.alter_replica_log_dirs_response import (
    ALTER_REPLICA_LOG_DIRS_RESPONSE,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.protocol.kafka.messages.describe_log_dirs_response import (
    DESCRIBE_LOG_DIRS_RESPONSE,
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.types import PartitionIndex, TopicPartition


def _read(message: asked.DescribeLogDirsRequest, _version: int) -> DescribeReplicaLogsRequest:
    if message.topics is None:
        return DescribeReplicaLogsRequest(None)
    partitions = (
        TopicPartition(topic.topic, PartitionIndex(each)) for topic in message.topics for each in topic.partitions
    )
    return DescribeReplicaLogsRequest(frozenset(partitions))


def _write(_message: object, answer: DescribeReplicaLogsAnswer, _version: int) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(0, tuple(map(_directory, answer.log_dirs)), NONE)


def _directory(directory: ReplicaLogDir) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        code_of(directory.error),
        directory.path,
        tuple(
            DescribeLogDirsTopic(topic, tuple(map(_log, logs)))
            for topic, logs in groupby(directory.logs, key=lambda each: each.partition.topic)
        ),
        directory.total_bytes,
        directory.usable_bytes,
        directory.cordoned,
    )


def _log(log: ReplicaLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(log.partition.partition, log.size, log.offset_lag, log.is_future)


def _refuse(_message: object, error: TidelogError, _version: int) -> DescribeLogDirsResponse:
    """Before version 3 the answer has no error: as in Kafka, it then has no directories."""
    return DescribeLogDirsResponse(0, (), code_of(error))


DESCRIBE_LOG_DIRS: Final = KafkaApi(
    range(1, 6),
    asked.DESCRIBE_LOG_DIRS_REQUEST,
    DESCRIBE_LOG_DIRS_RESPONSE,
    ADMIN_DESCRIBE_REPLICA_LOGS,
    _read,
    _write,
    _refuse,
)


# --- AlterReplicaLogDirs ---


def _read_moves(message: to_move.AlterReplicaLogDirsRequest, _version: int) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(tuple(_moves(message)))


def _moves(message: to_move.AlterReplicaLogDirsRequest) -> Iterable[LogDirMove]:
    return (
        LogDirMove(TopicPartitionId(topic.name, each), directory.path)
        for directory in message.dirs
        for topic in directory.topics
        for each in topic.partitions
    )


def _write_moved(_message: object, answer: ChangedPartitions, _version: int) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(0, _moved(answer.partitions))


def _moved(results: Iterable[PartitionResult]) -> tuple[AlterReplicaLogDirTopicResult, ...]:
    in_order = sorted(results, key=lambda each: each.partition)  # a topic may be named once for each directory
    return tuple(
        AlterReplicaLogDirTopicResult(
            topic,
            tuple(AlterReplicaLogDirPartitionResult(each.partition.partition, code_of(each.error)) for each in found),
        )
        for topic, found in groupby(in_order, key=lambda each: each.partition.topic)
    )


def _refuse_moves(
    message: to_move.AlterReplicaLogDirsRequest, error: TidelogError, _version: int
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(0, _moved(PartitionResult(each.partition, error) for each in _moves(message)))


ALTER_REPLICA_LOG_DIRS: Final = KafkaApi(
    range(1, 3),
    to_move.ALTER_REPLICA_LOG_DIRS_REQUEST,
    ALTER_REPLICA_LOG_DIRS_RESPONSE,
    ADMIN_ALTER_REPLICA_LOG_DIRS,
    _read_moves,
    _write_moved,
    _refuse_moves,
)
