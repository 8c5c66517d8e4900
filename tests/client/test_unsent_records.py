"""A program that ends with queued records gets a warning, without any flag or logging configuration. Uses real
processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        made.create("orders")
        made.create("payments")
        yield made


def said(cluster: MemoryCluster, program: str) -> str:
    """Return the program's standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program), cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stderr


QUEUE = """
    import asyncio, sys, threading, tidelog, tidelog.sync

    async def queue(producer):
        for topic, count in (("orders", 3), ("payments", 2)):
            for number in range(count):
                await producer.enqueue(topic, b"%d" % number)

    async def main():
        producer = tidelog.Producer(sys.argv[1], linger_ms=60_000)
        await producer.start()
        await queue(producer)
        return producer
"""

ENDINGS = {
    "the loop ends": "asyncio.run(main())",
    "the producer outlives its loop": "kept = asyncio.run(main())",
    "the loop is dropped": "asyncio.new_event_loop().run_until_complete(main())",
    "the loop stays": "loop = asyncio.new_event_loop(); kept = loop.run_until_complete(main())",
    "an error ends the loop": """
        async def fails():
            await main()
            raise SystemExit(0)

        asyncio.run(fails())
    """,
    "a thread of the synchronous face waits": """
        producer = tidelog.sync.Producer(sys.argv[1], linger_ms=60_000)
        producer._thread.run(queue(producer._client))
    """,
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_records_that_stay_queued_cause_one_warning(cluster: MemoryCluster, ending: str) -> None:
    output = said(cluster, dedent(QUEUE) + dedent(ending))
    assert output.count("RuntimeWarning: a producer ended without close(): 5 queued records") == 1, output
    assert "(3 for topic 'orders', 2 for topic 'payments')" in output
    assert "call close() before the program ends" in output
    assert "no caller read the error" not in output, "once is enough"


CLEAN = {
    "closed": """
        async def closes():
            await (await main()).close()

        asyncio.run(closes())
    """,
    "closed by the block": """
        async def block():
            async with tidelog.Producer(sys.argv[1], linger_ms=60_000) as producer:
                await queue(producer)

        asyncio.run(block())
    """,
    "flushed, and not closed": """
        async def flushes():
            await (await main()).flush()

        asyncio.run(flushes())
    """,
    "never used": "tidelog.Producer(sys.argv[1])",
    "the synchronous face, not closed": """
        tidelog.sync.Producer(sys.argv[1]).send("orders", b"1")
    """,
}


@pytest.mark.parametrize("ending", CLEAN.values(), ids=CLEAN)
def test_a_program_without_queued_records_gets_no_warning(cluster: MemoryCluster, ending: str) -> None:
    assert "RuntimeWarning" not in said(cluster, dedent(QUEUE) + dedent(ending))
