"""The screenshots of docs/console.md: `python -m tests.node.console_screenshots` takes them again."""

from __future__ import annotations

import asyncio
import json
import tempfile
from itertools import count
from pathlib import Path

from node.security.sasl_settings import SaslConfig
from tests.node.chromium import Tab, chromium
from tests.node.console_users import ALL
from tests.node.console_world import console
from tests.node.real_nodes import OPERATOR, RealNodes, real_nodes
from tests.node.sasl_nodes import knows_alice
from tidelog import Admin, Consumer, Producer
from tidelog.clock import MachineClock
from tidelog.types import ScramMechanism

PLACE = Path(__file__).resolve().parents[2] / "docs" / "images"
CHARTS_S = 60
"""How long the charts grow."""


async def main() -> None:
    """Three nodes, of which one ends, and what a console shows then."""
    with tempfile.TemporaryDirectory() as home:
        sasl = SaslConfig(tuple(ScramMechanism))
        async with (
            real_nodes(Path(home), 3, principals={"others": "User:others"}, sasl=sasl) as nodes,
            console(nodes) as here,
            chromium(Path(home) / "profile") as browser,
        ):
            _measure_times(nodes)
            tab, at = await browser.tab(), f"http://{here.address}"
            await _fill(nodes)
            await tab.open(f"{at}/login")
            await tab.focus_by_keyboard("at.name === 'user'")
            await tab.type("alice")
            await tab.press("Tab")
            await tab.type("tulip")
            await tab.submit()
            await _take(tab, f"{at}/topic?name=orders", "console-topic")
            await _take(tab, f"{at}/records?name=orders&partition=0&from=start", "console-records")
            await _take(tab, f"{at}/topic/delete?name=orders", "console-delete", height=600)
            await _charts(nodes, tab, at)
            await nodes.stop(2)
            await nodes.wait_until(lambda: _is_fenced(nodes))
            await _take(tab, f"{at}/", "console-cluster")


def _measure_times(nodes: RealNodes) -> None:
    """The clock of request times stands still in tests."""
    loop = asyncio.get_running_loop()
    for found in nodes.nodes.values():
        for each in (found.meters, *found.meters):
            each.now_ns = lambda: int(loop.time() * 1e9)


def _is_fenced(nodes: RealNodes) -> bool:
    image = nodes.nodes[0].node.image
    return image is not None and any(each.fenced for each in image.nodes.values())


async def _fill(nodes: RealNodes) -> None:
    bootstrap = ",".join(map(str, nodes.further[OPERATOR]))
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.set_password("alice", "tulip", iterations=4_096)
        await admin.create_acls(ALL)
        await admin.create_topic("orders", partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
        await admin.create_topic("archive", partitions=1, replication_factor=1)
        await admin.reassign({("archive", 0): [2]})
        for number in range(30):
            order = {
                "id": 1_000 + number,
                "customer": f"c-{number % 7}",
                "total": 12.5 * number,
                "paid": number % 3 > 0,
            }
            headers = [("source", b"shop")]
            key = f"c-{number % 7}".encode()
            await producer.send("orders", json.dumps(order).encode(), key=key, partition=number % 3, headers=headers)
        await producer.send("orders", bytes(range(0, 256, 5)), key=b"binary", partition=0)
        await admin.alter_group_offsets("billing", {("orders", 0): 4, ("orders", 1): 7, ("orders", 2): 10})
    await nodes.wait_until(lambda: knows_alice(nodes, 0))


async def _charts(nodes: RealNodes, tab: Tab, at: str) -> None:
    """In the dark, while records are written and read."""
    bootstrap, clock, partitions = ",".join(map(str, nodes.further[OPERATOR])), MachineClock(), count()
    await tab.open(f"{at}/live")
    async with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, group="billing", topics=["orders"]) as consumer,
    ):
        end_ms = clock.monotonic_ms() + CHARTS_S * 1_000
        while clock.monotonic_ms() < end_ms:
            for _ in range(1 + clock.monotonic_ms() // 2_500 % 4):
                await producer.send("orders", b'{"id": 1}' * 20, partition=next(partitions) % 3)
            await consumer.poll(timeout=0.01)
            await clock.sleep_ms(25)
        await tab.dark(is_dark=True)
        await _take(tab, f"{at}/live", "console-live")
        await tab.dark(is_dark=False)


async def _take(tab: Tab, address: str, name: str, *, height: int = 800) -> None:
    await tab.open(address)
    await tab.screenshot(PLACE / f"{name}.png", height=height)


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    asyncio.run(main())
