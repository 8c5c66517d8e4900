"""The replicas of one node: applies the cluster image to them, and owns the tasks that serve them.

The changes of each committed image are applied on the loop, a few partitions per turn: replicas become leaders or
followers, logs of removed topics are deleted, missing logs are created. Images may be skipped: each is complete.

Invariants:
  1. An image is ignored until it contains the registration of this incarnation.
  2. Each leader epoch gets a new core. Within an epoch, only a higher partition epoch is a change.
  3. A log is deleted only if the removal of its topic or replica was seen.
  4. A damaged replica stays offline until the metadata has removed it from both sets (design, section 4, rule 6) and
     the leader epoch in which it was last used has ended. Exception: no other replica is eligible as leader.
  5. `run` owns every task, and returns when all have ended.

Not here: the image (replication/controller/image.py), one replica (partition.py), the logs on disk (log_shelf.py).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from node.observability.meters.topic_meter import TopicMeters
from node.replicas.due_partitions import DuePartitions
from node.replicas.isr_proposer import AlterPartition, IsrProposer, Proposing
from node.replicas.log_shelf import LogShelf
from node.replicas.partition import Partition
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_fetcher import ReplicaFetcher
from node.replicas.salvaging import Salvaging
from node.requests.types.fetch import FetchingReplica
from node.runtime.memory_budget import MemoryBudget
from node.runtime.peers import Peers
from node.runtime.ticker import Ticker
from replication.controller.elections import electable
from replication.controller.events import DamagedReplica
from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from replication.controller.image_changes import changes_between
from replication.partition.leader_events import ProposalAccepted, ProposeIsr, ReplicaView
from replication.partition.move_throttle import MoveThrottle
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.clock import Clock
from tidelog.errors import (
    CorruptLog,
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidRequest,
    KafkaStorageError,
    LeadershipLost,
    NotLeaderOrFollower,
    TidelogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
)

_log = logging.getLogger("node.replicas")

REMEMBERED_TOPICS: Final = 1_000
"""Names of removed topics that the node remembers, to distinguish "created again" from "unknown topic"."""


@dataclass(frozen=True, slots=True)
class _Unmade:
    """A replica whose log could not be created: this node can only ask the controller for another leader."""

    key: PartitionKey

    def proposed(self, proposal: ProposeIsr) -> None: ...

    def proposal_accepted(self, proposal: ProposeIsr, answer: ProposalAccepted) -> None: ...

    def proposal_failed(self, proposal: ProposeIsr) -> None: ...


class ReplicaManager:
    """The registry of this node's replicas, by id and by name."""

    def __init__(
        self,
        node_id: NodeId,
        incarnation: Incarnation,
        logs: LogManager,
        *,
        clock: Clock,
        rng: random.Random,
        peers: Peers,
        alter_partition: AlterPartition,
        config: ReplicaConfig,
    ) -> None:
        """logs: of open directories, loaded before the first image. Callbacks set before are kept."""
        self._me = node_id
        self._incarnation = incarnation
        self._shelf = LogShelf(node_id, logs, config.log_defaults)
        self._clock = clock
        self._rng = rng
        self._peers = peers
        self._config, self._lag_ms_max = config, config.replication.lag_ms_max
        self.memory = MemoryBudget(config.memory_bytes)
        self.topics = TopicMeters()
        self._proposer = IsrProposer(node_id, alter_partition, clock=clock, config=config)
        self._image = EMPTY
        self._partitions: dict[PartitionKey, Partition] = {}
        self._by_wire: dict[tuple[bytes, int], Partition] = {}
        self._by_name: dict[TopicPartition, Partition] = {}
        self._unopened: dict[PartitionKey, None] = {}
        self._unmade: dict[PartitionKey, int] = {}
        """Those of `_unopened` whose log could not be created, with the number of attempts."""
        self._wake_opener = asyncio.Event()
        self._put_off: dict[Partition, None] = {}
        """Replicas whose metadata changed during a truncation or repair of their log."""
        self._due = DuePartitions(clock, config.applied_at_once, self._carry_out)
        self._removed: dict[TopicId, str] = {}
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._ticking: list[tuple[Callable[[Millis], None], Callable[[Millis], Millis | None]]] = []
        self._attended: dict[Partition, None] = {}
        self._watched: dict[Partition, None] = {}
        """For the next review. Idle replicas are neither attended nor watched."""
        self._borne: dict[Partition, Damage] = {}
        """Damage of leaders that no other replica can replace."""
        self._salvaging = Salvaging(node_id, self._reopened)
        self._tasks: asyncio.TaskGroup | None = None
        self._fetch_ids = itertools.count(1)
        self._next_round = Millis(0)
        self._ticker = Ticker(clock, config.tick_ms, self._tick)
        self._throttle = MoveThrottle(config.replication.throttled_rate)
        self._stop = asyncio.Event()
        self.stopping = False
        for directory in logs.directories:
            self._listen(directory)

    def _listen(self, directory: LogDirectory) -> None:
        others_durable, others_offline = directory.on_durable, directory.on_offline

        def on_durable(log: Log) -> None:
            partition = self._by_name.get(log.topic_partition)
            if partition is not None and partition.log is log:
                partition.durable_moved()
            else:
                others_durable(log)

        def on_offline(failed: LogDirectory) -> None:
            others_offline(failed)
            self._directory_failed(failed)

        directory.on_durable, directory.on_offline = on_durable, on_offline

    # --- start and stop ---

    async def run(self) -> None:
        """Run the tasks until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            ticking = tasks.create_task(self._ticker.run())
            opening = tasks.create_task(self._open_for_ever())
            applying = tasks.create_task(self._due.run())
            tasks.create_task(self._proposer.run())
            for fetcher in self._fetchers.values():
                tasks.create_task(fetcher.run())
            await self._stop.wait()
            ticking.cancel()
            opening.cancel()
            applying.cancel()
            for fetcher in self._fetchers.values():
                fetcher.stop()
            self._proposer.stop()
        self._tasks = None

    async def stop(self) -> None:
        """Answer all waiting requests, then end the tasks. The log directories close their logs themselves."""
        self.stopping = True
        self._due.clear()
        for partition in self._partitions.values():
            self._leave_fetcher(partition)
            partition.stop("the node is stopping", leader=NO_NODE, leader_epoch=partition.leader_epoch)
        await self._clock.sleep_ms(0)  # lets the streams send these answers
        self._stop.set()

    def _tick(self, now: Millis, ticks: int) -> Millis | None:
        """Act on the clock. Returns when the next tick is due."""
        attended, self._attended = self._attended, {}
        if now >= self._next_round:
            self._next_round = Millis(now + self._lag_ms_max // 16)
            self._review()
        for partition in attended:
            partition.tick()
        for tick, _ in self._ticking:
            tick(now)
        for fetcher in self._fetchers.values():
            fetcher.tick(ticks)
        return now if self._attended else self._next_due(now)

    def _next_due(self, now: Millis) -> Millis | None:
        """When the next tick is due; None: no deadline is open."""
        dues = [fetcher.due(now) for fetcher in self._fetchers.values()]
        dues += [at for _, due in self._ticking if (at := due(now)) is not None]
        if self._watched or self._borne or self._salvaging.waits or self._unopened:
            dues.append(self._next_round)
        return min(dues, default=None)

    def tick_with(self, tick: Callable[[Millis], None], due: Callable[[Millis], Millis | None]) -> None:
        """Call `tick` with each tick. due: returns when it needs the next one; None: not at all."""
        self._ticking.append((tick, due))

    def wake_by(self, due: Millis) -> None:
        """Tick at this time or earlier."""
        self._ticker.by(due)

    def wake_soon(self) -> None:
        """Tick as soon as the tick interval allows."""
        self._ticker.soon()

    def _review(self) -> None:
        watched, self._watched = self._watched, {}
        for partition in watched:
            if partition.offline is not None:
                self._resign(partition)
                again = True
            else:
                again = partition.review()
            if again:
                self._watched[partition] = None
            else:
                self._watched.pop(partition, None)
        for partition, damage in list(self._borne.items()):
            self.damage_found(partition.log, damage)
        for state in self._salvaging.due(self._image):
            self._apply(self._image.topics[state.topic_id], state)
        for key, attempts in self._unmade.items():
            if attempts > 1:
                self._resign(_Unmade(key))
        if self._unopened:
            self._wake_opener.set()

    # --- the metadata ---

    def on_image(self, image: ClusterImage) -> None:
        """Apply a newly committed image."""
        node = image.nodes.get(self._me)
        if self.stopping or node is None:
            return
        if node.incarnation != self._incarnation:
            if self._image is not EMPTY:
                self._step_down("another process has registered as this node")
            return
        old, self._image = self._image, image
        self._ticker.soon()
        self._proposer.node_epoch = node.node_epoch
        if old is EMPTY:
            self._shelf.take_stock(image)
        changes = changes_between(old, image)
        for topic in changes.removed:
            self._remember(topic)
            self._due.add(state.key for state in topic.partitions)
        self._due.add(changes.partitions)
        if changes.nodes:
            self._due.add(key for key, each in self._partitions.items() if each.leader is not None)
        self._due.carry_out_some()

    def _carry_out(self, key: PartitionKey) -> None:
        """Apply the newest image to a partition."""
        topic, state = self._image.topics.get(key.topic_id), self._image.partition(key)
        if topic is None or state is None:
            self._unopened.pop(key, None)
            self._unmade.pop(key, None)
            self._delete(key, f"topic {self._removed.get(key.topic_id, key.topic_id)} was deleted")
            return
        known = self._partitions.get(key)
        if known is not None and known.configs is not topic.configs and known.directory.offline is None:
            known.configs = topic.configs
            self._shelf.reconfigure(topic, known.log)
        self._apply(topic, state)

    def _step_down(self, reason: str) -> None:
        self._put_off.clear()
        self._unopened.clear()
        self._due.clear()
        for partition in self._partitions.values():
            self._leave_fetcher(partition)
            partition.stop(reason, leader=NO_NODE, leader_epoch=partition.leader_epoch)

    def _remember(self, topic: TopicState) -> None:
        self._removed[topic.topic_id] = topic.name
        while len(self._removed) > REMEMBERED_TOPICS:
            del self._removed[next(iter(self._removed))]

    def _delete(self, key: PartitionKey, reason: str) -> None:
        partition = self._partitions.get(key)
        if partition is None or self._is_put_off(partition):
            return
        self._dismiss(partition, reason)
        if partition.directory.offline is not None or partition.log.closed:
            return  # the next start sets the log aside
        try:
            partition.directory.delete_log(partition.name)
        except TidelogError as error:
            _log.warning("%s: the log of the removed replica was not deleted: %s", partition, error.message)
        if self._unopened:
            self._wake_opener.set()  # another topic may have the same name by now

    def _dismiss(self, partition: Partition, reason: str) -> None:
        self._leave_fetcher(partition)
        partition.stop(reason, leader=NO_NODE, leader_epoch=partition.leader_epoch)
        del self._partitions[partition.key]
        del self._by_wire[partition.key.topic_id.bytes, partition.key.partition]
        del self._by_name[partition.name]
        self.topics.remove_replica(partition.name.topic)
        self._attended.pop(partition, None)
        self._watched.pop(partition, None)
        self._borne.pop(partition, None)
        self._salvaging.forget(partition)

    def _is_put_off(self, partition: Partition) -> bool:
        """True if the log is being truncated or repaired: the image is applied to it when that has ended."""
        if partition.log.truncation is None and partition not in self._salvaging:
            return False
        self._put_off[partition] = None
        return True

    def truncation_ended(self, partition: Partition) -> None:
        """Apply the newest image to a partition whose log may be used again."""
        if partition not in self._put_off or self.stopping:
            return
        del self._put_off[partition]
        self._carry_out(partition.key)
        if self._unopened:
            self._wake_opener.set()

    def _apply(self, topic: TopicState, state: PartitionState) -> None:
        known = self._partitions.get(state.key)
        if known is not None and self._is_put_off(known):
            return
        if self._me not in state.replicas:
            self._unopened.pop(state.key, None)
            self._unmade.pop(state.key, None)
            self._delete(state.key, "the replica was moved to other nodes")
            return
        partition = self._partitions.get(state.key)
        if partition is None and (found := self._shelf.find(topic, state)) is not None:
            partition = self._install(topic, state, *found)
        if partition is None or self._begins_anew(partition, state):
            self._unopened[state.key] = None
            self._wake_opener.set()
            return
        damage, anew = partition.log.damage, False
        if damage is not None and self._salvaging.is_accepted(partition, state):
            self._salvaging.begin(partition, damage)
            if self._is_put_off(partition):
                return
        elif damage is not None:
            if partition.offline is None:
                self.log_damaged(partition, CorruptLog(f"its log lost {damage}"))
            elif self._serves_on(partition) and state.partition_epoch > partition.proposed_on:
                partition.offline, anew = None, True  # elected, or left as the only one, before the controller knew
                self._bear(partition, damage)
                partition.directory.keep_damage(partition.log, accepted=True)
        partition.moves_here = self._me in state.adding and self._me not in state.isr
        if partition.leader_epoch == state.leader_epoch and not anew:
            partition.learn(state, self._image.min_insync(state), self._views(state))
        else:
            self._take_role(state, partition)

    def _begins_anew(self, partition: Partition, state: PartitionState) -> bool:
        """Set aside a log that does not fit the metadata, if no set counts on it and its epoch is over."""
        why = self._shelf.why_unfit(partition.directory, partition.log, state)
        if why is None or self._me in state.counted_on or state.leader_epoch <= partition.used_in:
            return False
        self._dismiss(partition, f"the log is created again: {why}")
        if partition.directory.offline is None:
            self._shelf.set_aside(partition.directory, partition.name, why)
        return True

    def _reopened(self, old: Partition, log: Log) -> None:
        """The repair of a damaged log ended. If it failed, it is repeated as long as the metadata requires it."""
        topic, state = self._image.topics.get(old.key.topic_id), self._image.partition(old.key)
        had_news = self._put_off.pop(old, old) is None
        if self.stopping or self._partitions.get(old.key) is not old or not (had_news or log is not old.log):
            return
        if topic is None or state is None:
            old.log = log
        elif log is not old.log:
            self._dismiss(old, "the log was opened again after a repair")
            self._install(topic, state, old.directory, log)
        self._carry_out(old.key)
        if self._unopened:
            self._wake_opener.set()

    async def _open_for_ever(self) -> None:
        """Create missing logs, one after the other, on the executors of their directories."""
        while True:
            await self._wake_opener.wait()
            self._wake_opener.clear()
            for key in list(self._unopened):
                await self._open(key)

    async def _open(self, key: PartitionKey) -> None:
        topic, state = self._image.topics.get(key.topic_id), self._image.partition(key)
        attempts = self._unmade.pop(key, 0)
        unwanted = key not in self._unopened or self.stopping
        if unwanted or topic is None or state is None or self._me not in state.replicas:
            self._unopened.pop(key, None)
            return
        if TopicPartition(topic.name, state.partition) in self._by_name:
            return  # the log of an earlier topic of this name is not deleted yet
        made = await self._shelf.make(topic, state)
        if made is None:
            self._unmade[key] = attempts + 1
        else:
            self._take_in(key, *made)

    def _take_in(self, key: PartitionKey, directory: LogDirectory, log: Log) -> None:
        """Use a log that was created, unless the metadata no longer requires it."""
        if self.stopping:
            return
        still_wanted = key in self._unopened
        self._unopened.pop(key, None)
        topic, state = self._image.topics.get(key.topic_id), self._image.partition(key)
        if topic is None or state is None or self._me not in state.replicas or not still_wanted:
            self._shelf.give_up(directory, log)
            return
        partition = self._install(topic, state, directory, log)
        partition.moves_here = self._me in state.adding and self._me not in state.isr
        self._take_role(state, partition)

    def _take_role(self, state: PartitionState, partition: Partition) -> None:
        self._leave_fetcher(partition)
        if partition.offline is not None or state.leader == NO_NODE:
            partition.stop("the partition has no leader", leader=state.leader, leader_epoch=state.leader_epoch)
        elif state.leader == self._me:
            partition.lead(state, self._image.min_insync(state), self._views(state), lag_ms_max=self._lag_ms_max)
        else:
            partition.follow(state)

    def _views(self, state: PartitionState) -> dict[NodeId, ReplicaView]:
        nodes = self._image.nodes
        return {
            replica: ReplicaView(node.node_epoch, node.incarnation, not node.fenced and not node.draining, node.rack)
            for replica in state.replicas
            if (node := nodes.get(replica)) is not None
        }

    # --- logs ---

    def _install(self, topic: TopicState, state: PartitionState, directory: LogDirectory, log: Log) -> Partition:
        name = TopicPartition(topic.name, state.partition)
        meter = self.topics.add_replica(topic.name)
        partition = Partition(state.key, name, log, directory, me=self._me, host=self, rng=self._rng, topic_meter=meter)
        partition.configs = topic.configs
        self._partitions[partition.key] = partition
        self._by_wire[partition.key.topic_id.bytes, partition.key.partition] = partition
        self._by_name[partition.name] = partition
        if partition.directory.offline is not None:
            partition.go_offline(KafkaStorageError(f"log directory {partition.directory.path} is offline"))
        return partition

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Take the replicas of a failed log directory offline; all others continue."""
        error = KafkaStorageError(f"the log directory {directory.path} is offline: {directory.offline}")
        _log.error("%s", error.message)
        for partition in self._partitions.values():
            if partition.directory is directory and partition.offline is None:
                self._leave_fetcher(partition)
                partition.go_offline(error)

    def log_damaged(self, partition: Partition, error: TidelogError) -> None:
        """Take a replica with a damaged log offline, unless it is the only one that can lead the partition."""
        if partition.offline is not None or not self._serves_on(partition):
            self._stop_damaged(partition, error)
        elif partition not in self._borne and partition.log.damage is not None:
            self._bear(partition, partition.log.damage)

    def _serves_on(self, partition: Partition) -> bool:
        """True if a damaged replica leads, its log takes appends, and no other replica is eligible as leader."""
        return partition.directory.offline is None and partition.log.lost.takes_appends and self._must_stay(partition)

    def _bear(self, partition: Partition, damage: Damage) -> None:
        _log.error(
            "%s: continues as leader without lost records: no other replica is eligible; its log lost %s. Start the "
            "nodes of the other replicas, or restore the file from a copy",
            partition,
            damage,
        )
        self._borne[partition] = damage
        self._ticker.soon()

    def _stop_damaged(self, partition: Partition, error: TidelogError) -> None:
        self._borne.pop(partition, None)
        _log.error("%s: offline until fetched again from another leader: %s. Check the disk", partition, error.message)
        self._leave_fetcher(partition)
        partition.go_offline(error)
        partition.directory.keep_damage(partition.log, accepted=False)

    def damage_found(self, log: Log, damage: Damage) -> None:
        """Record damage found by the scrub or a follower, and take the replica offline: it leaves both sets and is
        fetched again. A leader that no other replica can replace continues; each review tries again."""
        partition = self._by_name.get(log.topic_partition)
        if partition is None or partition.log is not log or partition.offline is not None:
            return
        log.lost.note(damage)
        if self._must_stay(partition):
            if partition not in self._borne:
                self._bear(partition, damage)
            self._ticker.soon()
            return
        self._stop_damaged(partition, CorruptLog(f"its log lost {damage}"))
        state = self._image.partition(partition.key)
        if state is not None:
            self._apply(self._image.topics[state.topic_id], state)

    def log_start_moved(self, log: Log) -> None:
        """Retention has advanced the log start offset of a log."""
        partition = self._by_name.get(log.topic_partition)
        if partition is not None and partition.log is log:
            partition.log_start_moved()

    def damaged(self) -> list[DamagedReplica]:
        """Replicas that are offline because their logs are damaged."""
        return [
            DamagedReplica(partition.key, str(partition.log.damage), partition.used_in)
            for partition in self._partitions.values()
            if partition.log.damage and partition.offline is not None and partition.directory.offline is None
        ]

    def _must_stay(self, partition: Partition) -> bool:
        """True if this node leads and no other member of the in-sync or eligible set is electable."""
        image, state = self._image, self._image.partition(partition.key)
        if state is None:
            return True
        others = (node for node in (*state.isr, *state.elr) if node != self._me)
        return state.leader == self._me and not any(electable(image, state, node) for node in others)

    def _resign(self, partition: Proposing) -> None:
        """Ask the controller for another leader of a partition that this node cannot serve."""
        state = self._image.partition(partition.key)
        if state is None or state.leader != self._me:
            return
        nodes = self._image.nodes
        others = tuple(
            (node, nodes[node].node_epoch) for node in sorted(state.isr) if node != self._me and node in nodes
        )
        if others or state.elr:
            self._proposer.propose(partition, ProposeIsr(state.leader_epoch, state.partition_epoch, others))

    # --- services to partitions (PartitionHost) ---

    def monotonic_ms(self) -> Millis:
        """The clock of all replication."""
        return self._clock.monotonic_ms()

    def want_fetch(self, partition: Partition) -> None:
        """Send a fetch for this follower."""
        self._fetcher(partition.leader_node).want(partition)

    def report_durable(self, partition: Partition, durable_offset: Offset) -> None:
        """Report the durable offset of a follower whose fetch waits."""
        self._fetcher(partition.leader_node).report(partition, durable_offset)

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Propose another in-sync set to the controller."""
        self._proposer.propose(partition, proposal)

    def attend(self, partition: Partition) -> None:
        """Include this partition in the next tick."""
        self._attended[partition] = None
        self._ticker.soon()

    def watch(self, partition: Partition) -> None:
        """Include this partition in the next review."""
        self._watched[partition] = None
        self._ticker.by(self._next_round)

    def _fetcher(self, leader: NodeId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                leader,
                FetchingReplica(self._me, self._incarnation),
                endpoint=lambda: self._endpoint(leader, self._config.listener),
                fetch_ids=self._fetch_ids,
                clock=self._clock,
                rng=self._rng,
                peers=self._peers,
                config=self._config,
                throttle=self._throttle,
                wake_soon=self._ticker.soon,
            )
            self._ticker.soon()
            if self._tasks is not None:
                self._tasks.create_task(fetcher.run())
        return fetcher

    def _leave_fetcher(self, partition: Partition) -> None:
        if partition.follower is not None and partition.leader_node in self._fetchers:
            self._fetchers[partition.leader_node].forget(partition)

    def _endpoint(self, node_id: NodeId, listener: str) -> Endpoint | None:
        node = self._image.nodes.get(node_id)
        return None if node is None else node.listeners.get(listener)

    # --- services to request handlers ---

    @property
    def image(self) -> ClusterImage:
        """The newest image applied."""
        return self._image

    def partitions(self) -> Iterable[Partition]:
        """Every partition with a replica on this node."""
        return self._partitions.values()

    def find(self, topic_id: bytes, index: int) -> Partition | None:
        """The replica of a partition, by the topic id and index of a request; None if there is none."""
        return self._by_wire.get((topic_id, index))

    def locate(self, topic_id: bytes, index: int, listener: str) -> Partition:
        """As `find`. Raises the reason if there is none; NotLeaderOrFollower names the leader if known."""
        partition = self._by_wire.get((topic_id, index))
        if partition is None:
            raise self._absence(topic_id, index, listener)
        return partition

    def _absence(self, topic_id: bytes, index: int, listener: str) -> TidelogError:
        if len(topic_id) != 16:
            return InvalidRequest(f"a topic id has 16 bytes, {len(topic_id)} were sent")
        key = PartitionKey(TopicId(UUID(bytes=topic_id)), PartitionIndex(index))
        topic = self._image.topics.get(key.topic_id)
        if topic is None:
            name = self._removed.get(key.topic_id)
            if name is not None and name in self._image.topic_ids:
                return InconsistentTopicId(
                    f"topic {name} was deleted and created again: {key.topic_id} is its former id; look it up again"
                )
            return UnknownTopicId(f"no topic has the id {key.topic_id}, as far as this node knows: look it up again")
        state = self._image.partition(key)
        if state is None:
            return UnknownTopicOrPartition(
                f"topic {topic.name} has {len(topic.partitions)} partitions, numbered from 0; {index} is not one"
            )
        if self._me in state.replicas:
            return NotLeaderOrFollower(
                f"partition {topic.name}-{index} has no log here yet, or its directory is offline; retry after a pause"
            )
        return NotLeaderOrFollower(
            f"this node has no replica of partition {topic.name}-{index}",
            leader=self._address(state.leader, state.leader_epoch, listener),
        )

    def with_leader(self, error: TidelogError, partition: Partition | None, listener: str) -> TidelogError:
        """The error; with the address of the leader if it tells the client to look for another leader."""
        if partition is None or error.leader is not None:
            return error
        if not isinstance(error, NotLeaderOrFollower | LeadershipLost | FencedLeaderEpoch | KafkaStorageError):
            return error
        address = self._address(partition.leader_node, partition.leader_epoch, listener)
        return error if address is None else type(error)(error.message, leader=address)

    def _address(self, leader: NodeId, leader_epoch: LeaderEpoch, listener: str) -> NodeAddress | None:
        endpoint = self._endpoint(leader, listener) if leader != NO_NODE else None
        if endpoint is None or leader_epoch == NO_LEADER_EPOCH:
            return None
        return NodeAddress(leader, endpoint, self._image.nodes[leader].rack, leader_epoch)
