"""Apache Kafka's own tools, in Java, at a node with SASL_SSL: `kafka-acls` and `kafka-configs --entity-type users`.

A producer logs in by each mechanism as the user whom they have made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.interop.kafka_tools import run
from tidelog import sync

pytestmark = pytest.mark.interop

MECHANISMS = {"SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram", "PLAIN": "plain.Plain"}
"""With the package and the name of their module in Java."""


@dataclass(frozen=True)
class Secured:
    """A node with a user admin."""

    cluster: LocalCluster
    home: Path
    ca: str

    def file_of(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> str:
        """A file with the settings of a client in Java."""
        module = f"org.apache.kafka.common.security.{MECHANISMS[mechanism]}LoginModule"
        path = self.home / f"{user}-{mechanism}.properties"
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return str(path)

    def tool(self, name: str, *arguments: str) -> str:
        at = ("--bootstrap-server", self.cluster.kafka_bootstrap, "--command-config", self.file_of("admin", "orchid"))
        printed, _ = run(name, *at, *arguments, is_silent=True)
        return printed

    def acls(self, *arguments: str) -> str:
        return self.tool("org.apache.kafka.tools.AclCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self.tool("kafka.admin.ConfigCommand", "--entity-type", "users", *arguments)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    authority = Authority(home / "certificates")
    settings = {
        "listener.security.protocol.map": ["KAFKA:SASL_SSL"],
        "sasl.enabled.mechanisms": list(MECHANISMS),
        "super.users": ["User:ANONYMOUS", "User:admin"],
        **settings_of(authority.node(requires=False)),
    }
    with LocalCluster(home / "cluster", 1, kafka=True, settings=settings) as started:
        started.wait_healthy(60)
        started.create_topic("orders", 1, 1)
        with sync.Admin(started.bootstrap) as admin:
            admin.set_password("admin", "orchid", iterations=4_096)
        yield Secured(started, home, authority.ca)


def test_a_user_is_made_may_write_and_has_a_quota(secured: Secured) -> None:
    """Above 10 s: a JVM for each command."""
    one = ("--entity-name", "billing")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        made = secured.configs("--alter", "--add-config", f"{mechanism}=[iterations=4096,password=tulip]", *one)
        assert "Completed updating config for user billing" in made
    shown = secured.configs("--describe", *one)
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096" in shown

    rule = ("--allow-principal", "User:billing", "--producer", "--topic", "orders")
    assert "operation=WRITE, permissionType=ALLOW" in secured.acls("--add", *rule)
    listed = secured.acls("--list", "--topic", "orders")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:billing, host=*, operation={operation}, permissionType=ALLOW)" in listed

    quota = "producer_byte_rate=1048576,request_percentage=50"
    secured.configs("--alter", "--add-config", quota, *one)
    secured.configs("--alter", "--add-config", "consumer_byte_rate=2048", "--entity-default")
    shown = secured.configs("--describe")
    assert "Quota configs for user-principal 'billing' are " in shown
    assert "producer_byte_rate=1048576.0" in shown
    assert "request_percentage=50.0" in shown
    assert "Quota configs for the default user-principal are consumer_byte_rate=2048.0" in shown

    for mechanism in MECHANISMS:
        at = ("--bootstrap-server", secured.cluster.kafka_bootstrap)
        user = ("--producer.config", secured.file_of("billing", "tulip", mechanism))
        written, _ = run(
            "org.apache.kafka.tools.VerifiableProducer", *at, *user, "--topic", "orders", "--max-messages", "10",
            is_silent=True,
        )  # fmt: skip
        events = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
        assert [each["acked"] for each in events if each["name"] == "tool_data"] == [10], mechanism

    for removed in ("producer_byte_rate,request_percentage", "SCRAM-SHA-256"):
        secured.configs("--alter", "--delete-config", removed, *one)
    shown = secured.configs("--describe", *one)
    assert "SCRAM-SHA-512=iterations=4096" in shown
    assert "SCRAM-SHA-256" not in shown
    assert "Quota configs" not in shown
    secured.acls("--remove", "--force", *rule)
    assert "User:billing" not in secured.acls("--list")
