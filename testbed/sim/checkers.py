"""Rules that must hold in a cluster after every event, whatever fails, as objects that watch it.

To stay cheap, the checkers look only at replicas of the process whose callback ran, and only at those that changed.

  - One leader per epoch: an epoch of a partition belongs to one incarnation of one node.
  - Epochs and high watermarks never go back within an incarnation of a node. Only outside the in-sync set a replica of
    a compacted topic may fetch again what it had.
  - Committed records stay committed: all replicas have the same bytes below their high watermarks.
  - Deleted records stay deleted, and only those are deleted that a request or retention allows (deletions.py).
  - Only a leader commits, only while its in-sync set is as large as `min.insync.replicas`, and every member of the set
    holds what it commits.
  - A leader begins with everything that was committed before, and each member of the in-sync set has it (with
    `durability=page-cache` only the leader, as long as one machine that has it keeps its power).
  - A record acknowledged with acks=all is committed, unchanged, at the acknowledged offset.
  - Nothing is committed twice. Records of an idempotent producer are committed in the order of its calls.
  - Readers see only committed records; readers of decided transactions see no record of an aborted or open one. No
    record is committed that no client sent.
  - No replica is placed on a cordoned node, or in a cordoned log directory: cordons.py. What waves of moves may begin:
    waves.py.
  - In the metadata log a batch of one epoch at one offset is the same everywhere, committed or not (log matching). Its
    leader commits older epochs only through a record of its own, and only what a majority of the voters holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from replication.controller.image import ClusterImage
from testbed.sim import cordons
from testbed.sim.coordination import Coordination
from testbed.sim.deletions import Deletion
from testbed.sim.ledger import METADATA_LOG, Cleanup, Ledger, Violation, is_commit
from testbed.sim.readings import Reading
from testbed.sim.remote_segments import RemoteSegments
from testbed.sim.unclean import Loss
from testbed.sim.waves import Waves
from testbed.sim.workload import Fate, Sent
from tidelog.records import RecordBatch, iter_batches
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, Durability, LeaderEpoch, Offset, PartitionKey, TopicId

READ_BYTES = 1 << 20


class ReadableLog(Protocol):
    """The part of storage's Log that a checker uses."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def local_log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def durable_offset(self) -> Offset: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def size(self) -> int: ...


class ReplicaView(NamedTuple):
    """The current state of one replica. `log` is None if the node has none (yet, or its directory is offline)."""

    key: PartitionKey
    name: str  # topic-partition, for messages
    log: ReadableLog | None
    leader_epoch: LeaderEpoch
    leads: bool
    durability: Durability
    partition_epoch: int = -1
    """The version of the in-sync set that a leader uses."""


@dataclass(slots=True)
class Watched:
    """The last observed state of one replica within one incarnation of its node. at_us: when its log was observed,
    in any incarnation. hidden: its log has been out of use since then and may have lost records at any time."""

    at_us: int = 0
    hidden: bool = False
    log: ReadableLog | None = None
    epoch: int = -1
    leads: bool = False
    log_end: int = 0
    high_watermark: int = -1
    log_start: int = 0
    local_start: int = 0
    size_max: int = 0  # the largest size of the log since its start last moved
    compared: int = 0  # everything from the log start up to here has been compared with the ledger


class Checkers:
    """All rules over one world.

    read: returns the bytes of a log's range without disturbing its node. members: the in-sync set of a partition by the
    newest committed metadata: each member's node, and its replica if the node runs and has applied the metadata; a
    member without a replica holds nothing. configs: the current settings of a partition's topic. now_us: the virtual
    time. wall_ms: the latest time that the clock of a node has shown since a given moment; a log may lose records
    before its clock is set back, and this is observed only when the log is back in use. has: whether the ledger's bytes
    of a range are known to be in a log without reading it; if unknown, the log is read. has_rotted: whether a bit has
    flipped on the disk of a node.
    """

    def __init__(
        self,
        *,
        read: Callable[[str, ReadableLog, int, int], bytes],
        members: Callable[[PartitionKey], list[tuple[str, ReplicaView | None]]],
        note: Callable[[str], None],
        configs: Callable[[PartitionKey], Mapping[str, str]] = lambda key: {},
        now_us: Callable[[], int] = lambda: 0,
        wall_ms: Callable[[str, int], int] = lambda node, since_us: 0,
        has: Callable[[str, ReadableLog, Ledger, int, int], bool] = lambda *_: False,
        has_rotted: Callable[[str], bool] = lambda _: False,
        coordination: Coordination | None = None,
    ) -> None:
        """coordination: the rules of groups and transactions; None: the default ones."""
        self.ledgers: dict[PartitionKey, Ledger] = {}
        self.coordination = coordination or Coordination()
        self.waves = Waves()
        self.remote = RemoteSegments(self.ledgers, lambda key: bool(configs(key)))
        self.sent: list[Sent] = []
        self.has_applications = False
        """Applications write records, too: their values may repeat, and acknowledgements.py judges them."""
        self._values: dict[bytes, Sent] = {}
        self._numbered: dict[bytes, Sent] = {}
        self.readings: list[Reading] = []
        self._read = read
        self._members = members
        self._note = note
        self._configs = configs
        self._now_us = now_us
        self._wall_ms = wall_ms
        self._has = has
        self._has_rotted = has_rotted
        self._cleanups: dict[TopicId, Cleanup] = {}
        self._watched: dict[tuple[str, PartitionKey], Watched] = {}
        self._restarted_at: dict[tuple[str, PartitionKey], int] = {}  # where a replica's empty log last began
        self._voters = 1
        self._metadata_durable: dict[str, int] = {}  # by node: the last observed durable offset
        self._set_sizes: dict[tuple[PartitionKey, int], tuple[int, int]] = {}
        self._placed: dict[tuple[int, int], bytes] = {}  # batches of the metadata log, by base offset and epoch

    def ledger(self, key: PartitionKey, name: str) -> Ledger:
        found = self.ledgers.get(key)
        if found is None:
            found = self.ledgers[key] = Ledger(name, self._cleanup(key))
        return found

    def _cleanup(self, key: PartitionKey) -> Cleanup:
        found = self._cleanups.get(key.topic_id)
        if found is None:
            found = self._cleanups[key.topic_id] = Cleanup()
            found.widen(self._configs(key))
        return found

    def settings_changed(self, keys: Iterable[PartitionKey]) -> None:
        """The committed metadata have new settings for the topics of these partitions."""
        for key in keys:
            self._cleanup(key).widen(self._configs(key))

    # --- after every event ---

    def node_began(self, node: str) -> None:
        """A new incarnation starts: drop the state observed in the old one."""
        for key, seen in self._watched.items():
            if key[0] == node:
                self._watched[key] = Watched(seen.at_us)

    def look(self, node: str, incarnation: str, replicas: Iterable[ReplicaView]) -> None:
        """Check what changed on one node since the last call."""
        now_us = self._now_us()
        for replica in replicas:
            seen = self._watched.get((node, replica.key))
            if seen is None:
                seen = self._watched[node, replica.key] = Watched()
            log, led = replica.log, seen.leads
            since_us = seen.at_us if seen.hidden or log is not seen.log else now_us
            self._led_last(node, replica, seen, led=led)
            seen.hidden = log is None
            if log is not None and log is not seen.log:  # a log may be out of use for a while and come back
                seen.log, seen.high_watermark, seen.log_start, seen.log_end, seen.compared = log, -1, 0, 0, 0
                seen.size_max = seen.local_start = 0
            if replica.leader_epoch != seen.epoch or replica.leads != seen.leads:
                self._epoch_moved(node, incarnation, replica, seen)
            if log is not None:
                if replica.name == METADATA_LOG:
                    self._metadata_durable[node] = log.durable_offset
                if log.log_end_offset < seen.log_end:
                    seen.compared = min(seen.compared, log.log_end_offset)
                    self._members_have_all(replica.key, "a log was truncated")
                elif log.log_end_offset > seen.log_end and replica.name == METADATA_LOG:
                    self._logs_match(node, replica, log, max(seen.log_end, log.log_start_offset))
                ended, seen.log_end = seen.log_end, log.log_end_offset
                self._stay_deleted(node, replica, log)
                if log.log_start_offset != seen.log_start:
                    if ended != log.log_end_offset == log.log_start_offset:
                        self._restarted_at[node, replica.key] = log.log_start_offset
                    self._start_moved(node, replica, log, seen, since_us)
                self._local_start_moved(node, replica, log, seen)
                seen.size_max = max(seen.size_max, log.size)
                seen.at_us = now_us
                if log.high_watermark != seen.high_watermark:
                    self._watermark_moved(node, replica, log, seen, led=led)

    def _led_last(self, node: str, replica: ReplicaView, seen: Watched, *, led: bool) -> None:
        """A leader's log has just gone out of use: count what it committed in the same event as committed."""
        log = seen.log
        if led and replica.log is None and log is not None and log.high_watermark > seen.high_watermark:
            self._watermark_moved(node, replica, log, seen, led=True)

    def published(self, node: str, log: ReadableLog, before: ClusterImage, after: ClusterImage) -> None:
        """There are new committed metadata. log: the metadata log of the node that was the first to know them."""
        self.sets_are_of_present_nodes(after)
        self.sets_published(before, after)
        start = max(before.offset, log.log_start_offset)
        cordons.hold(before, after, lambda: self._read(node, log, start, after.offset))
        self.waves.moved(before, after)

    def sets_published(self, before: ClusterImage, after: ClusterImage) -> None:
        """Record the actual and the required size of each in-sync set by partition epoch, and the number of voters."""
        self._voters = len(after.voters)
        for topic_id, topic in after.topics.items():
            if before.topics.get(topic_id) is not topic:
                for state in topic.partitions:
                    self._set_sizes[state.key, state.partition_epoch] = len(state.isr), after.min_insync(state)

    def sets_changed(self, changed: Iterable[PartitionKey]) -> None:
        """The committed metadata have new in-sync sets for these partitions."""
        for key in changed:
            ledger = self.ledgers.get(key)
            if ledger is not None and ledger.loss is not None and not ledger.lossy:
                ledger.loss.sound.update(node for node, _ in self._members(key))
            self._members_have_all(key, "the in-sync set changed")
            self._members_stay_deleted(key)

    def sets_are_of_present_nodes(self, image: ClusterImage) -> None:
        """KIP-841: no in-sync set with other members contains a fenced node, or a draining one other than the
        leader. The leader is a member of its set."""
        for state in image.partitions():
            if state.leader >= 0 and state.leader not in state.isr:
                name = f"{image.topics[state.topic_id].name}-{state.partition}"
                raise Violation(f"{name}: node {state.leader} leads and is not in its in-sync set {list(state.isr)}")
            for member in state.isr if len(state.isr) > 1 else ():
                node = image.nodes[member]
                if node.fenced or (node.draining and member != state.leader):
                    name = f"{image.topics[state.topic_id].name}-{state.partition}"
                    what = "fenced" if node.fenced else "being stopped"
                    raise Violation(f"{name}: node {member} is {what}, and in the in-sync set {list(state.isr)}")

    def forgive(self, key: PartitionKey, end: int) -> None:
        """Allow the loss of everything committed from `end` on: an unclean election was ordered."""
        self.ledgers[key].forgive(end)

    def may_have_lost(self, *keys: PartitionKey) -> None:
        """Allow any loss: no machine kept its power that had the data of the page caches. Committed records are no
        longer checked; leadership and recovery still are."""
        for key in keys:
            ledger = self.ledgers.get(key)
            if ledger is not None:
                ledger.lossy, ledger.loss = True, None

    def led_uncleanly(self, key: PartitionKey, epoch: LeaderEpoch) -> None:
        """An unclean election chose this leader, as the topic allows. Once it leads, its log decides what is
        committed."""
        ledger = self.ledgers.get(key)
        if ledger is None or (ledger.lossy and ledger.loss is None):
            return
        if ledger.loss is None:
            ledger.loss = Loss(epoch, self._now_us)
        ledger.loss.elected(epoch)
        ledger.lossy = True

    def _judge_again(self, node: str, replica: ReplicaView, log: ReadableLog, ledger: Ledger, loss: Loss) -> None:
        """The unclean leader begins: the prefix that it shares with the committed log stays committed, the rest is
        lost."""
        ledger.lossy, loss.brought = False, log.high_watermark
        ledger.deletions.lost_above(log.log_start_offset)
        loss.saw_other()
        end = max(min(ledger.end, log.log_start_offset), ledger.start)
        if ledger.end > end:
            for batch in iter_batches(self._read(node, log, end, min(ledger.end, log.log_end_offset))):
                if batch.base_offset > end:  # damage that the election accepted
                    ledger.forgive_range(end, int(batch.base_offset))
                if ledger.batches.get(int(batch.base_offset)) != bytes(batch.buffer):
                    break
                end = int(batch.next_offset)
        ledger.forgive(end)
        loss.sound = {node, *(member for member, _ in self._members(replica.key))}
        self._note(f"{ledger.name}: the committed log ends at {end} now and is judged again")
        for (_, key), seen in self._watched.items():
            if key == replica.key:
                seen.compared = min(seen.compared, end)
                seen.high_watermark = min(seen.high_watermark, end)  # this leader has committed everything below it
        for reading in self.readings:
            if reading.ledger is ledger and reading.position > end:
                reading.astray = True

    def _is_judged(self, sent: Sent, key: PartitionKey, ledger: Ledger) -> bool:
        """Whether only the present history of the partition can have acknowledged the record."""
        if ledger.loss is None or ledger.lossy:
            return not ledger.lossy
        for (_, other), seen in self._watched.items():
            if other == key and seen.leads and seen.epoch < ledger.loss.epoch:
                ledger.loss.saw_other()
        return sent.began_us > ledger.loss.others_us

    def _start_moved(self, node: str, replica: ReplicaView, log: ReadableLog, seen: Watched, since_us: int) -> None:
        """Check that only committed records are removed from the start of a log, and only if something allows it.
        since_us: earliest time of the removal."""
        start, seen.log_start = log.log_start_offset, log.log_start_offset
        size, seen.size_max = seen.size_max, 0
        ledger = self.ledger(replica.key, replica.name)
        if start <= ledger.start or not ledger.is_judged(node):
            return
        if start > ledger.end:
            raise Violation(
                f"{replica.name} on {node}: its log starts at {start}, but the committed log ends at {ledger.end}"
            )
        allowed = ledger.is_metadata or start <= ledger.deleted_to
        begin = max(ledger.start, ledger.deleted_to)
        if not (allowed or self._has_expired(node, log, ledger, since_us, size, begin)):
            raise Violation(f"{replica.name} on {node}: what was below {start} is gone, and nothing allows that")
        led = replica.leads or any(each.partition(".")[0] == node for each in ledger.leaders.values())
        if not (led or ledger.is_metadata or self._has_expired(node, log, ledger, since_us, size, ledger.start)):
            raise Violation(
                f"{replica.name} on {node}: its log starts at {start}, but that of no leader was above {ledger.start}"
            )
        ledger.start = start

    def _local_start_moved(self, node: str, replica: ReplicaView, log: ReadableLog, seen: Watched) -> None:
        """Check that the remote tier has what has left a node."""
        start, seen.local_start = seen.local_start, log.local_log_start_offset
        if start < seen.local_start and self.ledger(replica.key, replica.name).is_judged(node):
            self.remote.left_node(replica.key, f"{replica.name} on {node}", log.log_start_offset, seen.local_start)

    # --- deletions ---

    def deleted(self, key: PartitionKey, deletion: Deletion, low_watermark: int) -> None:
        """A deletion is acknowledged: check that the records are gone wherever a leader may come from."""
        ledger = self.ledgers[key]
        ledger.deletions.acknowledge(deletion, low_watermark)
        self._members_stay_deleted(key)

    def _acknowledged(self, key: PartitionKey) -> int:
        ledger = self.ledgers.get(key)
        return 0 if ledger is None else ledger.deletions.acknowledged

    def _members_stay_deleted(self, key: PartitionKey) -> None:
        for node, replica in self._members(key) if self._acknowledged(key) else ():
            if replica is not None and replica.log is not None:
                self._stay_deleted(node, replica, replica.log)

    def _stay_deleted(self, node: str, replica: ReplicaView, log: ReadableLog) -> None:
        """Check that a replica that leads or is in sync does not have records whose deletion was acknowledged. A
        flipped bit may have taken the log start from a node, and its followers when it leads learn what is left. A
        leader that is cut off keeps its log until it learns of the next one, which the deletion did not wait for."""
        below = self._acknowledged(replica.key)
        if log.log_start_offset >= below or not (ledger := self.ledgers[replica.key]).is_judged(node):
            return
        if self._has_rotted(node):
            if replica.leads:
                ledger.deletions.lost_above(log.log_start_offset)
            return
        leads = replica.leads and replica.leader_epoch >= max(ledger.leaders, default=replica.leader_epoch)
        if leads or node in {member for member, _ in self._members(replica.key)}:
            raise Violation(
                f"{replica.name} on {node}: its log starts at {log.log_start_offset}, but the deletion of everything "
                f"below {below} was acknowledged"
            )

    def _has_expired(self, node: str, log: ReadableLog, ledger: Ledger, since_us: int, size: int, begin: int) -> bool:
        """Whether the topic's retention by age or size allows what the log has just lost from `begin` on. size: size of
        the log before; of a topic with a remote tier both tiers count. The log may have been truncated after retention
        counted it; uncommitted records count too (as in Kafka)."""
        gone = sum(len(data) for base, data in ledger.batches.items() if begin <= base < log.log_start_offset)
        kept = ledger.size_from(log.log_start_offset) if ledger.cleanup.tiered else 0
        if max(log.size, size - gone, kept) >= ledger.cleanup.retention_bytes:
            return True
        youngest, latest = ledger.youngest_ms(begin, log.log_start_offset), self._wall_ms(node, since_us)
        return youngest < latest - ledger.cleanup.retention_ms

    def look_again(self, node: str, replica: ReplicaView) -> None:
        """Compare a whole log with the ledger again: compaction may have changed any part of it."""
        log, seen = replica.log, self._watched.get((node, replica.key))
        if log is not None and seen is not None and seen.log is log:
            seen.compared = 0
            self._compare(node, replica, log, log.log_start_offset, log.high_watermark)

    def _members_have_all(self, key: PartitionKey, why: str) -> None:
        """Check that every replica that may be elected next has everything that is committed."""
        ledger = self.ledgers.get(key)
        if ledger is not None and not ledger.lossy:
            for node, replica in self._members(key):
                self._member_has(node, replica, ledger, ledger.start, why)

    def _member_has(self, node: str, replica: ReplicaView | None, ledger: Ledger, start: int, why: str) -> None:
        end = ledger.end
        if not ledger.is_judged(node):
            return
        if replica is None:
            if end > ledger.start:
                raise Violation(
                    f"{ledger.name}: {node} is in the in-sync set and has no log, but everything below {end} is "
                    f"committed ({why})"
                )
            return
        log = replica.log
        if log is None or replica.durability is not Durability.FSYNC:
            return
        if log.durable_offset < end and ledger.start < end:  # otherwise retention has deleted all of it
            raise Violation(
                f"{replica.name}: {node} is in the in-sync set and holds offsets below {log.durable_offset} (log end "
                f"{log.log_end_offset}), but everything below {end} is committed ({why})"
            )
        self._compare(node, replica, log, start, end)

    def _epoch_moved(self, node: str, incarnation: str, replica: ReplicaView, seen: Watched) -> None:
        if replica.leader_epoch < seen.epoch:
            raise Violation(
                f"{replica.name} on {node}: its leader epoch went back from {seen.epoch} to {replica.leader_epoch}"
            )
        ledger = self.ledger(replica.key, replica.name)
        loss = ledger.loss
        if loss is not None and seen.leads and seen.epoch < loss.epoch:
            loss.saw_other()
        seen.epoch, seen.leads = replica.leader_epoch, replica.leads
        if not replica.leads:
            return
        if loss is not None and ledger.lossy and replica.leader_epoch >= loss.epoch and replica.log is not None:
            self._judge_again(node, replica, replica.log, ledger, loss)
        first = ledger.leaders.setdefault(replica.leader_epoch, incarnation)
        ledger.begun.setdefault(replica.leader_epoch, ledger.end)
        if first != incarnation:
            raise Violation(f"{replica.name} epoch {replica.leader_epoch} is led by {first} and by {incarnation}")
        self._note(f"{incarnation} leads {replica.name} in epoch {replica.leader_epoch}")
        if replica.log is not None:
            self._begins_complete(node, incarnation, replica, replica.log, ledger)

    def _begins_complete(
        self, node: str, incarnation: str, replica: ReplicaView, log: ReadableLog, ledger: Ledger
    ) -> None:
        if ledger.lossy or (ledger.loss is not None and replica.leader_epoch < ledger.loss.epoch):
            return
        # A node that learns late of its leadership need not have what leaders of newer epochs have committed since.
        newer = [end for epoch, end in ledger.begun.items() if epoch > replica.leader_epoch]
        committed = min([ledger.end, *newer])
        if log.log_end_offset < committed:
            raise Violation(
                f"{incarnation} leads {replica.name} in epoch {replica.leader_epoch} with its log ending at "
                f"{log.log_end_offset}, but everything below {committed} was committed before"
            )
        self._compare(node, replica, log, min(ledger.start, committed), committed)

    def _logs_match(self, node: str, replica: ReplicaView, log: ReadableLog, start: int) -> None:
        """Raft's log matching: a batch of one epoch at one offset is the same everywhere, committed or not."""
        for batch in iter_batches(self._read(node, log, start, log.log_end_offset)):
            place = int(batch.base_offset), int(batch.partition_leader_epoch)
            data = bytes(batch.buffer)
            if self._placed.setdefault(place, data) != data:
                raise Violation(
                    f"{replica.name} on {node}: offset {place[0]} of epoch {place[1]} has other bytes on another node"
                )

    def _watermark_moved(self, node: str, replica: ReplicaView, log: ReadableLog, seen: Watched, *, led: bool) -> None:
        """led: it was the leader at the last check; it may have committed and then resigned in one event."""
        reached = log.high_watermark
        ledger = self.ledger(replica.key, replica.name)
        if not ledger.is_judged(node) or (ledger.loss is not None and replica.leader_epoch < ledger.loss.epoch):
            seen.high_watermark = reached
            return
        if reached < seen.high_watermark:
            is_truncated = ledger.cleanup.compact and reached == log.log_end_offset
            if not is_truncated or node in {member for member, _ in self._members(replica.key)}:
                raise Violation(
                    f"{replica.name} on {node}: its high watermark went back from {seen.high_watermark} to {reached}"
                )
            seen.high_watermark, seen.compared = reached, min(seen.compared, reached)
        if reached > log.log_end_offset:
            raise Violation(f"{replica.name} on {node}: high watermark {reached} above log end {log.log_end_offset}")
        before = ledger.end
        if reached > before and not (replica.leads or led):
            raise Violation(
                f"{replica.name} on {node}: its high watermark is {reached}, but no leader committed beyond {before}"
            )
        self._compare(node, replica, log, seen.high_watermark, reached)
        seen.high_watermark = reached
        if ledger.end > before and replica.leads and replica.name == METADATA_LOG:
            self._commits_its_own(node, replica, ledger)
            self._many_hold_it(node, replica, ledger)
        if ledger.end > before:
            members, wanted = self._set_sizes.get((replica.key, replica.partition_epoch), (0, 0))
            brought = 0 if ledger.loss is None else ledger.loss.brought
            if replica.leads and members < wanted and reached > brought:
                raise Violation(
                    f"{replica.name} on {node}: {members} are in sync, {wanted} must be, and everything below "
                    f"{ledger.end} is committed"
                )
            for member, view in self._members(replica.key):
                self._member_has(member, view, ledger, before, f"by {node}")

    def _commits_its_own(self, node: str, replica: ReplicaView, ledger: Ledger) -> None:
        """Raft's figure 8: older epochs are committed only through a record of the leader's own epoch."""
        last = ledger.batches[max(ledger.batches)]
        epoch = int(next(iter(iter_batches(last))).partition_leader_epoch)
        if epoch != replica.leader_epoch:
            raise Violation(
                f"{replica.name} on {node}: as leader of epoch {replica.leader_epoch} it commits records of an "
                f"older epoch, {epoch}"
            )

    def _many_hold_it(self, node: str, replica: ReplicaView, ledger: Ledger) -> None:
        """Check that a number of nodes equal to a majority of the voters holds what is committed. Nodes that do not
        vote count too, because the set may be changing. A majority of the remaining voters commits the record that
        removes a voter."""
        holding = sorted(
            name for name, durable_offset in self._metadata_durable.items() if durable_offset >= ledger.end
        )
        if len(holding) <= (self._voters - 1) // 2:
            raise Violation(
                f"{replica.name}: {node} commits everything below {ledger.end}, which only {', '.join(holding)} of "
                f"{self._voters} voters hold"
            )

    def _compare(self, node: str, replica: ReplicaView, log: ReadableLog, start: int, end: int) -> None:
        """Check that everything in [start, end) of this log is in the ledger byte for byte, or append it to the
        ledger. What has been compared since the last truncation of the log is not compared again."""
        start = max(start, log.local_log_start_offset)
        ledger = self.ledger(replica.key, replica.name)
        if not ledger.is_judged(node):
            return
        seen = self._watched.get((node, replica.key))
        if seen is not None and seen.log is log:
            if start <= seen.compared:
                start, seen.compared = max(start, seen.compared), max(seen.compared, end)
            elif seen.compared <= log.local_log_start_offset == start:
                seen.compared = end
        if start >= end or self._has(node, log, ledger, start, end):
            return
        position = start
        for batch in iter_batches(self._read(node, log, start, end)):
            base = int(batch.base_offset)
            if base > position and ledger.missing(position, min(base, end)) is not None:
                break
            position = int(batch.next_offset)
            known = ledger.batches.get(base)
            if known is None and base == ledger.end:
                self._committed(ledger, batch, replica.key)
            elif known is None or (known != batch.buffer and not ledger.is_left_of(batch, known)):
                raise Violation(
                    f"{replica.name} on {node}: offset {base} (epoch {batch.partition_leader_epoch}) is not what was "
                    f"committed there before ({_describe(known, ledger, base)})"
                )
        if position < end and (gone := ledger.missing(position, end)) is not None:
            raise Violation(f"{replica.name} on {node}: offset {gone} is missing, below {end}, which is committed")

    def _committed(self, ledger: Ledger, batch: RecordBatch, key: PartitionKey) -> None:
        """Check a newly committed batch: none of its records was committed before, records of an idempotent producer
        come in the order of its calls, and a transaction is decided as its coordinator decided it."""
        decided = ledger.add(batch)
        found = (self._values.get(ledger.values[offset] or b"") for offset in decided)
        records = [sent for sent in found if sent is not None]
        for sent in records:
            if sent.transaction is not None and sent.transaction.is_contradicted(committed=is_commit(batch)):
                raise Violation(f"{ledger.name}: {sent} has a marker that contradicts its coordinator")
        if not ledger.is_metadata:
            self.coordination.committed(ledger, batch, decided, records)
        if ledger.name.startswith(REMOTE_LOG_METADATA_TOPIC):
            self.remote.replayed(batch)
        if ledger.is_internal or batch.is_control:  # no client writes to internal topics
            return
        for offset in range(int(batch.base_offset), int(batch.next_offset)):
            value = ledger.values[offset]
            if value is None or (self.has_applications and value not in self._values):
                continue
            if value in ledger.offsets:
                if self._leader_knows(ledger, batch, key, ledger.offsets[value]):
                    raise Violation(
                        f"{ledger.name}: {value[:40]!r} is committed at {ledger.offsets[value]} and at {offset}"
                    )
                if value in self._numbered:
                    ledger.last_of.pop(self._numbered[value].producer, None)
            ledger.offsets[value] = offset
            self._in_order(ledger, offset, value)
            if value not in self._values:
                raise Violation(f"{ledger.name}: {value[:40]!r} is committed at {offset}, and no client sent it")
            self.coordination.transactions.appended(ledger, offset, self._values[value])

    def _leader_knows(self, ledger: Ledger, batch: RecordBatch, key: PartitionKey, offset: int) -> bool:
        """Whether the leader that wrote this batch can still identify the sender at `offset`. It cannot if the
        offset was deleted before its log was recreated: producer state comes with the batches."""
        node = ledger.leaders.get(int(batch.partition_leader_epoch), "").partition(".")[0]
        return self._restarted_at.get((node, key), 0) <= offset

    def _in_order(self, ledger: Ledger, offset: int, value: bytes) -> None:
        sent = self._numbered.get(value)
        if sent is not None:
            last = ledger.last_of.get(sent.producer)
            if last is not None and last.number > sent.number:
                raise Violation(f"{ledger.name}: {sent} is committed at {offset}, after {last}, which was sent later")
            ledger.last_of[sent.producer] = sent

    # --- answers to clients ---

    def sending(self, sent: Sent) -> None:
        """A client begins to send; the checkers judge its answer when it arrives."""
        self.sent.append(sent)
        sent.began_us = self._now_us()
        self._values[sent.value] = sent
        if sent.producer:
            self._numbered[sent.value] = sent
        sent.on_done.append(self._answered)

    def reading(self, ledger: Ledger, *, decided: bool = False, position: int = 0) -> Reading:
        """A judge of what a reader receives from a partition. decided: it reads with read_committed."""
        self.readings.append(Reading(ledger, decided, position))
        return self.readings[-1]

    def reported_end(self, ledger: Ledger, epoch: int, offset: int, asked_at: int) -> None:
        """Check the end of the committed log as reported by the leader of an epoch (KIP-207). It must not be below
        the end when that epoch began. While no newer epoch has begun, it must not be below `asked_at`, the end when
        the leader got the request. It must not be above the committed end."""
        if ledger.loss is not None and epoch < ledger.loss.epoch:
            return
        begun = ledger.begun.get(LeaderEpoch(epoch), 0)
        if epoch == max(ledger.begun, default=-1):  # no other leader commits
            begun = max(begun, asked_at)
        if not (begun <= offset <= ledger.end or ledger.lossy):
            raise Violation(
                f"{ledger.name}: the leader of epoch {epoch} reports the end {offset}, but everything below "
                f"{ledger.end} is committed, and below {begun} when it began"
            )

    @property
    def reads(self) -> int:
        """How many records readers have received."""
        return sum(reading.count for reading in self.readings)

    def _answered(self, sent: Sent) -> None:
        if sent.fate is not Fate.ACKNOWLEDGED or sent.acks != -1:
            return
        key, ledger = self._ledger_of(sent)
        if not self._is_judged(sent, key, ledger):
            return
        if sent.offset not in ledger.values:
            raise Violation(f"{sent}, but offset {sent.offset} is not committed (all below {ledger.end} is)")
        if ledger.values[sent.offset] != sent.value:
            raise Violation(f"{sent}, but {ledger.values[sent.offset]!r} is committed at offset {sent.offset}")

    def _ledger_of(self, sent: Sent) -> tuple[PartitionKey, Ledger]:
        for key, ledger in self.ledgers.items():
            if key.topic_id.bytes == sent.topic_id and key.partition == sent.partition:
                return key, ledger
        raise Violation(f"{sent}, but nothing was ever committed in that partition")

    # --- at the end ---

    def all_sent_are_accounted_for(self) -> None:
        """Check that each acknowledged record is committed and that no record refused as not written is."""
        for key, ledger in self.ledgers.items():
            if ledger.is_metadata or ledger.lossy:
                continue
            mine = [s for s in self.sent if s.topic_id == key.topic_id.bytes and s.partition == key.partition]
            for sent in mine:
                lost = sent.value not in ledger.offsets and self._is_judged(sent, key, ledger)
                if sent.fate is Fate.ACKNOWLEDGED and sent.acks == -1 and lost:
                    raise Violation(f"{ledger.name}: acknowledged and lost: {sent}")
                # Of an aborted transaction, records that were written are reported as refused: nobody sees them.
                refused = sent.fate is Fate.REFUSED and ledger.offsets.get(sent.value, -1) not in ledger.aborted
                if refused and sent.value in ledger.offsets:
                    raise Violation(f"{ledger.name}: refused as not written, yet committed: {sent}")


def _describe(known: bytes | None, ledger: Ledger, base: int) -> str:
    if known is None:
        return f"the committed log up to {ledger.end} has no batch that begins there"
    batch = next(iter(iter_batches(known)))
    return (
        f"epoch {batch.partition_leader_epoch}, {batch.count} records, crc {batch.crc:08x}; now other bytes at {base}"
    )
