"""Every call of a client repeats its requests by the same backoff, within its own deadline."""

from __future__ import annotations

from random import Random

import pytest

from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tidelog.client.retries import BACKOFF_MS, BACKOFF_MS_MAX, Retries, backoff_ms
from tidelog.errors import CoordinatorNotAvailable


def test_pauses_double_up_to_the_bound_and_differ_between_clients() -> None:
    pauses = [backoff_ms(failures, Random(failures)) for failures in range(1, 8)]
    for failures, pause in enumerate(pauses, 1):
        full = min(BACKOFF_MS_MAX, BACKOFF_MS << (failures - 1))
        assert 0.8 * full - 1 <= pause <= 1.2 * full
    assert len({backoff_ms(1, Random(client)) for client in range(20)}) > 5
    assert backoff_ms(10**9, Random(1)) <= 1.2 * BACKOFF_MS_MAX, "a client may fail for days"
    assert backoff_ms(1, Random(1), first=1, most=1) == 1, "never a loop without a pause"


def test_the_last_error_is_raised_when_the_next_attempt_would_be_too_late() -> None:
    loop = SimLoop(Random(1))
    clock = SimClock(loop)
    retries = Retries(clock, Random(1), 1_000)
    errors: list[CoordinatorNotAvailable] = []

    async def story() -> None:
        while True:
            errors.append(CoordinatorNotAvailable(f"attempt {len(errors)}"))
            assert 0 < retries.left_ms <= 1_000
            await retries.pause(errors[-1])

    task = loop.create_task(story())
    loop.run_until(task.done, within=10)
    assert task.exception() is errors[-1]
    assert 4 <= len(errors) <= 8
    assert 850 <= clock.monotonic_ms() <= 1_000, "the last attempt is late: what failed may work again by then"


@pytest.mark.parametrize("timeout_ms", [0, 1, 79])
def test_a_call_without_time_has_one_attempt(timeout_ms: int) -> None:
    loop = SimLoop(Random(1))
    retries = Retries(SimClock(loop), Random(1), timeout_ms)
    assert retries.left_ms == max(1, timeout_ms)
    task = loop.create_task(retries.pause(CoordinatorNotAvailable("gone")))
    loop.run_until(task.done, within=1)
    assert isinstance(task.exception(), CoordinatorNotAvailable)
