"""A whole cluster in one process, driven like a story: start, produce, kill, heal, run until something is true.

Kept true: one seed decides everything that happens; the checkers see every event; a story that fails says with which
seed. Node numbers are those of the configuration, from 0; node 0 forms the cluster. Times are virtual seconds.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from node.config import SNAPSHOT_BYTES, ReplicationConfig
from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from storage.checkpoints import offset_checkpoint
from storage.isolation import FetchIsolation
from storage.log import flush
from storage.log.log import Log
from storage.segment import epoch_cache
from tests.sim import views
from tests.sim.caches import Caches
from tests.sim.checkers import Checkers, ReadableLog, ReplicaView
from tests.sim.executor import JobLock
from tests.sim.healing import all_is_read, replicas_are_equal, unhealed
from tests.sim.ledger import Ledger
from tests.sim.loop import MICROS, SimLoop
from tests.sim.machine import Machine, endpoint_of, machine_name
from tests.sim.network import Envelope, Held, Network
from tests.sim.process import Process, ProcessState
from tests.sim.producers import SimProducer
from tests.sim.quiet import Quiet
from tests.sim.stirring import announce_writes
from tests.sim.trace import Trace, TraceHandler
from tests.sim.transactions import append_marker, unmarked
from tests.sim.workload import ANSWER_MS, Client, Sent, Transaction
from tidelog.errors import LeadershipLost
from tidelog.protocol import methods
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Acks, NodeId, PartitionKey

announce_writes()

LOCKING = (epoch_cache, flush, offset_checkpoint)
"""Modules whose locks are shared between the loop and work beside it."""
HEAL_WITHIN = 60.0  # session 2 s, lag 5 s, keepalive 8 s, fetches and retries: some 20 s; three times that is stuck
ACKS = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}


class Simulation:
    """See the module's words. Use it as a context manager: at its end every unfinished task is put away."""

    def __init__(self, seed: int, *, voters: int = 1, show: Callable[[str], None] | None = None) -> None:
        """voters: of the metadata quorum, where `start` is not told another number."""
        self.seed, self.voters = seed, voters
        self.rng = self._rng("world")
        self.loop = SimLoop(self._rng("loop"))
        self.trace = Trace(lambda: self.loop.now_us, show)
        self.note = self.trace.note
        self.network = Network(self.loop, self._rng("network"), self.note)
        self.network.duplicable = lambda method: method.service.endswith((".Controller", ".Quorum"))
        self.quiet = Quiet(lambda node: self._machine_named[node].disk)
        self.checkers = Checkers(
            read=self.quiet.read,
            members=self._members,
            note=self.note,
            configs=self._configs,
            now_us=lambda: self.loop.now_us,
            wall_ms=lambda node, since_us: self._machine_named[node].clock.latest_ms(since_us),
            has=self.quiet.has,
        )
        self.machines: dict[int, Machine] = {}
        self.clients: list[Client] = []
        self.min_insync = 1
        self.healing = False  # all faults are over: whatever ends is started again
        self._machine_of: dict[Process, Machine] = {}
        self._machine_named: dict[str, Machine] = {}
        self._newest = EMPTY
        self._caches = Caches()
        self._logs = TraceHandler(self.trace)
        self._locks = pytest.MonkeyPatch()
        self.loop.after_callback = self._after_callback

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {purpose}")

    def __enter__(self) -> Self:
        self._gc_was_on = gc.isenabled()
        gc.disable()  # when it runs depends on more than the seed
        for module in LOCKING:
            self._locks.setattr(module, "Lock", JobLock)
        root = logging.getLogger("node")
        self._level_was = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self._logs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        root = logging.getLogger("node")
        root.removeHandler(self._logs)
        root.setLevel(self._level_was)
        self.loop.after_callback = None
        self.loop.dispose()
        for machine in self.machines.values():
            machine.put_away()
        self._locks.undo()
        if self._gc_was_on:
            gc.enable()
        if error is not None and isinstance(error, Exception):
            error.add_note(f"at {self.loop.time():.6f} s of seed {self.seed}; the last events:\n" + self.last_events())

    def digest(self) -> str:
        """What two runs of one seed must have in common: all that was noted, all that ran, every draw."""
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
        **configs: str,
    ) -> None:
        """A cluster of so many nodes, all unfenced, with topics on up to three of them, in sync. voters: of the
        metadata quorum; with one, which is node 0, the controller stays where it is; None: as this world has it.
        racks: one for each node, or none. cleaning: retention and compaction look every second for what may go."""
        self.min_insync = min_insync
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
        """Create a topic (configs with `_` for `.`). wait: until all its replicas are in sync and it has leaders."""
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
        """Ask any node for something that an operator asks for, until one has answered. Raises its refusal."""
        client = client or self.client()
        task = client.start(client.admin(method, request), f"{method}")
        self.run_until(task.done, within=30, what=f"{method} is answered")
        answer: Answer = task.result()
        return answer

    def reassign(self, topic: str, partition: int, *replicas: int) -> None:
        """Begin to move a partition to these nodes; none: end what is under way. Raises why it is refused."""
        place = admin_pb2.TopicPartitionId(topic=topic, partition=partition)
        wanted = admin_pb2.PartitionReassignment(partition=place, replicas=replicas, cancel=not replicas)
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wanted])
        answer = self.admin(methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        if answer.partitions[0].HasField("error"):
            raise from_proto(answer.partitions[0].error)

    def alter_topic(self, topic: str, *, client: Client | None = None, **configs: str) -> None:
        """Change settings of a topic (`_` for `.`)."""
        changes = [admin_pb2.ConfigChange(key=key.replace("_", "."), value=value) for key, value in configs.items()]
        request = admin_pb2.IncrementalAlterConfigsRequest(topic=topic, changes=changes)
        self.admin(methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request, client=client)

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> admin_pb2.PartitionOutcome:
        """Let the preferred leader lead, or, uncleanly, whoever has most. Raises why it is refused."""
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
        """In sync everywhere, led, and known as such to the leader itself."""
        if set(state.isr) != set(state.replicas) or state.leader not in self.machines:
            return False
        replica = self.machines[state.leader].replica(state.key)
        return replica is not None and replica.leads and replica.leader_epoch == state.leader_epoch

    @property
    def nodes(self) -> list[int]:
        return sorted(self.machines)

    # --- time ---

    def run_until(
        self, reached: Callable[[], bool], *, within: float = 30.0, what: str | Callable[[], str] = ""
    ) -> None:
        """Let the world run until that is true; asked after every event. Raises OutOfTime."""
        self.loop.run_until(reached, within=within, what=what)

    def run_for(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    def never(self, wrong: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Let the world run for so long; that must not be true after any event."""
        over = self.loop.time() + seconds
        self.run_until(lambda: wrong() or self.loop.time() > over, within=seconds + 1)
        assert not wrong(), what

    # --- faults ---

    def kill(self, node: int) -> int:
        """End the process at once (SIGKILL); the machine and its page cache stay."""
        if self.machines[node].up:
            self.note(f"{self.machines[node].life_name} is killed")
            self.machines[node].die(power_lost=False)
        return node

    def stop(self, node: int) -> int:
        """Tell the process to stop (SIGTERM): it drains, closes its logs and ends by itself."""
        machine = self.machines[node]
        if machine.up and machine.node is not None and machine.process is not None:
            self.note(f"{machine.life_name} is told to stop")
            machine.process.run(machine.node.stop)
        return node

    def power_off(self, node: int, *, forget_all: bool = False) -> int:
        """The machine loses power: everything that was not synced may be gone, or (`forget_all`) is gone."""
        self.note(f"{self.machines[node].life_name} loses power")
        closed = self.machines[node].is_closed
        self.machines[node].die(power_lost=True, forget_all=forget_all)
        if not closed:
            self._may_have_lost(self._caches.power_lost(node, self._newest))
        return node

    def empty(self, node: int) -> int:
        """The machine's volume is replaced by an empty one; no process runs."""
        self.note(f"the volume of {self.machines[node].name} is replaced by an empty one")
        self.machines[node].empty()
        return node

    def restart(self, node: int, *, after: float = 0.0) -> int:
        """Start the process again, on whatever the disk has; nothing happens where one runs."""
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
        """Stop the process (SIGSTOP): its time stands still, the world's goes on."""
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
        """Let each callback of the process take up to twice so long, in its present life: its timers come late, its
        answers too. 0: none takes any time again."""
        process = self.machines[node].process
        if process is not None and process.alive:
            self.loop.slow(process, int(step_ms * 1000))
        return node

    def cut(self, node: int) -> int:
        """Cut a node off from all other nodes, both ways; clients still reach it."""
        for other in self.nodes:
            self.cut_link(node, other)
            self.cut_link(other, node)
        return node

    def cut_link(self, source: int, target: int) -> None:
        """Nothing passes from source to target any more; the other direction works."""
        if source != target:
            self.network.cut(machine_name(source), machine_name(target))

    def heal_link(self, source: int, target: int) -> None:
        self.network.heal(machine_name(source), machine_name(target))

    def heal(self, node: int) -> int:
        """Connect a node again with all others, in both directions."""
        for other in self.nodes:
            self.heal_link(node, other)
            self.heal_link(other, node)
        return node

    def clog(self, source: int, target: int, seconds: float) -> None:
        """Hold everything from source to target back for a while."""
        self.network.clog(machine_name(source), machine_name(target), seconds)

    def slow_disk(self, node: int, factor: float) -> None:
        self.machines[node].pace.slow_by = factor

    def stall_disk(self, node: int) -> None:
        """Let every fsync (and whatever else runs beside the loop) of the machine hang."""
        self.machines[node].stall()

    def hang_syncs(self, node: int) -> None:
        """Let the fsyncs of logs that are under way on the machine hang until `release_disk`; the disk works on."""
        self.machines[node].hang_syncs()

    def hang_files(self, node: int, path: str, *operations: str) -> None:
        """Let these operations on paths that contain `path` hang until `release_disk`: `sync`, `write`, `read` and
        others as the fake disk names them. Where the node's loop asks for one, the whole process hangs."""
        self.machines[node].pace.hanging[path] = frozenset(operations)

    def release_disk(self, node: int) -> None:
        self.machines[node].release()

    def break_disk(self, node: int, operation: str, *, error: int = errno.EIO, path: str = "", times: int = 1) -> None:
        """Let the disk's next calls of that kind (`sync`, `write`) fail on paths that contain `path`. After an EIO the
        node needs `mend_disk`; it may end only where its first directory is hit, which holds the metadata log."""
        machine = self.machines[node]
        if error == errno.EIO:
            machine.disk_broken = True
            machine.first_directory_broken |= path.startswith(machine.directories[0]) or path in machine.directories[0]
        machine.disk.fail(operation, path, error=error, times=times)

    def break_directory(self, node: int, number: int, operation: str) -> None:
        """As `break_disk`, for some of the files in one of the machine's log directories."""
        directories = self.machines[node].directories
        name = self.rng.choice(("", "__cluster", "orders", "events", "held", "re", "comes"))
        self.break_disk(node, operation, path=f"{directories[number % len(directories)]}/{name}")

    def mend_disk(self, node: int) -> None:
        """The disk works again. As an operator must, the node is started again where it runs without a directory: that
        stays offline for the life of its process."""
        machine = self.machines[node]
        machine.disk.heal()
        if machine.up and machine.has_offline_directory:
            self.kill(node)
            self.restart(node)
        machine.disk_broken = machine.first_directory_broken = False

    def fill_disk(self, node: int, room: int | None) -> None:
        """Leave so many bytes of room on the disk; None: as much as anybody wants."""
        machine = self.machines[node]
        machine.disk.capacity = None if room is None else machine.disk.used + room
        machine.was_full |= room is not None

    def scrub(self, node: int, topic: str, partition: int = 0) -> None:
        """Let a node look now whether its log of a partition is sound."""
        machine = self.machines[node]
        assert machine.process is not None
        assert machine.node is not None
        machine.process.run(views.scrub, machine.node, self.partition(topic, partition).key)

    def jump_clock(self, node: int, ms: int) -> None:
        """Set the machine's wall clock forward, or back."""
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
        """Hold back messages of a method (`Controller.AlterPartition`), by direction and content, until released."""

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
        """The newest committed image that any node has had."""
        return self._newest

    def _unfenced(self) -> list[NodeId]:
        return [node.node_id for node in self.image().nodes.values() if not node.fenced]

    def partition_where(self, topic: str, wanted: Callable[[PartitionState], bool]) -> int:
        """The first partition of a topic whose state is as wanted."""
        return next(state.partition for state in self.topic(topic).partitions if wanted(state))

    def led_by(self, topic: str, node: int) -> int:
        """A partition of a topic that this node leads: with as many partitions as nodes each leads one at first."""
        return self.partition_where(topic, lambda state: state.leader == node)

    def topic(self, name: str) -> TopicState:
        found = self.image().topic(name)
        assert found is not None, f"topic {name} does not exist"
        return found

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        return self.topic(topic).partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads, by the newest image; -1 none."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.partition(topic, partition).isr)

    def followers(self, topic: str, partition: int = 0) -> list[int]:
        state = self.partition(topic, partition)
        return [node for node in state.replicas if node != state.leader]

    def any_follower(self, topic: str, partition: int = 0) -> int:
        """One of the followers, by chance; never the node that is the quorum's only voter, if there is another."""
        followers = self.followers(topic, partition)
        return self.rng.choice([node for node in followers if node != 0] or followers)

    def replica(self, node: int, topic: str, partition: int = 0) -> ReplicaView | None:
        """A replica, as the running node has it now; None where it has none."""
        return self.machines[node].replica(self.partition(topic, partition).key)

    def log(self, node: int, topic: str, partition: int = 0) -> ReadableLog:
        """The log of a replica, as the running node has it."""
        replica = self.replica(node, topic, partition)
        assert replica is not None, f"node {node} has no replica of {topic}-{partition} now"
        assert replica.log is not None, f"the directory of {topic}-{partition} on node {node} is offline"
        return replica.log

    def ledger(self, topic: str, partition: int = 0) -> Ledger:
        return self.checkers.ledger(self.partition(topic, partition).key, f"{topic}-{partition}")

    # --- clients ---

    def client(self, nodes: Sequence[int] | None = None) -> Client:
        """A new client process that knows the addresses of these nodes (None: all)."""
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
        """Send one record from a client of its own; `.wait()` for the answer."""
        sent = Sent(topic, partition, value, int(ACKS[acks]), timeout_ms=timeout_ms, drive=self.run_until, key=key)
        self.checkers.sending(sent)
        client = client or self.client()
        client.start(client.produce(sent), f"produces {value[:16]!r}")
        return sent

    def produce_in(
        self, transaction: Transaction, topic: str, value: bytes, partition: int = 0, *, key: bytes | None = None
    ) -> Sent:
        """Send one record of a transaction; `.wait()` for the answer."""
        sent = Sent(topic, partition, value, int(Acks.ALL), transaction=transaction, drive=self.run_until, key=key)
        transaction.sent.append(sent)
        self.checkers.sending(sent)
        client = self.client()
        client.start(client.produce(sent), f"produces {value[:16]!r}")
        return sent

    def decide(self, transaction: Transaction, *, commit: bool) -> None:
        """The scripted coordinator: decide, then have every leader append the marker, again if it is lost."""
        transaction.committed = commit
        while missing := unmarked(self, transaction):
            for place in missing:
                append_marker(self, transaction, *place)
            self.run_for(1)

    def read_decided(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of a partition's decided transactions, as far as its last stable offset reaches now."""
        return self._read(topic, partition, decided=True)

    def producer(self, **options: Any) -> SimProducer:
        """An idempotent producer, the real one, in a client process of its own. options: as of tidelog.Producer."""
        client = self.client()
        producer = SimProducer(client, self.checkers, self.run_until, **options)
        task = client.start(producer.start(), "starts")
        self.run_until(task.done, within=1, what="the producer has started")
        return producer

    def read_committed(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of a partition, as a consumer reads them from the start to what is committed now."""
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
        """All faults stop: links, disks, processes."""
        self.note("all faults stop")
        self.healing = True
        self.network.set_faults(type(self.network.faults)())
        self.network.heal_all()
        for node in self.nodes:
            self.slow_disk(node, 1)
            self.release_disk(node)
            self.fill_disk(node, room=None)
            self.slow_process(node, 0)
            self.resume(node)
            self.mend_disk(node)
            self.restart(node)

    def must_heal(self, within: float = HEAL_WITHIN, *, lossy: bool = False) -> None:
        """With all faults gone the cluster comes back by itself: led, in sync, equal everywhere, writable, readable.
        lossy: acknowledged records were lost, as an operator wished."""
        self.heal_everything()
        self.run_until(self._healed, within=within, what=lambda: f"the cluster heals: {self._what_is_missing()}")
        for topic in self.image().topics.values():
            for state in topic.partitions:
                value = f"after all {topic.name}-{state.partition}".encode()
                sent = self.produce(topic.name, value, partition=state.partition, key=value)
                with contextlib.suppress(LeadershipLost):  # a leadership that goes home just then leaves it unknown
                    sent.wait(within=within)
        self.run_until(self._healed, within=within, what=lambda: f"all is replicated: {self._what_is_missing()}")
        for topic in self.image().topics.values():
            for state in topic.partitions:
                replicas_are_equal(self, topic, state)  # at once: while anything is read, replicas may move
        for topic in self.image().topics.values():
            for state in topic.partitions:
                all_is_read(self, topic.name, state.partition)
        if not lossy:
            self.checkers.all_sent_are_accounted_for()

    def start_of(self, topic: str, partition: int) -> int:
        """Where a partition begins by now: retention may have taken what was before."""
        view = self.replica(self.leader(topic, partition), topic, partition)
        return 0 if view is None or view.log is None else int(view.log.log_start_offset)

    def _end_of(self, topic: str, partition: int, *, decided: bool) -> int:
        """How far a partition can be read by now: not as far as before where an unclean election may have lost
        records."""
        ledger = self.ledger(topic, partition)
        if not ledger.lossy:
            return ledger.stable if decided else ledger.end
        log = self.log(self.leader(topic, partition), topic, partition)
        assert isinstance(log, Log), "a leader's log is storage's"
        return int(log.end_for(FetchIsolation.LAST_STABLE_OFFSET if decided else FetchIsolation.HIGH_WATERMARK))

    def _healed(self) -> bool:
        return not unhealed(self)

    def _what_is_missing(self) -> str:
        return "; ".join(unhealed(self)) or "nothing is missing now"

    # --- watching ---

    def _after_callback(self, owner: Process) -> None:
        machine = self._machine_of.get(owner)
        if machine is None or owner is not machine.process or machine.node is None:
            return
        metadata = machine.node._metadata
        image = None if metadata is None else metadata.image
        if image is not None and image.offset > self._newest.offset:
            before, self._newest = self._newest, image
            self.checkers.sets_are_of_present_nodes(image)
            self.checkers.sets_published(before, image)
            self.checkers.settings_changed(views.changed_settings(before, image))
            for key in views.led_uncleanly(before, image):
                self.note(f"{image.topics[key.topic_id].name}-{key.partition}: an unclean election")
                state = image.partition(key)
                assert state is not None
                self.checkers.led_uncleanly(key, state.leader_epoch)
            self._may_have_lost(self._caches.image_moved(before, image))
            self.checkers.sets_changed(views.changed_sets(before, image))
        if moved := machine.moved():
            self.checkers.look(machine.name, machine.life_name, moved)

    def _may_have_lost(self, keys: Sequence[PartitionKey]) -> None:
        for key in keys:
            self.checkers.may_have_lost(key)

    def _configs(self, key: PartitionKey) -> Mapping[str, str]:
        topic = self._newest.topics.get(key.topic_id)
        return {} if topic is None else topic.configs

    def _members(self, key: PartitionKey) -> list[tuple[str, ReplicaView | None]]:
        """The in-sync and the eligible set by the newest image, as the checkers want: any may lead next."""
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
