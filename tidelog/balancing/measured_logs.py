"""What nodes report of their logs, by partition: sizes, rates and log directories, of which a plan is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tidelog.balancing.dir_planner import Disk
from tidelog.balancing.move_planner import PlacedPartition
from tidelog.cluster_descriptions import ReplicaLogDir
from tidelog.types import NodeId, TopicPartition


class MeasuredLogs:
    """The reports of some nodes."""

    def __init__(self) -> None:
        self.sizes: dict[TopicPartition, int] = {}
        """Bytes of the largest replica."""
        self.log_dirs: dict[NodeId, tuple[str, ...]] = {}
        self.taking_dirs: dict[NodeId, tuple[str, ...]] = {}
        """The log directories that work and are not cordoned."""
        self.copies: dict[tuple[NodeId, TopicPartition], str] = {}
        """Where replicas move within their nodes."""
        self.cordoned: dict[NodeId, frozenset[str]] = {}
        self.disks: dict[NodeId, dict[str, Disk]] = {}
        """By the paths of the log directories."""
        self._written: Counter[TopicPartition] = Counter()
        self._read: Counter[TopicPartition] = Counter()
        self._places: dict[tuple[NodeId, TopicPartition], str] = {}

    def add(self, node: NodeId, directories: Sequence[ReplicaLogDir]) -> None:
        """Take in the report of one node."""
        self.log_dirs[node] = tuple(directory.path for directory in directories)
        self.cordoned[node] = frozenset(directory.path for directory in directories if directory.cordoned)
        self.taking_dirs[node] = tuple(each.path for each in directories if each.error is None and not each.cordoned)
        self.disks[node] = {each.path: Disk(each.total_bytes, each.usable_bytes) for each in directories}
        for directory in directories:
            for log in directory.logs:
                if log.is_future:
                    self.copies[node, log.partition] = directory.path
                    continue
                self.sizes[log.partition] = max(self.sizes.get(log.partition, 0), log.size)
                # Of all replicas: after an election the rates of the last leader fall as those of the next one rise.
                self._written[log.partition] += log.bytes_in_rate
                self._read[log.partition] += log.bytes_out_rate
                self._places[node, log.partition] = directory.path

    def placed(self, partition: TopicPartition, replicas: tuple[NodeId, ...]) -> PlacedPartition:
        """The partition with these replicas, as far as it was reported."""
        return PlacedPartition(
            partition,
            replicas,
            self.sizes.get(partition, 0),
            self.dirs_of(partition, replicas),
            self._written[partition],
            self._read[partition],
        )

    def dirs_of(self, partition: TopicPartition, replicas: Iterable[NodeId]) -> tuple[str, ...]:
        """The log directory of each replica, "" where it is unknown."""
        return tuple(self._places.get((node, partition), "") for node in replicas)
