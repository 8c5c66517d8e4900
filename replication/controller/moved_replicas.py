"""Replicas that moved to another log directory of their node, as the node reports with its heartbeats (KIP-858).

Invariant: a report is applied only to the state of the partition that the node knew when it made it: one that arrives
late, after another move of the replica, changes nothing. The node repeats it until the metadata name the directory.
A directory that failed since is named too: only then the replica is rated by it, and leaves its sets.
Not here: the move (node/replicas/directory_moves.py), directories that fail, and the elections that follow
(elections.py).
Source: Kafka's AssignReplicasToDirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replication.controller.image import ClusterImage, NodeRegistration
from replication.controller.metadata_records import LOST_DIRECTORY, PartitionChangeRecord
from tidelog.types import DirectoryId, PartitionEpoch, PartitionKey
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class MovedReplica:
    """A replica is in this log directory of its node. partition_epoch: of the state that names another one."""

    key: PartitionKey
    directory_id: DirectoryId
    partition_epoch: PartitionEpoch


def changes_of(
    image: ClusterImage, node: NodeRegistration, reported: Sequence[MovedReplica]
) -> Iterator[PartitionChangeRecord]:
    """The records that name the present directories of a node's replicas."""
    known = {each.directory_id for each in (*node.directories, *node.offline_directories)}
    for moved in reported:
        state = image.partition(moved.key)
        if state is None or node.node_id not in state.replicas or state.partition_epoch != moved.partition_epoch:
            continue
        present = state.directory_of(node.node_id)
        # LOST: its log is damaged, in whatever directory; naming one would make the replica electable.
        if moved.directory_id not in known or present in (moved.directory_id, LOST_DIRECTORY):
            continue
        directories = tuple(
            moved.directory_id if replica == node.node_id else directory
            for replica, directory in zip(state.replicas, state.directories, strict=True)
        )
        yield PartitionChangeRecord(state.topic_id, state.partition, directories=directories)
