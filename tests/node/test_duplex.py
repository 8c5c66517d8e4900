"""The two sides of a stream: how they end together, and what they leave behind."""

from __future__ import annotations

import asyncio

import pytest

from node.runtime.duplex import run_duplex
from tidelog.clock import MachineClock
from tidelog.errors import ConnectionLost


async def waiting() -> None:
    await asyncio.Event().wait()


async def failing(error: BaseException) -> None:
    await MachineClock().sleep_ms(0)
    raise error


async def returning() -> None:
    await MachineClock().sleep_ms(0)


async def test_the_sender_ends_when_the_receiver_has_returned() -> None:
    await run_duplex(returning(), waiting())


@pytest.mark.parametrize("receiver_fails", [True, False])
async def test_a_failed_stream_does_not_count_as_a_cancellation_of_its_task(receiver_fails: bool) -> None:
    """A follower's task opens stream after stream, and asks whether it was cancelled itself when a call ends so."""
    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        failed = failing(ConnectionLost("the node was killed"))
        with pytest.raises(ConnectionLost):
            await (run_duplex(failed, waiting()) if receiver_fails else run_duplex(waiting(), failed))
        assert task.cancelling() == 0


async def test_a_defect_is_raised_before_a_lost_connection() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_duplex(failing(ConnectionLost("closed")), failing(ZeroDivisionError()))


async def test_a_receiver_that_was_cancelled_is_no_ended_stream() -> None:
    with pytest.raises(asyncio.CancelledError):
        await run_duplex(failing(asyncio.CancelledError()), waiting())


async def test_a_cancelled_stream_cancels_both_sides() -> None:
    stream = asyncio.get_running_loop().create_task(run_duplex(waiting(), waiting()))
    await MachineClock().sleep_ms(0)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream


@pytest.mark.parametrize("receiver_fails", [True, False])
async def test_a_task_that_is_cancelled_when_its_stream_breaks_ends(receiver_fails: bool) -> None:
    """The fetcher of a node that was stopped so opened the next stream, and the node waited for it for ever."""
    breaks = asyncio.Event()

    async def breaking() -> None:
        await breaks.wait()
        raise ConnectionLost("the node was killed")

    sides = (breaking(), waiting()) if receiver_fails else (waiting(), breaking())
    stream = asyncio.get_running_loop().create_task(run_duplex(*sides))
    for _ in range(3):
        await MachineClock().sleep_ms(0)
    breaks.set()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
