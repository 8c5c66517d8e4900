"""Waiting on the loop for work that runs elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from storage.files.disk_executor import Executor
from tidelog.errors import TidelogError

T = TypeVar("T")


async def run_in(executor: Executor, work: Callable[[], T]) -> T:
    """Run `work` on the executor and wait for its result; raises what it raises. Cancelling the caller does not stop
    the work."""
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


async def run_while_awaited(executor: Executor, work: Callable[[], T]) -> T:
    """As `run_in`, for work that nobody needs if its caller is cancelled: then it is not begun, and the memory that it
    refers to is free at once. Else callers that come and leave could queue any amount."""
    wanted = [work]

    def begin() -> T | None:
        try:
            taken = wanted.pop()
        except IndexError:
            return None
        return taken()

    try:
        return cast("T", await run_in(executor, begin))
    finally:
        wanted.clear()


async def finished(begin: Callable[[Callable[[], None]], None]) -> None:
    """Call `begin` with a callback, and wait until the callback is called."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begin(lambda: None if future.done() else future.set_result(None))
    await future


async def run_unless(given_up: asyncio.Event, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
    """Run `work` until it ends or `given_up` is set; then it is cancelled, and None is returned. Raises the
    TidelogError that `work` raises."""
    results: list[T] = []
    errors: list[TidelogError] = []

    async def attempt() -> None:
        try:
            results.append(await work())
        except TidelogError as error:
            errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        working, watching = tasks.create_task(attempt()), tasks.create_task(given_up.wait())
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        watching.cancel()
    if errors:
        raise errors[0]
    return results[0] if results else None
