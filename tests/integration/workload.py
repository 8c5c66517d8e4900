"""What a client does in the container and Kubernetes tests: `python - COMMAND ... < workload.py` beside the cluster.

It stands alone, uses only the installed `tidelog`, and prints JSON lines; the test outside keeps the books. It never
sends a record again, so a value that is read twice was stored twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time

import tidelog
from tidelog.errors import TidelogError
from tidelog.types import PartitionIndex

WAIT_SECONDS_MAX = 90


def tell(*fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def wait(nodes: int) -> None:
    """Until so many nodes are registered and unfenced."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    seen: object = "nothing"
    while time.monotonic() < deadline:
        try:
            async with tidelog.Admin(options.bootstrap, tls=tls) as admin:
                cluster = await admin.describe_cluster()
        except TidelogError as refusal:
            seen = refusal
        else:
            seen = [node.node_id for node in cluster.nodes if not node.fenced]
            if len(seen) == nodes:
                tell("ready", seen)
                return
        await asyncio.sleep(0.3)
    raise SystemExit(f"not {nodes} nodes after {WAIT_SECONDS_MAX} s: {seen}")


async def create(topic: str, partitions: int) -> None:
    async with tidelog.Admin(options.bootstrap, tls=tls) as admin:
        await admin.create_topic(
            topic, partitions=partitions, replication_factor=3, configs={"min.insync.replicas": "2"}
        )


async def describe(topic: str) -> None:
    async with tidelog.Admin(options.bootstrap, tls=tls) as admin:
        found = await admin.describe_topic(topic)
        for partition in found.partitions:
            tell("partition", partition.partition, partition.leader, sorted(partition.isr))


async def quorum() -> None:
    """Who the active controller is, once there is one, and who votes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        async with tidelog.Admin(options.bootstrap, tls=tls) as admin:
            cluster = await admin.describe_cluster()
        if cluster.controller_id >= 0:
            tell("quorum", cluster.controller_id, sorted(voter.node_id for voter in cluster.voters))
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"no active controller after {WAIT_SECONDS_MAX} s")


async def load(topic: str, partitions: int, seconds: float) -> None:
    """Keeps writing until that time is over or SIGTERM, each partition one record after the other; tells what was
    acknowledged, and what was not."""
    deadline = time.monotonic() + seconds
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def write(producer: tidelog.Producer, partition: int) -> None:
        number = 0
        while time.monotonic() < deadline and not ended.is_set():
            value = f"{partition}:{number}"
            number += 1
            try:
                sent = await producer.send(topic, value=value.encode(), partition=partition)
            except TidelogError as refusal:
                tell("refused", partition, value, type(refusal).__name__)
                await asyncio.sleep(0.05)
            else:
                tell("acked", partition, value, sent.offset)

    async with (
        tidelog.Producer(options.bootstrap, acks="all", linger_ms=0, tls=tls) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for partition in range(partitions):
            tasks.create_task(write(producer, partition))


async def read(topic: str, partitions: int) -> None:
    """Everything committed, from the first record to the end that there is now."""
    everything = [tidelog.TopicPartition(topic, PartitionIndex(partition)) for partition in range(partitions)]
    async with tidelog.Admin(options.bootstrap, tls=tls) as admin:
        ends = await admin.list_offsets(everything, "latest")
    async with tidelog.Consumer(options.bootstrap, tls=tls) as consumer:
        for place in everything:
            consumer.assign([place])
            await consumer.seek(place, "earliest")
            while await consumer.position(place) < ends[place]:
                for record in await consumer.poll(timeout=5):
                    tell("read", place.partition, (record.value or b"").decode(), record.offset)


parser = argparse.ArgumentParser(prog="workload")
parser.add_argument("--bootstrap", default="tidelog-0.tidelog-nodes:9192,tidelog-1.tidelog-nodes:9192")
parser.add_argument("--tls", metavar="DIRECTORY", help="connect with ca.crt, tls.crt and tls.key of a mounted Secret")
commands = parser.add_subparsers(dest="command", required=True)
commands.add_parser("quorum")
commands.add_parser("wait").add_argument("nodes", type=int)
for name in ("create", "describe", "load", "read"):
    command = commands.add_parser(name)
    command.add_argument("topic")
    if name != "describe":
        command.add_argument("partitions", type=int)
    if name == "load":
        command.add_argument("seconds", type=float)
options = parser.parse_args()
tls = options.tls and tidelog.Tls(*(f"{options.tls}/{name}" for name in ("ca.crt", "tls.crt", "tls.key")))
arguments = {key: value for key, value in vars(options).items() if key not in ("bootstrap", "tls", "command")}
asyncio.run(globals()[options.command](**arguments))
