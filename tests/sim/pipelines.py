"""Consume-transform-produce with real clients: members of a group that write one result for each record that they read,
in transactions that commit the offsets too (KIP-447).

A worker whose transaction did not commit starts again with a new consumer and a new producer, from the committed
offsets. Its process may be killed or paused at any moment; the next one with its number takes over its transactional
id.
Not here: the comparison of results with records (exactly_once.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.sim.exactly_once import ExactlyOnce
from testbed.sim.ledger import Ledger
from testbed.sim.workload import Client
from tests.sim.kafka_workers import SimKafkaWorker
from tests.sim.members import SimGroup, SimMember
from tests.sim.pipeline_worker import PipelineWorker
from tests.sim.transactors import OpenTransaction, SimTransactor
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import Retry, TidelogError

if TYPE_CHECKING:
    from testbed.sim.world import Simulation


class Pipeline:
    """All workers between two topics. source, target: their names; target has records of this pipeline only."""

    def __init__(self, sim: Simulation, source: str, target: str, *, name: str = "pipeline") -> None:
        self.sim, self.source, self.target = sim, source, target
        self.group = SimGroup(sim, name, [source])
        self.results = ExactlyOnce(name)
        self.workers: list[SimWorker] = []
        self.kafka_workers: list[SimKafkaWorker] = []
        """Those that speak Kafka's protocol."""
        sim.coordination.pipelines.append(self.results)

    def worker(self, number: int, **options: Any) -> SimWorker:
        """Start a worker; it takes over the transactional id of that number. options: as of SimWorker."""
        found = SimWorker(self, number, **options)
        self.workers.append(found)
        found.client.start(found.run(), f"works in {self.group.name}")
        return found

    def worker_by_kafka(self, number: int, **options: Any) -> SimKafkaWorker:
        """As `worker`; it speaks Kafka's protocol. options: as of SimKafkaWorker."""
        found = SimKafkaWorker(self, number, **options)
        self.kafka_workers.append(found)
        found.client.start(found.run(), f"works in {self.group.name}")
        return found

    @property
    def alive(self) -> list[SimWorker]:
        """The workers whose processes run."""
        return [worker for worker in self.workers if worker.client.process.alive and not worker.is_stopping]

    def _ledgers(self, topic: str) -> list[Ledger]:
        return [self.sim.ledger(*place) for place in self.group.places([topic])]

    def finish(self, within: float = 60.0) -> None:
        """Run the world until every decided record has its result and every result is decided, and compare all of them.
        The transaction of a worker that was killed is aborted at its timeout; until then its results are neither.

        within: the time without progress. One worker takes minutes for what several producers have written."""
        while left := self._open():
            self.sim.run_until(
                lambda: self._open() != left,
                within=within,
                what=lambda: f"all has ended: {self._open()[:3]}",
            )
        self.results.judge(self._ledgers(self.source), self._ledgers(self.target))

    def _open(self) -> list[str]:
        """The records without a result, and the partitions with undecided results, for messages."""
        undecided = [
            f"{ledger.name} is undecided from {ledger.stable} on"
            for ledger in self._ledgers(self.target)
            if ledger.stable < ledger.end
        ]
        return [*self.results.missing(self._ledgers(self.source)), *undecided]


class SimWorker(PipelineWorker[SimMember]):
    """One worker in its own client process."""

    def __init__(
        self,
        pipeline: Pipeline,
        number: int,
        *,
        client: Client | None = None,
        transaction_timeout_ms: int = 5_000,
        records_max: int = 20,
        pause: float = 0.0,
        **options: Any,
    ) -> None:
        """client, pause: as of PipelineWorker. options: as of tidelog.Consumer."""
        super().__init__(pipeline, number, client, transaction_timeout_ms, pause)
        self._records_max, self._options = records_max, options
        self.transactor: SimTransactor | None = None

    async def _work(self) -> None:
        member = self.member = self.pipeline.group.member(
            client=self.client, decided=True, auto_commit=False, **self._options
        )
        transactor = self.transactor = SimTransactor(
            self.pipeline.sim,
            self._transactional_id,
            client=self.client,
            transaction_timeout_ms=self._timeout_ms,
            max_block_ms=5_000,
            delivery_timeout_ms=5_000,
            request_timeout_ms=2_000,
        )
        await member.consumer.start()
        await transactor.start()
        try:
            while not self.is_stopping:
                records = await member.consumer.poll(max_records=self._records_max, timeout=0.5)
                member.got(records)
                if records and not await self._transform(member, transactor, records):
                    return
        except TidelogError as error:
            if error.retry is Retry.NEVER and error.written is not False:
                raise
        finally:
            member.is_stopping = True
            await member.consumer.close()
            await transactor.stop()

    async def _transform(self, member: SimMember, transactor: SimTransactor, records: Sequence[ConsumerRecord]) -> bool:
        """Write the results in a transaction. Returns whether it committed."""

        async def fill(opened: OpenTransaction) -> None:
            for record in records:
                value = self._result_of(str(record.topic), int(record.partition), int(record.offset))
                topic, partition = self._any_target()
                await opened.send(topic, value, partition)
            if self._pause:
                await self.client.sleep(self.client.rng.uniform(0, self._pause))
            await opened.real.send_offsets(member.consumer)

        judged = await transactor.transact(fill)
        self.committed += judged.told is True
        return judged.told is True
