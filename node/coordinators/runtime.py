"""The coordinators of one kind on a node: one for each partition of the internal topic that the node leads.

The runtime follows the leaderships of the topic, loads a coordinator when one begins and ends it with the leadership.
Requests are decided at the end of the turn of the loop in which they arrived, all those of a partition together. The
timers of all machines share the ticker of the replicas; an idle coordinator costs nothing.

Invariants: `run` owns every task. A defect of one coordinator does not end the others.
Not here: one coordinator (partition_coordinator.py), reading its partition (coordinator_loading.py), the topic
(internal_topics.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from node.coordinators.coordinator_figures import CoordinatorFigures, CoordinatorMeter
from node.coordinators.coordinator_loading import Loading
from node.coordinators.coordinator_log import NoticeLog, SuspensionLog
from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.internal_topics import coordinator_node
from node.coordinators.partition_coordinator import TURN_MS, PartitionCoordinator
from node.replicas.replica_manager import ReplicaManager
from replication.controller.image import EMPTY, ClusterImage
from storage.log.log import Log
from storage.producers.verification import UNVERIFIED, TransactionCheck
from tidelog.clock import Clock
from tidelog.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, TidelogError
from tidelog.types import NO_NODE, Millis, NodeAddress, PartitionIndex, PartitionKey

LOADS_AT_ONCE: Final = 4
"""Partitions that are loaded concurrently: a large one does not delay the small ones."""

COMMIT_MS_MAX: Final = 5_000
"""Kafka's default of `offsets.commit.timeout.ms`."""


class CoordinatorRuntime:
    """The coordinators of one kind."""

    def __init__(
        self,
        kind: CoordinatorSpec,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        why_no_lease: Callable[[], str],
        commit_ms_max: int = COMMIT_MS_MAX,
    ) -> None:
        """call_soon: that of the event loop. why_no_lease: returns why another node may lead this node's partitions, or
        an empty text if none does. commit_ms_max: how long a request waits until its change is committed."""
        self.kind = kind
        self.meter = CoordinatorMeter()
        self._replicas, self._clock, self._call_soon = replicas, clock, call_soon
        self._why_no_lease, self._commit_ms_max = why_no_lease, commit_ms_max
        self._image = EMPTY
        self._coordinators: dict[PartitionIndex, PartitionCoordinator] = {}
        self._to_load: asyncio.Queue[PartitionCoordinator] = asyncio.Queue()
        self._to_work: dict[PartitionCoordinator, None] = {}
        self._scheduled = False
        self._deadlines: dict[PartitionCoordinator, Millis] = {}
        self._to_tick: set[PartitionCoordinator] = set()
        """Coordinators whose deadline has come; they are in `_to_work` too."""
        self._suspensions = SuspensionLog(kind.name, kind.topic)
        self._notices = NoticeLog()
        self._loading = Loading(clock=clock, image=lambda: self._image, damaged=self._damaged, meter=self.meter)
        replicas.leaderships.follow(kind.topic, self)
        replicas.tick_with(self._tick, self._next_due)

    async def run(self) -> None:
        """Load coordinators until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(LOADS_AT_ONCE):
                tasks.create_task(self._load_queued())

    async def _load_queued(self) -> None:
        while True:
            coordinator = await self._to_load.get()
            if not coordinator.ended:
                await self._loading.load(coordinator)
                self._note_deadline(coordinator)

    def _damaged(self, log: Log, error: TidelogError) -> None:
        """Report damage that a load has found in a log."""
        # The node may continue as leader, if no other replica can lead. Its next start finds the damage again, and does
        # not lead: an operator then accepts the loss or restores the file.
        replica = self._replicas.registry.of_log(log)
        self._replicas.damage.known(log, error)
        if replica is not None:
            replica.directory.keep_damage(log, accepted=False)

    # --- leaderships and metadata ---

    def leadership_began(self, partition: PartitionIndex, key: PartitionKey) -> None:
        """As `LeadershipFollower.leadership_began`."""
        replica = self._replicas.registry.by_key[key]
        leader = replica.leader
        assert leader is not None, "the leadership has begun"
        coordinator = PartitionCoordinator(
            self.kind,
            replica,
            leader,
            clock=self._clock,
            why_no_lease=self._why_no_lease,
            commit_ms_max=self._commit_ms_max,
            wake=self._wake,
            refused=self._suspended,
            notices=self._notices,
            meter=self.meter,
        )
        self._coordinators[partition] = coordinator
        self._to_load.put_nowait(coordinator)

    def leadership_ending(self, partition: PartitionIndex) -> None:
        """As `LeadershipFollower.leadership_ending`."""
        coordinator = self._coordinators.pop(partition, None)
        if coordinator is not None:
            coordinator.end(self._why_none(self._replicas.image, partition))
            self._to_work.pop(coordinator, None)
            self._deadlines.pop(coordinator, None)
            self._to_tick.discard(coordinator)

    def on_image(self, image: ClusterImage) -> None:
        """Let every machine see a new image."""
        self._image = image
        for coordinator in self._coordinators.values():
            coordinator.image_changed(image)

    # --- requests ---

    async def submit(self, partition: PartitionIndex, request: Any, check: TransactionCheck = UNVERIFIED) -> Any:
        """The answer of the coordinator, once it is committed. check: that of the append of transactional records.

        Raises the error that the coordinator answered, NotCoordinator, CoordinatorLoadInProgress,
        CoordinatorNotAvailable, UnreadableCoordinatorRecord, and InvalidProducerEpoch, InvalidTxnState for
        transactional records that the log refuses."""
        return await self.coordinator(partition).submit(request, check)

    def report(self, partition: PartitionIndex, event: Any) -> bool:
        """Report an event of this node to a coordinator. Returns False if it is not there, or cannot append now: its
        next load asks for the event again. A busy coordinator refuses a report that has waited for long: it is
        repeated, since nothing else would."""

        def settled(decision: asyncio.Future[Any]) -> None:
            if not decision.cancelled() and isinstance(decision.exception(), CoordinatorNotAvailable):
                self.report(partition, event)

        try:
            decision = self.coordinator(partition).submit(event, needs_lease=False)
        except TidelogError:
            return False
        decision.add_done_callback(settled)
        return True

    def coordinator(self, partition: PartitionIndex) -> PartitionCoordinator:
        """The coordinator of a partition. Raises NotCoordinator; CoordinatorLoadInProgress if this node was elected and
        has not begun to lead; CoordinatorNotAvailable if the partition has no leader."""
        found = self._coordinators.get(partition)
        if found is None:
            raise self._why_none(self._image, partition)
        return found

    def _why_none(self, image: ClusterImage, partition: PartitionIndex) -> TidelogError:
        """Why this node has no coordinator of the partition, according to an image."""
        topic, name = image.topic(self.kind.topic), f"partition {self.kind.topic}-{partition}"
        leader = topic.partitions[partition].leader if topic and partition < len(topic.partitions) else None
        if leader == self._replicas.node_id and not self._replicas.stopping:
            return CoordinatorLoadInProgress(f"this node begins to lead {name}; try again after a pause")
        if leader == NO_NODE:  # a lookup finds none either: this node may be elected again
            return CoordinatorNotAvailable(f"{name} has no leader at the moment; try again after a pause")
        return NotCoordinator(
            f"this node does not lead {name}, as far as it knows: look the {self.kind.name} coordinator up again"
        )

    @property
    def partitions(self) -> tuple[PartitionIndex, ...]:
        """The partitions whose coordinators are on this node, in any state."""
        return tuple(sorted(self._coordinators))

    @property
    def led_partitions(self) -> tuple[PartitionIndex, ...]:
        """The partitions that this node leads according to the newest image; the coordinator of some may not be there
        yet."""
        topic = self._image.topic(self.kind.topic)
        states = () if topic is None else topic.partitions
        return tuple(
            PartitionIndex(index) for index, state in enumerate(states) if state.leader == self._replicas.node_id
        )

    @property
    def partition_count(self) -> int:
        """Number of partitions of the internal topic; 0 if it does not exist."""
        topic = self._image.topic(self.kind.topic)
        return 0 if topic is None else len(topic.partitions)

    def leader_of(self, partition: PartitionIndex, listener: str) -> NodeAddress:
        """The node of the coordinator, with its address on that listener. Raises CoordinatorNotAvailable."""
        topic = self._image.topic(self.kind.topic)
        if topic is None or not 0 <= partition < len(topic.partitions):
            raise CoordinatorNotAvailable(f"the topic {self.kind.topic} does not exist yet; try again after a pause")
        return coordinator_node(self._image, topic, partition, listener)

    def with_leader(self, error: TidelogError, partition: PartitionIndex, listener: str) -> TidelogError:
        """The error. If it makes the client look the coordinator up, the coordinator's address is added, if known."""
        if not isinstance(error, NotCoordinator):
            return error
        try:
            return NotCoordinator(error.message, leader=self.leader_of(partition, listener))
        except CoordinatorNotAvailable:
            return error

    # --- work and time ---

    def _wake(self, coordinator: PartitionCoordinator) -> None:
        self._to_work[coordinator] = None
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._work)

    def _work(self) -> None:
        """Let coordinators with requests work, for some milliseconds; those that are left work in the next turn."""
        self._scheduled = False
        due, self._to_work = self._to_work, {}
        began = self._clock.monotonic_ms()
        while due and self._clock.monotonic_ms() - began < TURN_MS:
            coordinator = next(iter(due))
            del due[coordinator]
            try:
                if coordinator in self._to_tick:
                    self._to_tick.remove(coordinator)
                    if coordinator.tick():
                        self._to_load.put_nowait(coordinator)
                if coordinator.work():
                    self._to_work[coordinator] = None
            except Exception as defect:  # noqa: BLE001 - the other coordinators are not affected
                coordinator.defect_found(defect)  # the state of its machine is unknown: it is loaded again
            self._note_deadline(coordinator)
        self._to_work = due | self._to_work
        if self._to_work and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._work)

    def _suspended(self, partition: PartitionIndex, why: str) -> None:
        self._replicas.ticker.by(self._suspensions.note(partition, why, self._clock.monotonic_ms()))

    def _tick(self, now: Millis) -> None:
        self._suspensions.write(now)
        for coordinator in [each for each, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[coordinator]
            self._to_tick.add(coordinator)
            self._wake(coordinator)

    def _note_deadline(self, coordinator: PartitionCoordinator) -> None:
        deadline = None if coordinator.ended else coordinator.deadline
        if deadline is None:
            self._deadlines.pop(coordinator, None)
        elif self._deadlines.get(coordinator) != deadline:
            self._deadlines[coordinator] = deadline
            self._replicas.ticker.by(deadline)

    def _next_due(self, _now: Millis) -> Millis | None:
        due = min(self._deadlines.values(), default=None)
        line = self._suspensions.due
        return due if line is None or (due is not None and due < line) else line

    # --- metrics ---

    def figures(self) -> CoordinatorFigures:
        """The present state, for the metrics."""
        states = Counter(coordinator.state for coordinator in self._coordinators.values())
        waiting = sum(coordinator.undelivered for coordinator in self._coordinators.values())
        entries: Counter[str] = Counter()
        for coordinator in self._coordinators.values():
            entries.update(coordinator.sizes())
        return CoordinatorFigures(
            self.kind.name,
            {state: states[state] for state in CoordinatorState if state is not CoordinatorState.ENDED},
            waiting,
            entries,
            self.meter,
        )
