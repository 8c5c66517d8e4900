"""An interrupt ends the demo, wherever it comes, even where it is swallowed at first."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from examples.demo.interrupts import NUMBERS, Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    listening = Interrupts()
    listening.listen()
    yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_is_swallowed_comes_again_at_the_next_step(
    interrupts: Interrupts, number: signal.Signals
) -> None:
    interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert interrupts.came
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()


@pytest.mark.parametrize("number", NUMBERS)
def test_within_a_loop_a_signal_cancels_and_lets_clean_up(interrupts: Interrupts, number: signal.Signals) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.wait([asyncio.get_running_loop().run_in_executor(None, cleaned.append, "up")])

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(work())
    assert cleaned == ["up"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)  # the loop has gone, the listening has not


def test_what_the_work_returns_or_raises_is_passed_on(interrupts: Interrupts) -> None:
    async def right() -> int:
        return 7

    async def wrong() -> int:
        raise OSError("no")

    assert interrupts.run(right()) == 7
    with pytest.raises(OSError, match="no"):
        interrupts.run(wrong())
    assert not interrupts.came
