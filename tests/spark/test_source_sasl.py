"""Real Spark reads as a user, over TLS with SCRAM, what the user may read, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.users_listener import outside, serve_users
from tidelog import Admin, Tls, sync
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 40


async def let_alice_read(cluster: LocalCluster, topic: str, operator: Tls) -> None:
    may_read = AclBinding(
        ResourceType.TOPIC, topic, PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
    )
    async with Admin(cluster.bootstrap, tls=operator) as admin:
        await admin.set_password("alice", "tulip")
        await admin.create_acls([may_read])


def test_driver_and_executors_authenticate_as_the_user_that_the_options_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    operator = authority.client("operator")
    (tmp_path / "password").write_text("tulip\n")
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.file": authority.ca,
        "tidelog.sasl.username": "alice",
        "tidelog.sasl.password.file": str(tmp_path / "password"),
    }
    cluster = LocalCluster(tmp_path / "cluster", 1, settings=settings_of(authority.node()), inner=True, tls=operator)
    serve_users(cluster)
    with cluster:
        cluster.wait_healthy()
        for topic in ("orders", "salaries"):
            cluster.create_topic(topic, 2, 1)
            with sync.Producer(cluster.bootstrap, tls=operator) as producer:
                producer.send_many(topic, [b"%d" % number for number in range(RECORDS)])
        asyncio.run(let_alice_read(cluster, "orders", operator))

        def read(topic: str) -> DataFrame:
            source = spark.read.format("tidelog").option("kafka.bootstrap.servers", outside(cluster))
            return source.option("subscribe", topic).options(**options).load().select("value")

        assert sorted(int(row.value) for row in read("orders").collect()) == list(range(RECORDS))
        with pytest.raises(Exception, match="TopicAuthorizationFailed"):
            read("salaries").collect()
