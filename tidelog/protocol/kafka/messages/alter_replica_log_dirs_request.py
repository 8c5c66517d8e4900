"""AlterReplicaLogDirsRequest, versions 1 to 2. Generated from AlterReplicaLogDirsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_numbers,
    read_string,
    skip_tags,
)
from tidelog.types import PartitionIndex


class AlterReplicaLogDirTopic(Structure):
    """A structure of AlterReplicaLogDirsRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partition indexes.
        self.partitions: Final = partitions


class AlterReplicaLogDir(Structure):
    """A structure of AlterReplicaLogDirsRequest."""

    __slots__ = ("path", "topics")
    __match_args__ = ("path", "topics")

    def __init__(
        self,
        path: str,
        topics: tuple[AlterReplicaLogDirTopic, ...],
    ) -> None:
        # The absolute directory path.
        self.path: Final = path
        # The topics to add to the directory.
        self.topics: Final = topics


class AlterReplicaLogDirsRequest(Structure):
    """The message."""

    __slots__ = ("dirs",)
    __match_args__ = ("dirs",)

    def __init__(
        self,
        dirs: tuple[AlterReplicaLogDir, ...],
    ) -> None:
        # The alterations to make for each directory.
        self.dirs: Final = dirs


def _read_alter_replica_log_dir_topic_1(data: Data, at: int) -> tuple[AlterReplicaLogDirTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return AlterReplicaLogDirTopic(name=name, partitions=partitions), at


def _read_alter_replica_log_dir_1(data: Data, at: int) -> tuple[AlterReplicaLogDir, int]:
    path, at = read_string(data, at)
    topics, at = read_array(data, at, read_length, _read_alter_replica_log_dir_topic_1)
    return AlterReplicaLogDir(path=path, topics=topics), at


def _read_alter_replica_log_dirs_request_1(data: Data, at: int) -> tuple[AlterReplicaLogDirsRequest, int]:
    dirs, at = read_array(data, at, read_length, _read_alter_replica_log_dir_1)
    return AlterReplicaLogDirsRequest(dirs=dirs), at


def _read_alter_replica_log_dir_topic_2(data: Data, at: int) -> tuple[AlterReplicaLogDirTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return AlterReplicaLogDirTopic(name=name, partitions=partitions), at


def _read_alter_replica_log_dir_2(data: Data, at: int) -> tuple[AlterReplicaLogDir, int]:
    path, at = read_compact_string(data, at)
    topics, at = read_array(data, at, read_compact_length, _read_alter_replica_log_dir_topic_2)
    at = skip_tags(data, at)
    return AlterReplicaLogDir(path=path, topics=topics), at


def _read_alter_replica_log_dirs_request_2(data: Data, at: int) -> tuple[AlterReplicaLogDirsRequest, int]:
    dirs, at = read_array(data, at, read_compact_length, _read_alter_replica_log_dir_2)
    at = skip_tags(data, at)
    return AlterReplicaLogDirsRequest(dirs=dirs), at


ALTER_REPLICA_LOG_DIRS_REQUEST: Final = MessageCodec(
    AlterReplicaLogDirsRequest,
    34,
    readers={1: _read_alter_replica_log_dirs_request_1, 2: _read_alter_replica_log_dirs_request_2},
    writers={},
    flexible_from=2,
)
