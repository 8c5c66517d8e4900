"""The outcomes of records that a synchronous producer has queued. Any thread may wait for them.

Not here: the outcomes themselves (delivery.py, batch_delivery.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.delivery import Delivery, SendResult
from tidelog.client.machine import LoopThread, blocking
from tidelog.client.options import seconds
from tidelog.errors import TidelogError

Arguments = ParamSpec("Arguments")
Client = TypeVar("Client")


class SyncDelivery:
    """The outcome of one record: `tidelog.Delivery` for threads, with the methods of concurrent.futures.Future."""

    __slots__ = ("_delivery", "_thread")

    def __init__(self, thread: LoopThread, delivery: Delivery) -> None:
        self._thread, self._delivery = thread, delivery

    def __repr__(self) -> str:
        return f"Sync{self._delivery!r}"

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait for the outcome; return the position of the record or raise its error. Raises TimeoutError after
        `timeout` seconds: the record is still sent."""
        _wait(self._thread, self._delivery, timeout)
        return self._delivery.result()

    def exception(self, timeout: float | None = None) -> TidelogError | None:
        """Wait for the outcome; return the error, or None if the record was acknowledged. Raises TimeoutError."""
        _wait(self._thread, self._delivery, timeout)
        return self._delivery.exception()

    def add_done_callback(self, callback: Callable[[SyncDelivery], object]) -> None:
        """Call `callback(self)` when the outcome is known, or at once if it is. It runs in the producer's thread, so it
        should be short, and must not wait for the producer: its calls raise InvalidRequest there. An exception of the
        callback is logged."""

        async def add() -> None:
            self._delivery.add_done_callback(lambda _: callback(self))

        if self.done():  # the producer may be closed
            self._delivery.add_done_callback(lambda _: callback(self))
        else:
            self._thread.run(add())


class SyncBatchDelivery(Sequence[SyncDelivery]):
    """The outcome of the records of one call, in the order of the call: `BatchDelivery` for threads."""

    def __init__(self, thread: LoopThread, delivery: BatchDelivery) -> None:
        self._thread, self._delivery = thread, delivery

    def __repr__(self) -> str:
        return f"Sync{self._delivery!r}"

    def __len__(self) -> int:
        return len(self._delivery)

    @overload
    def __getitem__(self, index: int, /) -> SyncDelivery: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[SyncDelivery]: ...
    def __getitem__(self, index: int | slice, /) -> SyncDelivery | list[SyncDelivery]:
        if isinstance(index, slice):
            return [SyncDelivery(self._thread, each) for each in self._delivery[index]]
        return SyncDelivery(self._thread, self._delivery[index])

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return self._delivery.done()

    def results(self, timeout: float | None = None) -> list[SendResult]:
        """Wait for all outcomes; return the position of every record, or raise as `await` on a BatchDelivery does.
        Raises TimeoutError after `timeout` seconds: the records are still sent."""
        _wait(self._thread, self._delivery, timeout)
        return self._delivery.results()

    def failures(self, timeout: float | None = None) -> dict[int, TidelogError]:
        """Wait for all outcomes; return the error of every record that was not acknowledged, by its index."""
        _wait(self._thread, self._delivery, timeout)
        return self._delivery.failures()

    def exception(self, timeout: float | None = None) -> TidelogError | None:
        """Wait for all outcomes; return the error that `results` raises, or None."""
        _wait(self._thread, self._delivery, timeout)
        return self._delivery.exception()


def _wait(thread: LoopThread, delivery: Delivery | BatchDelivery, timeout: float | None) -> None:
    """Return once the outcome is known. Raises TimeoutError."""
    limit = None if timeout is None else seconds("timeout", timeout)
    if not delivery.done():  # else the producer may be closed
        thread.run(_known(delivery, limit))


async def _known(delivery: Awaitable[object], limit: float | None) -> None:
    try:
        async with asyncio.timeout(limit):
            await delivery
    except TimeoutError:
        raise TimeoutError(f"no outcome within {limit} s: the record is still sent, wait for it again") from None
    except TidelogError:
        pass  # the caller asks the delivery for it


def delivering(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, Delivery]],
) -> Callable[Concatenate[Any, Arguments], SyncDelivery]:
    """Return the synchronous form of a method that queues a record: see `blocking`."""
    call = blocking(method)

    @wraps(method)
    def queue(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> SyncDelivery:
        return SyncDelivery(self._thread, call(self, *args, **kwargs))

    return queue


def delivering_many(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, BatchDelivery]],
) -> Callable[Concatenate[Any, Arguments], SyncBatchDelivery]:
    """Return the synchronous form of a method that queues many records: see `blocking`."""
    call = blocking(method)

    @wraps(method)
    def queue(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> SyncBatchDelivery:
        return SyncBatchDelivery(self._thread, call(self, *args, **kwargs))

    return queue
