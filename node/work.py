"""Waiting, on the loop, for work that an executor does elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from storage.executor import Executor

T = TypeVar("T")


async def run_in(executor: Executor, work: Callable[[], T]) -> T:
    """Give `work` to the executor and wait for its result; raises what it raises. A waiter that is cancelled leaves
    the work running: it cannot be taken back."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T | BaseException) -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    executor.submit(work, done)
    return await future


async def finished(begin: Callable[[Callable[[], None]], None]) -> None:
    """Begin something that calls what it is given when it has ended, and wait for that."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begin(lambda: None if future.done() else future.set_result(None))
    await future
