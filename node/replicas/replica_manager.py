"""The replicas of one node. The manager applies the cluster image to them and owns the tasks that serve them.

The changes of each committed image are applied on the loop, a few partitions per turn: replicas become leaders or
followers, logs of removed topics are deleted, missing logs are created. Images may be skipped: each is complete.

Invariants:
  1. An image is ignored until it contains the registration of this incarnation.
  2. Each leader epoch gets a new core. Within an epoch, only a higher partition epoch is a change.
  3. A log is deleted only if the removal of its topic or replica was seen.
  4. `run` owns every task, and returns when all have ended.

Not here: the image (replication/controller/image.py), one replica (replica.py), the logs on disk (log_registry.py),
damage (replica_damage.py), lookups for requests (replica_registry.py).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterable
from itertools import islice
from uuid import UUID

from node.api.fetch import FetchingReplica
from node.api.peers import Peers
from node.replicas.directory_moves import DirectoryMoves
from node.replicas.isr_proposer import AlterPartition, IsrProposer
from node.replicas.leadership_watch import LeadershipWatch
from node.replicas.log_registry import LogRegistry
from node.replicas.missing_logs import MissingLogs
from node.replicas.remote_reads import RemoteReads
from node.replicas.remote_starts import RemoteStarts
from node.replicas.replica import Replica
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_damage import ReplicaDamage
from node.replicas.replica_fetcher import LeaderFetchers, ReplicaFetcher
from node.replicas.replica_meters import ReplicaMeters
from node.replicas.replica_registry import ReplicaRegistry
from node.replicas.replica_schedule import ReplicaSchedule
from node.replicas.replica_services import ReplicaServices
from node.replicas.role_log import RoleLog
from node.replicas.salvaging import Salvaging
from node.replicas.turn_end import TurnEnd
from node.runtime.failure_log import FailureLog
from node.runtime.memory_budget import MemoryBudget
from node.runtime.ticker import Ticker
from node.runtime.topic_meter import TopicMeters
from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from replication.controller.image_changes import changes_between
from replication.partition.leader_events import ReplicaView
from replication.partition.move_throttle import MoveThrottle
from replication.partition.replica_lifecycle import ReplicaCause
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.log.log import Log
from tidelog.clock import Clock
from tidelog.errors import KafkaStorageError, TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.tiering.remote_errors import STORE_ERRORS
from tidelog.types import (
    NO_NODE,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
)

_log = logging.getLogger("node.replicas")


class ReplicaManager:
    """The replicas of this node."""

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
        call_soon: Callable[[Callable[[], None]], object],
        meters: ReplicaMeters | None = None,
        remote_reads: RemoteReads | None = None,
    ) -> None:
        """logs: of open directories, loaded before the first image. call_soon: of the event loop. remote_reads: None:
        this node has no object store."""
        self.node_id = node_id
        self._incarnation = incarnation
        self._log_registry = LogRegistry(node_id, logs, config.log_defaults)
        self._clock, self._rng, self._peers = clock, rng, peers
        self._config = config
        self.memory = MemoryBudget(config.memory_bytes)
        self.topics = TopicMeters()
        self.leaderships = LeadershipWatch()
        self._role_log = RoleLog()
        self.meters = meters or ReplicaMeters()
        self.image = EMPTY
        """The newest image applied."""

        def image() -> ClusterImage:
            return self.image

        self.ticker = Ticker(clock, config.tick_ms, self._tick)
        lag_ms_max = config.replication.lag_ms_max
        self._schedule = ReplicaSchedule(
            lag_ms_max // 16, wake_soon=self.ticker.soon, wake_by=self.ticker.by, reviewed=self._review
        )
        self._proposer = IsrProposer(
            node_id, alter_partition, clock=clock, config=config, changes=self.meters.isr_changes
        )
        self.registry = ReplicaRegistry(node_id, image)
        self.damage = ReplicaDamage(
            node_id, self.registry, self._proposer, image=image, wake_soon=self.ticker.soon, apply=self._carry_out
        )
        self.remote_starts = None if remote_reads is None else RemoteStarts(remote_reads)
        self._services = ReplicaServices(
            me=node_id,
            lag_ms_max=lag_ms_max,
            clock=clock,
            rng=rng,
            schedule=self._schedule,
            turn_end=TurnEnd(call_soon),
            proposer=self._proposer,
            resign=self.damage.resign,
            log_damaged=self.damage.known,
            damage_found=self.damage.found,
            truncation_ended=self._truncation_ended,
            log_start_moved=self.log_start_moved,
            leaderships=self.leaderships,
            role_log=self._role_log,
            meters=self.meters,
            remote_reads=remote_reads,
            remote_starts=self.remote_starts,
            remote_start_failures=FailureLog(logging.getLogger("node.partition"), clock, common=STORE_ERRORS),
        )
        self._missing = self._new_missing(image)
        self._postponed: dict[Replica, None] = {}
        """Replicas whose metadata changed during a truncation or repair of their log."""
        self._due = _DuePartitions(clock, config.applied_at_once, self._carry_out, self._role_log)
        self.fetchers = LeaderFetchers(self._new_fetcher)
        self._fetch_ids = itertools.count(1)
        self._throttle = MoveThrottle(config.replication.throttled_rate)
        self._ticking: list[tuple[Callable[[Millis], None], Callable[[Millis], Millis | None]]] = []
        self._salvaging = Salvaging(node_id, self._reopened)
        self.moves = self._new_moves(logs, image)
        self._stop = asyncio.Event()
        self.stopping = False
        self._follow_directories(logs)

    def _follow_directories(self, logs: LogManager) -> None:
        for directory in logs.directories:
            directory.when_durable.append(self._durable_moved)
            directory.when_offline.append(self._directory_failed)

    def _new_moves(self, logs: LogManager, image: Callable[[], ClusterImage]) -> DirectoryMoves:
        return DirectoryMoves(
            self.node_id,
            logs,
            self.registry,
            MoveThrottle(self._config.replication.alter_log_dirs_rate),
            clock=self._clock,
            image=image,
            unsealed=self._truncation_ended,
        )

    def _new_missing(self, image: Callable[[], ClusterImage]) -> MissingLogs:
        return MissingLogs(
            self.node_id,
            self._log_registry,
            image=image,
            has_log=lambda name: name in self.registry.by_name,
            made=self._use_created,
            resign=self.damage.resign,
        )

    # --- start and stop ---

    async def run(self) -> None:
        """Run the tasks until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            ticking = tasks.create_task(self.ticker.run())
            opening = tasks.create_task(self._missing.run())
            applying = tasks.create_task(self._due.run())
            tasks.create_task(self.moves.run(self._stop))
            tasks.create_task(self._proposer.run())
            self.fetchers.start(tasks)
            await self._stop.wait()
            ticking.cancel()
            opening.cancel()
            applying.cancel()
            self.fetchers.stop()
            self._proposer.stop()

    async def stop(self) -> None:
        """Answer all waiting requests, then end the tasks. The log directories close their logs themselves."""
        self.stopping = True
        self._due.clear()
        self._missing.stop()
        with self._role_log.collecting():
            for replica in self.partitions():
                replica.stop("the node is stopping", leader=NO_NODE, leader_epoch=replica.leader_epoch)
        await self._clock.sleep_ms(0)  # lets the streams send these answers
        self._stop.set()

    def _tick(self, now: Millis, ticks: int) -> Millis | None:
        """Act on the clock. Returns when the next tick is due."""
        self._schedule.tick(now)
        for tick, _ in self._ticking:
            tick(now)
        self.fetchers.tick(ticks)
        return now if self._schedule.has_attended else self._next_due(now)

    def _next_due(self, now: Millis) -> Millis | None:
        """When the next tick is due; None: no deadline is open."""
        due_times = self.fetchers.due_times(now)
        due_times += [at for _, due in self._ticking if (at := due(now)) is not None]
        if self._schedule.has_watched or self.damage.waits or self._salvaging.waits or self._missing:
            due_times.append(self._schedule.next_review)
        return min(due_times, default=None)

    def tick_with(self, tick: Callable[[Millis], None], due: Callable[[Millis], Millis | None]) -> None:
        """Call `tick` with each tick. due: returns when it needs the next one; None: not at all."""
        self._ticking.append((tick, due))

    def _review(self) -> None:
        self.damage.review()
        for key in self._salvaging.due(self.image):
            self._carry_out(key)
        self._missing.review()

    # --- the metadata ---

    def on_image(self, image: ClusterImage) -> None:
        """Apply a newly committed image."""
        node = image.nodes.get(self.node_id)
        if self.stopping or node is None:
            return
        if node.incarnation != self._incarnation:
            if self.image is not EMPTY:
                self._step_down("another process has registered as this node")
            return
        old, self.image = self.image, image
        self.ticker.soon()
        self._proposer.node_epoch = node.node_epoch
        if old is EMPTY:
            self._log_registry.assign_recovered(image)
            self.moves.drop_unneeded()
        changes = changes_between(old, image)
        for topic in changes.removed:
            self.registry.topic_removed(topic)
            self._due.add(state.key for state in topic.partitions)
        self._due.add(changes.partitions)
        if changes.nodes:
            self._due.add(replica.key for replica in self.partitions() if replica.leader is not None)
        self._due.carry_out_some()

    def _carry_out(self, key: PartitionKey) -> None:
        """Apply the newest image to a partition."""
        topic, state = self.image.topics.get(key.topic_id), self.image.partition(key)
        if topic is None or state is None:
            self._missing.discard(key)
            self._delete(key, f"topic {self.registry.name_of(key.topic_id)} was deleted")
            return
        known = self.registry.by_key.get(key)
        if known is not None:
            known.log.pinned = topic.pinned
        if known is not None and known.configs is not topic.configs and known.directory.offline is None:
            known.configs = topic.configs
            self._log_registry.reconfigure(topic, known.log)
        self._apply(topic, state)

    def _step_down(self, reason: str) -> None:
        self._postponed.clear()
        self._missing.clear()
        self._due.clear()
        with self._role_log.collecting():
            for replica in self.partitions():
                replica.stop(reason, leader=NO_NODE, leader_epoch=replica.leader_epoch)

    def _delete(self, key: PartitionKey, reason: str) -> None:
        replica = self.registry.by_key.get(key)
        if replica is None:
            self._log_registry.discard(key)
            return
        if self._postpone_if_busy(replica):
            return
        self._dismiss(replica, ReplicaCause.REMOVED, reason)
        self.moves.deleted(replica)
        if replica.directory.offline is not None or replica.log.closed:
            return  # the next start sets the log aside
        try:
            replica.directory.delete_log(replica.name)
        except TidelogError as error:
            _log.warning("%s: the log of the removed replica was not deleted: %s", replica, error.message)
        self._missing.try_again()  # another topic may have the same name by now

    def _dismiss(self, replica: Replica, cause: ReplicaCause, reason: str) -> None:
        replica.dismiss(cause, reason)
        self.registry.remove(replica)
        self.topics.remove_replica(replica.name.topic)
        self.damage.forget(replica)
        self._salvaging.forget(replica)
        self.moves.forget(replica)

    def _postpone_if_busy(self, replica: Replica) -> bool:
        """Postpone the change of a replica whose log is being truncated, repaired, or replaced by its copy. Returns
        True if it has to wait."""
        if replica.log.truncation is None and replica not in self._salvaging and not replica.log.sealed:
            return False
        self._postponed[replica] = None
        return True

    def _truncation_ended(self, log: Log) -> None:
        """Apply the newest image to a partition whose log may be used again."""
        replica = self.registry.of_log(log)
        if replica is None or replica not in self._postponed or self.stopping:
            return
        del self._postponed[replica]
        self._carry_out(replica.key)
        self._missing.try_again()

    def _apply(self, topic: TopicState, state: PartitionState) -> None:
        replica = self.registry.by_key.get(state.key)
        if replica is not None and self._postpone_if_busy(replica):
            return
        if self.node_id not in state.replicas:
            self._missing.discard(state.key)
            self._delete(state.key, "the replica was moved to other nodes")
            return
        if replica is None and (found := self._log_registry.find(topic, state)) is not None:
            replica = self._install(topic, state, *found)
            self._missing.discard(state.key)  # it waited for valid settings
        if replica is None or self._set_aside_unfit(replica, state):
            self._missing.add(state.key)
            return
        damage, resumes = replica.log.damage, False
        if damage is not None and self._salvaging.is_accepted(replica, state):
            self._salvaging.begin(replica, damage)
            if self._postpone_if_busy(replica):
                return
        elif damage is not None:
            resumes = self.damage.reconsider(replica, state, damage)
        self.moves.learn(replica)
        if replica.leader_epoch == state.leader_epoch and not resumes:
            replica.learn(state, self.image.min_insync(state), self._views(state))
        else:
            self._take_role(state, replica)

    def _set_aside_unfit(self, replica: Replica, state: PartitionState) -> bool:
        """Set aside a log that contradicts the metadata, unless its records must be kept (`counted_on`) or the replica
        has had a role in this leader epoch. Returns True if it was set aside."""
        why = self._log_registry.why_unfit(replica.directory, replica.log, state)
        if why is None or self.node_id in state.counted_on or state.leader_epoch <= replica.used_in:
            return False
        self._dismiss(replica, ReplicaCause.SET_ASIDE, f"the log is created again: {why}")
        if replica.directory.offline is None:
            self._log_registry.set_aside(replica.directory, replica.name, why)
        return True

    def _reopened(self, old: Replica, log: Log) -> None:
        """The repair of a damaged log ended. If it failed, it is repeated as long as the metadata requires it."""
        topic, state = self.image.topics.get(old.key.topic_id), self.image.partition(old.key)
        was_postponed = self._postponed.pop(old, old) is None
        if self.stopping or self.registry.by_key.get(old.key) is not old or not (was_postponed or log is not old.log):
            return
        if topic is None or state is None:
            old.log = log
        elif log is not old.log:
            self._dismiss(old, ReplicaCause.SET_ASIDE, "the log was opened again after a repair")
            self._install(topic, state, old.directory, log)
        self._carry_out(old.key)
        self._missing.try_again()

    def _use_created(self, topic: TopicState, state: PartitionState, directory: LogDirectory, log: Log) -> None:
        """Add the replica of a log that was created."""
        self._take_role(state, self._install(topic, state, directory, log))

    def _take_role(self, state: PartitionState, replica: Replica) -> None:
        if replica.offline is not None or state.leader == NO_NODE:
            replica.stop("the partition has no leader", leader=state.leader, leader_epoch=state.leader_epoch)
        elif state.leader == self.node_id:
            replica.lead(state, self.image.min_insync(state), self._views(state))
        else:
            replica.follow(state, self.fetchers.of(state.leader))

    def _views(self, state: PartitionState) -> dict[NodeId, ReplicaView]:
        nodes = self.image.nodes
        return {
            replica: ReplicaView(node.node_epoch, node.incarnation, not node.fenced and not node.draining, node.rack)
            for replica in state.replicas
            if (node := nodes.get(replica)) is not None
        }

    # --- logs ---

    def _install(self, topic: TopicState, state: PartitionState, directory: LogDirectory, log: Log) -> Replica:
        name = TopicPartition(topic.name, state.partition)
        replica = Replica(state.key, name, log, directory, self._services, self.topics.add_replica(topic.name))
        replica.configs, log.pinned = topic.configs, topic.pinned
        self.registry.add(replica)
        if directory.offline is not None:
            replica.go_offline(KafkaStorageError(f"log directory {directory.path} is offline"))
        self.moves.installed(replica)
        return replica

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Take the replicas of a failed log directory offline; all others continue."""
        error = KafkaStorageError(f"the log directory {directory.path} is offline: {directory.offline}")
        _log.error("%s", error.message)
        with self._role_log.collecting():
            for replica in self.partitions():
                if replica.directory is directory and replica.offline is None:
                    replica.go_offline(error)

    def _durable_moved(self, log: Log) -> None:
        replica = self.registry.of_log(log)
        if replica is not None:
            replica.durable_moved()

    def log_start_moved(self, log: Log) -> None:
        """Retention or a deletion has advanced the log start offset of a log."""
        replica = self.registry.of_log(log)
        if replica is not None:
            replica.log_start_moved()

    def is_behind(self, topic: TopicReference, index: int, leader_epoch: LeaderEpoch) -> bool:
        """True if a follower that fetches in this leader epoch has newer metadata than this node has applied: it is
        refused, tries again, and nothing is wrong. So it is for some milliseconds after each election."""
        replica = self.registry.find(topic, index)
        if replica is not None:
            return replica.leader_epoch < leader_epoch
        if isinstance(topic, str) or len(topic) != 16:
            return False
        key = PartitionKey(TopicId(UUID(bytes=topic)), PartitionIndex(index))
        state = self.image.partition(key)
        return state is None or state.leader_epoch < leader_epoch or self._missing.is_creating(key)

    def has_applied(self, key: PartitionKey, offset: Offset) -> bool:
        """True if the metadata of the partition are applied up to this offset at least."""
        return self.image.offset >= offset and key not in self._due

    def _new_fetcher(self, leader: NodeId) -> ReplicaFetcher:
        self.ticker.soon()
        return ReplicaFetcher(
            leader,
            FetchingReplica(self.node_id, self._incarnation),
            endpoint=lambda: self.registry.endpoint(leader, self._config.listener),
            fetch_ids=self._fetch_ids,
            clock=self._clock,
            rng=self._rng,
            peers=self._peers,
            config=self._config,
            throttle=self._throttle,
            wake_soon=self.ticker.soon,
        )

    def partitions(self) -> Iterable[Replica]:
        """Every partition with a replica on this node."""
        return self.registry.by_key.values()


class _DuePartitions:
    """Partitions whose metadata changed, in the order of their changes; a further change does not move a partition.

    An image may change thousands of them, for example when a node fails. Those that exceed the limit of a turn of the
    loop are applied in later turns; meanwhile they are as if the image had not arrived yet. The newest image is always
    the one applied."""

    def __init__(
        self, clock: Clock, at_once: int, carry_out: Callable[[PartitionKey], None], role_log: RoleLog
    ) -> None:
        """at_once: partitions per turn. carry_out: applies the newest image to a partition. role_log: of the changes
        that it causes, in one piece."""
        self._clock, self._at_once, self._carry_out, self._role_log = clock, at_once, carry_out, role_log
        self._due: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Queue partitions that changed."""
        self._due.update(dict.fromkeys(keys))

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._due

    def carry_out_some(self) -> None:
        """Apply the partitions of one turn."""
        self._role_log.begin()
        for key in list(islice(self._due, self._at_once)):
            self._due.pop(key, None)
            self._carry_out(key)
        if self._due:
            self._wake.set()
        else:
            self._role_log.end()

    def clear(self) -> None:
        """Remove all partitions from the queue."""
        self._due.clear()
        self._role_log.end()

    async def run(self) -> None:
        """Apply the rest, turn by turn, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep_ms(0)
            self.carry_out_some()
