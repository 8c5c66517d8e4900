"""The client's calls that send or receive many records, in this process: a part of the suite `cluster`.

Each entry of CALLS is one figure. They run one after the other on one topic, so a call that reads follows one that has
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

import uvloop

from bench import client_many, cluster_load
from bench.cluster_contest import Contest
from bench.cluster_load import Throughput
from bench.figure import Figure

VALUE_BYTES: Final = 100


class Call(NamedTuple):
    """load: takes bootstrap, topic, seconds and the nodes' process ids. target: records per second."""

    name: str
    load: Callable[[str, str, float, list[int]], Awaitable[Throughput]]
    target: float | None = None


def _enqueue(bootstrap: str, topic: str, seconds: float, pids: list[int]) -> Awaitable[Throughput]:
    return cluster_load.produce(bootstrap, topic, VALUE_BYTES, seconds, pids)


def _enqueue_many(bootstrap: str, topic: str, seconds: float, pids: list[int]) -> Awaitable[Throughput]:
    return client_many.enqueue_many(bootstrap, topic, VALUE_BYTES, seconds, pids)


CALLS: Final = (
    Call("enqueue", _enqueue),
    Call("enqueue_many", _enqueue_many, 1_500_000),
    Call("poll", cluster_load.consume),
    Call("poll_arrow", client_many.poll_arrow, 3_000_000),
)


def calls(contest: Contest) -> Iterator[Figure]:
    """Records per second, and processor time of this process and the nodes."""
    lane, effort = contest.tidelog, contest.effort
    # One event loop for all: gRPC's client side stays bound to its first loop.
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        lane.topic("calls", contest.smallest, effort),
    ):
        for call in CALLS:
            contest.run.say(f"{call.name}, {VALUE_BYTES} B")

            async def measure(load: Call = call) -> Throughput:
                return await load.load(lane.system.bootstrap, "calls", effort.seconds, lane.system.pids)

            found = runner.run(measure())
            name = f"{call.name} in one process, {VALUE_BYTES} B, page cache"
            yield Figure(name, found.records_per_second, "records/s", target=call.target)
            yield Figure(f"{name}, processor", found.cpu_ms_per_megabyte, "ms/MB")
