"""One simulated machine: its disk, its clock, its boot, and the node that runs on it, one life after the other.

Kept true: a killed process leaves its page cache to the next one, a machine without power loses what was not synced;
in both cases no callback of the process runs again and its open files and connections are dead.
The node is node/process/node.py's own `Node`, given a virtual clock, disk, executors and transport.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from node.config import SNAPSHOT_BYTES, ListenerConfig, NodeConfig, QuorumConfig, ReplicationConfig
from node.process.node import Node
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN
from storage.directory.maintenance_config import MaintenanceConfig
from storage.files.executor import Executor
from storage.log.log import Log
from tests.fakes.fake_disk import FakeDisk
from tests.sim import executor, on_the_loop, views
from tests.sim.checkers import ReplicaView
from tests.sim.clock import SimClock
from tests.sim.durability import Safety
from tests.sim.executor import DiskPace, SimExecutor
from tests.sim.ledger import Violation
from tests.sim.loop import SimLoop, SimTask
from tests.sim.network import Network
from tests.sim.process import CURRENT, Process, ProcessState
from tidelog.errors import DiskFull, KafkaStorageError
from tidelog.types import Durability, Endpoint, NodeId, PartitionKey

PORT = 9092
COLD_SHARES = (0.0, 0.0, 0.02, 0.5)
"""Of the reads that are not to wait, how many find something that is not in memory; of each machine."""
RESERVES = (0, 8_192)
"""Some nodes meet the end of their disk, others the watermark before it."""
DIRECTORIES = ("/data", "/more")


def machine_name(node_id: int) -> str:
    return f"node-{node_id}"


def endpoint_of(node_id: int) -> Endpoint:
    return Endpoint(machine_name(node_id), PORT)


class NothingSurvives(random.Random):
    """Chance at its worst: a disk that asks it keeps nothing that was not synced."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 0


class Machine:
    """See the module's words."""

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
    ) -> None:
        self.node_id = node_id
        self.name = machine_name(node_id)
        self.disk = self._new_disk()
        self.pace = DiskPace()
        self.clock = SimClock(loop, rate=rng.uniform(0.99, 1.01), wall_offset_ms=rng.randint(-300, 300))
        self.process: Process | None = None
        self.node: Node | None = None
        self.life = 0
        self.directories = DIRECTORIES[:directories]
        self.disk_broken = self.first_directory_broken = False
        self.was_full = False  # at some time in the present life
        self._loop, self._network, self._rng, self._note, self._on_exit = loop, network, rng, note, on_exit
        self._memory = memory
        self._cold_share = memory.choice(COLD_SHARES)
        self._disk_rng = random.Random(rng.getrandbits(64))
        self._boot_id = rng.randbytes(16)
        self._executors: list[SimExecutor] = []
        self._syncers: list[SimExecutor] = []
        self._past: list[SimExecutor] = []  # of lives that are over: what they were doing goes no further
        self._seen: dict[object, views.Position] = {}
        self._safety = Safety(self.disk)
        self._graveyard: list[list[SimTask[Any]]] = []  # keeps a dead life's tasks from being closed by chance
        self._config = NodeConfig(
            node_id=NodeId(node_id),
            rack=rack,
            log_directories=self.directories,
            replication=replication or ReplicationConfig(),
            listeners=(ListenerConfig("client", endpoint_of(node_id)),),
            quorum=QuorumConfig(node_id == 0, tuple(cluster), voters, snapshot_bytes),
            log_defaults={"segment.index.bytes": "16384"},
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
        """Does a process run here (paused or not)?"""
        return self.process is not None and self.process.alive

    @property
    def is_closed(self) -> bool:
        """Was the last stop a clean one, so that nothing lies in the page cache alone?"""
        return all(self.disk.size(f"{directory}/{CLEAN_SHUTDOWN}") is not None for directory in self.directories)

    @property
    def life_name(self) -> str:
        return f"{self.name}.{self.life}"

    # --- lives ---

    def start(self) -> None:
        """Start the process; the machine has power."""
        assert not self.up, f"{self.name} runs already"
        self.life += 1
        self.was_full = self.disk.capacity is not None
        process = self.process = Process(self.name, self.life)
        self._network.machines_off.discard(self.name)
        self._past += self._executors
        self._executors, self._syncers = [], []
        self._seen = {}
        self._safety = Safety(self.disk)
        self._note(f"{self.life_name} starts")
        process.run(self._assemble, process)

    def configure_voters(self, count: int) -> None:
        """From its next life on the node's configuration says that so many are to vote."""
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
        )
        self._network.listen(endpoint_of(self.node_id), process, self.name, "client", self.node.services())
        self._loop.create_task(self._run(self.node), name=f"{self.life_name} run")

    async def _stop_listening(self) -> None:
        """What a real process does between its drain and its end: no listener, no stream any more."""
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
        self._note(f"{self.life_name} ends: {failure!r}")
        excused = self._is_excused(failure)
        self.die(power_lost=False)
        self._on_exit(self, None if excused else failure)

    def _is_excused(self, failure: BaseException | None) -> bool:
        """May a process end like that? Without its metadata log, yes, and without any directory before it is ready;
        with a full disk it may refuse to start, or lose a directory that was full in the middle of emptying a log."""
        was_full = self.was_full or self.disk.capacity is not None
        if isinstance(failure, KafkaStorageError):
            getting_ready = self.node is None or not self.node.figures().ready
            return self.first_directory_broken or was_full or (self.disk_broken and getting_ready)
        starting = self.node is None or self.node.replicas is None
        return isinstance(failure, DiskFull) and starting and was_full

    def _executor(self, name: str, workers: int = 1) -> Executor:
        """An executor of this life, as node/process/node.py asks for one."""
        process = self.process
        assert process is not None
        made = SimExecutor(self._loop, self._rng, process, self.pace, workers)
        self._executors.append(made)
        if name.endswith(" sync"):
            self._syncers.append(made)
        return made

    def die(self, *, power_lost: bool, forget_all: bool = False) -> None:
        """The process is gone between two callbacks; with `power_lost`, the machine too."""
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
        """Another volume, with nothing on it."""
        assert not self.up, f"{self.name} runs"
        self.disk = self._new_disk()

    def _new_disk(self) -> FakeDisk:
        disk = FakeDisk()
        disk.is_cold = self._is_cold
        disk.on_step = self._calls_disk
        return disk

    def _calls_disk(self, operation: str, path: str) -> None:
        """The disk is about to do something: for work beside the loop, for the loop, or for whoever looks at it."""
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
                    told = f"{self.life_name}: a {operation} of {path} on the event loop, by {callers}"
                    self._loop.call_exception_handler({"message": told})

        asks_disk = operation in executor.SYNCS or not self.pace.stalled  # a stalled one takes writes into its memory
        if asks_disk and self.pace.hangs(operation, path):
            self._note(f"{self.life_name} hangs in a {operation} of {path}, on its event loop")
            self._loop.freeze(process)

    def put_away(self) -> None:
        """The world is over: what is under way beside the loops is put away."""
        self.disk.on_step = None
        for one in self._past + self._executors:
            one.abandon()

    @property
    def has_offline_directory(self) -> bool:
        """Does the node run without one of its log directories, or may it soon, since it was starting when it
        failed?"""
        if self.node is None:
            return False
        figures = self.node.figures()
        return bool(figures.offline_directories) or (self.disk_broken and not figures.ready)

    def _is_cold(self, path: str) -> bool:
        """Has memory lost something that is to be read? Not while the whole disk hangs: what was read or written last
        is still there then, as a rule. Where reads hang, nothing is."""
        if self.pace.hanging and not self.pace.stalled and self.pace.hangs("read", path):
            return True
        return self._cold_share > 0 and not self.pace.stalled and self._memory.random() < self._cold_share

    def stall(self) -> None:
        self.pace.stalled = True

    def hang_syncs(self) -> None:
        """The fsyncs of logs that are under way hang, those begun later do not."""
        for syncer in self._syncers:
            syncer.hang()

    def release(self) -> None:
        self.pace.stalled = False
        self.pace.hanging.clear()
        for each in self._executors:
            each.resume()
        if self.process is not None:
            self._loop.thaw(self.process)

    # --- what checkers and stories see ---

    def moved(self) -> Sequence[ReplicaView]:
        """The replicas of which something moved since this was last asked in this life. Raises Violation where one says
        that it holds what a crash could take."""
        node = self.node
        found = () if node is None else views.moved(node, self._seen)
        for replica in found:
            if isinstance(replica.log, Log) and replica.durability is Durability.FSYNC:
                lie = self._safety.lie_of(replica.log)
                if lie is not None:
                    raise Violation(f"{replica.name} on {self.life_name} {lie}")
        return found

    def replica(self, key: PartitionKey) -> ReplicaView | None:
        """One replica as the running node has it now; None where it has none."""
        return None if self.node is None else views.replica(self.node, key)

    def replicas(self, *, metadata: bool = False) -> Iterator[ReplicaView]:
        """Every replica that the running node has loaded; with `metadata`, that of the metadata log too."""
        if self.node is not None:
            yield from views.replicas(self.node, metadata=metadata)
