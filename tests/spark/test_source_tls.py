"""Real Spark reads from a node that requires certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tidelog import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 40


def test_driver_and_executors_connect_with_the_certificate_that_the_options_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    alice = authority.client("alice")
    settings = {**settings_of(authority.node()), "listener.security.protocol.map": ["GRPC:GRPC_SSL"]}
    settings["super.users"] = ["User:CN=alice"]
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.file": alice.ca,
        "kafka.ssl.certificate.file": alice.certificate,
        "kafka.ssl.key.file": alice.key,
    }
    with LocalCluster(tmp_path / "cluster", 1, settings=settings, tls=alice) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 2, 1)
        with sync.Producer(cluster.bootstrap, tls=alice) as producer:
            producer.send_many("orders", [b"%d" % number for number in range(RECORDS)])
        source = spark.read.format("tidelog").option("kafka.bootstrap.servers", cluster.bootstrap)
        rows = source.option("subscribe", "orders").options(**options).load().select("value").collect()  # type: ignore[arg-type]
        assert sorted(int(row.value) for row in rows) == list(range(RECORDS))
