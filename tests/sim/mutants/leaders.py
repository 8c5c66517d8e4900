"""Leaders that break a rule of positions, commits, in-sync sets, or answers."""

from __future__ import annotations

from typing import Any

from node.replicas import leader_replica, replica_damage
from node.replicas import replica as node_replica
from node.replicas.follower_streams import FollowerStreams
from node.replicas.replica_registry import ReplicaRegistry
from replication.partition import isr
from replication.partition import leader as partition_leader
from replication.partition.leader_events import Acknowledge, FetchAgreed, FetchDiverged, FetchRefused
from storage.log import log as storage_log
from tests.sim.mutants.mutant import Patch
from tidelog.errors import OffsetOutOfRange
from tidelog.types import Acks, Millis, Offset


def a_diverging_fetch_counts(patch: Patch) -> None:
    """The positions of a fetch are recorded before the logs are compared."""

    def fetched(self: Any, fetch: Any) -> list[Any]:
        refusal = self._refusal(fetch)
        if refusal is not None:
            return [FetchRefused(refusal)]
        end = self.diverging(fetch.next_offset, fetch.last_epoch)
        self._set.agree(fetch)
        return [FetchAgreed() if end is None else FetchDiverged(end), *self._followed(fetch.replica, fetch.at)]

    patch.setattr(partition_leader.PartitionLeader, "_fetched", fetched)


def a_replica_joins_by_its_log_end(patch: Patch) -> None:
    """The log end of a replica counts for joining, not its durable offset."""

    def may_join(self: Any, replica: Any) -> bool:
        book, view = self._progress.get(replica), self._views.get(replica)
        if book is None or view is None or not view.eligible:
            return False
        return bool(book.log_end >= max(self.high_watermark, self.epoch_start))

    patch.setattr(isr.InSyncSet, "may_join", may_join)


def a_rejected_joiner_is_not_counted(patch: Patch) -> None:
    """A failed proposal is withdrawn at once, although a copy of it may still be in flight."""
    failed = isr.InSyncSet.proposal_failed

    def proposal_failed(self: Any, based_on: Any, at: Any) -> None:
        failed(self, based_on, at)
        self._joiners = frozenset()
        self._count()

    patch.setattr(isr.InSyncSet, "proposal_failed", proposal_failed)


def a_topic_is_found_by_its_name(patch: Patch) -> None:
    """Positions are matched to a partition without the topic id."""

    locate = ReplicaRegistry.locate

    def find(self: Any, topic_id: bytes, index: int) -> Any:
        exact = self._as_sent.get((topic_id, index))
        return exact or next((each for each in self.by_key.values() if each.key.partition == index), None)

    patch.setattr(ReplicaRegistry, "find", find)
    patch.setattr(
        ReplicaRegistry,
        "locate",
        lambda self, topic_id, index, listener: find(self, topic_id, index) or locate(self, topic_id, index, listener),
    )


def a_joiner_counts_once_admitted(patch: Patch) -> None:
    """A joiner counts only from the answer to its proposal on, not from the proposal on."""
    propose = isr.InSyncSet.propose

    def proposing(self: Any, at: Any, **rest: Any) -> Any:
        proposal = propose(self, at, **rest)
        self._joiners = frozenset()
        self._count()
        return proposal

    patch.setattr(isr.InSyncSet, "propose", proposing)


def a_leaver_is_not_counted(patch: Patch) -> None:
    """A member stops to count when its removal is proposed, before the commit."""
    propose = isr.InSyncSet.propose

    def proposing(self: Any, at: Any, **rest: Any) -> Any:
        proposal = propose(self, at, **rest)
        if proposal is not None:
            members = {node for node, _ in proposal.members}
            self._others_counted = tuple(node for node in self._others_counted if node in members)
        return proposal

    patch.setattr(isr.InSyncSet, "propose", proposing)


def epochs_are_not_compared(patch: Patch) -> None:
    """Fetches and produce requests of any leader epoch are accepted."""
    patch.setattr(partition_leader, "ensure_epoch", lambda *_: None)
    patch.setattr(node_replica, "ensure_epoch", lambda *_: None)


def any_incarnation_counts(patch: Patch) -> None:
    """A leader records positions from any incarnation of a node."""
    patch.setattr(isr.InSyncSet, "_is_present", lambda self, replica, _: replica in self._views)


def offsets_go_to_abandoned_streams(patch: Patch) -> None:
    """Offsets sent on an abandoned stream count as sent on the latest one, and fetches on it are not rejected."""
    fetched = leader_replica.LeaderReplica.fetched

    def first_use_stream(self: Any, fetch: Any, follower: Any, *rest: Any) -> Any:
        last = self._last_sent.get(follower.node_id)
        if last is None or last.session != follower.session:
            self._last_sent[follower.node_id] = leader_replica._LastSent(follower.session, Offset(-1), Offset(-1))
        return fetched(self, fetch, follower, *rest)

    patch.setattr(leader_replica.LeaderReplica, "fetched", first_use_stream)
    patch.setattr(leader_replica.LeaderReplica, "_use_stream", lambda *_: None)
    patch.setattr(leader_replica.LeaderReplica, "_is_outdated", lambda *_: False)


def a_leader_begins_its_epoch_twice(patch: Patch) -> None:
    """A leader that continues in its epoch after a stop takes its log end for the start of the epoch."""

    def begin(self: Any, *, history: Any, leader_epoch: Any, **rest: Any) -> None:
        earlier = [entry for entry in history if entry.epoch != leader_epoch]
        begin_with(self, history=earlier, leader_epoch=leader_epoch, **rest)

    begin_with = partition_leader.PartitionLeader.__init__
    patch.setattr(partition_leader.PartitionLeader, "__init__", begin)


def any_live_node_is_a_successor(patch: Patch) -> None:
    """A damaged leader resigns if the node of another member is alive, even if that node lacks the log."""
    patch.setattr(replica_damage, "electable", lambda image, state, node: not image.nodes[node].fenced)


def a_replica_stopped_for_damage_never_leads(patch: Patch) -> None:
    """A damaged replica that was elected before the controller knew of the damage does not lead, and no other replica
    does."""
    serves_on = replica_damage.ReplicaDamage._serves_on

    def while_it_serves(self: Any, replica: Any) -> bool:
        return replica.offline is None and serves_on(self, replica)

    patch.setattr(replica_damage.ReplicaDamage, "_serves_on", while_it_serves)


def reports_of_any_stream_count(patch: Patch) -> None:
    """Durable offsets are accepted from any stream of a follower and in any epoch."""

    def record_durable(self: Any, report: Any) -> bool:
        book = self._progress.get(report.replica)
        if book is None:
            return False
        book.durable_offset = max(book.durable_offset, min(report.durable_offset, self.log_end))
        return True

    def follower_durable(self: Any, report: Any) -> Any:
        return self._followed(report.replica, report.at) if self._set.record_durable(report) else []

    patch.setattr(FollowerStreams, "take_over", lambda *_: None)
    patch.setattr(isr.InSyncSet, "record_durable", record_durable)
    patch.setattr(partition_leader.PartitionLeader, "_follower_durable", follower_durable)


def a_small_set_commits(patch: Patch) -> None:
    """The high watermark advances whatever the size of the in-sync set."""
    commit = isr.InSyncSet.commit

    def committing(self: Any) -> Any:
        wanted, self.min_insync = self.min_insync, 0
        try:
            return commit(self)
        finally:
            self.min_insync = wanted

    patch.setattr(isr.InSyncSet, "commit", committing)


def a_small_set_takes_records(patch: Patch) -> None:
    """An append is accepted without a check of the number of in-sync replicas."""
    patch.setattr(partition_leader.PartitionLeader, "ensure_enough", lambda *_: None)


def a_shrunken_set_answers_no_producer(patch: Patch) -> None:
    """Producers that wait when the set shrinks below the minimum get no answer."""
    patch.setattr(isr.InSyncSet, "is_enough", property(lambda _: True))


def members_are_never_behind(patch: Patch) -> None:
    """A member stays in sync however far behind it is."""
    patch.setattr(isr.InSyncSet, "is_behind", lambda *_: False)


def a_stuck_leader_does_not_resign(patch: Patch) -> None:
    """A leader never detects that it lags itself."""
    is_behind = isr.InSyncSet.is_behind
    patch.setattr(
        isr.InSyncSet, "is_behind", lambda self, replica, at: replica != self._me and is_behind(self, replica, at)
    )


def an_eligible_replica_is_no_successor(patch: Patch) -> None:
    """A stuck leader hands over only to members of the in-sync set."""
    patch.setattr(isr.InSyncSet, "_has_successor", lambda self, stays, join: len(stays) > 1)


def a_resignation_is_sent_once(patch: Patch) -> None:
    """A leader whose resignation failed does not repeat it until its set changes."""
    fail = isr.InSyncSet.proposal_failed

    def failing(self: Any, based_on: Any, at: Any) -> None:
        fail(self, based_on, at)
        self._resign_at = Millis(1 << 62)

    patch.setattr(isr.InSyncSet, "proposal_failed", failing)


def a_leader_without_a_log_does_not_resign(patch: Patch) -> None:
    """A leader that cannot create its log tries again and does not resign."""
    resign = replica_damage.ReplicaDamage.resign

    def resigning(self: Any, key: Any) -> None:
        if key in self._registry.by_key:
            resign(self, key)

    patch.setattr(replica_damage.ReplicaDamage, "resign", resigning)


def an_acknowledgement_outlives_its_epoch(patch: Patch) -> None:
    """A waiting acknowledgement survives the end of the leadership and is sent in the node's next one."""
    kept: dict[Any, Any] = {}
    earlier: dict[Any, Any] = {}
    begin, lead = partition_leader.PartitionLeader.__init__, leader_replica.LeaderReplica.__init__

    def leading(self: Any, *given: Any) -> None:
        lead(self, *given)
        if self._log in earlier:
            self._pending, self._tickets = earlier[self._log]._pending, earlier[self._log]._tickets
        earlier[self._log] = self

    def beginning(self: Any, **given: Any) -> None:
        begin(self, **given)
        self._for_commit = kept.pop((self._me, given["known"].replicas, self.name), self._for_commit)

    def end(self: Any, reason: str) -> list[Any]:
        self._ended = reason
        kept[self._me, self._set.replicas, self.name] = self._for_commit
        return []

    patch.setattr(leader_replica.LeaderReplica, "__init__", leading)
    patch.setattr(partition_leader.PartitionLeader, "__init__", beginning)
    patch.setattr(partition_leader.PartitionLeader, "_end", end)


def an_acknowledgement_does_not_wait(patch: Patch) -> None:
    """`acks=all` is answered when the leader has the record."""
    patch.setattr(
        partition_leader.PartitionLeader,
        "_await_ack",
        lambda _, event: [Acknowledge((event.ticket,))],
    )


def a_leader_acknowledges_its_own_unsynced_records(patch: Patch) -> None:
    """`acks=1` is answered when the leader has written the record, before it is durable."""
    await_ack = partition_leader.PartitionLeader._await_ack

    def awaiting(self: Any, event: Any) -> Any:
        if event.acks is Acks.LEADER:
            return [Acknowledge((event.ticket,))]
        return await_ack(self, event)

    patch.setattr(partition_leader.PartitionLeader, "_await_ack", awaiting)


def readers_see_the_log_end(patch: Patch) -> None:
    """Consumers read up to the leader's log end."""
    patch.setattr(storage_log.Log, "end_for", lambda self, _: self.log_end_offset)


def the_last_stable_offset_is_one_too_high(patch: Patch) -> None:
    """With read_committed a consumer gets the first record of an open transaction."""

    def one_more(self: Any) -> Offset:
        unstable = self.first_unstable_offset
        return Offset(self.high_watermark if unstable is None else min(unstable + 1, self.high_watermark))

    patch.setattr(storage_log.Log, "last_stable_offset", property(one_more))


def aborted_transactions_are_not_named(patch: Patch) -> None:
    """With read_committed the answer does not contain the aborted transactions."""
    patch.setattr(storage_log.Log, "aborted_transactions", lambda *_, **__: ())


def a_new_leader_reports_the_end_it_knows(patch: Patch) -> None:
    """A new leader reports the end of the committed log before it knows it (KIP-207)."""
    patch.setattr(partition_leader.PartitionLeader, "knows_committed_end", property(lambda _: True))


def readers_are_not_asked_for_their_epoch(patch: Patch) -> None:
    """A reader beyond the end of its epoch gets no diverging epoch (KIP-320)."""

    def reader_fetched(self: Any, fetch: Any) -> None:
        self.leading_in(fetch.leader_epoch)

    patch.setattr(node_replica.Replica, "reader_fetched", reader_fetched)


def a_leader_does_not_verify_its_own_log(patch: Patch) -> None:
    """A leader sends bytes again that its followers reject, without verifying its own log."""
    patch.setattr(leader_replica, "check_own", lambda *_: None)


def answers_of_any_age_are_applied(patch: Patch) -> None:
    """The answer to a proposal is applied even if the metadata are newer."""

    def accepted(self: Any, members: Any, partition_epoch: Any, at: Any) -> bool:
        self._take(members, partition_epoch, at)
        return True

    patch.setattr(isr.InSyncSet, "accepted", accepted)


def readers_are_sent_to_any_replica(patch: Patch) -> None:
    """Readers are directed to the replica in their rack even if it is not in sync (KIP-392)."""

    def nearest(self: Any, rack: str, _offset: Any) -> Any:
        found = [node for node, view in self._views.items() if view.rack == rack and node != self._me]
        return found[0] if found else None

    patch.setattr(isr.InSyncSet, "nearest", nearest)


def missing_records_of_a_follower_are_out_of_range(patch: Patch) -> None:
    """A follower answers a reader that is ahead of it as a leader would: reset, it would read all again."""
    patch.setattr(node_replica, "OffsetNotAvailable", OffsetOutOfRange)
