"""Requests to delete records, as clients of a world send them; the checkers judge the answers."""

from __future__ import annotations

import asyncio

from testbed.sim.workload import AnsweredError, Client
from testbed.sim.world import Simulation
from tidelog.errors import TidelogError


def delete_records(
    sim: Simulation, topic: str, partition: int, offset: int, *, client: Client | None = None
) -> asyncio.Task[int]:
    """Request the deletion of the records below `offset` (-1: of all that are committed). The task returns the low
    watermark, -1 if the request failed."""
    client = client or sim.client()
    return client.start(_delete(sim, client, topic, partition, offset), f"deletes below {offset}")


async def _delete(sim: Simulation, client: Client, topic: str, partition: int, offset: int) -> int:
    ledger, key = sim.ledger(topic, partition), sim.partition(topic, partition).key
    try:
        await client.leader(topic, partition)
    except TidelogError as error:
        sim.note(f"{ledger.name}: nobody to ask for the deletion below {offset}: {error.message}")
        return -1
    deletion = ledger.deletions.begin(offset)
    try:
        low = await client.delete_records(topic, partition, offset)
    except AnsweredError as error:
        ledger.deletions.fail(deletion, error.error, ledger.end)
        sim.note(f"{ledger.name}: deletion below {offset}: {error}")
        return -1
    except TidelogError as error:
        sim.note(f"{ledger.name}: no answer to the deletion below {offset}: {error.message}")
        return -1
    sim.note(f"{ledger.name}: deleted below {low} everywhere")
    sim.checkers.deleted(key, deletion, low)
    return low
