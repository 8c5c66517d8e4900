"""Executors read history from a real S3 server, with credentials from their environment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.tiered_cluster import START_S, create_tiered_topic, first_on_disk, tiering_settings
from tests.spark.spark_processes import ENVIRONMENT
from tests.tiering.s3_gateway import BUCKET, S3Gateway, running_gateway
from tidelog import Producer

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.deep]

TOPIC, PARTITIONS, RECORDS = "orders", 2, 300
SEGMENT_BYTES = 20_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Gateway]:
    with running_gateway(tmp_path_factory.mktemp("s3") / "server") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, gateway: S3Gateway) -> Iterator[LocalCluster]:
    """A node, and a topic whose first records are in S3 only."""
    settings = tiering_settings(f"s3://{BUCKET}/tide")
    home = tmp_path_factory.mktemp("nodes")
    with LocalCluster(home, 1, settings=settings, environment=gateway.environment()) as cluster:
        create_tiered_topic(cluster, TOPIC, PARTITIONS, replicas=1, segment_bytes=SEGMENT_BYTES)
        asyncio.run(produce(cluster))
        cluster.wait_until(
            lambda: (
                min(first_on_disk(cluster.nodes[0], TOPIC, partition) for partition in range(PARTITIONS)) > RECORDS // 4
            ),
            within_s=START_S,
            what="copied segments leave the node",
        )
        yield cluster


def value_of(number: int) -> str:
    return f"{number}.".ljust(900, "x")


async def produce(cluster: LocalCluster) -> None:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, value_of(number).encode(), partition=number % PARTITIONS)


def run(cluster: LocalCluster, gateway: S3Gateway, home: Path, *options: str) -> dict[str, Any]:
    """What a driver with an executor of its own prints."""
    places = ("--bootstrap", cluster.bootstrap, "--topic", TOPIC, "--checkpoint", str(home / "checkpoint"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.history_job", *places, *options],
        env={**os.environ, **ENVIRONMENT, **gateway.environment()},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.timeout(900)
def test_an_executor_reads_history_from_s3(cluster: LocalCluster, gateway: S3Gateway, tmp_path: Path) -> None:
    """Takes longer than 10 s: a driver and an executor, which are processes of their own. Shown: a frame, and a query
    with `availableNow`, have each record once, with credentials of the environment."""
    found = run(cluster, gateway, tmp_path)
    expected = sorted([number % PARTITIONS, number // PARTITIONS, value_of(number)] for number in range(RECORDS))
    assert found["batch"] == expected
    assert sorted(found["stream"]) == expected


@pytest.mark.timeout(900)
def test_an_executor_with_wrong_credentials_says_what_to_do(
    cluster: LocalCluster, gateway: S3Gateway, tmp_path: Path
) -> None:
    """Takes longer than 10 s, likewise. The driver has the right ones, the executor has not: the error names the store,
    the refusal and the next step, not the secret."""
    said = run(cluster, gateway, tmp_path, "--secret", "not-the-secret")["error"]
    assert "ObjectStoreRefused" in said
    assert f"s3://{BUCKET}/tide" in said
    assert "give this process credentials that may read, write, list and delete there" in said
    assert "Executors read history from the store: they need its URL and credentials; to read through the nodes" in said
    assert "not-the-secret" not in said
