"""Waits for the markers of decided transactions: they come a moment after the commit has returned, as with Kafka."""

from __future__ import annotations

import asyncio
from typing import Final

import tidelog
from node.process.local_cluster import LocalCluster
from tidelog.clock import MachineClock

WITHIN_S: Final = 30


def wait_decided(cluster: LocalCluster) -> None:
    """Return when no transaction is decided and without its markers; those that are open may stay so."""
    asyncio.run(_wait(cluster.bootstrap))


async def _wait(bootstrap: str) -> None:
    async with asyncio.timeout(WITHIN_S), tidelog.Admin(bootstrap) as admin:
        while await _undelivered(admin):
            await MachineClock().sleep_ms(20)


async def _undelivered(admin: tidelog.Admin) -> bool:
    try:
        return bool(await admin.list_transactions(states=["PrepareCommit", "PrepareAbort"]))
    except tidelog.TidelogError:  # a node has just died
        return True
