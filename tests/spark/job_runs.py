"""Runs of jobs in the session of the tests or in processes of their own, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from node.process.local_cluster import LocalCluster
from tests.spark.decided import wait_decided
from tidelog import sync
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.jobs import archive, audit, profile, restore, topic_table

ATTEMPTS = 5
NO_RETENTION = {"log.retention.check.interval.ms": 3_600_000}
"""For a cluster whose records are years old: the first round of retention, five minutes after the start, would delete
them while a test on a busy machine still reads."""
MODULES: Any = {"archive": archive, "audit": audit, "profile": profile, "restore": restore, "table": topic_table}


def run(name: str, cluster: LocalCluster | None, *arguments: str) -> tuple[int, Any]:
    """Run a job in this process. Returns its exit code and its report. A job is repeated whose Python processes do not
    start within the 10 s that Spark gives them on a busy machine."""
    where = [] if cluster is None else ["--bootstrap", cluster.bootstrap]
    for _ in range(ATTEMPTS):
        printed, said = StringIO(), StringIO()
        with redirect_stdout(printed), redirect_stderr(said):
            code = MODULES[name].main([*arguments, *where, "--json", "--quiet"])
        if code != 1 or "failed to connect back" not in said.getvalue():
            break
    sys.stderr.write(said.getvalue())
    text = printed.getvalue()
    return code, json.loads(text) if text.startswith("{") else None


def start(name: str, cluster: LocalCluster, *arguments: str) -> subprocess.Popen[str]:
    """Start a job as a program, with a Spark of its own, in a process group of its own."""
    settings = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false")
    conf = [part for setting in settings for part in ("--conf", setting)]
    command = [sys.executable, "-m", MODULES[name].__name__, *arguments, "--bootstrap", cluster.bootstrap]
    return subprocess.Popen(
        [*command, "--json", "--master", "local[2]", *conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
    )


def records_of(cluster: LocalCluster, *topics: str) -> list[ConsumerRecord]:
    """What a plain consumer reads, by topic, partition and offset."""
    wait_decided(cluster)
    with sync.Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        places = [place for topic in topics for place in consumer.partitions(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        found: list[ConsumerRecord] = []
        while any(consumer.position(place) < ends[place] for place in places):
            found += consumer.poll(timeout=0.1)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def produce(cluster: LocalCluster, topic: str, numbers: Iterable[int], *, partitions: int, base_ms: int) -> None:
    """Records with keys, headers and times that follow from their numbers; some have nulls."""
    chosen: Sequence[int] = list(numbers)
    with sync.Producer(cluster.bootstrap) as producer:
        for partition in range(partitions):
            own = [number for number in chosen if number % partitions == partition]
            producer.send_many(
                topic,
                [None if number % 11 == 10 else b"value %d \xff" % number for number in own],
                keys=[None if number % 7 == 6 else b"key %d" % (number % 20) for number in own],
                headers=[[("n", b"%d" % number), ("none", None)] if number % 3 else [] for number in own],
                timestamp=[base_ms + number * 360_001 for number in own],
                partition=partition,
            )
