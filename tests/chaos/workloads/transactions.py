"""A pipeline that consumes, transforms and produces exactly once: members of one group with transactional producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.chaos.history import Begun, Failed, Transaction, now
from tests.chaos.workloads.work import COPIES, LEDGER, PARTITIONS, PIPELINE, Work, pause
from tidelog import Consumer, ConsumerRecord, Producer
from tidelog.errors import TidelogError, TransactionAborted

ABORTED: Final = 7
"""One of so many transactions is aborted on purpose."""
TIMEOUT_MS: Final = 15_000
RECORDS_MAX: Final = 500
"""Of a transaction. After a fault the pipeline must be faster than the producers, or it never comes to an end."""


class Pipeline:
    """One member. Each copy names its transaction: `NAME|VALUE`."""

    def __init__(self, work: Work, name: str) -> None:
        self._work, self._name = work, name
        self._begun = 0

    async def run(self) -> None:
        """Until readers stop."""
        self._work.history.note(Begun(now(), self._name, []))
        stopping = self._work.stopping_readers
        while not stopping.is_set():
            try:
                async with Consumer(
                    self._work.bootstrap,
                    group=PIPELINE,
                    topics=[LEDGER],
                    auto_commit=False,
                    auto_offset_reset="earliest",
                    isolation="read_committed",
                ) as consumer:
                    await self._copy(consumer)
            except TidelogError as failure:
                self._note(failure)
                await pause(stopping, 0.2)

    async def _copy(self, consumer: Consumer) -> None:
        stopping = self._work.stopping_readers
        async with Producer(
            self._work.bootstrap, transactional_id=f"copies-{self._name}", transaction_timeout_ms=TIMEOUT_MS
        ) as producer:
            while not stopping.is_set():
                if records := await consumer.poll(max_records=RECORDS_MAX, timeout=0.3):
                    await self._copy_once(consumer, producer, records)

    async def _copy_once(self, consumer: Consumer, producer: Producer, records: Sequence[ConsumerRecord]) -> None:
        """One transaction. Raises the error after which another producer must continue."""
        name = f"{self._name}-{self._begun}"
        self._begun += 1
        # Unless the client says that it is aborted, a transaction that failed has an unknown outcome.
        outcome = "unknown"
        try:
            async with producer.transaction() as txn:
                for index, record in enumerate(records):
                    value = f"{name}|".encode() + (record.value or b"")
                    await txn.enqueue(COPIES, value, partition=index % PARTITIONS[COPIES])
                if self._begun % ABORTED == 0:
                    await txn.abort()
                    outcome = "aborted"
                else:
                    await txn.send_offsets(consumer)
            if outcome != "aborted":
                outcome = "committed"
        except TransactionAborted as aborted:
            self._note(aborted)
            outcome = "aborted"
        finally:
            self._work.history.note(Transaction(now(), self._name, name, outcome, len(records)))
        if outcome == "aborted":
            await consumer.rewind()

    def _note(self, failure: TidelogError) -> None:
        self._work.history.note(Failed(now(), self._name, f"{type(failure).__name__}: {failure}"))
