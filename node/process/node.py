"""One node, put together: directories, logs, metadata, membership, services. No sockets, threads or machine clocks.

The life of a node: the log directories are opened and their logs recovered (the metadata log first, since it says what
the others are); the quorum is joined or, by the one node that was told to, formed; the process registers and, once it
has caught up and is unfenced, is ready; it is told to stop; its leaderships move away; its streams end; its logs are
closed clean.

Kept true: services can be asked from the beginning and refuse what cannot be answered yet; every task is owned and
waited for by `run`; what makes running impossible ends `run` with that error, and leaves no clean-shutdown marker.
Left to others: listeners, signals and threads (`node/process/process.py`), or their simulated twins.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, Protocol

from node.config import NodeConfig
from node.listeners.grpc.codec import GrpcService
from node.listeners.grpc.data_codec import DATA_CODECS
from node.listeners.grpc.gate import Gate
from node.listeners.grpc.peers import GrpcPeers
from node.listeners.grpc.transport import Transport
from node.metadata.metadata_log import METADATA_TOPIC_ID, open_log
from node.observability.directory_metrics import figures_of as directory_figures
from node.observability.meters.topic_meter import TopicMeter
from node.observability.metrics import NodeFigures
from node.observability.partition_metrics import PartitionFigures
from node.process.metadata_node import MetadataNode, identity_of, new_incarnation
from node.replicas.log_maintenance import LogMaintenance
from node.replicas.partition import Partition
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.requests.data_handlers import DataHandlers
from node.requests.producer_ids import ProducerIds
from node.runtime.clock import Clock
from node.runtime.memory_budget import PRODUCER_BYTES, STATE_EIGHTHS
from node.runtime.work import finished, run_in
from replication.controller.events import DamagedReplica
from replication.controller.image import ClusterImage
from storage.config import LogConfig
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.files.executor import Executor
from storage.files.file_system import Files
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.types import TopicId, TopicPartition

_log = logging.getLogger("node.lifecycle")

SERVICES: Final = (methods.DATA, methods.ADMIN, methods.CONTROLLER, methods.QUORUM)

SYNCS_AT_ONCE: Final = 8
"""Logs of one directory that are fsynced side by side: they share the journal's writes. More threads gain little
more."""

READS_AT_ONCE: Final = 4
"""Reads of one directory that wait for its disk side by side: one slow one does not keep all others waiting."""

PROGRESS_MS: Final = 5_000
"""While logs are recovered, it is said so often how far that is."""

QUIET_ROUNDS: Final = 3
"""After so many turns of an executor nothing is under way there: the fsync of the metadata log that runs when the last
append is made, the one that was asked for meanwhile, and what their reports ask for."""

QUIET_MS: Final = 5
"""How often it is looked whether a directory's last fsync has ended."""

ReadyChanged = Callable[[bool], Awaitable[None]]


class Executors(Protocol):
    """Makes executors by name; a directory's writer has one worker, so that its work is done in order."""

    def __call__(self, name: str, workers: int = 1) -> Executor: ...


class Node:
    """One life of one node's process."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        files: Files,
        executors: Executors,
        transport: Transport,
        boot_id: bytes,
        before_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """config: with the listeners' ports as they are bound. boot_id: 16 bytes, another one after each boot of the
        machine. before_close: ends the listeners; called when all that waited has been answered."""
        self.incarnation = new_incarnation(rng)
        self._config = config
        self._clock, self._rng, self._files = clock, rng, files
        self._peers = GrpcPeers(transport)
        self._executors = executors
        self._boot_id = boot_id
        self._before_close = before_close
        self._gates = {name: Gate(name) for name in SERVICES}
        self._logs = LogManager()
        self._maintenance: LogMaintenance | None = None
        self._metadata: MetadataNode | None = None
        self._quorum_executor: Executor | None = None
        self._replicas: ReplicaManager | None = None
        self._stop = asyncio.Event()
        self._ready_changed: ReadyChanged | None = None
        self._is_ready = False

    # --- from outside -------------------------------------------------------------------------------------------------

    def services(self) -> Mapping[str, object]:
        """The services by their full names, for the listeners."""
        return self._gates

    def on_ready(self, changed: ReadyChanged) -> None:
        """Await `changed(is_ready)` whenever the node becomes ready, or is not ready any more."""
        self._ready_changed = changed

    def stop(self) -> None:
        """Let `run` end gracefully."""
        self._stop.set()
        if self._metadata is not None:
            self._metadata.metadata.wake()  # it is not ready any more

    @property
    def image(self) -> ClusterImage | None:
        """The newest committed image that the node knows; None while it starts."""
        return None if self._metadata is None else self._metadata.image

    @property
    def replicas(self) -> ReplicaManager | None:
        """The partitions; None while their logs are recovered."""
        return self._replicas

    def figures(self) -> NodeFigures:
        """The node as it is now, for its metrics."""
        metadata = self._metadata
        working = {directory.path for directory in self._logs.working}
        return NodeFigures(
            ready=self._is_ready,
            metadata_offset=0 if metadata is None else metadata.image.offset,
            is_controller=metadata is not None and metadata.view.leads,
            unclean_elections=0 if metadata is None else metadata.unclean_elections,
            directories=self._config.log_directories,
            offline_directories=tuple(
                path for path in self._config.log_directories if metadata and path not in working
            ),
            working_directories=tuple(
                directory_figures(
                    directory,
                    None if self._maintenance is None else self._maintenance.maintenance,
                    self._logs.progress.get(directory.path),
                )
                for directory in self._logs.working
            ),
            memory=None if self._replicas is None else self._replicas.memory.figures,
            producers_forgotten=0 if self._maintenance is None else self._maintenance.producers_forgotten,
        )

    def partition_figures(self) -> Iterator[PartitionFigures]:
        """Every partition, each as it is when it is asked for; none while their logs are recovered."""
        metadata, replicas = self._metadata, self._replicas
        if metadata is not None and replicas is not None:
            for partition in list(replicas.partitions()):
                yield _figures_of(partition, metadata.image)

    def topic_meters(self) -> Iterator[tuple[str, TopicMeter]]:
        """The counters of the topics with replicas here; none while their logs are recovered."""
        return iter(()) if self._replicas is None else iter(self._replicas.topics)

    async def run(self) -> None:
        """Live until told to stop. Raises what makes running impossible: InvalidConfig, InconsistentClusterId,
        KafkaStorageError, CorruptLog, StaleNodeEpoch."""
        try:
            try:
                metadata, replicas = await self._open()
                await self._live(metadata, replicas)
            except BaseExceptionGroup as errors:
                _raise_cause(errors)
        except BaseException:
            self._logs.close()
            raise
        await self._close()

    # --- starting -----------------------------------------------------------------------------------------------------

    async def _open(self) -> tuple[MetadataNode, ReplicaManager]:
        """Open the directories, recover the logs, open the gates."""
        logs, paths = self._logs, self._config.log_directories
        writers = {path: self._executors(path) for path in paths}
        await finished(lambda done: logs.open(paths, self._directory_opener(writers), writers.__getitem__, done))
        self._report_left_out(())
        for directory in logs.directories:
            directory.on_offline = _say_offline
        home, known, opened = logs.directories[0], logs.cluster_id, dict(logs.failed)
        if known is not None:
            await finished(lambda done: logs.adopt(known, self._config.node_id, done))
            self._report_left_out(opened)
        quorum = self._quorum_executor = self._executors(f"{home.path} quorum")
        metadata = self._join(await run_in(quorum, lambda: open_log(home)), quorum)
        await self._recover(metadata.metadata.replayed())
        return metadata, self._replicate(metadata)

    def _directory_opener(self, writers: Mapping[str, Executor]) -> Callable[[str], LogDirectory]:
        """What opens a log directory; run on its writer."""
        background = {path: self._executors(f"{path} care") for path in writers}
        syncers = {path: self._executors(f"{path} sync", SYNCS_AT_ONCE) for path in writers}
        readers = {path: self._executors(f"{path} read", READS_AT_ONCE) for path in writers}
        return lambda path: LogDirectory.open(
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
        """Say which directories were left out since those `known`. Raises why where the first one was: it holds the
        metadata log, and without that there is no node."""
        for path, error in self._logs.failed.items():
            if path == self._config.log_directories[0]:
                raise error
            if path not in known:
                _log.error("left out: %s", error.message)

    async def _recover(self, image: ClusterImage) -> None:
        """Load all logs, and say from time to time how far that is."""
        defaults, logs = self._config.log_config, self._logs

        def config_of(_name: TopicPartition, topic_id: TopicId) -> LogConfig:
            topic = image.topics.get(topic_id)
            return defaults if topic is None else LogConfig.from_topic(topic.configs, defaults)

        began, before = self._clock.monotonic_ms(), dict(logs.failed)
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(self._tell_progress())
            await finished(lambda done: logs.load(config_of, done))
            telling.cancel()
        self._report_left_out(before)
        for directory in logs.working:
            for note in directory.notes:
                _log.warning("%s", note)
            _log.info(
                "recovered log directory %s",
                directory.path,
                extra={
                    "logs": len(directory.logs),
                    "clean": directory.was_clean,
                    "intact": directory.intact,
                    "ms": self._clock.monotonic_ms() - began,
                },
            )

    async def _tell_progress(self) -> None:
        while True:
            await self._clock.sleep_ms(PROGRESS_MS)
            for progress in list(self._logs.progress.values()):
                if progress.done < progress.total:
                    _log.info("recovers %s", progress)

    def _join(self, log: Log, quorum: Executor) -> MetadataNode:
        """The node's side of the metadata; from here on others may ask it about that. quorum: a writer of its own, so
        that no fsync of the quorum waits for checkpoints and deleted files."""
        metadata = self._metadata = MetadataNode(
            self._config,
            identity_of(self._config, self.incarnation, self._boot_id),
            [(directory, directory.executor) for directory in self._logs.directories],
            log,
            quorum=quorum,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
        )
        for name, service in metadata.services().items():
            self._gates[name].open(service)
        return metadata

    def _replicate(self, metadata: MetadataNode) -> ReplicaManager:
        """The node's partitions; from here on clients and followers may ask for them."""
        config = ReplicaConfig(self._config.replication, self._config.memory_bytes, self._config.log_config)
        replicas = self._replicas = ReplicaManager(
            self._config.node_id,
            self.incarnation,
            self._logs,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            alter_partition=metadata.alter_partition,
            config=config,
        )
        data = DataHandlers(
            replicas,
            ProducerIds(metadata.allocate_producer_ids),
            clock=self._clock,
            config=config,
            inspectors=self._executors("records"),
        )
        self._gates[methods.DATA].open(GrpcService(data, DATA_CODECS))
        return replicas

    # --- living -------------------------------------------------------------------------------------------------------

    async def _live(self, metadata: MetadataNode, replicas: ReplicaManager) -> None:
        async with asyncio.TaskGroup() as tasks:
            for_ever = [
                tasks.create_task(metadata.run_quorum(), name="quorum"),
                tasks.create_task(metadata.run_controller(), name="controller"),
                tasks.create_task(metadata.run_membership(self._damaged, replicas.damaged), name="membership"),
                tasks.create_task(self._watch_ready(metadata), name="ready"),
            ]
            replicating = tasks.create_task(replicas.run(), name="replicas")
            caring = tasks.create_task(self._look_after_logs(replicas), name="maintenance")
            metadata.subscribe(replicas.on_image)
            await self._stop.wait()
            _log.info("stops: its leaderships move away")
            await metadata.drain()
            caring.cancel()
            await replicas.stop()
            await replicating
            if self._before_close is not None:
                await self._before_close()
            for task in for_ever:
                task.cancel()

    def _damaged(self) -> list[DamagedReplica]:
        """Replicas whose recovery found less than what had been reported as held."""
        found = self._logs.damaged().items()
        return [DamagedReplica(key, str(damage)) for key, damage in found if key.topic_id != METADATA_TOPIC_ID]

    async def _look_after_logs(self, replicas: ReplicaManager) -> None:
        producers_max = self._config.memory_bytes * STATE_EIGHTHS // 8 // PRODUCER_BYTES
        self._maintenance = LogMaintenance(
            self._logs,
            replace(self._config.maintenance, producers_max=producers_max),
            clock=self._clock,
            damage_found=replicas.damage_found,
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
            _log.info("is ready" if self._is_ready else "is not ready")
            if self._ready_changed is not None:
                await self._ready_changed(self._is_ready)

    # --- ending -------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Close the logs, so that the next start believes them."""
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
                _log.error("log directory %s is not closed clean: %s", directory.path, error.message)


def _say_offline(directory: LogDirectory) -> None:
    _log.error("log directory %s is offline: %s", directory.path, directory.offline)


def _figures_of(partition: Partition, image: ClusterImage) -> PartitionFigures:
    state, log = image.partition(partition.key), partition.log
    return PartitionFigures(
        topic=partition.name.topic,
        partition=partition.name.partition,
        leads=partition.leader is not None,
        isr_size=0 if state is None else len(state.isr),
        replicas=0 if state is None else len(state.replicas),
        log_start=log.log_start_offset,
        log_end=log.log_end_offset,
        high_watermark=log.high_watermark,
        durable_offset=log.durable_offset,
        size=log.size,
        segments=log.segment_count,
    )


def _raise_cause(errors: BaseExceptionGroup[Any]) -> NoReturn:
    """The first error of ours that ended a group of tasks; a defect, where there is one, before that."""
    leaves: list[BaseException] = []
    open_groups: list[BaseException] = [errors]
    while open_groups:
        error = open_groups.pop(0)
        if isinstance(error, BaseExceptionGroup):
            open_groups += error.exceptions
        else:
            leaves.append(error)
    raise next((leaf for leaf in leaves if not isinstance(leaf, TidelogError)), leaves[0]) from None
