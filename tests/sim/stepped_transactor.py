"""A transactional producer that a story moves step by step: begin, send, end. Its process is one of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from testbed.sim import client_faults
from testbed.sim.coordinated_transactions import CoordinatedTransaction
from testbed.sim.workload import Client, Sent
from tests.sim.transactors import OpenTransaction, SimTransactor
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from testbed.sim.world import Simulation
    from tests.sim.members import SimMember


class SteppedTransactor:
    """One instance of a transactional id. options: as of tidelog.Producer."""

    def __init__(self, sim: Simulation, transactional_id: str, *, client: Client | None = None, **options: Any) -> None:
        self._sim = sim
        options = {"max_block_ms": 5_000, "delivery_timeout_ms": 10_000, "request_timeout_ms": 2_000, **options}
        self.transactor = SimTransactor(sim, transactional_id, client=client, **options)
        self._opened: OpenTransaction | None = None
        self._commits: asyncio.Future[bool] | None = None
        self._ending: asyncio.Task[CoordinatedTransaction] | None = None
        self._do(self.transactor.start(), "starts")

    @property
    def client(self) -> Client:
        return self.transactor.client

    @property
    def over(self) -> TidelogError | None:
        """Why it must end; None if it may continue."""
        return self.transactor.over

    def _do(self, work: Any, name: str, within: float = 30.0) -> Any:
        task = self.client.start(work, name)
        self._sim.run_until(task.done, within=within, what=f"{self.client.process.name} {name}")
        return task.result()

    async def _fill(self, opened: OpenTransaction) -> None:
        assert self._commits is not None
        self._opened = opened
        if not await self._commits:
            await opened.abort()

    def begin(self, within: float = 30.0) -> Self:
        """Open a transaction."""
        self.beginning()
        self._sim.run_until(lambda: self.is_open, within=within, what=f"{self.client.process.name} has a transaction")
        return self

    def beginning(self) -> None:
        """Start to open a transaction."""
        self._opened, self._commits = None, self._sim.loop.create_future()
        self._ending = self.client.start(self.transactor.transact(self._fill), "runs a transaction")

    @property
    def is_open(self) -> bool:
        assert self._ending is not None
        if self._ending.done():
            self._ending.result()
        return self._opened is not None

    @property
    def judged(self) -> CoordinatedTransaction:
        """The open transaction, for the checkers."""
        assert self._opened is not None
        return self._opened.judged

    def send(self, value: bytes, partition: int = 0, topic: str = "orders") -> Sent:
        """Queue a record of the transaction, and return once it is queued; `.wait()` returns its outcome."""
        work = self.transactor.producer.enqueue(topic, value, partition, transaction=self.judged)
        sent: Sent = self._do(work, f"queues {value[:16]!r}")
        return sent

    def send_offsets(self, member: SimMember, within: float = 30.0) -> None:
        """Commit the positions of a member with the transaction. Raises the refusal."""
        assert self._opened is not None
        self._do(self._opened.real.send_offsets(member.consumer), "sends offsets", within)

    def ending(self, *, commit: bool = True) -> asyncio.Task[CoordinatedTransaction]:
        """Start to end the transaction."""
        assert self._commits is not None
        assert self._ending is not None
        self._commits.set_result(commit)
        return self._ending

    def end(self, *, commit: bool = True, within: float = 30.0) -> bool | None:
        """End the transaction. Returns whether it is committed; None if the client cannot know it."""
        task = self.ending(commit=commit)
        self._sim.run_until(
            task.done, within=within, what=f"{self.client.process.name} knows how its transaction ended"
        )
        return task.result().told

    def close(self) -> None:
        self._do(self.transactor.stop(), "closes")

    def kill(self) -> None:
        client_faults.kill_client(self._sim, self.client)

    def pause(self) -> None:
        client_faults.pause_client(self._sim, self.client)

    def resume(self) -> None:
        client_faults.resume_client(self._sim, self.client)
