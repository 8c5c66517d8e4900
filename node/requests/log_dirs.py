"""The log directories of the cluster's nodes: free space and damaged logs, which are not in the metadata.

Invariants: a query waits at most `QUERY_MS` for each node; a node that does not answer is named, since its disks may be
full or damaged. Fenced nodes are not queried: the metadata shows that they are down.
Not here: when a directory rejects appends (storage/directory/reserve.py), texts for operators
(replication/controller/explain.py).
Source: Kafka's DescribeLogDirs (KIP-113, KIP-827).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from node.api.admin_requests import DamagedLog, DescribeLogDirsRequest, DescribeReplicaLogsRequest, LogDirState
from node.api.peers import Peers
from node.api.table import ADMIN_DESCRIBE_LOG_DIRS, ADMIN_DESCRIBE_REPLICA_LOGS
from node.replicas.directory_moves import lag_of
from node.replicas.replica_manager import ReplicaManager
from node.requests.cordoned_log_dirs import CordonedLogDirs
from replication.controller.explain import OnDisks
from replication.controller.image import ClusterImage
from storage.directory.log_directory import LogDirectory
from tidelog.balancing.measured_logs import MeasuredLogs
from tidelog.cluster_descriptions import ReplicaLog, ReplicaLogDir
from tidelog.errors import (
    InvalidReplicaAssignment,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    TidelogError,
)
from tidelog.types import METADATA_TOPIC, DirectoryId, Endpoint, NodeId, PartitionKey, TopicPartition

_log = logging.getLogger("node.log_dirs")

QUERY_MS: Final = 1_000
"""Timeout of a query to a node; short, because an operator waits."""

MEASURE_MS: Final = 10_000
"""Timeout of a query for all logs of a node: thousands, for a plan for which nobody waits."""


class LogDirs:
    """The log directories of this node, and queries for those of other nodes."""

    def __init__(self, me: NodeId, directories: Sequence[LogDirectory], peers: Peers, listener: str) -> None:
        """listener: the name of the listener between nodes."""
        self._me, self._directories, self._peers, self._listener = me, tuple(directories), peers, listener
        self.cordoned = CordonedLogDirs(me, self._directories)
        """The setting of this node."""
        self.replicas: ReplicaManager | None = None
        """None: the node is starting."""

    def own(self) -> tuple[LogDirState, ...]:
        """The directories of this node, in the order of its configuration."""
        return tuple(
            LogDirState(
                directory_id=directory.directory_id,
                path=directory.path,
                offline=directory.offline or "",
                usable_bytes=directory.reserve.free,
                reserve_bytes=directory.reserve.required,
                refusal=directory.reserve.rejection or "",
                damaged=tuple(DamagedLog(key, str(damage)) for key, damage in sorted(directory.damaged_logs().items())),
            )
            for directory in self._directories
        )

    def with_logs(self, wanted: Collection[TopicPartition] | None, image: ClusterImage) -> tuple[ReplicaLogDir, ...]:
        """The directories of this node with the logs of these partitions; None: of all. image: says which are
        cordoned. Those of them that this node has no more follow, with their ids as paths, by which they can be
        uncordoned."""
        named = None if wanted is None else set(wanted)
        node = image.nodes.get(self._me)
        cordoned = () if node is None else node.cordoned_directories
        present = (
            self._with_logs(directory, named, is_cordoned=directory.directory_id in cordoned)
            for directory in self._directories
        )
        return (*present, *(self._gone(each) for each in self.cordoned.gone(image)))

    def _gone(self, directory_id: DirectoryId) -> ReplicaLogDir:
        error = KafkaStorageError(
            f"it is cordoned, and not among the log directories that node {self._me} has: mount it, or end its cordon "
            f"(`tidelog node uncordon {self._me} --log-dir {directory_id}`)"
        )
        return ReplicaLogDir(str(directory_id), error, directory_id=directory_id, cordoned=True)

    def _with_logs(
        self, directory: LogDirectory, wanted: Collection[TopicPartition] | None, *, is_cordoned: bool
    ) -> ReplicaLogDir:
        if directory.offline is not None:
            offline = KafkaStorageError(f"{directory.path} is offline: {directory.offline}")
            return ReplicaLogDir(directory.path, offline, directory_id=directory.directory_id, cordoned=is_cordoned)
        logs = [
            ReplicaLog(
                partition,
                log.size,
                max(0, log.log_end_offset - log.high_watermark),
                bytes_in_rate=round(log.flow.in_rate),
                bytes_out_rate=round(log.flow.out_rate),
            )
            for partition, log in directory.logs.items()
            if partition.topic != METADATA_TOPIC
        ]
        logs += [
            ReplicaLog(partition, copy.size, lag_of(self._directories, copy), is_future=True)
            for partition, copy in directory.future_logs.items()
        ]
        shown = (each for each in logs if wanted is None or each.partition in wanted)
        room = directory.reserve
        return ReplicaLogDir(
            directory.path,
            None,
            tuple(sorted(shown, key=lambda each: each.partition)),
            room.total,
            room.free,
            directory.directory_id,
            is_cordoned,
        )

    def move(self, key: PartitionKey, name: str, path: str, image: ClusterImage) -> None:
        """Begin to move a replica of this node to a log directory of it. name: of the partition, for errors. Raises
        LogDirNotFound, InvalidReplicaAssignment for a cordoned directory, KafkaStorageError for one that is offline,
        ReplicaNotAvailable."""
        target = self._named(path)
        node, state = image.nodes.get(self._me), image.partition(key)
        replica = None if self.replicas is None else self.replicas.registry.by_key.get(key)
        if state is None or self._me not in state.replicas or replica is None or self.replicas is None:
            raise ReplicaNotAvailable(f"node {self._me} has no replica of {name}: ask a node that has one")
        is_new = target is not replica.directory
        if is_new and node is not None and target.directory_id in node.cordoned_directories:
            raise InvalidReplicaAssignment(
                f"{name} was not moved: log directory {target.path} of node {self._me} is cordoned; "
                f"`tidelog node uncordon {self._me} --log-dir {target.path}` ends that"
            )
        self.replicas.moves.move(replica, target)

    def _named(self, path: str) -> LogDirectory:
        wanted = path.rstrip("/") or "/"
        for directory in self._directories:
            if directory.path == wanted:
                return directory
        known = ", ".join(sorted(each.path for each in self._directories))
        raise LogDirNotFound(f"node {self._me} has no log directory {path!r}: name one of {known}")

    async def query(self, image: ClusterImage, nodes: Iterable[NodeId]) -> OnDisks:
        """The full directories and damaged logs that these nodes report. All nodes are queried at once."""
        full: dict[DirectoryId, str] = {}
        damaged: dict[tuple[NodeId, PartitionKey], str] = {}
        unanswered: list[NodeId] = []
        async with asyncio.TaskGroup() as querying:
            for node_id in sorted(set(nodes)):
                querying.create_task(self._collect(image, node_id, full, damaged, unanswered))
        return OnDisks(full, damaged, tuple(sorted(unanswered)))

    async def _collect(
        self,
        image: ClusterImage,
        node_id: NodeId,
        full: dict[DirectoryId, str],
        damaged: dict[tuple[NodeId, PartitionKey], str],
        unanswered: list[NodeId],
    ) -> None:
        answer = self.own() if node_id == self._me else await self._query(image, node_id)
        if answer is None:
            unanswered.append(node_id)
            return
        for state in answer:
            if state.refusal:
                full[state.directory_id] = state.refusal
            for log in state.damaged:
                damaged[node_id, log.key] = log.lost

    async def _query(self, image: ClusterImage, node_id: NodeId) -> Sequence[LogDirState] | None:
        """The directories of a node; empty if it is fenced, None if it does not answer."""
        endpoint = self._endpoint(image, node_id)
        if endpoint is None:
            return ()
        try:
            answer = await self._peers.call(
                endpoint, ADMIN_DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(), timeout_ms=QUERY_MS
            )
        except TidelogError as error:
            _log.info("node %d did not report its log directories: %s", node_id, error.message)
            return None
        return answer.log_dirs

    async def measured(self, image: ClusterImage) -> MeasuredLogs:
        """The logs of all nodes, with their sizes and rates, as far as nodes answer. All nodes are queried at once."""
        measured = MeasuredLogs()
        async with asyncio.TaskGroup() as querying:
            for node_id in sorted(image.nodes):
                querying.create_task(self._measure(image, node_id, measured))
        return measured

    async def _measure(self, image: ClusterImage, node_id: NodeId, measured: MeasuredLogs) -> None:
        if node_id == self._me:
            measured.add(node_id, self.with_logs(None, image))
            return
        endpoint = self._endpoint(image, node_id)
        if endpoint is None:
            return
        try:
            asked = DescribeReplicaLogsRequest(None)
            answer = await self._peers.call(endpoint, ADMIN_DESCRIBE_REPLICA_LOGS, asked, timeout_ms=MEASURE_MS)
        except TidelogError as error:
            _log.warning("node %d did not report the sizes of its logs: %s", node_id, error.message)
            return
        measured.add(node_id, answer.log_dirs)

    def _endpoint(self, image: ClusterImage, node_id: NodeId) -> Endpoint | None:
        """The address of a node; None if it is fenced."""
        node = image.nodes.get(node_id)
        return None if node is None or node.fenced else node.listeners.get(self._listener)
