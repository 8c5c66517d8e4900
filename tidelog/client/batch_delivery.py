"""The outcome of many records that were queued by one call: a `BatchDelivery`, which is awaitable.

It refers to the outcomes of the batches; the result of a record is built on request. A record costs no object here.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from tidelog.client.delivery import Delivery, Outcome, SendResult
from tidelog.errors import Retry, TidelogError
from tidelog.types import Millis, Offset, timestamp_or_none


class RecordsNotQueued(TidelogError, code=1013, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """A call queued only the first of its records, those of `delivery`; its cause says why. The others were not queued
    and never will be: queue them again, from the index `len(delivery)` on."""

    delivery: BatchDelivery
    """The records that were queued. They are sent."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive records of a batch that belong to the call."""

    outcome: Outcome
    first: int
    """Index of the first one in its batch."""
    records: Sequence[int]
    """Their indexes in the call, ascending."""
    timestamps: Millis | Sequence[Millis]
    """One for all records, or those of all records of the call."""

    def timestamp(self, record: int) -> Millis:
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[record]


class BatchDelivery(Sequence[Delivery]):
    """The outcome of the records of one call, in the order of the call. Any number of tasks of the producer's loop may
    await it.

    `await delivery` returns once every record has its outcome. If a record was not acknowledged, it raises the error of
    the first record whose outcome is unknown, or else of the first record that failed. `failures()` has the error of
    each record, `results()` the position of each. `delivery[index]` is the Delivery of one record.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._count = 0

    def add(self, outcome: Outcome, first: int, records: Sequence[int], timestamps: Millis | Sequence[Millis]) -> None:
        """Note that records were queued in a batch. first: index of the first one in the batch. records: their indexes
        in the call."""
        self._parts.append(_Part(outcome, first, records, timestamps))
        self._count += len(records)

    def __repr__(self) -> str:
        return f"BatchDelivery({self._count} records, {'done' if self.done() else 'waiting'})"

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int, /) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice, /) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        record = range(self._count)[index]
        for part in self._parts:
            if part.records[0] <= record <= part.records[-1]:
                place = bisect_left(part.records, record)
                if part.records[place] == record:
                    return Delivery(part.outcome, part.first + place, part.timestamp(record))
        raise AssertionError(f"record {record} is in no batch")

    def __iter__(self) -> Iterator[Delivery]:
        found: list[Any] = [None] * self._count
        for part in self._parts:
            for index, record in enumerate(part.records, part.first):
                found[record] = Delivery(part.outcome, index, part.timestamp(record))
        return iter(found)

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return all(part.outcome.done for part in self._parts)

    def results(self) -> list[SendResult]:
        """Return the position of every record. Raises the error as `await` does, asyncio.InvalidStateError while an
        outcome is unknown."""
        error = self.exception()
        if error is not None:
            raise error
        found: list[Any] = [None] * self._count
        for part in self._parts:
            outcome = part.outcome
            key, append_time = outcome.topic_partition, outcome.append_time
            # If records were left out of the batch, offsets do not follow the indexes in it.
            base = Offset(outcome.base_offset + part.first) if not outcome.left_out else None
            for place, record in enumerate(part.records):
                if base is None or outcome.base_offset < 0 or outcome.stored is not None:
                    found[record] = Delivery(outcome, part.first + place, part.timestamp(record)).result()
                    continue
                timestamp = part.timestamp(record) if append_time < 0 else append_time
                found[record] = SendResult(key.topic, key.partition, Offset(base + place), timestamp_or_none(timestamp))
        return found

    def failures(self) -> dict[int, TidelogError]:
        """Return the error of every record that was not acknowledged, by its index, in order; records of one batch may
        share an error. Raises asyncio.InvalidStateError while an outcome is unknown."""
        found: dict[int, TidelogError] = {}
        for part in self._parts:
            outcome = part.outcome
            Delivery(outcome, part.first, Millis(0)).exception()  # raises InvalidStateError; the outcome is read
            if outcome.error is None and not outcome.left_out:
                continue
            for index, record in enumerate(part.records, part.first):
                error = outcome.left_out.get(index, outcome.error)
                if error is not None:
                    found[record] = error
        return dict(sorted(found.items()))

    def exception(self) -> TidelogError | None:
        """Return the error that `await` raises, or None if every record was acknowledged. Raises
        asyncio.InvalidStateError while an outcome is unknown."""
        failures = self.failures()
        if not failures:
            return None
        record = next((each for each, error in failures.items() if error.written is None), min(failures))
        error = failures[record]
        own = copy.copy(error)
        message = (
            f"{len(failures)} of {self._count} records were not acknowledged, for example record {record}: "
            f"{error.message} The failures() of the delivery name each of them."
        )
        own.args = (message,)
        own.__cause__ = error
        return own

    def __await__(self) -> Generator[Any, None, BatchDelivery]:
        outcomes = {id(part.outcome): part.outcome for part in self._parts}.values()
        for outcome in outcomes:
            outcome.is_read = True
        for outcome in outcomes:
            if not outcome.done:
                yield from outcome.wait().__await__()
        error = self.exception()
        if error is not None:
            raise error
        return self
