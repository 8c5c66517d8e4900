"""Write two thousand records and see where they went: `python -m examples.produce [HOST:PORT,...]`.

Start a cluster first: `tidelog up`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import tidelog
from tidelog.errors import TopicExists


async def main(bootstrap: str) -> None:
    async with tidelog.Admin(bootstrap) as admin:
        try:
            await admin.create_topic(
                "greetings", partitions=6, replication_factor=3, configs={"min.insync.replicas": "2"}
            )
        except TopicExists:
            print("topic 'greetings' is there already")

    async with tidelog.Producer(bootstrap, acks="all", compression="lz4") as producer:
        # One record, and where it lies once two nodes hold it.
        sent = await producer.send("greetings", b"hello", key=b"world", headers=[("language", b"en")])
        print(f"{sent.topic}-{sent.partition} offset {sent.offset}")

        # Many records: queue them, then ask each for its outcome.
        deliveries = [
            await producer.enqueue("greetings", b"number %d" % n, key=b"key %d" % (n % 40)) for n in range(1000)
        ]
        # Records at hand: one call for all of them, and one outcome.
        numbers = range(1000, 2000)
        many = await producer.enqueue_many(
            "greetings", [b"number %d" % n for n in numbers], keys=[b"key %d" % (n % 40) for n in numbers]
        )
        try:
            await many
        except tidelog.TidelogError as failure:
            print(f"{len(many.failures())} of {len(many)} were not acknowledged: {failure}")
        places: Counter[int] = Counter()
        for delivery in deliveries:
            try:
                places[(await delivery).partition] += 1
            except tidelog.CommitUnknown as unknown:
                print(f"may or may not be written: {unknown}")
            except tidelog.TidelogError as failure:
                print(f"not written: {failure}")
        print("records per partition:", dict(sorted(places.items())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9192"))
