"""One node: its log directories, logs, metadata, membership and services. No sockets, threads or machine clocks.

Start: the node opens its log directories and recovers their logs, the metadata log first, because it describes the
others. It joins the quorum, or forms it if so configured, and registers. Once it has caught up and is unfenced, it is
ready.
Stop: it may wait until the other nodes can do without it (node/process/stop_gate.py). Then its leaderships move to
other nodes, its streams end, and its logs are closed cleanly.

Invariants: services accept requests from the beginning and refuse those that cannot be answered yet. `run` owns and
awaits every task. An error that makes running impossible ends `run`, and no clean-shutdown marker is written.
Not here: listeners, signals and threads (node/process/process.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, Protocol

from node.config import NodeConfig
from node.coordinators.group_lag import NO_GROUPS, GroupsCollected
from node.coordinators.object_remover import StoreCalls
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.metadata.metadata_log import METADATA_TOPIC_ID, open_log
from node.observability.metric_sources import DirectoryLogs, DirectoryUpkeep, HostedPartition, MetricSources
from node.process.catch_up import wait_until_caught_up
from node.process.coordination import NodeCoordinators
from node.process.metadata_node import MetadataNode, identity_of, new_incarnation
from node.process.stop_gate import StopGate
from node.quotas.throttle import Quotas
from node.replicas.log_maintenance import LogMaintenance
from node.replicas.remote_reads import RemoteReads
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.replicas.replica_meters import ReplicaMeters
from node.replicas.store_reads import STORE_READS_AT_ONCE
from node.requests.context import RequestContext
from node.requests.data_handlers import DataHandlers
from node.requests.fetch_session import FetchSessions
from node.requests.gate import Gate
from node.requests.incremental_sessions import SessionCache
from node.requests.producer_ids import ProducerIds
from node.runtime.memory_budget import PRODUCER_BYTES, STATE_EIGHTHS
from node.runtime.work import finished, run_in
from node.security.authorizer import AuditTrail
from node.security.sasl_authenticator import SaslAuthenticator
from node.tiering.remote_tier import COPIES_AT_ONCE
from replication.controller.events import DamagedReplica
from replication.controller.image import EMPTY, ClusterImage
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.files.disk_executor import Executor
from storage.files.file_system import Files
from storage.log.log import Log
from storage.log_config import LogConfig
from tidelog.clock import Clock
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.protocol.network import NodeTransport
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.types import TopicId, TopicPartition

_log = logging.getLogger("node.lifecycle")

CONSOLE_LISTENER: Final = "CONSOLE"
"""The name under which sessions of the web console are known."""

SERVICES: Final = (
    "Data",
    "Admin",
    "Controller",
    "Quorum",
    "Sasl",
    "Coordinators",
    "Groups",
    "Transactions",
    "RemoteLogs",
)

SYNCS_AT_ONCE: Final = 8
"""Concurrent fsyncs in one log directory. They share writes of the file system's journal. More threads gain little."""

READS_AT_ONCE: Final = 4
"""Concurrent reads in one log directory: one slow read does not delay all others."""

PROGRESS_MS: Final = 5_000
"""Interval of the log lines about the progress of recovery."""

QUIET_ROUNDS: Final = 3
"""Turns of an executor after which it is idle: the metadata log's fsync that runs when the last append is made, the
next one that was requested meanwhile, and the work that their completion requests."""

QUIET_MS: Final = 5
"""Pause between checks whether the last fsync of a log directory has ended."""


class Executors(Protocol):
    """Creates executors by name. The writer of a log directory has one worker, so that its work is done in order."""

    def __call__(self, name: str, workers: int = 1) -> Executor: ...


class Node:
    """One incarnation of a node."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        files: Files,
        executors: Executors,
        transport: NodeTransport,
        boot_id: bytes,
        before_close: Callable[[], Awaitable[None]] | None = None,
        ready_changed: Callable[[bool], Awaitable[None]] | None = None,
        caught_up: Callable[[], None] | None = None,
        image_changed: Callable[[ClusterImage], None] | None = None,
        quotas: Quotas | None = None,
        audit: AuditTrail | None = None,
        cluster_secret: str = "",
        now_ns: Callable[[], int] = lambda: 0,
        open_store: Callable[[str], ObjectStore] = open_object_store,
        pause_ms: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        """config: with the bound ports of the listeners. boot_id: 16 bytes that differ after each boot of the machine.
        before_close: stops the listeners; called when every waiting request has been answered. ready_changed: called
        whenever the node becomes ready or is no longer ready. caught_up: called once, when the node is ready and its
        replicas have been in sync (node/process/catch_up.py). image_changed: called with each new image, from the first
        one on. quotas: those that the listeners apply; None: none. audit: records the changes that this node asks of
        its own controller, and failures of SASL. cluster_secret: with which other nodes authenticate; empty: they do
        not by SASL. now_ns: monotonic time, for metrics. open_store: the object store at a URL. pause_ms: waits on a
        thread of an executor."""
        self.incarnation = new_incarnation(rng)
        self._config = config
        self._clock, self._rng, self._files = clock, rng, files
        self._peers = GrpcPeers(transport)
        self._executors = executors
        self._boot_id = boot_id
        self._before_close, self._ready_changed, self._image_changed = before_close, ready_changed, image_changed
        self._caught_up = caught_up
        self._quotas = quotas
        self._audit = audit
        self._now_ns = now_ns
        self._open_store, self._pause_ms = open_store, pause_ms
        self.services = {name: Gate(name) for name in SERVICES}
        """The services of the listeners, by name."""
        with_sasl = [each.name for each in config.listeners if each.protocol.has_sasl]
        if with_sasl:
            with_sasl.append(CONSOLE_LISTENER)
        self.sasl = SaslAuthenticator(
            config.sasl,
            with_sasl,
            clock=clock,
            rng=rng,
            cluster_secret=cluster_secret,
            executors=executors,
            audit=audit,
        )
        """Authenticates the callers of listeners with SASL."""
        self._logs = LogManager()
        self._maintenance: LogMaintenance | None = None
        self._metadata: MetadataNode | None = None
        self._quorum_executor: Executor | None = None
        self.replicas: ReplicaManager | None = None
        """The replicas of partitions; None while their logs are recovered."""
        self._coordinators: NodeCoordinators | None = None
        self._remote_reads: RemoteReads | None = None
        self._fetch_sessions = SessionCache(config.fetch_sessions_max, rng)
        self._stop = asyncio.Event()
        self._is_ready = False

    # --- interface --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Make `run` stop gracefully."""
        self._stop.set()
        if self._metadata is not None:
            self._metadata.metadata.wake()  # it is no longer ready

    @property
    def image(self) -> ClusterImage | None:
        """The newest committed image known to this node; None while it starts."""
        return None if self._metadata is None else self._metadata.image

    def feature_level(self) -> int:
        """The feature level of the metadata; 0 until this node knows it."""
        return 0 if self._metadata is None else self._metadata.image.feature_level

    def why_not_ready(self) -> str:
        """Why the node is not ready, in a sentence; empty if it is."""
        node, metadata = f"node {self._config.node_id}", self._metadata
        if self._stop.is_set():
            return f"{node} is being stopped"
        if self._is_ready:
            return ""
        if metadata is None:
            return f"{node} opens its log directories"
        if self.replicas is None:
            loading = list(self._logs.progress.values())
            done, total = sum(each.done for each in loading), sum(each.total for each in loading)
            return f"{node} recovers its logs: {done} of {total}"
        if metadata.registration.node_epoch < 0:
            return f"{node} is not registered: it needs an active controller (tidelog cluster status)"
        return f"{node} is fenced: it catches up with the metadata, or its heartbeats do not reach the controller"

    def metric_sources(self, groups: GroupsCollected = NO_GROUPS) -> MetricSources:
        """What the metrics of this node are read from; before the logs are recovered, some of it does not exist."""
        metadata, maintenance, coordinators = self._metadata, self._maintenance, self._coordinators
        image = EMPTY if metadata is None else metadata.image
        partitions = () if self.replicas is None else list(self.replicas.partitions())
        working = self._logs.working
        paths = {each.path for each in working}
        upkeep = []
        if maintenance is not None:
            scrubs, cleanings = maintenance.maintenance.scrubs, maintenance.maintenance.cleanings
            upkeep = [DirectoryUpkeep(each, scrubs[each], cleanings[each]) for each in working]
        return MetricSources(
            ready=self._is_ready,
            metadata_offset=image.offset,
            is_controller=metadata is not None and metadata.view.leads,
            cluster_id=image.cluster_id,
            quorum=None if metadata is None else metadata.quorum_figures(),
            controller=None if metadata is None else metadata.controller_figures(),
            cluster=image if metadata is not None and metadata.view.leads else None,
            isr_changes=None if self.replicas is None else self.replicas.meters.isr_changes,
            disks=() if self.replicas is None else (self.replicas.meters.disk_times,),
            offline={path: metadata is not None and path not in paths for path in self._config.log_directories},
            producers_forgotten=0 if maintenance is None else maintenance.producers_forgotten,
            directories=[DirectoryLogs(each, self._logs.progress.get(each.path)) for each in working],
            upkeep=upkeep,
            memory=None if self.replicas is None else self.replicas.memory.figures,
            partitions=(HostedPartition(each, image.partition(each.key)) for each in partitions),
            topics=() if self.replicas is None else self.replicas.topics,
            coordinators=() if coordinators is None else coordinators.figures(),
            member_streams=None if coordinators is None else len(coordinators.streams),
            fetch_sessions=self._fetch_sessions,
            transactions=None if coordinators is None else coordinators.transactions.figures(),
            tier=None
            if coordinators is None or coordinators.tier is None
            else coordinators.tier.figures(self._remote_reads),
            groups=groups,
            quotas=self._quotas,
            sasl=self.sasl,
        )

    async def groups(self) -> GroupsCollected:
        """The groups that this node coordinates with their lag, for its metrics."""
        return NO_GROUPS if self._coordinators is None else await self._coordinators.lag.collect()

    async def run(self) -> None:
        """Run until stopped. Raises the error that makes running impossible: InvalidConfig, InconsistentClusterId,
        KafkaStorageError, CorruptLog, StaleNodeEpoch."""
        try:
            await self.sasl.load()
            try:
                await self._live(*await self._open())
            except BaseExceptionGroup as errors:
                _raise_cause(errors)
        except BaseException:
            self._logs.close()
            raise
        await self._close()

    # --- starting -----------------------------------------------------------------------------------------------------

    async def _open(self) -> tuple[MetadataNode, ReplicaManager, NodeCoordinators, FetchSessions]:
        """Open the log directories, recover the logs and open the gates of the services."""
        logs, paths = self._logs, self._config.log_directories
        writers = {path: self._executors(path) for path in paths}
        await finished(lambda done: logs.open(paths, self._directory_opener(writers), writers.__getitem__, done))
        self._report_left_out(())
        for directory in logs.directories:
            directory.when_offline.append(_log_offline)
        home, known, opened = logs.directories[0], logs.cluster_id, dict(logs.failed)
        if known is not None:
            await finished(lambda done: logs.adopt(known, self._config.node_id, done))
            self._report_left_out(opened)
        quorum = self._quorum_executor = self._executors(f"{home.path} quorum")
        metadata = self._join(await run_in(quorum, lambda: open_log(home)), quorum)
        await self._recover(metadata.metadata.replayed())
        return metadata, *self._replicate(metadata, await self._store())

    async def _store(self) -> StoreCalls | None:
        """The object store of the remote tier. Raises InvalidConfig, UnsupportedVersion, ObjectStoreRefused."""
        url = self._config.tiering.url
        if not url:
            logs = [log for each in self._logs.directories for log in each.logs.values() if log.config.remote_storage]
            if logs:
                _log.error(
                    "remote.log.storage.url is not set, but logs have a remote tier (%d, %s for one): this node copies "
                    "and reads nothing of it; set it as on the other nodes and restart this node",
                    len(logs),
                    logs[0].topic_partition,
                )
            return None
        executor = self._executors("remote copy", COPIES_AT_ONCE + 1)  # one removes objects
        return StoreCalls(await run_in(executor, lambda: self._open_store(url)), executor)

    def _directory_opener(self, writers: Mapping[str, Executor]) -> Callable[[str], LogDirectory]:
        """A function that opens a log directory; called on the writer of that directory."""
        background = {path: self._executors(f"{path} maintenance") for path in writers}
        syncers = {path: self._executors(f"{path} sync", SYNCS_AT_ONCE) for path in writers}
        readers = {path: self._executors(f"{path} read", READS_AT_ONCE) for path in writers}
        return lambda path: LogDirectory(
            path,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
            executor=writers[path],
            syncer=syncers[path],
            background=background[path],
            reader=readers[path],
            syncs_at_once=SYNCS_AT_ONCE,
            reserve_bytes=self._config.maintenance.reserve_bytes,
            boot_id=self._boot_id,
        )

    def _report_left_out(self, known: Collection[str]) -> None:
        """Log which directories were left out, except those `known`. Raises the error of the first directory: it
        contains the metadata log, without which the node cannot run."""
        for path, error in self._logs.failed.items():
            if path == self._config.log_directories[0]:
                raise error
            if path not in known:
                _log.error("left out: %s", error.message)

    async def _recover(self, image: ClusterImage) -> None:
        """Load and recover all logs; report the progress in the log output."""
        defaults, logs = self._config.log_config, self._logs
        # What the topic keeps is unknown, so nothing may be deleted meanwhile.
        keeping = replace(defaults, retention_ms=-1, retention_bytes=-1)

        def config_of(_name: TopicPartition, topic_id: TopicId) -> LogConfig:
            topic = image.topics.get(topic_id)
            try:
                return defaults if topic is None else LogConfig.from_topic(topic.configs, defaults)
            except InvalidConfig:  # of another version: the log is not used before they are valid (LogRegistry)
                return keeping

        began, before = self._clock.monotonic_ms(), dict(logs.failed)
        async with asyncio.TaskGroup() as tasks:
            reporting = tasks.create_task(self._report_progress())
            await finished(lambda done: logs.load(config_of, done))
            reporting.cancel()
        self._report_left_out(before)
        for directory in logs.working:
            for note in directory.notes:
                _log.warning("%s", note)
            if directory.identity.is_new:
                _log.info("new log directory %s: it was empty", directory.path)
                continue
            _log.info(
                "recovered log directory %s",
                directory.path,
                extra={
                    "logs": len(directory.logs),
                    "clean": directory.identity.was_clean,
                    "intact": directory.identity.intact,
                    "ms": self._clock.monotonic_ms() - began,
                },
            )

    async def _report_progress(self) -> None:
        while True:
            await self._clock.sleep_ms(PROGRESS_MS)
            for progress in list(self._logs.progress.values()):
                if progress.done < progress.total:
                    _log.info("recovering %s", progress)

    def _join(self, log: Log, quorum: Executor) -> MetadataNode:
        """Create the metadata side of the node and open the gates of its services. quorum: an executor of its own, so
        that no fsync of the quorum waits for checkpoints or deletions."""
        metadata = self._metadata = MetadataNode(
            self._config,
            identity_of(self._config, self.incarnation, self._boot_id),
            [(directory, directory.executor) for directory in self._logs.directories],
            log,
            quorum=quorum,
            planner=self._executors("planner") if self._config.replication.rebalance == "auto" else None,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            audit=self._audit,
        )
        if self._image_changed is not None:
            metadata.metadata.subscribe(self._image_changed)
        metadata.metadata.subscribe(self.sasl.follow)
        for name, handlers in metadata.services.items():
            self.services[name].open(handlers)
        self.services["Sasl"].open(self.sasl)
        return metadata

    def _replicate(
        self, metadata: MetadataNode, store: StoreCalls | None
    ) -> tuple[ReplicaManager, NodeCoordinators, FetchSessions]:
        """Create the replica manager and the coordinators, and open the gates of their services."""
        config = ReplicaConfig(
            self._config.replication,
            self._config.memory_bytes,
            self._config.log_config,
            listener=self._config.inter_listener,
        )
        tiering = self._config.tiering
        if store is not None:
            reader, cache = self._executors("remote read", STORE_READS_AT_ONCE), RemoteCache(tiering.cache_bytes)
            self._remote_reads = RemoteReads(store.store, cache, reader, tiering.fetch_wait_ms, self._clock)
        replicas = self.replicas = ReplicaManager(
            self._config.node_id,
            self.incarnation,
            self._logs,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            alter_partition=metadata.alter_partition,
            config=config,
            call_soon=asyncio.get_running_loop().call_soon,
            meters=ReplicaMeters(self._now_ns),
            remote_reads=self._remote_reads,
        )
        metadata.serve_moves(replicas)
        producer_ids = ProducerIds(metadata.allocate_producer_ids)
        coordinators = self._coordinators = NodeCoordinators(
            self._config,
            metadata,
            replicas,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            call_soon=asyncio.get_running_loop().call_soon,
            take_producer_id=producer_ids.take,
            write_markers=lambda markers: data.write_txn_markers(markers, context),
            store=store,
            pause_ms=self._pause_ms,
        )
        sessions = FetchSessions(replicas, clock=self._clock, config=config, on_follower_lost=metadata.watch.probe)
        data = DataHandlers(
            replicas,
            sessions,
            producer_ids,
            clock=self._clock,
            config=config,
            inspectors=self._executors("records"),
            fetch_sessions=self._fetch_sessions,
            verifier=coordinators.transactions.verifier,
        )
        context = RequestContext("local", f"node {self._config.node_id}")
        for name, handlers in {"Data": data, **coordinators.services}.items():
            self.services[name].open(handlers)
        return replicas, coordinators, sessions

    # --- running ------------------------------------------------------------------------------------------------------

    async def _live(
        self,
        metadata: MetadataNode,
        replicas: ReplicaManager,
        coordinators: NodeCoordinators,
        sessions: FetchSessions,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(metadata.run_quorum(), name="quorum"),
                tasks.create_task(metadata.controller.run(), name="controller"),
                tasks.create_task(metadata.registration.run(self._damaged, replicas.damage.reports), name="membership"),
                tasks.create_task(self._watch_ready(metadata), name="ready"),
                tasks.create_task(self._watch_caught_up(metadata), name="caught up"),
                tasks.create_task(self.sasl.run(), name="sasl"),
            ]
            replicating = tasks.create_task(replicas.run(), name="replicas")
            coordinating = tasks.create_task(coordinators.run(), name="coordinators")
            maintaining = tasks.create_task(self._maintain_logs(replicas), name="maintenance")
            metadata.metadata.subscribe(replicas.on_image)
            metadata.metadata.subscribe(coordinators.on_image)
            if self._quotas is not None:
                metadata.metadata.subscribe(self._quotas.on_image)
            await self._stop.wait()
            await self._stop_gate(metadata).wait_until_safe()
            _log.info("draining: waiting until the leaderships have moved to other nodes")
            await metadata.drain()
            maintaining.cancel()
            await replicas.stop()
            sessions.stop()
            coordinating.cancel()
            await replicating
            if self._before_close is not None:
                await self._before_close()
            for task in background:
                task.cancel()

    def _stop_gate(self, metadata: MetadataNode) -> StopGate:
        return StopGate(
            self._config.node_id,
            metadata.registration,
            lambda: metadata.image,
            metadata.client.why_unavailable,
            clock=self._clock,
            limit_ms=self._config.replication.stop_wait_ms,
        )

    def _damaged(self) -> list[DamagedReplica]:
        """Replicas whose recovery found less than what had been reported as durable."""
        found = self._logs.damaged().items()
        return [DamagedReplica(key, str(damage)) for key, damage in found if key.topic_id != METADATA_TOPIC_ID]

    async def _maintain_logs(self, replicas: ReplicaManager) -> None:
        producers_max = self._config.memory_bytes * STATE_EIGHTHS // 8 // PRODUCER_BYTES
        self._maintenance = LogMaintenance(
            self._logs,
            replace(self._config.maintenance, producers_max=producers_max),
            clock=self._clock,
            damage_found=replicas.damage.found,
            log_start_moved=replicas.log_start_moved,
            memory=replicas.memory,
        )
        await self._maintenance.run()

    async def _watch_ready(self, metadata: MetadataNode) -> None:
        def ready_now() -> bool:
            return metadata.registration.unfenced and not self._stop.is_set()

        while True:
            await metadata.metadata.wait_until(lambda: ready_now() != self._is_ready)
            self._is_ready = ready_now()
            _log.info("node is ready" if self._is_ready else "node is not ready")
            if self._ready_changed is not None:
                await self._ready_changed(self._is_ready)

    async def _watch_caught_up(self, metadata: MetadataNode) -> None:
        if self._caught_up is not None:
            await wait_until_caught_up(
                self._config.node_id, lambda: metadata.image, lambda: self._is_ready, self._clock
            )
            self._caught_up()

    # --- closing ------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Close the logs cleanly, so that the next start need not recover them."""
        if self._quorum_executor is not None:
            for _ in range(QUIET_ROUNDS):
                await run_in(self._quorum_executor, lambda: None)
        for directory in self._logs.directories:
            while directory.busy:
                await self._clock.sleep_ms(QUIET_MS)
            for _ in range(QUIET_ROUNDS):
                await run_in(directory.background, lambda: None)
                await run_in(directory.executor, lambda: None)
            if directory.offline is not None:
                directory.close()
                continue
            try:
                await run_in(directory.executor, directory.close_clean)
            except TidelogError as error:
                _log.error("log directory %s was not closed cleanly: %s", directory.path, error.message)


def _log_offline(directory: LogDirectory) -> None:
    _log.error("log directory %s is offline: %s", directory.path, directory.offline)


def _raise_cause(errors: BaseExceptionGroup[Any]) -> NoReturn:
    """Raise the first defect among the errors of a task group; if there is none, its first TidelogError."""
    leaves: list[BaseException] = []
    open_groups: list[BaseException] = [errors]
    while open_groups:
        error = open_groups.pop(0)
        if isinstance(error, BaseExceptionGroup):
            open_groups += error.exceptions
        else:
            leaves.append(error)
    raise next((leaf for leaf in leaves if not isinstance(leaf, TidelogError)), leaves[0]) from None
