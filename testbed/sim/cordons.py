"""The rule of cordons (KIP-1066): no replica is placed on a node, or in a log directory, that is cordoned."""

from __future__ import annotations

from collections.abc import Callable

from node.metadata.metadata_codec import decode_batches
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import NodeCordonRecord
from testbed.sim.ledger import Violation
from tidelog.types import NodeId


def hold(before: ClusterImage, after: ClusterImage, read: Callable[[], bytes]) -> None:
    """Judge the step from one image to the next that was seen. read: returns the metadata batches between the two."""
    both = [(node, before.nodes[node_id]) for node_id, node in after.nodes.items() if node_id in before.nodes]
    cordoned = {now.node_id for now, past in both if now.gets_no_replicas and past.gets_no_replicas}
    closed = {each for now, past in both for each in {*now.cordoned_directories} & {*past.cordoned_directories}}
    for topic in after.topics.values() if (cordoned or closed) and before.topics is not after.topics else ():
        for state in topic.partitions:
            old = before.partition(state.key)
            for node_id, directory in zip(state.replicas, state.directories, strict=True):
                is_new = old is None or node_id not in old.replicas
                # A leader of the quorum that was cut off commits much in one step: a cordon may have ended within it.
                if is_new and (node_id in cordoned or directory in closed) and not _changed(node_id, read()):
                    place = "which is" if node_id in cordoned else "in a log directory that is"
                    name = f"{topic.name}-{state.partition}"
                    raise Violation(f"{name} has a new replica on node {node_id}, {place} cordoned")


def _changed(node_id: NodeId, batches: bytes) -> bool:
    """Whether these batches have a record about the cordons of a node."""
    records = (record for batch in decode_batches(batches) for _, record in batch.records)
    return any(isinstance(record, NodeCordonRecord) and record.node_id == node_id for record in records)
