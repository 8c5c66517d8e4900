"""The coordinators of remote segments of a node.

Not here: decisions (replication/coordination/tiering), loading and appending (node/coordinators/runtime.py), the
removal of objects (object_remover.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.internal_topics import coordinator_partition
from node.coordinators.object_remover import ObjectRemover, StoreCalls
from node.coordinators.runtime import CoordinatorRuntime
from node.replicas.replica_manager import ReplicaManager
from replication.controller.image import ClusterImage
from replication.coordination.coordinator_machine import CoordinatorMachine
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS, decode_to_replay
from replication.coordination.remote_log_requests import FollowRemoteLogs, ObjectsRemoved, RemoteSegmentsPages
from tidelog.clock import Clock
from tidelog.errors import InvalidRequest
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, PartitionIndex, PartitionKey


class RemoteLogCoordinators:
    """The coordinators of the remote segments whose partitions of `__remote_log_metadata` this node leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        call_soon: Callable[[Callable[[], None]], object],
        why_no_lease: Callable[[], str],
        store: StoreCalls | None,
    ) -> None:
        """call_soon, why_no_lease: see CoordinatorRuntime. store: None if this node has none."""
        self._image = image
        self._remover = ObjectRemover(store, clock=clock, report=self._report)
        kind = CoordinatorSpec(
            "remote log",
            REMOTE_LOG_METADATA_TOPIC,
            _new_machine,
            REMOTE_LOG_RECORDS.encode,
            decode_to_replay,
            self._remover.begin,
            self._remover.unloaded,
        )
        self.runtime = CoordinatorRuntime(kind, replicas, clock=clock, call_soon=call_soon, why_no_lease=why_no_lease)

    def _report(self, partition: PartitionIndex, removed: ObjectsRemoved) -> None:
        self.runtime.report(partition, removed)

    async def run(self) -> None:
        """Load coordinators and remove objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.runtime.run())
            tasks.create_task(self._remover.run())

    def partition_of(self, key: PartitionKey) -> PartitionIndex:
        """The partition of `__remote_log_metadata` for a partition. Raises CoordinatorNotAvailable: the topic does not
        exist yet."""
        return coordinator_partition(self._image(), REMOTE_LOG_METADATA_TOPIC, str(key))

    async def submit(self, key: PartitionKey, request: Any) -> Any:
        """The answer of the coordinator of a partition's segments. Raises as `CoordinatorRuntime.submit`, and
        CoordinatorNotAvailable if the topic does not exist."""
        return await self.runtime.submit(self.partition_of(key), request)

    async def follow(self, request: FollowRemoteLogs) -> RemoteSegmentsPages:
        """The answer of the coordinator of all these partitions. Raises as `submit`, and InvalidRequest: they have
        several."""
        found = {self.partition_of(each.key) for each in request.lists}
        if len(found) != 1:
            raise InvalidRequest(
                f"partitions with {len(found)} coordinators of remote segments are asked for at once: send one request "
                "to each"
            )
        pages: RemoteSegmentsPages = await self.runtime.submit(found.pop(), request)
        return pages


def _new_machine(_partition: PartitionIndex) -> CoordinatorMachine[Any, Any]:
    # With the first partition that the node leads: others do without its memory.
    from replication.coordination.tiering.remote_log_machine import RemoteLogMachine

    return RemoteLogMachine()
