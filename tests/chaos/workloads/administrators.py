"""Topics that come and go, replicas that move, leaderships that are given back."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from tests.chaos.history import Begun, Failed, Step, Topic, now
from tests.chaos.workloads.work import ORDERS, PARTITIONS, REPLICAS, Work, pause
from tidelog import Admin, TopicPartition
from tidelog.errors import TidelogError

PAUSE_S: Final = 2.0
KEPT: Final = 3
"""Topics that are there at once."""


async def create_and_delete(work: Work, name: str) -> None:
    """Until producers stop. An outcome that is unknown is noted as begun."""
    work.history.note(Begun(now(), name, []))
    kept: deque[str] = deque()
    number = 0
    async with Admin(work.bootstrap) as admin:
        while not work.stopping_producers.is_set():
            topic = f"brief-{number}"
            number += 1
            work.history.note(Topic(now(), name, topic, "creating"))
            try:
                await admin.create_topic(topic, partitions=1, replication_factor=REPLICAS)
                work.history.note(Topic(now(), name, topic, "created"))
                kept.append(topic)
                while len(kept) > KEPT:
                    oldest = kept.popleft()
                    work.history.note(Topic(now(), name, oldest, "deleting"))
                    await admin.delete_topic(oldest)
                    work.history.note(Topic(now(), name, oldest, "deleted"))
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"{topic}: {type(failure).__name__}: {failure}"))
            await pause(work.stopping_producers, PAUSE_S)


async def move_replicas(work: Work, name: str) -> None:
    """Until producers stop: a partition of `orders` moves to other nodes, or gets another preferred leader, which
    is then elected."""
    work.history.note(Begun(now(), name, []))
    rng = Random(work.seed)
    async with Admin(work.bootstrap) as admin:
        while not work.stopping_producers.is_set():
            place = TopicPartition(ORDERS, rng.randrange(PARTITIONS[ORDERS]))
            replicas = rng.sample(range(work.nodes), REPLICAS)
            try:
                (outcome,) = await admin.reassign({place: replicas})
                if outcome.error is not None:
                    raise outcome.error
                work.history.note(Step(now(), name, f"{place} to {replicas}"))
                await pause(work.stopping_producers, PAUSE_S)
                await admin.elect_leaders([place])
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"{place}: {type(failure).__name__}: {failure}"))
            await pause(work.stopping_producers, PAUSE_S)
