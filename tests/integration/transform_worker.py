"""A process that consumes, transforms and produces exactly once, until it is ended: a member of a group with a
transactional producer.

`python -m tests.integration.transform_worker BOOTSTRAP GROUP SOURCE TARGET NAME`. Each record of SOURCE becomes one of
TARGET with the same key and the value `done:VALUE`. Prints a line after each transaction: the number of its records.
"""

from __future__ import annotations

import asyncio
import sys

from tidelog import Consumer, Producer
from tidelog.errors import TidelogError, TransactionAborted


async def transform(bootstrap: str, group: str, source: str, target: str, name: str) -> None:
    """Until the process ends. What was read in a transaction that failed is read again."""
    async with Consumer(
        bootstrap,
        group=group,
        topics=[source],
        auto_commit=False,
        auto_offset_reset="earliest",
        isolation="read_committed",
    ) as consumer:
        while True:
            try:
                await _transform_until_fenced(consumer, bootstrap, f"{group}-{name}", target)
            except TidelogError as error:
                print(f"a new producer: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            await consumer.rewind()


async def _transform_until_fenced(consumer: Consumer, bootstrap: str, transactional_id: str, target: str) -> None:
    async with Producer(bootstrap, transactional_id=transactional_id, transaction_timeout_ms=10_000) as producer:
        while True:
            records = await consumer.poll(max_records=200, timeout=0.5)
            if not records:
                continue
            try:
                async with producer.transaction() as txn:
                    for record in records:
                        await txn.enqueue(target, b"done:" + (record.value or b""), key=record.key)
                    await txn.send_offsets(consumer)
            except TransactionAborted as aborted:
                print(f"again: {aborted}", file=sys.stderr, flush=True)
                await consumer.rewind()
            else:
                print(len(records), flush=True)


if __name__ == "__main__":
    asyncio.run(transform(*sys.argv[1:6]))
