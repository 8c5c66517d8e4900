"""A cluster in one process, driven by a story: start, produce, kill, heal, run until a condition is true.

Invariants: one seed decides every event; the checkers see every event; a failed story reports its seed. Node numbers
are those of the configuration, from 0; node 0 forms the cluster. Times are virtual seconds.
"""

from __future__ import annotations

import errno
import gc
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any, Self
from uuid import UUID

from node.config import SNAPSHOT_BYTES
from node.coordinator_settings import CoordinatorSettings
from node.replication_settings import ReplicationConfig
from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from storage.isolation import FetchIsolation
from storage.log import recent_appends
from storage.log.log import Log
from testbed.sim import views
from testbed.sim.caches import Caches
from testbed.sim.checkers import Checkers, ReadableLog, ReplicaView
from testbed.sim.coordination import Coordination
from testbed.sim.executor import JobLock, modules_with_locks
from testbed.sim.healing import must_heal
from testbed.sim.ledger import Ledger
from testbed.sim.loop import MICROS, SimLoop
from testbed.sim.machine import SCRIPTED, Machine, endpoint_of, machine_name
from testbed.sim.network import Envelope, Held, Network
from testbed.sim.object_store import SimObjectStore
from testbed.sim.process import Process, ProcessState
from testbed.sim.producers import SimProducer
from testbed.sim.stirring import announce_writes
from testbed.sim.trace import Trace, TraceHandler
from testbed.sim.transactions import append_marker, unmarked
from testbed.sim.undisturbed_logs import UndisturbedLogs
from testbed.sim.workload import ANSWER_MS, Client, Sent, Transaction
from testbed.topic_requests import altering
from tidelog.protocol import methods
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Acks, NodeId, PartitionKey, TopicId

announce_writes()

RECENT_BYTES = (0, 1_000, recent_appends.BYTES_MAX)
"""Of each, one world in three: followers are answered from files, from both, and mostly from memory."""
HEAL_WITHIN = 60.0  # session 2 s, lag 5 s, keepalive 8 s, fetches and retries: some 20 s, times three
ACKS = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}


class Simulation:
    """A simulated cluster. It is a context manager: its exit disposes of every unfinished task."""

    def __init__(self, seed: int, *, voters: int = 1, show: Callable[[str], None] | None = None) -> None:
        """voters: size of the metadata quorum unless `start` gets another number."""
        self.seed, self.voters = seed, voters
        self.rng = self._rng("world")
        self.loop = SimLoop(self._rng("loop"))
        self.trace = Trace(lambda: self.loop.now_us, show)
        self.note = self.trace.note
        self.network = Network(self.loop, self._rng("network"), self.note)
        self.network.duplicable = lambda method: method.service.endswith((".Controller", ".Quorum"))
        self.undisturbed = UndisturbedLogs(lambda node: self._machine_named[node].disk)
        self.coordination = Coordination(
            topic_name=self._topic_name,
            exists=self._exists,
            has_marker=lambda place, marker: not self._exists(place) or marker in self.ledger(*place).markers,
            now_us=lambda: self.loop.now_us,
        )
        self.checkers = Checkers(
            read=self.undisturbed.read,
            members=self._members,
            note=self.note,
            configs=self._configs,
            now_us=lambda: self.loop.now_us,
            wall_ms=lambda node, since_us: self._machine_named[node].latest_wall_ms(since_us),
            has=self.undisturbed.has,
            has_rotted=lambda node: self._machine_named[node].disk.rots,
            coordination=self.coordination,
        )
        self.store = SimObjectStore(self.loop, self._rng("store"), self.note)
        self.store.on_change = self.checkers.remote.store_changed
        self.machines: dict[int, Machine] = {}
        self.clients: list[Client] = []
        self.min_insync = 1
        self.accepted_losses: set[PartitionKey] = set()  # where an operator has accepted that records are lost
        self.healing = False  # True after all faults have ended: a process that ends is started again
        self._machine_of: dict[Process, Machine] = {}
        self._machine_named: dict[str, Machine] = {}
        self._newest = EMPTY
        self._caches = Caches()
        self._logs = TraceHandler(self.trace)
        self._restored = ExitStack()
        self.loop.after_callback = self._after_callback

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {purpose}")

    def __enter__(self) -> Self:
        Process.world_thread = threading.get_ident()
        self._gc_was_on = gc.isenabled()
        gc.disable()  # its timing depends on more than the seed
        for module in modules_with_locks():
            self._replace(module, "Lock", JobLock)
        self._replace(recent_appends, "BYTES_MAX", self._rng("recent appends").choice(RECENT_BYTES))
        root = logging.getLogger("node")
        self._level_was = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self._logs)
        logging.getLogger("tidelog").addHandler(self._logs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        root = logging.getLogger("node")
        root.removeHandler(self._logs)
        logging.getLogger("tidelog").removeHandler(self._logs)
        root.setLevel(self._level_was)
        self.loop.after_callback = None
        self.loop.dispose()
        for machine in self.machines.values():
            machine.put_away()
        self._restored.close()
        if self._gc_was_on:
            gc.enable()
        if error is not None and isinstance(error, Exception):
            error.add_note(f"at {self.loop.time():.6f} s of seed {self.seed}; the last events:\n" + self.last_events())

    def _replace(self, module: ModuleType, name: str, value: object) -> None:
        """Give a name of a module another value until the world ends."""
        self._restored.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def digest(self) -> str:
        """A digest of the run, equal in two runs of one seed: of the trace, the callbacks and the state of the RNG."""
        return f"{self.trace.digest()[:16]}-{self.loop.callbacks_run}-{self.loop.now_us}-{self.rng.getrandbits(32):08x}"

    def last_events(self, count: int = 40) -> str:
        return "\n".join(self.trace.lines[-count:])

    # --- building ---

    def start(
        self,
        nodes: int = 3,
        *,
        min_insync: int = 1,
        topics: tuple[str, ...] = ("orders",),
        partitions: int = 1,
        directories: int = 1,
        voters: int | None = None,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        racks: Sequence[str] = (),
        replication: ReplicationConfig | None = None,
        cleaning: bool = False,
        coordinators: CoordinatorSettings = SCRIPTED,
        tiered: bool = False,
        sweeping: bool = False,
        **configs: str,
    ) -> None:
        """Start a cluster of that many nodes and wait until all are unfenced and the topics are in sync. Each topic
        has up to three replicas. voters: size of the metadata quorum (None: as given to the constructor); with one
        voter the controller stays on node 0. racks: one for each node, or none. cleaning: retention and compaction
        run every second. coordinators: settings of group and transaction coordinators. tiered: the nodes have
        an object store. sweeping: objects without a segment are looked for every few seconds, and none is too young."""
        self.min_insync, self.checkers.remote.store = min_insync, self.store
        cluster = [endpoint_of(number) for number in range(nodes)]
        for number in range(nodes):
            self.machines[number] = self._machine_named[machine_name(number)] = Machine(
                number,
                cluster,
                loop=self.loop,
                network=self.network,
                rng=self._rng(f"machine {number}"),
                memory=self._rng(f"memory {number}"),
                note=self.note,
                on_exit=self._node_ended,
                directories=directories,
                voters=self.voters if voters is None else voters,
                snapshot_bytes=snapshot_bytes,
                rack=racks[number] if racks else "",
                replication=replication,
                cleaning=cleaning,
                coordinators=coordinators,
                store=self.store if tiered else None,
                sweeping=sweeping,
            )
        for number in self.nodes:
            self.restart(number)
        self.run_until(lambda: len(self._unfenced()) == nodes, within=30, what="every node is unfenced")
        for topic in topics:
            self.create_topic(topic, partitions=partitions, min_insync=min_insync, configs=configs)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        min_insync: int | None = None,
        client: Client | None = None,
        wait: bool = True,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic (configs with `_` for `.`). wait: until all replicas are in sync and every partition has a
        leader."""
        settings = {key.replace("_", "."): value for key, value in (configs or {}).items()}
        settings.setdefault("segment.index.bytes", "16384")
        settings["min.insync.replicas"] = str(self.min_insync if min_insync is None else min_insync)
        count = min(3, len(self.machines)) if replicas is None else replicas
        client = client or self.client()
        task = client.start(client.create_topic(name, partitions, count, settings), f"creates {name}")
        self.run_until(task.done, within=30, what=f"topic {name} is created")
        task.result()
        if wait:
            self.run_until(lambda: self._whole(name), within=30, what=f"topic {name} is in sync")

    def admin(self, method: Method[Request, Answer], request: Request, *, client: Client | None = None) -> Answer:
        """Send an administrative request to any node, with retries until one answers. Raises the error of the
        answer."""
        client = client or self.client()
        task = client.start(client.admin(method, request), f"{method}")
        self.run_until(task.done, within=30, what=f"{method} is answered")
        answer: Answer = task.result()
        return answer

    def reassign(self, topic: str, partition: int, *replicas: int) -> None:
        """Start the reassignment of a partition to these nodes; with none, cancel the one in progress. Raises the
        error of the answer."""
        place = admin_pb2.TopicPartitionId(topic=topic, partition=partition)
        wanted = admin_pb2.PartitionReassignment(partition=place, replicas=replicas, cancel=not replicas)
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wanted])
        answer = self.admin(methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        if answer.partitions[0].HasField("error"):
            raise from_proto(answer.partitions[0].error)

    def alter_topic(self, topic: str, *, client: Client | None = None, **configs: str) -> None:
        """Change the configuration of a topic (`_` for `.`)."""
        changes = [admin_pb2.ConfigChange(key=key.replace("_", "."), value=value) for key, value in configs.items()]
        self.admin(methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, altering(topic, changes), client=client)

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> admin_pb2.PartitionOutcome:
        """Elect the preferred leader or, with `unclean`, the replica with the longest log. Raises the error of the
        answer."""
        request = admin_pb2.ElectLeadersRequest(
            type=admin_pb2.ELECTION_TYPE_UNCLEAN if unclean else admin_pb2.ELECTION_TYPE_PREFERRED,
            partitions=[admin_pb2.TopicPartitionId(topic=topic, partition=partition)],
        )
        (outcome,) = self.admin(methods.ADMIN_ELECT_LEADERS, request).partitions
        if outcome.HasField("error"):
            raise from_proto(outcome.error)
        return outcome

    def delete_topic(self, name: str, *, client: Client | None = None) -> None:
        client = client or self.client()
        task = client.start(client.delete_topic(name), f"deletes {name}")
        self.run_until(task.done, within=30, what=f"topic {name} is deleted")
        task.result()

    def _whole(self, name: str) -> bool:
        topic = self.image().topic(name)
        if topic is None or not topic.partitions:
            return False
        return all(self._is_whole(state) for state in topic.partitions)

    def _is_whole(self, state: PartitionState) -> bool:
        """Whether all replicas are in sync and the leader knows that it leads."""
        if set(state.isr) != set(state.replicas) or state.leader not in self.machines:
            return False
        replica = self.machines[state.leader].replica(state.key)
        return replica is not None and replica.leads and replica.leader_epoch == state.leader_epoch

    @property
    def nodes(self) -> list[int]:
        return sorted(self.machines)

    # --- time ---

    def run_until(
        self, reached: Callable[[], bool], *, within: float = 20.0, what: str | Callable[[], str] = ""
    ) -> None:
        """Run the world until `reached` returns True; it is called after every event. Raises OutOfTime."""
        self.loop.run_until(reached, within=within, what=what)

    def run_for(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    def never(self, wrong: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Run the world for that many seconds and fail if `wrong` returns True after any event."""
        over = self.loop.time() + seconds
        self.run_until(lambda: wrong() or self.loop.time() > over, within=seconds + 1)
        assert not wrong(), what

    # --- faults ---

    def kill(self, node: int) -> int:
        """Kill the process at once (SIGKILL); the machine and its page cache stay."""
        if self.machines[node].up:
            self.note(f"{self.machines[node].incarnation_name} is killed")
            self.machines[node].die(power_lost=False)
        return node

    def stop(self, node: int) -> int:
        """Send SIGTERM: the process drains, closes its logs and ends by itself."""
        machine = self.machines[node]
        if machine.up and machine.node is not None and machine.process is not None:
            self.note(f"{machine.incarnation_name} gets SIGTERM")
            machine.process.run(machine.node.stop)
        return node

    def power_off(self, node: int, *, forget_all: bool = False) -> int:
        """Cut the power of the machine: unsynced data may be lost, or (`forget_all`) is lost."""
        self.note(f"{self.machines[node].incarnation_name} loses power")
        closed = self.machines[node].is_closed
        self.machines[node].die(power_lost=True, forget_all=forget_all)
        if not closed:
            self.checkers.may_have_lost(*self._caches.power_lost(node, self._newest))
        return node

    def empty(self, node: int) -> int:
        """Replace the machine's volume by an empty one. No process may run."""
        self.note(f"the volume of {self.machines[node].name} is replaced by an empty one")
        self.machines[node].empty()
        return node

    def restart(self, node: int, *, after: float = 0.0) -> int:
        """Start the process again with the disk as it is; no effect if one runs."""
        if after > 0:
            self.loop.call_world_later_us(int(after * MICROS), self.restart, node)
            return node
        machine = self.machines[node]
        if not machine.up:
            self.checkers.node_began(machine.name)
            machine.start()
            assert machine.process is not None
            self._machine_of[machine.process] = machine
        return node

    def pause(self, node: int) -> int:
        """Pause the process (SIGSTOP): its time stops, the world's time continues."""
        process = self.machines[node].process
        if process is not None and process.alive:
            process.state = ProcessState.PAUSED
        return node

    def resume(self, node: int) -> int:
        process = self.machines[node].process
        if process is not None and process.state is ProcessState.PAUSED:
            self.loop.resume(process)
        return node

    def slow_process(self, node: int, step_ms: float) -> int:
        """Let each callback of this process take a random time of up to twice `step_ms`, until it ends: its timers
        and its answers are late. 0: callbacks take no time again."""
        process = self.machines[node].process
        if process is not None and process.alive:
            self.loop.slow(process, int(step_ms * 1000))
        return node

    def disconnect(self, node: int) -> int:
        """Disconnect a node from all other nodes in both directions; clients still reach it."""
        for other in self.nodes:
            self.disconnect_link(node, other)
            self.disconnect_link(other, node)
        return node

    def disconnect_link(self, source: int, target: int) -> None:
        """Drop everything from source to target; the other direction works."""
        if source != target:
            self.network.disconnect(machine_name(source), machine_name(target))

    def heal_link(self, source: int, target: int) -> None:
        self.network.heal(machine_name(source), machine_name(target))

    def heal(self, node: int) -> int:
        """Reconnect a node with all others in both directions."""
        for other in self.nodes:
            self.heal_link(node, other)
            self.heal_link(other, node)
        return node

    def clog(self, source: int, target: int, seconds: float) -> None:
        """Delay everything from source to target by up to `seconds`."""
        self.network.clog(machine_name(source), machine_name(target), seconds)

    def slow_disk(self, node: int, factor: float) -> None:
        self.machines[node].pace.slow_by = factor

    def stall_disk(self, node: int) -> None:
        """Let every fsync, and all other work of the executors, hang on this machine."""
        self.machines[node].stall()

    def hang_syncs(self, node: int) -> None:
        """Let the log fsyncs in progress on the machine hang until `release_disk`; other disk calls work."""
        self.machines[node].hang_syncs()

    def hang_files(self, node: int, path: str, *operations: str) -> None:
        """Let these operations on paths that contain `path` hang until `release_disk`. Operations have the names of
        the fake disk: `sync`, `write`, `read` and others. If the event loop of the node calls one, the whole process
        hangs."""
        self.machines[node].pace.hanging[path] = frozenset(operations)

    def release_disk(self, node: int) -> None:
        self.machines[node].release()

    def break_disk(self, node: int, operation: str, *, error: int = errno.EIO, path: str = "", times: int = 1) -> None:
        """Let the next `times` disk calls of that kind (`sync`, `write`) fail on paths that contain `path`. After an
        EIO the node needs `repair_disk`. Its process may end only if the first directory fails, which holds the
        metadata log."""
        machine = self.machines[node]
        if error == errno.EIO:
            first = machine.directories[0]
            machine.disk_broken = machine.was_broken = True
            machine.first_directory_was_broken |= path.startswith(first) or path in first
        machine.disk.fail(operation, path, error=error, times=times)

    def break_directory(self, node: int, number: int, operation: str) -> None:
        """Like `break_disk`, for the files of one log directory of the machine."""
        directories = self.machines[node].directories
        name = self.rng.choice(("", "__cluster", "orders", "events", "held", "re", "comes"))
        self.break_disk(node, operation, path=f"{directories[number % len(directories)]}/{name}")

    def repair_disk(self, node: int) -> None:
        """Repair the disk. Restart the node if it runs with an offline directory, as an operator must: a directory
        stays offline until its process ends."""
        machine = self.machines[node]
        machine.disk.heal()
        is_offline = machine.up and machine.has_offline_directory
        machine.disk_broken = False
        if is_offline:
            self.kill(node)
            self.restart(node)

    def fill_disk(self, node: int, room: int | None) -> None:
        """Leave that many bytes of free space on the disk; None: no limit."""
        machine = self.machines[node]
        machine.disk.capacity = None if room is None else machine.disk.used + room
        machine.was_full |= room is not None

    def scrub(self, node: int, topic: str, partition: int = 0) -> None:
        """Run the scrub of one partition log on a node now."""
        self.machines[node].scrub(self.partition(topic, partition).key)

    def jump_clock(self, node: int, ms: int) -> None:
        """Set the machine's wall clock forward or back."""
        self.machines[node].clock.jump(ms)

    def hold(
        self,
        method: str,
        *,
        source: int | None = None,
        target: int | None = None,
        part: str = "request",
        when: Callable[[Envelope], bool] = lambda envelope: True,
    ) -> Held:
        """Hold back messages of a method (`Controller.AlterPartition`) until released, selected by direction and
        content."""

        def matches(envelope: Envelope) -> bool:
            return (
                envelope.method == method
                and envelope.part == part
                and (source is None or envelope.source == machine_name(source))
                and (target is None or envelope.target == machine_name(target))
                and when(envelope)
            )

        return self.network.hold(matches)

    # --- looking ---

    def image(self) -> ClusterImage:
        """The newest committed image that any node has loaded."""
        return self._newest

    def _unfenced(self) -> list[NodeId]:
        return [node.node_id for node in self.image().nodes.values() if not node.fenced]

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self._newest.topics.get(TopicId(topic_id))
        return None if topic is None else topic.name

    def _exists(self, place: tuple[str, int]) -> bool:
        topic = self._newest.topic(place[0])
        return topic is not None and place[1] < len(topic.partitions)

    def partition_where(self, topic: str, wanted: Callable[[PartitionState], bool]) -> int:
        """The first partition of a topic whose state matches `wanted`."""
        return next(state.partition for state in self.topic(topic).partitions if wanted(state))

    def led_by(self, topic: str, node: int) -> int:
        """A partition of a topic that this node leads. With as many partitions as nodes, each node leads one at
        first."""
        return self.partition_where(topic, lambda state: state.leader == node)

    def topic(self, name: str) -> TopicState:
        found = self.image().topic(name)
        assert found is not None, f"topic {name} does not exist"
        return found

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        return self.topic(topic).partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader by the newest image; -1 if there is none."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.partition(topic, partition).isr)

    def followers(self, topic: str, partition: int = 0) -> list[int]:
        state = self.partition(topic, partition)
        return [node for node in state.replicas if node != state.leader]

    def any_follower(self, topic: str, partition: int = 0) -> int:
        """A random follower; the only voter of the metadata quorum is chosen only if there is no other follower."""
        followers = self.followers(topic, partition)
        return self.rng.choice([node for node in followers if node != 0] or followers)

    def replica(self, node: int, topic: str, partition: int = 0) -> ReplicaView | None:
        """A replica as the running node has it now; None if it has none."""
        return self.machines[node].replica(self.partition(topic, partition).key)

    def log(self, node: int, topic: str, partition: int = 0) -> ReadableLog:
        """The log of a replica as the running node has it."""
        replica = self.replica(node, topic, partition)
        assert replica is not None, f"node {node} has no replica of {topic}-{partition} now"
        assert replica.log is not None, f"the directory of {topic}-{partition} on node {node} is offline"
        return replica.log

    def ledger(self, topic: str, partition: int = 0) -> Ledger:
        return self.checkers.ledger(self.partition(topic, partition).key, f"{topic}-{partition}")

    # --- clients ---

    def client(self, nodes: Sequence[int] | None = None) -> Client:
        """A new client process with the addresses of these nodes (None: all)."""
        number = len(self.clients)
        bootstrap = [endpoint_of(node) for node in (self.nodes if nodes is None else nodes)]
        client = Client(self.loop, self.network, self._rng(f"client {number}"), f"client-{number}", bootstrap)
        self.clients.append(client)
        return client

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        acks: str = "all",
        partition: int = 0,
        client: Client | None = None,
        timeout_ms: int = ANSWER_MS,
        key: bytes | None = None,
    ) -> Sent:
        """Send one record from a new client; `.wait()` returns the answer."""
        sent = Sent(topic, partition, value, int(ACKS[acks]), timeout_ms=timeout_ms, drive=self.run_until, key=key)
        self.checkers.sending(sent)
        client = client or self.client()
        client.start(client.produce(sent), f"produces {value[:16]!r}")
        return sent

    def produce_in(
        self, transaction: Transaction, topic: str, value: bytes, partition: int = 0, *, key: bytes | None = None
    ) -> Sent:
        """Send one record of a transaction; `.wait()` returns the answer."""
        sent = Sent(topic, partition, value, int(Acks.ALL), transaction=transaction, drive=self.run_until, key=key)
        transaction.sent.append(sent)
        self.checkers.sending(sent)
        client = self.client()
        client.start(client.produce(sent), f"produces {value[:16]!r}")
        return sent

    def decide(self, transaction: Transaction, *, commit: bool) -> None:
        """End the transaction as a coordinator does: decide, then make every leader append the marker, with retries."""
        transaction.committed = commit
        while missing := unmarked(self, transaction):
            for place in missing:
                append_marker(self, transaction, *place)
            self.run_for(1)

    def read_decided(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of the decided transactions of a partition, up to its current last stable offset."""
        return self._read(topic, partition, decided=True)

    def producer(self, **options: Any) -> SimProducer:
        """A real idempotent producer in a new client process. options: as of tidelog.Producer."""
        client = self.client()
        producer = SimProducer(client, self.checkers, self.run_until, **options)
        task = client.start(producer.start(), "starts")
        self.run_until(task.done, within=1, what="the producer has started")
        return producer

    def read_committed(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of a partition as a consumer reads them, from the start to the current end of committed
        records."""
        return self._read(topic, partition, decided=False)

    def _read(self, topic: str, partition: int, *, decided: bool) -> list[bytes | None]:
        client, ledger = self.client(), self.ledger(topic, partition)
        reading = self.checkers.reading(ledger, decided=decided, position=self.start_of(topic, partition))
        values: list[bytes | None] = []
        reading.keep = values
        end = self._end_of(topic, partition, decided=decided)
        reads = client.read_to(topic, partition, end, reading, decided=decided)
        task = client.start(reads, f"reads {topic}-{partition}")
        self.run_until(task.done, within=60, what=f"{topic}-{partition} is read")
        task.result()
        return values

    # --- the end ---

    def heal_everything(self) -> None:
        """End all faults: links, disks, processes."""
        self.note("all faults stop")
        self.healing = True
        self.network.set_faults(type(self.network.faults)())
        self.network.heal_all()
        self.store.heal()
        for node in self.nodes:
            self.slow_disk(node, 1)
            self.release_disk(node)
            self.fill_disk(node, room=None)
            self.slow_process(node, 0)
            self.resume(node)
            self.repair_disk(node)
            self.restart(node)

    def must_heal(self, within: float = HEAL_WITHIN, *, lossy: bool = False) -> None:
        """Without faults, the cluster must recover by itself: leaders elected, all replicas in sync and equal, writable
        and readable. lossy: the story lost acknowledged records by an operator's choice."""
        self.heal_everything()
        must_heal(self, within, lossy=lossy)

    def start_of(self, topic: str, partition: int) -> int:
        """The current log start offset of a partition; retention may have moved it."""
        view = self.replica(self.leader(topic, partition), topic, partition)
        return 0 if view is None or view.log is None else int(view.log.log_start_offset)

    def _end_of(self, topic: str, partition: int, *, decided: bool) -> int:
        """The offset up to which a partition is readable now. An unclean election may have moved it back."""
        ledger = self.ledger(topic, partition)
        if not ledger.lossy:
            return ledger.stable if decided else ledger.end
        log = self.log(self.leader(topic, partition), topic, partition)
        assert isinstance(log, Log), "a leader's log is storage's"
        return int(log.end_for(FetchIsolation.LAST_STABLE_OFFSET if decided else FetchIsolation.HIGH_WATERMARK))

    # --- watching ---

    def _after_callback(self, owner: Process) -> None:
        machine = self._machine_of.get(owner)
        if machine is None or owner is not machine.process or machine.node is None:
            return
        metadata = machine.node._metadata
        if metadata is not None and metadata.image.offset > self._newest.offset:
            before, self._newest = self._newest, metadata.image
            image = self._newest
            self.checkers.published(machine.name, metadata.metadata.log, before, image)
            self.checkers.settings_changed(views.changed_settings(before, image))
            for key in views.led_uncleanly(before, image, self.accepted_losses):
                self.note(f"{image.topics[key.topic_id].name}-{key.partition}: an unclean election")
                state = image.partition(key)
                assert state is not None
                self.checkers.led_uncleanly(key, state.leader_epoch)
            self.checkers.may_have_lost(*self._caches.image_moved(before, image))
            self.checkers.sets_changed(views.changed_sets(before, image))
        if moved := machine.moved():
            self.checkers.look(machine.name, machine.incarnation_name, moved)

    def _configs(self, key: PartitionKey) -> Mapping[str, str]:
        topic = self._newest.topics.get(key.topic_id)
        return {} if topic is None else topic.configs

    def _members(self, key: PartitionKey) -> list[tuple[str, ReplicaView | None]]:
        """The in-sync and the eligible replicas by the newest image: any of them may lead next."""
        state = self._newest.partition(key)
        found: list[tuple[str, ReplicaView | None]] = []
        for node in () if state is None else (*state.isr, *state.elr):
            machine = self.machines[node]
            if machine.node is not None and views.acts(machine.node):
                found.append((machine.name, machine.replica(key)))
        return found

    def _node_ended(self, machine: Machine, failure: BaseException | None) -> None:
        if failure is not None:
            raise failure
        if self.healing:
            self.restart(machine.node_id)
