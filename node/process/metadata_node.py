"""The metadata side of a node: its replica of the metadata log, as voter or observer, the controller, its membership.

`node.py` provides directories, clock, random numbers and transport.

Start: the services answer first, because other nodes query whether this directory belongs to a cluster. `run_quorum`
forms the cluster, leads or fetches, while the partitions' logs are recovered. Then `registration` registers the node.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from node.api.admin_requests import CreateTopicsRequest
from node.api.peers import Peers
from node.api.table import ADMIN_CREATE_TOPICS, CONTROLLER_ALLOCATE_PRODUCER_IDS, CONTROLLER_ALTER_PARTITION
from node.config import NodeConfig
from node.controller.cluster_formation import ClusterFormation
from node.controller.controller_driver import ControllerDriver
from node.controller.controller_handlers import ControllerHandlers
from node.controller.node_registration import Identity, Registration
from node.controller.process_watch import ProcessWatch
from node.controller.rebalancer import Rebalancer
from node.controller.snapshot_expiry import remove_expired_snapshots
from node.metadata.metadata_log import MetadataLog
from node.observability.metric_sources import ControllerFigures, QuorumFigures
from node.quorum.addresses import QuorumAddresses
from node.quorum.driver import QuorumDriver
from node.quorum.fetcher import QuorumFetcher
from node.quorum.handlers import QuorumHandlers
from node.quorum.state import QuorumView, new_cluster_id, note_lost
from node.replicas.replica_manager import ReplicaManager
from node.requests.admin_handlers import AdminHandlers
from node.requests.controller_client import ControllerClient
from node.requests.described_quorum import DescribedQuorum
from node.requests.gate import Gate
from node.requests.log_dirs import LogDirs
from node.requests.node_settings import node_settings
from node.requests.topic_creation import TopicCreation
from node.requests.topic_settings import TopicSettings
from node.requests.topic_snapshot_handlers import SnapshotTaker
from node.runtime.work import run_in
from node.security.authorizer import AuditTrail
from replication.controller.controller import Controller, ControllerConfig
from replication.controller.events import (
    AllocateProducerIds,
    AlteredPartitions,
    AlterPartition,
    ChangedTopic,
    CreateTopic,
    ProducerIdBlock,
)
from replication.controller.image import ClusterImage
from replication.controller.partition_limits import PartitionLimits
from replication.controller.sessions import lease_ms
from replication.coordination.groups.group_times import valid_group_configs
from replication.raft.timeouts import QuorumTimes
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from storage.directory.log_directory import LogDirectory
from storage.files.disk_executor import Executor
from storage.files.file_system import Files
from storage.log.log import Log
from tidelog.clock import Clock
from tidelog.errors import CorruptLog, DiskFull, NodeNotAvailable
from tidelog.types import Endpoint, Incarnation, Millis, NodeId

_log = logging.getLogger("node.metadata")

ALTER_PARTITION_MS: Final = 3_000
ALLOCATE_MS: Final = 3_000
CREATE_TOPIC_MS: Final = 10_000

SNAPSHOT_AGAIN_MS: Final = 10_000
"""Pause before the next attempt after a snapshot failed on a full disk."""

REVIEW_MS: Final = 1_000
"""Interval of the reviews of the voter set. A replica that fetched within that time counts as running."""


class MetadataNode:
    """One incarnation of a node, as the metadata quorum and the controller see it."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity,
        directories: Sequence[tuple[LogDirectory, Executor]],
        log: Log,
        *,
        quorum: Executor,
        files: Files,
        clock: Clock,
        rng: random.Random,
        peers: Peers,
        planner: Executor | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        """directories: the log directories, each with its writer; the first one contains the metadata log. log: from
        `metadata_log.open_log`. quorum: runs the fsyncs of the metadata log and of the vote. planner: plans moves that
        no command asks for; None: there are none. audit: as in `ControllerClient`. Raises CorruptLog,
        UnsupportedVersion, KafkaStorageError.
        """
        self._config, self._identity = config, identity
        self._directories, self._home = tuple(directories), directories[0][0]
        self._clock, self._rng, self._peers, self._executor, self._planner = clock, rng, peers, quorum, planner
        node_id = identity.node_id
        settings = TopicSettings(config.log_defaults, has_store=bool(config.tiering))
        # Log, quorum, controller, watch and registration call each other: a lambda finds what is made after it.
        self.metadata = MetadataLog(
            log,
            clock=clock,
            executor=quorum,
            snapshot_bytes=config.quorum.snapshot_bytes,
            on_moved=lambda: self._quorum.log_moved(),
            on_full=lambda error: self._quorum.refused(error),
        )
        self.view = QuorumView(
            node_id, silence_ms=lambda: self._quorum.silence_ms(), unconfirmed_ms=lambda: self._quorum.unconfirmed_ms()
        )
        self._addresses = QuorumAddresses(
            node_id,
            own=identity.listeners[config.controller_listener],
            nodes=config.quorum.nodes,
            metadata=self.metadata,
            listener=config.controller_listener,
        )
        self.controller = self._new_controller(settings)
        self._quorum = self._new_quorum(files)
        self.watch = ProcessWatch(
            self.view,
            self.metadata,
            listeners=(config.inter_listener, config.controller_listener),
            clock=clock,
            peers=peers,
            on_refused=lambda: self.registration.beat_soon(),
            on_leader_refused=self._quorum.leader_refused,
        )
        own = [directory for directory, _ in self._directories]
        self._log_dirs = LogDirs(node_id, own, peers, config.inter_listener)
        handlers = ControllerHandlers(self.controller, settings, self._lease_ms)
        self.client = ControllerClient(
            self.view, Gate("Controller", handlers), self._addresses.of_voters, clock=clock, peers=peers, audit=audit
        )
        self.registration = Registration(
            identity,
            self._directories,
            self.metadata,
            self.client,
            clock=clock,
            times=config.replication,
            refused=lambda: self.watch.refused,
            probe=self.watch.probe,
        )
        self.services: Mapping[str, object] = {
            "Quorum": QuorumHandlers(
                self._quorum, self.metadata, self.view, identity.incarnation, clock=clock, cluster_id=self._own_cluster
            ),
            "Controller": handlers,
            "Admin": self._new_admin(settings),
        }
        """The handlers of the services, by name."""

    def serve_moves(self, replicas: ReplicaManager) -> None:
        """Let requests move replicas between log directories, and heartbeats report the moves."""
        self._log_dirs.replicas = replicas
        self.registration.moved = replicas.moves.to_report
        replicas.moves.report_soon = self.registration.beat_soon

    def _new_admin(self, settings: TopicSettings) -> AdminHandlers:
        return AdminHandlers(
            self.metadata,
            self.view,
            self.client,
            settings,
            self._log_dirs,
            self._config.authorizer,
            node_settings(self._config),
            TopicCreation(self._config.topics),
            DescribedQuorum(self._quorum, self.metadata, self.view, clock=self._clock, peers=self._peers),
            SnapshotTaker(
                self.metadata,
                self.client,
                peers=self._peers,
                listener=self._config.inter_listener,
                clock=self._clock,
                rng=self._rng,
            ),
        )

    def _new_controller(self, settings: TopicSettings) -> ControllerDriver:
        return ControllerDriver(
            Controller(
                rng=self._rng,
                check_configs=settings.check,
                valid_group_configs=partial(valid_group_configs, self._config.coordinators.groups),
                config=_controller_config(self._config),
            ),
            self.metadata,
            self.view,
            self._identity.node_id,
            self._identity.incarnation,
            listener=self._config.inter_listener,
            clock=self._clock,
            peers=self._peers,
            on_refused=lambda error: self._quorum.refused(error),
            on_probe=lambda node: self.watch.probe(node),
        )

    def _new_quorum(self, files: Files) -> QuorumDriver:
        return QuorumDriver(
            ReplicaKey(self._identity.node_id, self._home.directory_id),
            self.metadata,
            self.view,
            self._addresses,
            times=QuorumTimes(),
            files=files,
            executor=self._executor,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            on_lead=self.controller.activate,
            on_resign=self.controller.resign,
        )

    def _lease_ms(self) -> Millis:
        """The lease of a node whose heartbeat this controller acknowledges now; 0 if it is no longer the leader."""
        times, unconfirmed_ms = self._config.replication, self.view.unconfirmed_ms()
        return Millis(0) if unconfirmed_ms is None else lease_ms(times.session_ms, times.heartbeat_ms, unconfirmed_ms)

    def _own_cluster(self) -> str | None:
        return self._home.identity.cluster_id

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self.metadata.image

    def quorum_figures(self) -> QuorumFigures:
        """The quorum, for metrics."""
        core, end = self._quorum.core, self.metadata.end
        lag: dict[str, int] = {}
        if core is not None and core.leads:
            others = (each for each in self.metadata.voters if each.node_id != self._identity.node_id)
            for voter in others:
                position = core.positions.get(ReplicaKey(voter.node_id, voter.directory_id))
                # One that has not fetched in this epoch has confirmed nothing: it may be down since before.
                lag[str(voter.node_id)] = end if position is None else max(0, end - position.durable_offset)
        return QuorumFigures(
            self.view.leader_id,
            self.view.leader_epoch,
            end,
            self.metadata.high_watermark,
            self._quorum.silence_ms(),
            len(self.metadata.voters),
            core is not None and core.is_voter,
            lag,
        )

    def controller_figures(self) -> ControllerFigures:
        """The controller of this process, for metrics."""
        driver = self.controller
        return ControllerFigures(
            driver.unclean_elections,
            driver.fencings,
            driver.elections,
            driver.request_times,
            driver.waiting,
            driver.oldest_ms,
        )

    async def alter_partition(self, proposals: AlterPartition) -> AlteredPartitions:
        """Pass a leader's proposals to the active controller."""
        return await self.client.call(CONTROLLER_ALTER_PARTITION, proposals, timeout_ms=ALTER_PARTITION_MS)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids for this node to assign. Raises NodeNotAvailable before it is registered."""
        number = self.registration.node_epoch
        if number < 0:
            raise NodeNotAvailable("the node has no producer ids, because it is not registered yet: use another node")
        asked = AllocateProducerIds(self._identity.node_id, number)
        return await self.client.call(CONTROLLER_ALLOCATE_PRODUCER_IDS, asked, timeout_ms=ALLOCATE_MS)

    async def create_topic(self, request: CreateTopic) -> ChangedTopic:
        """Create an internal topic. Raises TopicExists, InvalidReplicationFactor, NotController, RequestTimedOut."""
        asked = CreateTopicsRequest((request,))
        [created] = (await self.client.forward(ADMIN_CREATE_TOPICS, asked, timeout_ms=CREATE_TOPIC_MS)).topics
        return created

    async def run_quorum(self) -> None:
        """Take part in the quorum as voter or observer until cancelled. Forms the cluster first if so configured.

        Raises InconsistentClusterId if no cluster may be formed, CorruptLog, KafkaStorageError.
        """
        await self._discard_damaged_log()
        form = None
        if self._config.quorum.bootstrap and not self.metadata.voters:
            form = await self._form_cluster()
        elif not self.metadata.voters and not self._home.identity.cluster_id:
            _log.info(
                "this node belongs to no cluster: it joins the one that %s form. Exactly one node must have "
                "cluster.bootstrap.enable = true, or its number in cluster.bootstrap.node.id; this one has neither",
                ", ".join(map(str, self._config.quorum.nodes)),
            )
        fetcher = QuorumFetcher(
            self._quorum,
            self.metadata,
            self._addresses,
            adopt=self._adopt,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quorum.run(cluster_id=lambda: self._home.identity.cluster_id or "", form=form))
            tasks.create_task(fetcher.run(self._home.identity.cluster_id))
            tasks.create_task(self.watch.run())
            tasks.create_task(self._review_voters())
            if self._planner is not None:
                delay_ms = self._config.replication.rebalance_delay_ms
                rebalancer = Rebalancer(
                    self.controller,
                    self._log_dirs.measured,
                    delay_ms=delay_ms,
                    planner=self._planner,
                    clock=self._clock,
                )
                tasks.create_task(rebalancer.run())
            tasks.create_task(remove_expired_snapshots(self.controller, self._clock))
            tasks.create_task(self._write_snapshots())

    async def _write_snapshots(self) -> None:
        """Write a snapshot whenever the log has grown enough. On a full disk, try again later."""
        while True:
            await self.metadata.wait_until(lambda: self.metadata.is_snapshot_due)
            try:
                await self.metadata.write_snapshot()
            except DiskFull as error:
                _log.warning("metadata snapshot not written, trying again: %s", error.message)
                await self._clock.sleep_ms(SNAPSHOT_AGAIN_MS)

    async def _review_voters(self) -> None:
        """While this node is the active controller, review the voter set from time to time."""
        while True:
            await self._clock.sleep_ms(REVIEW_MS)
            if self._quorum.core is not None and self._quorum.core.active:
                now = self._clock.monotonic_ms()
                self.controller.review_voters(self._quorum.core.caught_up(now, REVIEW_MS))

    async def drain(self) -> None:
        """Move the leaderships to other nodes before the node stops, that of the quorum last."""
        await self.registration.drain()
        await self._quorum.resign()

    # --- starting -------------------------------------------------------------------------------------------------

    async def _discard_damaged_log(self) -> None:
        """Empty a damaged metadata log, so that it is fetched again. A voter has acknowledged the lost records, so its
        damaged log raises CorruptLog. The lost records may have made this node a voter: their end is written to the
        quorum state, and the node gives no vote before its log reaches that offset again."""
        log, me = self.metadata.log, self._quorum.me
        damage = log.damage
        if damage is None:
            return
        if me in VoterSet.of(self.metadata.voters) or not self.metadata.voters:
            raise CorruptLog(
                f"the metadata log of node {me.node_id}, a voter, lost {damage}: restore its directory "
                f"{self.metadata.log.path}, or start the node with an empty one; it then joins as a new replica"
            )
        _log.warning("the metadata log lost %s: all of it is fetched again", damage)
        end = max(damage.end_offset, log.log_end_offset)
        try:
            await run_in(self._executor, lambda: note_lost(log.files, log.path, end))
        except OSError as error:
            raise log.directory.fail(f"recording the lost end of the metadata log in {log.path}", error) from error
        self.metadata.empty()

    async def _form_cluster(self) -> tuple[str, tuple[Voter, ...]] | None:
        """Id and voters of the cluster that this node forms; None if it is formed already."""
        own, me = self._home.identity.cluster_id, self._quorum.me
        formation = ClusterFormation(
            me.node_id,
            self._config.quorum.nodes,
            listener=self._config.controller_listener,
            clock=self._clock,
            peers=self._peers,
        )
        voter = Voter(me.node_id, me.directory_id, self._identity.listeners)
        voters = await formation.choose_voters(voter, own, self._config.quorum.voters)
        if not voters:
            return None
        cluster_id = own or new_cluster_id(self._rng.getrandbits(128))
        await self._adopt(cluster_id)
        _log.info("forming cluster %s with voters %s", cluster_id, [voter.node_id for voter in voters])
        return cluster_id, voters

    async def _adopt(self, cluster_id: str) -> None:
        """Write the cluster id to every log directory, last to that of the metadata log, which other nodes query."""
        for directory, executor in reversed(self._directories):
            await run_in(executor, lambda directory=directory: directory.adopt(cluster_id, self._identity.node_id))  # type: ignore[misc]


def _controller_config(config: NodeConfig) -> ControllerConfig:
    times = config.replication
    return ControllerConfig(
        times.session_ms,
        times.drain_ms_max,
        config.quorum.voters,
        times.imbalance_check_ms,
        times.imbalance_percent,
        PartitionLimits(config.partitions_max, config.node_partitions_max),
        times.moves_per_node,
    )


def new_incarnation(rng: random.Random) -> Incarnation:
    """A random id for one incarnation."""
    return Incarnation(UUID(int=rng.getrandbits(128), version=4))


def listeners_of(config: NodeConfig) -> dict[str, Endpoint]:
    """The addresses of the listeners as they are registered, by name."""
    return {listener.name: listener.advertised or listener.bind for listener in config.listeners}


def identity_of(config: NodeConfig, incarnation: Incarnation, boot_id: bytes) -> Identity:
    """The identity with which a process of this configuration registers."""
    return Identity(NodeId(config.node_id), incarnation, listeners_of(config), config.rack, boot_id)
