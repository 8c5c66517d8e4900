"""The audit of a topic with a remote tier: with `--remote-storage`, history is read from the store, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replication_settings import ReplicationConfig
from node.tiering_settings import TieringConfig
from storage.directory.maintenance_config import MaintenanceConfig
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog import Producer
from tidelog.client.admin import Admin
from tidelog.jobs import audit
from tidelog.types import Millis

TOPIC = "orders"
RECORDS = 21


def with_store(folder: Path) -> Callable[[RealNodes], None]:
    def prepare(nodes: RealNodes) -> None:
        nodes.tiering = TieringConfig(url=f"file://{folder}", partitions=1, min_isr=1)
        nodes.maintenance = MaintenanceConfig(retention_check_ms=200)

    return prepare


async def audited(nodes: RealNodes, *options: str) -> tuple[int, Any]:
    """The exit code and the report."""

    def run() -> tuple[int, Any]:
        printed = StringIO()
        with redirect_stdout(printed):
            code = audit.main([TOPIC, "--bootstrap", str(nodes.addresses[0]), "--json", "--quiet", *options])
        return code, json.loads(printed.getvalue())

    return await asyncio.get_running_loop().run_in_executor(None, run)


async def test_history_is_audited_in_the_store_and_its_damage_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    coordinators = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=1, min_isr=1))
    patient = ReplicationConfig(session_ms=Millis(60_000))
    async with real_nodes(
        tmp_path, 1, replication=patient, coordinators=coordinators, prepare=with_store(store)
    ) as nodes:
        at = str(nodes.addresses[0])
        async with Admin(at) as admin, Producer(at, linger_ms=0) as producer:
            configs = {
                "remote.storage.enable": "true",
                "segment.bytes": "2000",
                "local.retention.bytes": "0",
                "file.delete.delay.ms": "0",
            }
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=configs)
            for number in range(RECORDS):
                await producer.send(TOPIC, b"%d." % number + bytes(900), partition=0)

            def has_left() -> bool:
                node = nodes.nodes[0].node
                replica = node.replicas.registry.find(TOPIC, 0) if node.replicas else None
                return replica is not None and RECORDS - replica.log.local_log_start_offset <= 4

            await nodes.wait_until(has_left)

        through_nodes = await audited(nodes)
        assert through_nodes[0] == 0
        from_store = await audited(nodes, "--remote-storage", "on")
        assert from_store == through_nodes
        (partition,) = from_store[1]["partitions"]
        assert partition["end"] == RECORDS
        assert partition["replicas"][0]["batches"] == RECORDS

        third = sorted(store.glob("**/*.segment"))[2]
        data = bytearray(third.read_bytes())
        data[400] ^= 1
        third.write_bytes(data)
        code, report = await audited(nodes, "--remote-storage", f"file://{store}")
        assert code == 1
        (replica,) = report["partitions"][0]["replicas"]
        assert replica["state"] == "unreadable"
        assert third.name in replica["note"]
