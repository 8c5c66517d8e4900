"""A simulated machine: its disk, its clock, its boot ID, and the node process that runs on it, one incarnation at a
time.

Invariants: a killed process leaves its page cache to the next one; a machine that loses power loses what was not
synced. In both cases no callback of the process runs again and its open files and connections are dead. The node is
node/process/node.py's `Node` with a virtual clock, disk, executors and transport.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from node.api.api import Api
from node.api.caller import Caller
from node.boundary.boundary import Boundary, EncodedAnswer, Request
from node.config import GRPC_LISTENER, SNAPSHOT_BYTES, ListenerConfig, NodeConfig, QuorumConfig
from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.listener_settings import ListenerProtocol
from node.listeners.kafka.kafka_server import KafkaServer
from node.process.node import Node
from node.replication_settings import ReplicationConfig
from node.tiering_settings import TieringConfig
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN
from storage.directory.maintenance_config import MaintenanceConfig
from storage.files.disk_executor import Executor
from storage.log.log import Log
from testbed.fake_disk import FakeDisk
from testbed.sim import executor, on_the_loop, views
from testbed.sim.checkers import ReplicaView
from testbed.sim.clock import SimClock
from testbed.sim.durability import Safety
from testbed.sim.executor import DiskPace, SimExecutor
from testbed.sim.ledger import Violation
from testbed.sim.loop import MICROS, SimLoop, SimTask
from testbed.sim.network import Network
from testbed.sim.object_store import SimObjectStore
from testbed.sim.process import CURRENT, Process, ProcessState
from tidelog.errors import DiskFull, KafkaStorageError, TidelogError
from tidelog.types import Durability, Endpoint, Millis, NodeId, PartitionKey

PORT = 9092
KAFKA_PORT = 9094
KAFKA_LISTENER = "KAFKA"
KAFKA_MEMORY_BYTES = 1 << 20
KAFKA_CONNECTIONS = 100
COLD_SHARES = (0.0, 0.0, 0.02, 0.5)
"""The share of reads without waiting that find their data outside the page cache; each machine draws one value."""
RESERVES = (0, 8_192)
"""With 0, a node reaches the end of its disk; with the other value, the free-space watermark comes first."""
DIRECTORIES = ("/data", "/more")


def coordinator_settings(
    *,
    partitions: int = 2,
    verification: bool = True,
    segment_bytes: int = 1 << 20,
    session_ms: int = 3_000,
    heartbeat_ms: int = 500,
) -> CoordinatorSettings:
    """The settings of coordinators in a world: small internal topics and short timeouts. verification: leaders ask the
    coordinator about each transaction (KIP-890); a scripted one (transactions.py) is not asked."""
    return CoordinatorSettings(
        GroupSettings(
            consumer_session_timeout_ms=session_ms,
            consumer_min_session_timeout_ms=100,
            consumer_heartbeat_interval_ms=heartbeat_ms,
            consumer_min_heartbeat_interval_ms=100,
            min_session_timeout_ms=100,
            initial_rebalance_delay_ms=200,
            partitions=partitions,
            segment_bytes=segment_bytes,
        ),
        TransactionSettings(
            abort_timed_out_interval_ms=Millis(500),
            partitions=partitions,
            segment_bytes=segment_bytes,
            verification=verification,
        ),
    )


SCRIPTED = coordinator_settings(verification=False)
"""The settings of worlds that may have transactions of a scripted coordinator."""


def machine_name(node_id: int) -> str:
    return f"node-{node_id}"


def endpoint_of(node_id: int) -> Endpoint:
    return Endpoint(machine_name(node_id), PORT)


def kafka_endpoint_of(node_id: int) -> Endpoint:
    return Endpoint(machine_name(node_id), KAFKA_PORT)


def _listeners(node_id: int, *, has_kafka: bool) -> tuple[ListenerConfig, ...]:
    grpc = ListenerConfig(GRPC_LISTENER, endpoint_of(node_id))
    kafka = ListenerConfig(KAFKA_LISTENER, kafka_endpoint_of(node_id), protocol=ListenerProtocol.PLAINTEXT)
    return (grpc, kafka) if has_kafka else (grpc,)


def _tiering(store: SimObjectStore | None, *, sweeping: bool) -> TieringConfig:
    if store is None:
        return TieringConfig()
    config = TieringConfig(url=store.url, partitions=2, unreferenced_ms=60_000)
    return replace(config, sweep_ms=4_000, orphan_age_ms=0) if sweeping else config


@dataclass(slots=True)
class _KafkaBoundary(Boundary):
    """The boundary of a listener of Kafka's protocol, whose clients do not see what a defect is: it fails the world."""

    network: Network | None = None

    async def serve(self, api: Api[Any, Any], request: Request, caller: Caller) -> EncodedAnswer:
        try:
            return await Boundary.serve(self, api, request, caller)
        except TidelogError as refused:
            assert self.network is not None
            self.network.report_defect(refused, f"{api} failed by a defect")
            raise


class NothingSurvives(random.Random):
    """The worst random outcome: a disk that uses it keeps nothing that was not synced."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 0


class Machine:
    """A machine and the process that runs on it."""

    def __init__(
        self,
        node_id: int,
        cluster: list[Endpoint],
        *,
        loop: SimLoop,
        network: Network,
        rng: random.Random,
        memory: random.Random,
        note: Callable[[str], None],
        on_exit: Callable[[Machine, BaseException | None], None],
        directories: int = 1,
        voters: int = 1,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        rack: str = "",
        replication: ReplicationConfig | None = None,
        cleaning: bool = False,
        coordinators: CoordinatorSettings = SCRIPTED,
        store: SimObjectStore | None = None,
        sweeping: bool = False,
    ) -> None:
        """store: of the remote tier; None: the node has none. sweeping: see Simulation.start."""
        self.node_id = node_id
        self.name = machine_name(node_id)
        self.disk = self._new_disk()
        self.pace = DiskPace()
        self.clock = SimClock(loop, rate=rng.uniform(0.99, 1.01), wall_offset_ms=rng.randint(-300, 300))
        self.process: Process | None = None
        self.node: Node | None = None
        self.run_number = 0
        self.directories = DIRECTORIES[:directories]
        self.disk_broken = False
        # at any time in this incarnation: a call that began before the repair may fail after it
        self.was_full = self.was_broken = self.first_directory_was_broken = False
        self._loop, self._network, self._rng, self._note, self._on_exit = loop, network, rng, note, on_exit
        self._memory, self._store = memory, store
        self._cold_share = memory.choice(COLD_SHARES)
        self._disk_rng = random.Random(rng.getrandbits(64))
        self._boot_id = rng.randbytes(16)
        self._executors: list[SimExecutor] = []
        self._syncers: list[SimExecutor] = []
        self._past: list[SimExecutor] = []  # of ended incarnations: their work is never resumed
        self._seen: dict[object, views.Position] = {}
        self._safety = Safety(self.disk)
        self._stalled_at_us = 0
        self._resumed_at_us = -MICROS
        self._graveyard: list[list[SimTask[Any]]] = []  # keeps the tasks of a dead process from garbage collection
        self._config = NodeConfig(
            node_id=NodeId(node_id),
            rack=rack,
            log_directories=self.directories,
            replication=replication or ReplicationConfig(),
            listeners=_listeners(node_id, has_kafka=network.has_kafka),
            quorum=QuorumConfig(node_id == 0, tuple(cluster), voters, snapshot_bytes),
            log_defaults={"segment.index.bytes": "16384"},
            coordinators=coordinators,
            tiering=_tiering(store, sweeping=sweeping),
            maintenance=MaintenanceConfig(
                reserve_bytes=RESERVES[node_id % len(RESERVES)],
                scrub_interval_ms=30_000,
                retention_check_ms=1_000 if cleaning else 300_000,
                cleaner_backoff_ms=1_000 if cleaning else 15_000,
                cleaner_map_bytes=4_096,
            ),
        )
        network.name_endpoint(endpoint_of(node_id), self.name)

    @property
    def up(self) -> bool:
        """Whether a process runs here (paused or not)."""
        return self.process is not None and self.process.alive

    @property
    def is_closed(self) -> bool:
        """True after a clean shutdown, when nothing is in the page cache alone."""
        return all(self.disk.size(f"{directory}/{CLEAN_SHUTDOWN}") is not None for directory in self.directories)

    @property
    def incarnation_name(self) -> str:
        return f"{self.name}.{self.run_number}"

    # --- incarnations ---

    def start(self) -> None:
        """Start the process. The machine must have power."""
        assert not self.up, f"{self.name} runs already"
        self.run_number += 1
        self.was_full = self.disk.capacity is not None
        self.was_broken = self.disk_broken
        self.first_directory_was_broken &= self.disk_broken
        process = self.process = Process(self.name, self.run_number)
        self._network.machines_off.discard(self.name)
        self._past += self._executors
        self._executors, self._syncers = [], []
        self._seen = {}
        self._safety = Safety(self.disk)
        self._note(f"{self.incarnation_name} starts")
        process.run(self._assemble, process)

    def configure_voters(self, count: int) -> None:
        """Set the configured number of voters from the next start on."""
        self._config = replace(self._config, quorum=replace(self._config.quorum, voters=count))

    def _assemble(self, process: Process) -> None:
        self.node = Node(
            self._config,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            files=self.disk,
            executors=self._executor,
            transport=self._network.transport(self.name),
            boot_id=self._boot_id,
            before_close=self._stop_listening,
            open_store=self._open_store,
            pause_ms=executor.pause_ms,
        )
        self._network.listen(
            endpoint_of(self.node_id), process, self.name, GRPC_LISTENER, Boundary(gates=self.node.services)
        )
        if len(self._config.listeners) > 1:
            kafka = KafkaServer(
                KAFKA_LISTENER,
                boundary=_KafkaBoundary(network=self._network),
                frame_bytes_max=1 << 20,
                memory_bytes_max=KAFKA_MEMORY_BYTES,
                connections_max=KAFKA_CONNECTIONS,
            )
            kafka.serve(self.node.services, feature_level=self.node.feature_level)
            self._network.listen_for_bytes(kafka_endpoint_of(self.node_id), process, self.name, kafka._accepted)
        self._loop.create_task(self._run(self.node), name=f"{self.incarnation_name} run")

    def _open_store(self, _url: str) -> SimObjectStore:
        assert self._store is not None, "a node without a URL opens no store"
        return self._store

    async def _stop_listening(self) -> None:
        """Close listeners and streams, as a real process does between its drain and its end."""
        assert self.process is not None
        self._network.process_ended(self.process, power_lost=False)

    async def _run(self, node: Node) -> None:
        failure: BaseException | None = None
        try:
            await node.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the world judges it
            failure = error
        self._loop.call_world_later_us(0, self._exited, self.process, failure)

    def _exited(self, process: Process, failure: BaseException | None) -> None:
        if process is not self.process or not process.alive:
            return
        self._note(f"{self.incarnation_name} ends: {failure!r}")
        excused = self._is_excused(failure)
        self.die(power_lost=False)
        self._on_exit(self, None if excused else failure)

    def _is_excused(self, failure: BaseException | None) -> bool:
        """Whether this failure may end a process: the loss of the directory with the metadata log, or of any
        directory before the node is ready. With a full disk the node may refuse to start, or lose a directory that
        became full during a truncation."""
        was_full = self.was_full or self.disk.capacity is not None
        if isinstance(failure, KafkaStorageError):
            getting_ready = self.node is None or not self.node.metric_sources().ready
            return self.first_directory_was_broken or was_full or (self.was_broken and getting_ready)
        starting = self.node is None or self.node.replicas is None
        return isinstance(failure, DiskFull) and starting and was_full

    def _executor(self, name: str, workers: int = 1) -> Executor:
        """An executor of this process, for node/process/node.py."""
        process = self.process
        assert process is not None
        made = SimExecutor(self._loop, self._rng, process, self.pace, workers)
        self._executors.append(made)
        if name.endswith(" sync"):
            self._syncers.append(made)
        return made

    def die(self, *, power_lost: bool, forget_all: bool = False) -> None:
        """End the process between two callbacks; with `power_lost`, the machine too."""
        process = self.process
        if process is not None and process.alive:
            process.state = ProcessState.DEAD
            self._graveyard.append(self._loop.tasks_of(process))
            process.held_back.clear()  # nothing else may hold a task that waits for its turn
            self._network.process_ended(process, power_lost=power_lost)
        if power_lost:
            self._network.machines_off.add(self.name)
            self.disk.crash(NothingSurvives() if forget_all else self._rng)
            self._boot_id = self._rng.randbytes(16)
        elif process is not None:
            self.disk.kill()
        self.node = None

    # --- the disk ---

    def empty(self) -> None:
        """Replace the volume by an empty one."""
        assert not self.up, f"{self.name} runs"
        self.disk = self._new_disk()

    def _new_disk(self) -> FakeDisk:
        disk = FakeDisk()
        disk.is_cold = self._is_cold
        disk.on_step = self._calls_disk
        return disk

    def _calls_disk(self, operation: str, path: str) -> None:
        """Hook before every disk call, by an executor, by the event loop or by the test itself."""
        job = executor.running
        if job is not None:
            job.executor.calls(job, operation, path)
        elif CURRENT.get() is self.process and self.process is not None:
            self._loop_calls_disk(self.process, operation, path)

    def _loop_calls_disk(self, process: Process, operation: str, path: str) -> None:
        cost = on_the_loop.COSTS_US.get(operation)
        if cost is not None:
            least, most = cost
            process.owe(int((least + self._disk_rng.random() * (most - least)) * self.pace.slow_by))
            if operation in on_the_loop.WATCHED:
                callers = on_the_loop.forbidden(operation)
                if callers is not None:
                    description = f"{self.incarnation_name}: a {operation} of {path} on the event loop, by {callers}"
                    self._loop.call_exception_handler({"message": description})

        asks_disk = operation in executor.SYNCS or not self.pace.stalled  # a stalled disk takes writes into its memory
        if asks_disk and self.pace.hangs(operation, path):
            self._note(f"{self.incarnation_name} hangs in a {operation} of {path}, on its event loop")
            self._loop.freeze(process)

    def put_away(self) -> None:
        """Abandon the work in progress on the executors at the end of the world."""
        self.disk.on_step = None
        for one in self._past + self._executors:
            one.abandon()

    @property
    def has_offline_directory(self) -> bool:
        """Whether the node runs with an offline log directory, or may do so soon because it failed during its start."""
        if self.node is None:
            return False
        figures = self.node.metric_sources()
        return any(figures.offline.values()) or (self.disk_broken and not figures.ready)

    def _is_cold(self, path: str) -> bool:
        """Whether a read finds its data outside the page cache. While the whole disk is stalled, recent data is
        still in memory. While reads hang, no data is."""
        if self.pace.hanging and not self.pace.stalled and self.pace.hangs("read", path):
            return True
        return self._cold_share > 0 and not self.pace.stalled and self._memory.random() < self._cold_share

    def scrub(self, key: PartitionKey) -> None:
        """Run the scrub of one log now."""
        assert self.process is not None
        assert self.node is not None
        self.process.run(views.scrub, self.node, key)

    def latest_wall_ms(self, since_us: int) -> int:
        """The latest wall clock time at which something that the disk has done since then can have been chosen. The
        calls between may have taken a second; a stalled disk may have held them, and its backlog for a second more."""
        held = since_us < self._resumed_at_us + MICROS or self.pace.stalled
        return self.clock.latest_ms((min(since_us, self._stalled_at_us) if held else since_us) - MICROS)

    def stall(self) -> None:
        self.pace.stalled = True
        self._stalled_at_us = self._loop.now_us

    def hang_syncs(self) -> None:
        """Let the log fsyncs in progress hang; those that begin later do not."""
        for syncer in self._syncers:
            syncer.hang()

    def release(self) -> None:
        if self.pace.stalled:
            self._resumed_at_us = self._loop.now_us
        self.pace.stalled = False
        self.pace.hanging.clear()
        for each in self._executors:
            each.resume()
        if self.process is not None:
            self._loop.thaw(self.process)

    # --- what checkers and stories see ---

    def moved(self) -> Sequence[ReplicaView]:
        """The replicas that changed since the last call in this incarnation. Raises Violation if a replica claims as
        durable what a crash could lose."""
        node = self.node
        found = () if node is None else views.moved(node, self._seen)
        for replica in found:
            if isinstance(replica.log, Log) and replica.durability is Durability.FSYNC:
                loss = self._safety.possible_loss(replica.log)
                if loss is not None:
                    raise Violation(f"{replica.name} on {self.incarnation_name} {loss}")
        return found

    def replica(self, key: PartitionKey) -> ReplicaView | None:
        """A replica as the running node has it now; None if it has none."""
        return None if self.node is None else views.replica(self.node, key)

    def replicas(self, *, metadata: bool = False) -> Iterator[ReplicaView]:
        """Every replica that the running node has loaded; with `metadata`, also that of the metadata log."""
        if self.node is not None:
            yield from views.replicas(self.node, metadata=metadata)
