"""Consume, transform, produce, exactly once: `python -m examples.transform [HOST:PORT,...] [SOURCE] [TARGET] [NAME]`.

Each record of SOURCE becomes one of TARGET, in upper case. Output and the offsets of the input are committed together:
a read_committed consumer of TARGET sees each input once, whatever is killed in between. Start several, each with a NAME
of its own: they share the partitions of SOURCE. A name stays with its process over restarts: a transaction that was
open when the process died is aborted at once when it is started again.

The program ends when no record has come for ten seconds. Start a cluster and write something first: `tidelog up`,
`python -m examples.produce`.
"""

from __future__ import annotations

import asyncio
import sys

import tidelog

GROUP = "transform"
IDLE_SECONDS = 10


async def transform(bootstrap: str, source: str, target: str, name: str) -> int:
    """Transform until no record comes; return how many came."""
    count = 0
    async with (
        tidelog.Consumer(
            bootstrap, group=GROUP, topics=[source], auto_commit=False, isolation="read_committed"
        ) as consumer,
        tidelog.Producer(bootstrap, transactional_id=f"{GROUP}-{name}") as producer,
    ):
        while records := await consumer.poll(max_records=1_000, timeout=IDLE_SECONDS):
            try:
                async with producer.transaction() as txn:
                    for record in records:
                        await txn.enqueue(target, (record.value or b"").upper(), key=record.key)
                    await txn.send_offsets(consumer)
            except tidelog.TransactionAborted as error:
                print(f"again: {error}", file=sys.stderr)
                await consumer.rewind()  # return the same records again
            else:
                count += len(records)
    return count


async def main(bootstrap: str, source: str, target: str, name: str) -> None:
    async with tidelog.Admin(bootstrap) as admin:
        try:
            await admin.create_topic(target, partitions=3)
        except tidelog.TidelogError as error:
            print(error)
    while True:
        try:
            count = await transform(bootstrap, source, target, name)
        except tidelog.TransactionOutcomeUnknown as error:
            print(f"continue from what the group has committed: {error}", file=sys.stderr)
        else:
            print(f"{count} records of {source} are in {target}")
            return


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(
        main(
            arguments.get(1, "127.0.0.1:9192"),
            arguments.get(2, "greetings"),
            arguments.get(3, "shouts"),
            arguments.get(4, "1"),
        )
    )
