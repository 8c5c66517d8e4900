"""The part of a plan that moves replicas between the log directories of their nodes (KIP-113).

Not here: the moves themselves, which the nodes carry out and begin again after a restart (node/replicas/).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.client.admin import Admin
from tidelog.clock import Clock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import ReplicaNotAvailable, TidelogError
from tidelog.types import NodeId, TopicPartition

_TRIES_MAX: Final = 20
_PAUSE_MS: Final = 500
"""As in Kafka's tool, a replica that was just added gets ten seconds until its node has its log."""


async def begin_log_dir_moves(
    admin: Admin, wanted: Mapping[NodeId, Mapping[TopicPartition, str]], clock: Clock
) -> tuple[int, list[PartitionResult]]:
    """Begin to move the replicas of each node to these log directories. Returns how many have begun, or are there
    already, and the results of the others."""
    begun, refused = 0, []
    for node, places in sorted(wanted.items()):
        left = dict(places)
        for attempt in range(_TRIES_MAX):
            outcomes = await _outcomes(admin, node, left)
            waits = [each for each in outcomes if isinstance(each.error, ReplicaNotAvailable)]
            begun += sum(each.error is None for each in outcomes)
            refused += [each for each in outcomes if each.error is not None and each not in waits]
            left = {each.partition: left[each.partition] for each in waits}
            if not left:
                break
            if attempt == _TRIES_MAX - 1:
                refused += waits
            else:
                await clock.sleep_ms(_PAUSE_MS)
    return begun, refused


async def _outcomes(admin: Admin, node: NodeId, places: Mapping[TopicPartition, str]) -> list[PartitionResult]:
    named: dict[TopicPartition | tuple[str, int], str] = dict(places.items())
    try:
        return await admin.move_replicas(node, named)
    except TidelogError as error:
        return [PartitionResult(each, error) for each in places]
