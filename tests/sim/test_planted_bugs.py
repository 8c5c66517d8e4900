"""The simulator can fail: each story, with the rule it is about made weaker, must end in a broken promise.

A planted bug that no story and no checker notices is a missing checker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from node import fetch_answers, methods, replica_fetcher, replica_manager
from node import partition as node_partition
from node import registration as node_registration
from node.duplex import run_duplex
from replication import controller, elections, follower, isr, partition_leader, registration
from replication.controller_events import ProducerIdBlock
from replication.follower_events import AdvanceWatermark, AppendRecords, Waited, WantFetch
from replication.leader_events import FetchAgreed, FetchDiverged, FetchRefused
from replication.registration import Judged
from storage import flush, log_producers, producer_entry, validation
from storage import log as storage_log
from storage.files import sync_all
from tests.sim import producer_stories, stories
from tests.sim.world import Simulation
from tidelog import _producer_core
from tidelog.errors import KafkaStorageError
from tidelog.types import NO_NODE

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def an_epoch_outlives_its_incarnation(patch: Patch) -> None:
    """A node that comes back goes on leading in the epoch it had."""

    def nothing(*_: object) -> Iterator[Any]:
        return iter(())

    patch.setattr(registration, "judge", lambda *_: Judged((), ()))
    patch.setattr(elections, "fence_changes", nothing)
    patch.setattr(elections, "return_changes", nothing)


def a_diverging_fetch_counts(patch: Patch) -> None:
    """The positions of a fetch are entered before it is asked whether the logs agree."""

    def fetched(self: Any, fetch: Any) -> list[Any]:
        refusal = self._refusal(fetch)
        if refusal is not None:
            return [FetchRefused(refusal)]
        end = self.diverging(fetch.next_offset, fetch.last_epoch)
        self._set.agree(fetch)
        return [FetchAgreed() if end is None else FetchDiverged(end), *self._followed(fetch.replica, fetch.at)]

    patch.setattr(partition_leader.PartitionLeader, "_fetched", fetched)


def a_watermark_comes_before_the_cut(patch: Patch) -> None:
    """A diverging answer carries the leader's watermark; the follower takes it first and cuts its log when it is told
    again."""
    answer_of, cut_of = fetch_answers.diverging_answer, follower.PartitionFollower._diverged
    told: set[int] = set()

    def diverging_answer(fetch: Any, log: Any, epoch: Any, end: Any) -> Any:
        answer = answer_of(fetch, log, epoch, end)
        answer.high_watermark = log.high_watermark
        return answer

    def diverged(self: Any, end: Any, answer: Any) -> list[Any]:
        if self.leader_epoch in told:
            return cut_of(self, end, answer)
        told.add(self.leader_epoch)
        return [AdvanceWatermark(min(answer.high_watermark, self._log.log_end)), WantFetch()]

    patch.setattr(node_partition, "diverging_answer", diverging_answer)
    patch.setattr(follower.PartitionFollower, "_diverged", diverged)


def a_replica_joins_by_its_log_end(patch: Patch) -> None:
    """What a replica has fetched counts for joining, synced or not."""

    def may_join(self: Any, replica: Any) -> bool:
        book, view = self._books.get(replica), self._views.get(replica)
        if book is None or view is None or not view.eligible:
            return False
        return bool(book.log_end >= max(self.high_watermark, self.epoch_start))

    patch.setattr(isr.InSyncSet, "may_join", may_join)


def a_refused_joiner_counts_no_more(patch: Patch) -> None:
    """A proposal that failed is taken back at once, although a copy of it may still be under way."""
    failed = isr.InSyncSet.proposal_failed

    def proposal_failed(self: Any, based_on: Any, at: Any) -> None:
        failed(self, based_on, at)
        self._joiners = frozenset()
        self._count()

    patch.setattr(isr.InSyncSet, "proposal_failed", proposal_failed)


def an_answer_counts_for_any_fetch(patch: Patch) -> None:
    """Answers find their partition by name and are believed whatever was asked; nobody gives up a silent stream, the
    log does not mind an older epoch."""

    async def receive(self: Any, stream: Any) -> None:
        while (response := await stream.receive()) is not None:
            for answer in response.partitions:
                for found in list(self._every):
                    if found.key.topic_id.bytes == answer.topic_id and found.key.partition == answer.partition:
                        found.answered(answer)

    def want(self: Any, partition: Any) -> None:
        self.__dict__.setdefault("_every", {})[partition] = None
        self._wanted[partition] = None
        self._wake.set()

    def answered(self: Any, answer: Any) -> list[Any]:
        if answer.has_records:
            self._open, self.state, self._watermark = None, follower.FollowerState.WRITING, answer.high_watermark
            return [AppendRecords()]
        return original(self, answer)

    def prepare_follower(records: Any, **state: Any) -> Any:
        return prepare(records, **{**state, "last_epoch": -1})

    original, prepare = follower.PartitionFollower._answered, validation.prepare_follower
    patch.setattr(storage_log, "prepare_follower", prepare_follower)
    patch.setattr(replica_fetcher.ReplicaFetcher, "_receive", receive)
    patch.setattr(replica_fetcher.ReplicaFetcher, "want", want)
    patch.setattr(replica_fetcher.ReplicaFetcher, "tick", lambda self: None)
    patch.setattr(follower.PartitionFollower, "_answered", answered)


def a_topic_is_found_by_its_name(patch: Patch) -> None:
    """Positions find their partition without its topic's id."""

    def find(self: Any, topic_id: bytes, index: int) -> Any:
        exact = self._by_wire.get((topic_id, index))
        return exact or next((each for each in self._partitions.values() if each.key.partition == index), None)

    patch.setattr(replica_manager.ReplicaManager, "find", find)
    patch.setattr(
        replica_manager.ReplicaManager, "locate", lambda self, topic_id, index, _: find(self, topic_id, index)
    )


def a_leader_comes_from_all_replicas(patch: Patch) -> None:
    """The first replica that is alive is elected, in sync or not."""

    def choose_leader(image: Any, state: Any, members: Any) -> Any:
        able = [node for node in state.replicas if elections.electable(image, state, node)]
        return max((node for node in able if node != state.leader), default=NO_NODE)

    patch.setattr(elections, "choose_leader", choose_leader)


def unsynced_bytes_count_as_held(patch: Patch) -> None:
    """A replica says that it holds what it has only written."""
    patch.setattr(storage_log.Log, "held", property(lambda self: self.log_end_offset))


def a_flush_counts_beyond_a_cut(patch: Patch) -> None:
    """An fsync that was begun before the log was cut counts as far as it was meant to."""

    def lower(self: Any, offset: Any) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)

    patch.setattr(flush.FlushState, "lower", lower)


def names_are_not_synced(patch: Patch) -> None:
    """A flush syncs files, and forgets the folder that names them."""

    def run(self: Any) -> None:
        sync_all(self.handles)
        self.epoch_file.write(self.epoch_version, self.epochs)

    patch.setattr(flush.FlushTicket, "run", run)


def a_refused_follower_is_given_one_tick(patch: Patch) -> None:
    """A follower that pauses after a refusal is looked at once, whether its pause is over by then or not."""

    def tick(self: Any) -> None:
        if self.leader is not None:
            self._tick_leader(self.leader)
        elif self.follower is not None:
            self._follow(self.follower.handle(Waited(self._host.monotonic_ms())), None)

    patch.setattr(node_partition.Partition, "tick", tick)


def a_fetcher_stopped_while_it_connects_goes_on(patch: Patch) -> None:
    """A fetcher closes the stream it has when it is told to stop, not the one that it is about to have."""

    async def serve_one_stream(self: Any) -> None:
        self._connected_to = self._endpoint()
        stream = await self._transport.open_stream(self._connected_to, methods.DATA_FETCH_STREAM)
        self._stream, self._silent_ticks = stream, 0
        try:
            await run_duplex(self._receive(stream), self._send(stream))
        finally:
            stream.close()

    patch.setattr(replica_fetcher.ReplicaFetcher, "_serve_one_stream", serve_one_stream)


def a_folder_without_its_number_is_unfenced(patch: Patch) -> None:
    """A node goes on to be unfenced when a folder that it named could not take the registration's number."""

    async def get_ready(self: Any) -> None:
        number = self._progress.node_epoch
        await self._metadata.wait_until(lambda: self._metadata.image.offset > number)
        for folder, executor in self._folders:
            with contextlib.suppress(KafkaStorageError):
                await self._write_number(folder, executor, number)
        self._progress.ready = True
        self._wake.set()

    patch.setattr(node_registration.Registration, "_get_ready", get_ready)


def a_leader_does_not_look_at_its_own_bytes(patch: Patch) -> None:
    """What followers refuse is sent to them again, for ever."""
    patch.setattr(node_partition.Partition, "_check_own", lambda *_: None)


def _sequences_are_not_checked(patch: Patch) -> None:
    patch.setattr(producer_entry.ProducerState, "_check_sequence", lambda *_: None)


def sequences_are_not_checked(patch: Patch) -> None:
    """A leader appends what an idempotent producer sends, whatever came before it."""
    _sequences_are_not_checked(patch)


def a_duplicate_is_taken_as_new(patch: Patch) -> None:
    """A leader does not know the batches that it has already."""
    _sequences_are_not_checked(patch)
    patch.setattr(producer_entry.ProducerState, "duplicate_of", lambda *_: None)


def producers_outlive_the_cut(patch: Patch) -> None:
    """A log that is cut remembers the batches that it has lost."""
    patch.setattr(log_producers.LogProducers, "cut", lambda *_: None)
    patch.setattr(log_producers.LogProducers, "cutting", lambda *_: False)


def sequences_are_given_back(patch: Patch) -> None:
    """A batch that is given up as not written returns its sequences, whatever earlier attempts of it did."""
    finish = _producer_core.ProducerCore._finish

    def returning(self: Any, at: Any, effects: Any, finished: Any) -> None:
        series, alone = finished.batch.queue.series, len(finished.batch.queue.begun) == 1
        finish(self, at, effects, finished)
        if finished.error is not None and alone:
            series.broken, series.sequence = False, finished.batch.stamp.sequence

    patch.setattr(_producer_core.ProducerCore, "_finish", returning)


def a_failed_attempt_ends_the_doubt(patch: Patch) -> None:
    """A batch counts as not written as soon as one attempt is certainly not."""
    retry = _producer_core.ProducerCore._retry

    def believing(self: Any, batch: Any, cause: Any, at: Any) -> None:
        if cause.written is False:
            batch.doubt = None
        retry(self, batch, cause, at)

    patch.setattr(_producer_core.ProducerCore, "_retry", believing)


def blocks_of_ids_begin_anew(patch: Patch) -> None:
    """The controller remembers which producer ids it has given away only for as long as it lives."""

    def allocate(self: Any, _request: Any) -> ProducerIdBlock:
        first = self.__dict__.setdefault("_next_id", 0)
        self._next_id += 1_000
        return ProducerIdBlock(first, 1_000)

    patch.setattr(controller.Controller, "_allocate_producer_ids", allocate)


MIXED = "is not what was committed there before"
LOSES = "but a crash may lose"
MEMBER_LACKS = "is in the in-sync set and (holds offsets below|has no log)"


class Planted(NamedTuple):
    """A bug, the story that notices it, what is said then, and with which seed."""

    bug: Plant
    story: Callable[[Simulation], None]
    says: str
    seed: int = 1


PLANTED = [
    Planted(an_epoch_outlives_its_incarnation, stories.same_epoch_other_bytes, "is fenced, and in the in-sync set"),
    Planted(a_diverging_fetch_counts, stories.stale_position, MIXED),
    Planted(a_watermark_comes_before_the_cut, stories.watermark_of_a_diverging_answer, MIXED),
    Planted(a_replica_joins_by_its_log_end, stories.join_by_log_end, MEMBER_LACKS),
    Planted(a_refused_joiner_counts_no_more, stories.late_proposal, MEMBER_LACKS, 3),
    Planted(
        a_refused_joiner_counts_no_more,
        stories.lost_answer_to_a_proposal,
        f"committed without a member of the set|{MEMBER_LACKS}",
        6,
    ),
    Planted(an_answer_counts_for_any_fetch, stories.late_answer, "lost offsets 8"),
    Planted(a_topic_is_found_by_its_name, stories.topic_made_again, MEMBER_LACKS, 5),
    Planted(a_leader_comes_from_all_replicas, stories.committed_outlives_its_leader, "with its log ending at"),
    Planted(a_refused_follower_is_given_one_tick, stories.refused_fetch_is_sent_again, "the first record is committed"),
    Planted(a_fetcher_stopped_while_it_connects_goes_on, stories.stopped_while_connecting, "the node has stopped", 7),
    Planted(a_folder_without_its_number_is_unfenced, stories.folder_fails_before_ready, "it ends before it is ready"),
    Planted(
        a_leader_does_not_look_at_its_own_bytes, stories.rot_that_a_follower_refuses, "the rotten log is out of use"
    ),
    Planted(a_flush_counts_beyond_a_cut, stories.flush_across_a_cut, LOSES),
    Planted(names_are_not_synced, stories.all_machines_lose_power, LOSES),
    Planted(unsynced_bytes_count_as_held, stories.all_machines_lose_power, LOSES),
    Planted(sequences_are_not_checked, producer_stories.later_batch_comes_through, "which was sent later"),
    Planted(a_duplicate_is_taken_as_new, producer_stories.answer_is_lost, "is committed at 1 and at 2"),
    Planted(producers_outlive_the_cut, producer_stories.cut_takes_producers_with_it, "is committed at offset 1"),
    Planted(sequences_are_given_back, producer_stories.sequence_of_a_lost_answer, "is committed at offset 1"),
    Planted(a_failed_attempt_ends_the_doubt, producer_stories.sequence_of_a_lost_answer, "refused as not written, yet"),
    Planted(blocks_of_ids_begin_anew, producer_stories.ids_outlive_the_cluster, "is committed at offset 0"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.bug.__name__}-in-{planted.story.__name__}")
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.bug(monkeypatch)
    with pytest.raises(AssertionError, match=planted.says), Simulation(planted.seed) as sim:
        planted.story(sim)
