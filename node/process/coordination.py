"""The coordinators of a node, wired to its replicas, metadata and listeners.

Not here: how a coordinator runs (node/coordinators/), what it decides (replication/coordination/).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from node.api.marker_requests import WriteTxnMarkersAnswer, WriteTxnMarkersRequest
from node.api.peers import Peers
from node.config import NodeConfig
from node.coordinator_settings import GroupSettings, TransactionSettings
from node.coordinators.coordinator_figures import CoordinatorFigures
from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.group_lag import GroupLag
from node.coordinators.internal_topics import InternalTopic, InternalTopics
from node.coordinators.member_streams import MemberStreams
from node.coordinators.object_remover import StoreCalls
from node.coordinators.re2_patterns import compile_pattern
from node.coordinators.remote_log_coordinators import RemoteLogCoordinators
from node.coordinators.runtime import CoordinatorRuntime
from node.coordinators.transactions.transaction_coordinators import TransactionCoordinators
from node.coordinators.transactions.transaction_location import TransactionLocation
from node.coordinators.waiting_members import WaitingMembers
from node.process.metadata_node import MetadataNode
from node.replicas.replica_manager import ReplicaManager
from node.requests.coordinator_handlers import CoordinatorHandlers, CoordinatorTopics
from node.requests.group_handlers import GroupHandlers
from node.requests.remote_log_handlers import RemoteLogHandlers
from node.requests.transaction_handlers import TransactionHandlers
from node.tiering.remote_log_client import RemoteLogClient
from node.tiering.remote_tier import RemoteTier
from replication.controller.image import MIN_INSYNC_REPLICAS, ClusterImage
from replication.coordination.classic_requests import LateAnswer
from replication.coordination.coordinator_machine import CoordinatorMachine
from replication.coordination.group_records import GROUP_RECORDS
from replication.coordination.group_requests import NudgeMembers
from tidelog.clock import Clock
from tidelog.types import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    PartitionIndex,
    ProducerId,
)


class NodeCoordinators:
    """The coordinators of one incarnation of a node."""

    def __init__(
        self,
        config: NodeConfig,
        metadata: MetadataNode,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        rng: random.Random,
        peers: Peers,
        call_soon: Callable[[Callable[[], None]], object],
        take_producer_id: Callable[[], Awaitable[ProducerId]],
        write_markers: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersAnswer]],
        store: StoreCalls | None = None,
        pause_ms: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        """call_soon: of the event loop. take_producer_id: an unused producer id. write_markers: appends markers to the
        partitions that this node leads. store: of the remote tier; None: this node has none.
        pause_ms: waits on a thread of its executor."""
        settings = config.coordinators
        self.streams, self.waiting = MemberStreams(), WaitingMembers()
        lease = metadata.registration.lease
        why_no_lease, no_lease_ms = lease.why_ended, lease.ended_ms
        topics = InternalTopics(metadata.metadata, metadata.create_topic)

        def image() -> ClusterImage:
            return metadata.image

        self.groups = CoordinatorRuntime(
            self._group_kind(settings.groups),
            replicas,
            clock=clock,
            call_soon=call_soon,
            why_no_lease=why_no_lease,
            commit_ms_max=settings.groups.commit_timeout_ms,
        )
        self.transactions = TransactionCoordinators(
            replicas,
            TransactionLocation(config.node_id, image, config.inter_listener),
            clock=clock,
            peers=peers,
            call_soon=call_soon,
            why_no_lease=why_no_lease,
            config=settings.transactions,
            verifies_batches=settings.transactions.verification,
            take_producer_id=take_producer_id,
            write_markers=write_markers,
        )
        self.remote_logs = RemoteLogCoordinators(
            replicas, clock=clock, image=image, call_soon=call_soon, why_no_lease=why_no_lease, store=store
        )
        client = RemoteLogClient(
            config.node_id,
            self.remote_logs,
            topics,
            config.tiering,
            image=image,
            listener=config.inter_listener,
            peers=peers,
        )
        self.tier = (
            None if store is None else RemoteTier(replicas, client, store, clock=clock, rng=rng, pause_ms=pause_ms)
        )
        """None: this node has no object store."""
        self._remote_starts, self._remote_pages = replicas.remote_starts, client.pages
        self.lag = GroupLag(
            self.groups, replicas, image=image, listener=config.inter_listener, clock=clock, peers=peers
        )
        created = CoordinatorTopics(_offsets_topic(settings.groups), _transactions_topic(settings.transactions))
        verifier = self.transactions.verifier
        groups = GroupHandlers(
            self.groups, topics, self.streams, self.waiting, verifier, no_lease_ms, image=image, clock=clock, rng=rng
        )
        self.services: Mapping[str, object] = {
            "Coordinators": CoordinatorHandlers(topics, created, image=image),
            "Groups": groups,
            "Transactions": TransactionHandlers(self.transactions, lambda: topics.ensure(created.groups)),
            "RemoteLogs": RemoteLogHandlers(self.remote_logs),
        }
        """The handlers, by service."""

    def _group_kind(self, settings: GroupSettings) -> CoordinatorSpec:
        def new_machine(_partition: PartitionIndex) -> CoordinatorMachine[Any, Any]:
            # With the first partition that the node leads: some 30 ms of the load, and 1 MiB that others do not need.
            from replication.coordination.groups.group_machine import GroupMachine

            return GroupMachine(settings, compile_pattern)

        def carry_out(partition: PartitionIndex, effect: object) -> None:
            match effect:
                case NudgeMembers(group_id, member_ids):
                    self.streams.nudge(partition, group_id, member_ids)
                case LateAnswer():
                    self.waiting.answered(partition, effect)
                case _:
                    raise AssertionError(f"groups have no effect {effect}")

        def unloaded(partition: PartitionIndex) -> None:
            self.streams.unloaded(partition)
            self.waiting.unloaded(partition)

        return CoordinatorSpec(
            "group",
            OFFSETS_TOPIC,
            new_machine,
            GROUP_RECORDS.encode,
            GROUP_RECORDS.decode,
            carry_out,
            unloaded,
        )

    def on_image(self, image: ClusterImage) -> None:
        """Let the coordinators see a new image."""
        self.groups.on_image(image)
        self.transactions.runtime.on_image(image)
        self.remote_logs.runtime.on_image(image)

    async def run(self) -> None:
        """Run the coordinators until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.groups.run(), name="group coordinators")
            tasks.create_task(self.transactions.run(), name="transaction coordinators")
            tasks.create_task(self.remote_logs.run(), name="remote log coordinators")
            if self.tier is not None:
                tasks.create_task(self.tier.run(), name="remote tier")
            if self._remote_starts is not None:
                tasks.create_task(self._remote_starts.run(self._remote_pages), name="remote starts")

    def figures(self) -> tuple[CoordinatorFigures, ...]:
        """The present state of the coordinators of each kind, for the metrics."""
        return self.groups.figures(), self.transactions.runtime.figures(), self.remote_logs.runtime.figures()


def _offsets_topic(settings: GroupSettings) -> InternalTopic:
    return InternalTopic(OFFSETS_TOPIC, settings.partitions, settings.replication_factor, settings.segment_bytes)


def _transactions_topic(settings: TransactionSettings) -> InternalTopic:
    return InternalTopic(
        TRANSACTIONS_TOPIC,
        settings.partitions,
        settings.replication_factor,
        settings.segment_bytes,
        {MIN_INSYNC_REPLICAS: str(settings.min_isr)},
    )
