"""What every worker of a pipeline (pipelines.py) has, whichever protocol its clients speak: a process of its own that
works until it is stopped, and may be killed or paused at any moment."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from testbed.sim import client_faults
from testbed.sim.commit_attempts import Place
from testbed.sim.exactly_once import result_of
from testbed.sim.workload import Client

if TYPE_CHECKING:
    from tests.sim.pipelines import Pipeline


class WorkersMember(Protocol):
    """The member of a group that a worker reads with."""

    is_stopping: bool

    @property
    def member_id(self) -> str: ...


Member = TypeVar("Member", bound=WorkersMember)


class PipelineWorker(ABC, Generic[Member]):
    """One worker in its own client process."""

    def __init__(
        self, pipeline: Pipeline, number: int, client: Client | None, transaction_timeout_ms: int, pause: float
    ) -> None:
        """pause: a transaction stays open for up to that many seconds before its offsets are sent."""
        self.pipeline, self.number = pipeline, number
        self.client = pipeline.sim.client() if client is None else client
        self.is_stopping, self.is_over = False, False
        self.committed = 0
        self._timeout_ms, self._pause = transaction_timeout_ms, pause
        self._attempts = itertools.count()
        self.member: Member | None = None

    async def run(self) -> None:
        """Work until `stop`."""
        while not self.is_stopping:
            await self._work()
            await self.client.pause()
        self.is_over = True

    @abstractmethod
    async def _work(self) -> None:
        """Work with one member and one producer until a transaction does not commit."""

    @property
    def _transactional_id(self) -> str:
        return f"{self.pipeline.group.name}-{self.number}"

    def _result_of(self, topic: str, partition: int, offset: int) -> bytes:
        """The result for one record, which no other attempt writes."""
        return result_of(topic, partition, offset, f"{self.client.process.name}/{next(self._attempts)}")

    def _any_target(self) -> Place:
        """The partition that gets the next result."""
        return self.client.rng.choice(self.pipeline.group.places([self.pipeline.target]))

    def stop(self) -> None:
        """End after the present transaction. What it owns until then has no lasting owner."""
        self.is_stopping = True
        if self.member is not None:
            self.member.is_stopping = True

    def kill(self) -> None:
        client_faults.kill_client(self.pipeline.sim, self.client)
        if self.member is not None:
            self.pipeline.group.owners.ended(self.member.member_id)

    def pause(self) -> None:
        client_faults.pause_client(self.pipeline.sim, self.client)

    def resume(self) -> None:
        client_faults.resume_client(self.pipeline.sim, self.client)
