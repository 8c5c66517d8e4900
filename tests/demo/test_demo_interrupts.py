"""An interrupt ends the demo at any moment, even if code between suppresses the first KeyboardInterrupt."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from examples.demo.interrupts import LATER, NUMBERS, Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.getsignal(number) for number in (*NUMBERS, LATER)}
    listening = Interrupts()
    listening.listen()
    yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_suppressed_signal_is_raised_again_at_the_next_step(interrupts: Interrupts, number: signal.Signals) -> None:
    interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert interrupts.came
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_within_logging_is_raised_after_it(interrupts: Interrupts, number: signal.Signals) -> None:
    """A fork takes the locks of logging in a callback, which prints an exception instead of raising it."""

    class Signals(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            logging_frame = sys._getframe(1)
            interrupts._take(number, logging_frame)
            return False

    log = logging.getLogger("tests.demo.interrupts")
    log.addFilter(signals := Signals())
    log.warning("ignored")
    log.removeFilter(signals)
    assert interrupts.came
    with pytest.raises(KeyboardInterrupt):
        signal.sigtimedwait([], 5)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_within_a_loop_cancels_the_work_and_waits_for_its_cleanup(
    interrupts: Interrupts, number: signal.Signals
) -> None:
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
        os.kill(os.getpid(), number)  # the loop has ended, the handlers are still installed


def test_the_result_or_exception_of_the_work_is_passed_on(interrupts: Interrupts) -> None:
    async def succeeds() -> int:
        return 7

    async def fails() -> int:
        raise OSError("no")

    assert interrupts.run(succeeds()) == 7
    with pytest.raises(OSError, match="no"):
        interrupts.run(fails())
    assert not interrupts.came
