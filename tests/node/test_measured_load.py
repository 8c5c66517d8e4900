"""Nodes measure what clients write and read, and plans are made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.replicas import log_maintenance
from tests.node.real_nodes import real_nodes
from tests.node.shell import Shell
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import ReplicaLog
from tidelog.errors import TidelogError
from tidelog.types import NodeId


async def logs_of(admin: Admin) -> dict[NodeId, ReplicaLog]:
    """The logs of the partition on the nodes."""
    found = {}
    for node, directories in (await admin.describe_log_dirs()).items():
        assert not isinstance(directories, TidelogError)
        (found[node],) = (log for each in directories for log in each.logs if log.partition.topic == "orders")
    return found


async def test_the_leader_reports_what_clients_write_and_read_and_a_plan_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower reports nothing: its load is what is written to the leader."""
    monkeypatch.setattr(log_maintenance, "SAMPLE_MS", 0)
    async with real_nodes(tmp_path, 2) as nodes, Admin(str(nodes.addresses[0])) as admin:
        await admin.create_topic("orders", partitions=1, replication_factor=2)
        (partition,) = (await admin.describe_topic("orders")).partitions
        async with Producer(str(nodes.addresses[0]), acks="all") as producer:
            for _ in range(100):
                await producer.send("orders", b"x" * 10_000, partition=0)
        read = 0
        async with Consumer(str(nodes.addresses[0])) as consumer:
            consumer.assign([("orders", 0)])
            while read < 100:
                read += len(await consumer.poll())
        logs = await logs_of(admin)
        while not logs[partition.leader].bytes_out_rate:
            nodes.ensure_running()
            await MachineClock().sleep_ms(50)
            logs = await logs_of(admin)
        led, followed = logs.pop(partition.leader), *logs.values()
        assert led.bytes_in_rate > 0
        assert (followed.bytes_in_rate, followed.bytes_out_rate) == (0, 0)
        (plan,) = await Shell(nodes, capsys).json("cluster", "rebalance", "--dry-run")
        loads = {each["node"]: each["before"]["load"] for each in plan["nodes"]}
        assert loads.pop(partition.leader) > max(loads.values()) > 0

        metadata, image = nodes.nodes[0].node._metadata, nodes.nodes[0].node.image
        assert metadata is not None and image is not None
        measured = await metadata._log_dirs.measured(image)
        (placed,) = (measured.placed(name, partition.replicas) for name in measured.sizes if name.topic == "orders")
        assert placed.size_bytes >= 1_000_000, "as the controller asks the other nodes"
        assert len(placed.log_dirs) == 2
        assert placed.bytes_out > 0
