"""Read a topic as Arrow batches and write them to another: `python -m examples.arrow [HOST:PORT,...] [FROM] [TO]`.

Start a cluster and write something first: `tidelog up`, `python -m examples.produce`. This needs pyarrow:
`pip install 'tidelog[arrow]'`. `polars.from_arrow(rows)`, `duckdb.from_arrow(rows)` and `rows.to_pandas()` take the
batches as they are.
"""

from __future__ import annotations

import asyncio
import sys

import tidelog
from tidelog.errors import TopicExists


async def main(bootstrap: str, source: str, target: str) -> None:
    async with tidelog.Admin(bootstrap) as admin:
        try:
            await admin.create_topic(target, partitions=6, replication_factor=3, configs={"min.insync.replicas": "2"})
        except TopicExists:
            print(f"topic {target!r} is there already")
    async with tidelog.Consumer(bootstrap) as consumer, tidelog.Producer(bootstrap) as producer:
        partitions = await consumer.partitions(source)
        ends = await consumer.end_offsets(partitions)
        consumer.assign([partition for partition in partitions if ends[partition] > 0])
        left = set(consumer.assignment)
        while left:
            rows = await consumer.poll_arrow()
            # The column partition would keep each record's partition; by key it goes where its key belongs.
            delivery = await producer.enqueue_arrow(target, rows.drop_columns(["partition"]))
            await delivery
            print(f"{rows.num_rows} rows, {rows.nbytes} bytes")
            left = {partition for partition in left if await consumer.position(partition) < ends[partition]}


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9192",
            sys.argv[2] if len(sys.argv) > 2 else "greetings",
            sys.argv[3] if len(sys.argv) > 3 else "copies",
        )
    )
