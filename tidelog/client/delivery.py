"""The outcome of a sent record: a `Delivery`, which is awaitable.

One outcome is stored for each batch; the result of a record is built on request, so that a record costs one small
object. A failure that no caller has read is logged when the last delivery of its batch is dropped: none is silent.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tidelog.client.receipt import Receipt, StoredBatch
from tidelog.errors import TidelogError
from tidelog.types import NO_TIMESTAMP, Millis, Offset, PartitionIndex, TopicPartition, timestamp_or_none

_log = logging.getLogger("tidelog.producer")


class SendResult(NamedTuple):
    """Position of a written record."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    """-1 with acks=0, where the node does not answer."""
    timestamp: Millis | None
    """The record's timestamp in the log: the producer's, or the node's on a topic with log append time; None: none."""
    receipt: Receipt | None = None
    """The leader's statement when it acknowledged the record; None unless the producer requests receipts."""


@dataclass(slots=True, eq=False, repr=False)
class Outcome:
    """Outcome of one batch."""

    topic_partition: TopicPartition
    records: int = 0
    done: bool = False
    error: TidelogError | None = None
    base_offset: Offset = Offset(-1)
    append_time: Millis = NO_TIMESTAMP
    stored: StoredBatch | None = None
    left_out: dict[int, TidelogError] = field(default_factory=dict)
    """Errors of records that were not sent, by index. The other records have consecutive offsets."""
    is_read: bool = False
    """Whether a caller has read the outcome or waits for it. A failure that is not read is logged."""
    _waiters: list[Callable[[], object]] = field(default_factory=list)

    def succeed(self, base_offset: Offset, append_time: Millis, stored: StoredBatch | None = None) -> None:
        """Set the outcome: acknowledged. base_offset: -1 with acks=0. stored: the statement for a receipt, if one was
        requested."""
        self.base_offset, self.append_time, self.stored = base_offset, append_time, stored
        self._finish()

    def fail(self, error: TidelogError) -> None:
        """Set the outcome: not acknowledged. `error.written` states whether the batch is in the log."""
        self.error = error
        self._finish()

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when the outcome is known, or at once if it is."""
        if self.done:
            callback()
        else:
            self._waiters.append(callback)

    async def wait(self) -> None:
        """Return when the outcome is known: success or failure."""
        if not self.done:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append(partial(_wake, future))
            await future

    def _finish(self) -> None:
        assert not self.done, "a batch has one outcome"
        self.done = True
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    def __del__(self) -> None:
        if self.is_read:
            return
        failures = [(len(self.left_out), next(iter(self.left_out.values()), None)), (self.records, self.error)]
        for records, error in failures:
            if error is not None:
                _log.error(
                    "%d records for %s failed and no caller read the error: %s", records, self.topic_partition, error
                )


class Delivery:
    """The outcome of one record. Any number of tasks of the producer's loop may await it.

    `await delivery` returns the SendResult or raises the error; cancelling the wait does not cancel the record.
    """

    __slots__ = ("_index", "_outcome", "_timestamp")

    def __init__(self, outcome: Outcome, index: int, timestamp: Millis) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        outcome = self._outcome
        state = "waiting" if not outcome.done else "acknowledged" if outcome.error is None else repr(outcome.error)
        return f"Delivery({outcome.topic_partition}, {state})"

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome.done

    def result(self) -> SendResult:
        """Return the result or raise the error. Raises asyncio.InvalidStateError while the outcome is unknown."""
        error = self.exception()
        if error is not None:
            raise error
        outcome = self._outcome
        topic, partition = outcome.topic_partition.topic, outcome.topic_partition.partition
        place = self._index - sum(index < self._index for index in outcome.left_out)
        offset = Offset(outcome.base_offset + place) if outcome.base_offset >= 0 else outcome.base_offset
        timestamp = self._timestamp if outcome.append_time < 0 else outcome.append_time
        receipt = None if outcome.stored is None else outcome.stored.receipt(outcome.topic_partition, offset)
        return SendResult(topic, partition, offset, timestamp_or_none(timestamp), receipt)

    def exception(self) -> TidelogError | None:
        """Return the error, or None if the record was acknowledged. Raises asyncio.InvalidStateError before that."""
        outcome = self._outcome
        if not outcome.done:
            raise asyncio.InvalidStateError(f"the record for {outcome.topic_partition} has no outcome yet: await it")
        outcome.is_read = True
        error = outcome.left_out.get(self._index, outcome.error)
        if error is None:
            return None
        # Each caller gets an exception of its own: a shared one would collect the tracebacks of all callers.
        own = copy.copy(error)
        own.__cause__ = error.__cause__
        return own

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(self)` on the producer's loop when the outcome is known, or at once if it is. An exception of
        the callback is logged."""
        ensure_callable("callback", callback)
        self._outcome.is_read = True
        self._outcome.when_done(partial(_call_back, callback, self))

    def __await__(self) -> Generator[Any, None, SendResult]:
        if not self._outcome.done:
            self._outcome.is_read = True
            yield from self._outcome.wait().__await__()
        return self.result()


OnDelivery: TypeAlias = Callable[[Delivery], object]
"""Called on the producer's loop with a delivery whose outcome is known."""


def ensure_callable(name: str, callback: object) -> None:
    """Raise TypeError for a callback that is neither a function nor None. name: that of the argument."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} must be a function or None, not {type(callback).__name__}: {callback!r}")


def _call_back(callback: Callable[[Delivery], object], delivery: Delivery) -> None:
    try:
        callback(delivery)
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises
        _log.error("a callback of %r failed; the record is not affected", delivery, exc_info=error)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # the waiting task may have been cancelled
        future.set_result(None)
