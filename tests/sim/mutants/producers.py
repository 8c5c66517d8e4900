"""Planted bugs of producers, and of the producer state of logs."""

from __future__ import annotations

from typing import Any

from replication.controller import controller
from replication.controller.events import ProducerIdBlock
from storage.log import log_producers
from storage.producers import producer_entry
from tests.sim.mutants.mutant import Patch
from tidelog.client import producer_core as _producer_core
from tidelog.client.producer import Producer


def _sequences_are_not_checked(patch: Patch) -> None:
    patch.setattr(producer_entry.ProducerState, "_check_sequence", lambda *_: None)


def sequences_are_not_checked(patch: Patch) -> None:
    """A leader appends the batches of an idempotent producer in any order."""
    _sequences_are_not_checked(patch)


def a_duplicate_is_appended_again(patch: Patch) -> None:
    """A leader does not detect duplicates of batches that it has appended."""
    _sequences_are_not_checked(patch)
    patch.setattr(producer_entry.ProducerState, "duplicate_of", lambda *_: None)


def producers_survive_the_truncation(patch: Patch) -> None:
    """The producer state of a truncated log still contains the batches above its end."""
    patch.setattr(log_producers.LogProducers, "truncated", lambda *_: None)
    patch.setattr(log_producers.LogProducers, "truncating", lambda *_: False)


def sequences_are_reused(patch: Patch) -> None:
    """A batch that failed as not written returns its sequences, even if an earlier attempt may have been written."""
    finish = _producer_core.ProducerCore._finish

    def finish_and_reuse(self: Any, at: Any, effects: Any, finished: Any) -> None:
        series, alone = finished.batch.queue.series, len(finished.batch.queue.begun) == 1
        finish(self, at, effects, finished)
        if finished.error is not None and alone:
            series.broken, series.sequence = False, finished.batch.stamp.sequence

    patch.setattr(_producer_core.ProducerCore, "_finish", finish_and_reuse)


def one_failed_attempt_means_not_written(patch: Patch) -> None:
    """A batch counts as not written as soon as one of its attempts is known to have failed."""
    retry = _producer_core.ProducerCore._retry

    def retry_as_not_written(self: Any, batch: Any, cause: Any, at: Any) -> None:
        if cause.written is False:
            batch.unknown_cause = None
        retry(self, batch, cause, at)

    patch.setattr(_producer_core.ProducerCore, "_retry", retry_as_not_written)


def blocks_of_ids_are_forgotten(patch: Patch) -> None:
    """The controller keeps the allocated producer ids in memory only."""

    def allocate(self: Any, _request: Any) -> ProducerIdBlock:
        first = self.__dict__.setdefault("_next_id", 0)
        self._next_id += 1_000
        return ProducerIdBlock(first, 1_000)

    patch.setattr(controller.Controller, "_allocate_producer_ids", allocate)


def a_duplicate_is_rejected_in_a_small_set(patch: Patch) -> None:
    """A leader rejects a duplicate as not written while its in-sync set is too small."""
    patch.setattr(log_producers.LogProducers, "is_duplicate", lambda *_: False)


def a_call_overtakes_waiting_calls(patch: Patch) -> None:
    """A producer queues a record as soon as there is memory for it, ahead of the calls that wait for memory."""
    put = Producer._put

    def put_first(self: Any, *record: Any, first: bool = False) -> Any:
        del first
        return put(self, *record, first=True)

    patch.setattr(Producer, "_put", put_first)
