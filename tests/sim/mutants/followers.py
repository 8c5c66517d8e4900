"""Planted bugs in followers: fetching, truncation, and reports to the leader."""

from __future__ import annotations

from typing import Any

from node.api.table import DATA_FETCH_STREAM
from node.replicas import (
    follower_log,
    follower_replica,
    leader_replica,
    replica_fetcher,
    replica_manager,
    waiting_fetch,
)
from node.replicas import replica as node_replica
from node.runtime.duplex import run_duplex
from replication.partition import follower
from replication.partition import leader as partition_leader
from replication.partition.follower_events import AdvanceWatermark, AppendRecords, RestartAt, Waited, WantFetch
from replication.partition.follower_states import FollowerCause, FollowerState
from storage.log import log as storage_log
from storage.log import validation
from tests.sim.mutants.mutant import Patch
from tidelog import epochs
from tidelog.types import Offset


def a_watermark_is_applied_before_the_truncation(patch: Patch) -> None:
    """The follower applies the high watermark of a diverging answer at once, and truncates after the next answer."""
    answer_of, truncate = waiting_fetch.diverging_answer, follower.PartitionFollower._diverged
    postponed: set[int] = set()

    def diverging_answer(fetch: Any, log: Any, epoch: Any, end: Any) -> Any:
        return answer_of(fetch, log, epoch, end)._replace(high_watermark=log.high_watermark)

    def diverged(self: Any, end: Any, answer: Any) -> list[Any]:
        if self.leader_epoch in postponed:
            return truncate(self, end, answer)
        postponed.add(self.leader_epoch)
        self.state = FollowerState.READY
        return [AdvanceWatermark(min(answer.high_watermark, self._log.log_end)), WantFetch()]

    patch.setattr(leader_replica, "diverging_answer", diverging_answer)
    patch.setattr(follower.PartitionFollower, "_diverged", diverged)


def an_answer_is_matched_by_partition_alone(patch: Patch) -> None:
    """A follower applies any answer for its partition, whichever fetch it belongs to. Silent streams stay open, and the
    log accepts older epochs."""

    async def receive(self: Any, stream: Any) -> None:
        while (response := await stream.receive()) is not None:
            for answer in response.partitions:
                found = latest.get((self._replica, answer.topic_id, answer.partition))
                if found is not None:
                    found.answered(answer)

    latest: dict[Any, Any] = {}

    def want(self: Any, follower: Any) -> None:
        latest[self._replica, follower.topic_id, follower.key.partition] = follower
        self._wanted[follower] = None
        self._wake.set()

    def answered(self: Any, answer: Any) -> list[Any]:
        if answer.has_records:
            self._open, self.state, self._watermark = None, FollowerState.WRITING, answer.high_watermark
            return [AppendRecords()]
        return original(self, answer)

    def prepare_follower(records: Any, **state: Any) -> Any:
        return prepare(records, **{**state, "last_epoch": -1})

    original, prepare = follower.PartitionFollower._answered, validation.prepare_follower
    patch.setattr(storage_log, "prepare_follower", prepare_follower)
    patch.setattr(replica_fetcher.ReplicaFetcher, "_receive", receive)
    patch.setattr(replica_fetcher.ReplicaFetcher, "want", want)
    patch.setattr(replica_fetcher.ReplicaFetcher, "tick", lambda self, ticks: None)
    patch.setattr(follower.PartitionFollower, "_answered", answered)


def a_paused_follower_is_checked_once(patch: Patch) -> None:
    """A follower that pauses after a rejection is checked at the next tick only, even if its pause is longer."""

    def tick(self: Any) -> None:
        self._handle(Waited(self._services.clock.monotonic_ms()))

    patch.setattr(follower_replica.FollowerReplica, "tick", tick)


def a_fetcher_stopped_while_it_connects_continues(patch: Patch) -> None:
    """A fetcher that is stopped closes its open stream, but not the one that it is opening."""

    async def serve_one_stream(self: Any) -> None:
        self._connected_to = self._endpoint()
        stream = await self._peers.open_stream(self._connected_to, DATA_FETCH_STREAM)
        self._stream, self._silent_ticks = stream, 0
        try:
            await run_duplex(self._receive(stream), self._send(stream))
        finally:
            stream.close()

    patch.setattr(replica_fetcher.ReplicaFetcher, "_serve_one_stream", serve_one_stream)


def a_follower_truncates_to_its_watermark(patch: Patch) -> None:
    """A new follower truncates its log to its high watermark (KIP-101)."""
    follow = node_replica.Replica.follow

    def following(self: Any, state: Any, fetcher: Any) -> None:
        self.log.truncate_to(self.log.high_watermark)
        follow(self, state, fetcher)

    patch.setattr(node_replica.Replica, "follow", following)


def a_follower_empties_its_log(patch: Patch) -> None:
    """A follower whose log diverges empties it instead of truncating it."""

    def diverged(self: Any, end: Any, answer: Any) -> list[Any]:
        return [RestartAt(answer.log_start, "it disagrees")]

    patch.setattr(follower.PartitionFollower, "_diverged", diverged)


def a_follower_truncates_to_the_leaders_epoch_end(patch: Patch) -> None:
    """A follower truncates to the leader's end of an epoch without a comparison with its own entries (KIP-279)."""
    patch.setattr(follower, "common_end", lambda history, log_end, answer: min(log_end, answer.end_offset))


def a_log_below_the_leaders_start_is_not_restarted(patch: Patch) -> None:
    """A follower that ends below the leader's log start repeats its fetch forever."""
    patch.setattr(
        follower.PartitionFollower,
        "_rejected",
        lambda self, answer, _: self._pause(FollowerCause.REFUSED, answer.error, answer.at),
    )


def a_follower_restarts_below_its_own_log_start(patch: Patch) -> None:
    """A follower that deleted more than its leader restarts at the leader's log start, below committed records."""
    diverged = follower.PartitionFollower._diverged

    def from_the_leaders_start(self: Any, end: Any, answer: Any) -> list[Any]:
        if epochs.common_end(answer.history, self._log.log_end, end) is not None:
            return diverged(self, end, answer)
        return self._restart(answer.log_start, "it has no epoch in common with the leader's log")  # type: ignore[no-any-return]

    patch.setattr(follower.PartitionFollower, "_diverged", from_the_leaders_start)


def a_batch_across_the_log_start_is_rejected(patch: Patch) -> None:
    """A follower that restarted within a batch rejects the batch that contains its start."""
    patch.setattr(follower_log, "_begins_below", lambda *_: None)


def a_follower_reports_its_durable_offset_with_fetches_only(patch: Patch) -> None:
    """An offset that becomes durable while a fetch waits is reported only with the next fetch."""
    patch.setattr(follower.PartitionFollower, "_durable_offset", lambda *_: [])


def a_lost_stream_is_not_noticed(patch: Patch) -> None:
    """A follower whose stream broke continues to wait for its answer."""
    patch.setattr(follower_replica.FollowerReplica, "stream_broken", lambda _: None)


def a_followers_log_start_moves_to_its_log_end(patch: Patch) -> None:
    """The log start of a follower moves to its log end instead of the leader's log start."""

    def advance(self: Any, committed: Any) -> Any:
        return original(self, follower._Committed(committed.watermark, Offset(self._log.log_end)))

    original = follower.PartitionFollower._advance
    patch.setattr(follower.PartitionFollower, "_advance", advance)


def an_unknown_epoch_counts_as_equal(patch: Patch) -> None:
    """A leader without an entry for the follower's last epoch treats the logs as equal."""

    def divergence(history: Any, log_start: Any, log_end: Any, next_offset: Any, last_epoch: Any) -> Any:
        if all(entry.epoch != last_epoch for entry in history):
            return None
        return compare(history, log_start, log_end, next_offset, last_epoch)

    compare = epochs.divergence
    patch.setattr(partition_leader, "divergence", divergence)


def metadata_is_applied_during_a_truncation(patch: Patch) -> None:
    """A change of the metadata is applied to a partition while its log is being truncated."""
    patch.setattr(replica_manager.ReplicaManager, "_postpone_if_busy", lambda *_: False)
