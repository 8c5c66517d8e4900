"""Read everything that is committed in a topic: `python -m examples.consume [HOST:PORT,...] [TOPIC]`.

Start a cluster and write something first: `tidelog up`, `python -m examples.produce`.
"""

from __future__ import annotations

import asyncio
import sys

import tidelog


async def main(bootstrap: str, topic: str) -> None:
    async with tidelog.Consumer(bootstrap) as consumer:
        partitions = await consumer.partitions(topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign([partition for partition in partitions if ends[partition] > 0])
        left = set(consumer.assignment)
        count = 0
        while left:
            for record in await consumer.poll():
                count += 1
                if count <= 5:
                    print(f"{record.topic}-{record.partition}@{record.offset} {record.key!r}: {record.value!r}")
            left = {partition for partition in left if await consumer.position(partition) < ends[partition]}
        print(f"{count} records, committed up to", {str(partition): end for partition, end in ends.items()})


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9192",
            sys.argv[2] if len(sys.argv) > 2 else "greetings",
        )
    )
