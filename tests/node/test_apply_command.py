"""`tidelog apply` on real nodes: files are the state of the cluster, and nothing is deleted without being asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.shell import Shell
from tidelog.client import admin_calls
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.protocol import methods
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.scram import ITERATIONS

TOPICS = """\
[topics.orders]
partitions = 2
replication-factor = 1
configs.retention.ms = 3_600_000

[topics.payments]
partitions = 1
replication-factor = 1
[topics.payments.configs]
"cleanup.policy" = ["compact", "delete"]
"""
ACCESS = """\
[users.alice]
password-env = "ALICE_PASSWORD"

[users.bob]
password-file = "bob.password"
mechanisms = ["SCRAM-SHA-256"]
iterations = 4096

[[acls]]
allow = "User:alice"
operations = ["read", "describe"]
topic = "orders"

[[acls]]
deny = "User:bob"
operations = ["write"]
topic = "pay"
prefixed = true
hosts = ["10.0.0.1"]

[[quotas]]
user = "alice"
producer_byte_rate = 1_048_576
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two files, and the passwords that they name."""
    monkeypatch.setenv("ALICE_PASSWORD", "of alice")
    home = tmp_path / "files"
    home.mkdir()
    (home / "topics.toml").write_text(TOPICS)
    (home / "access.toml").write_text(ACCESS)
    (home / "bob.password").write_text("of bob\n")
    (home / "README").write_text("neither TOML nor JSON")
    return home


async def applied(tidelog: Shell, *arguments: str, code: int = 0) -> dict[tuple[str, str], Any]:
    """The objects of `apply --json`, by kind and name."""
    (document,) = await tidelog.json("apply", *arguments, code=code)
    return {(each["kind"], each["name"]): each for each in document["objects"]}


def actions(objects: dict[tuple[str, str], Any]) -> set[str]:
    return {each["action"] for each in objects.values()}


async def credentials(nodes: RealNodes) -> list[tuple[str, int, int]]:
    answer = await nodes.call(
        0, methods.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, sasl_pb2.DescribeUserScramCredentialsRequest()
    )
    return [(each.name, each.mechanism, each.iterations) for each in answer.credentials]


async def test_files_are_applied_once_and_their_changes_later(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path) as nodes, Admin(str(nodes.addresses[0])) as admin:
        tidelog, where = Shell(nodes, capsys), ("-f", str(files))

        shown = await applied(tidelog, *where, "--diff", code=1)
        assert actions(shown) == {"create"} and not any(each["done"] for each in shown.values())
        assert await admin.list_topics() == [] and await admin.list_users() == [], "--diff changes nothing"

        made = await applied(tidelog, *where)
        assert shown.keys() == made.keys() and all(each["done"] for each in made.values())
        assert [(each.name, len(each.partitions)) for each in await admin.list_topics()] == [
            ("orders", 2),
            ("payments", 1),
        ]
        assert (await admin.describe_topic("payments")).configs["cleanup.policy"] == "compact,delete"
        assert await credentials(nodes) == [("alice", 1, ITERATIONS), ("alice", 2, ITERATIONS), ("bob", 1, 4096)]
        assert len(await admin.describe_acls()) == 3

        assert actions(await applied(tidelog, *where)) == {"none"}, "it is idempotent"
        assert actions(await applied(tidelog, *where, "--diff")) == {"none"}
        assert await tidelog("apply", *where) == "", "what is unchanged has no row"
        assert "8 unchanged" in tidelog.err

        changed = TOPICS.replace("partitions = 2", "partitions = 3").replace("3_600_000", "7_200_000")
        (files / "topics.toml").write_text(changed)
        (files / "access.toml").write_text(ACCESS.replace("1_048_576", "5"))
        shown = await applied(tidelog, *where, "--diff", code=1)
        assert shown["topic", "orders"]["details"] == ["partitions: 2 -> 3", "retention.ms: 3600000 -> 7200000"]
        assert shown["quota", "user 'alice'"]["details"] == ["producer_byte_rate: 1048576 -> 5"]
        assert len((await admin.describe_topic("orders")).partitions) == 2
        table = await tidelog("apply", *where)
        assert "partitions: 2 -> 3" in table
        assert "2 changed" in tidelog.err and "6 unchanged" in tidelog.err
        orders = await admin.describe_topic("orders")
        assert (len(orders.partitions), orders.configs["retention.ms"]) == (3, "7200000")


async def test_nothing_is_deleted_without_prune_and_with_it_only_of_the_kinds_and_names_asked(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path) as nodes, Admin(bootstrap := str(nodes.addresses[0])) as admin:
        tidelog, where = Shell(nodes, capsys), ("-f", str(files / "topics.toml"))
        await tidelog("apply", "-f", str(files))
        for name in ("_schemas", "by-hand", "by-hand-2"):
            await admin.create_topic(name, partitions=1, replication_factor=1)
        await admin.alter_topic("payments", {"retention.ms": "-1"})
        await admin.set_password("carol", "of carol")
        async with Producer(bootstrap) as producer, Consumer(bootstrap, group="g", topics=["orders"]) as consumer:
            await producer.send("orders", b"a")
            await consumer.poll(timeout=20)  # now there is an internal topic
            await consumer.commit()

        assert actions(await applied(tidelog, *where)) == {"none"}
        shown = await applied(tidelog, *where, "--diff", "--prune", code=1)
        deleted = {name for (kind, name), each in shown.items() if each["action"] == "delete"}
        assert deleted == {"by-hand", "by-hand-2"}, "no users: that file has no section for them"
        assert shown["topic", "payments"]["details"] == ["retention.ms: -1 -> (default)"]

        await applied(tidelog, *where, "--prune", "--prune-prefix", "by-hand-")
        names = ["__consumer_offsets", "_schemas", "by-hand", "orders", "payments"]
        assert [each.name for each in await admin.list_topics()] == names
        await applied(tidelog, "-f", str(files), "--prune")
        names.remove("by-hand")
        assert [each.name for each in await admin.list_topics()] == names
        assert {each.name for each in await admin.list_users()} == {"alice", "bob"}
        assert (await admin.describe_topic("payments")).configs["retention.ms"] != "-1"

        (files / "access.toml").write_text('acls = []\nquotas = []\n[users.bob]\npassword-file = "bob.password"\n')
        await applied(tidelog, "-f", str(files), "--prune")
        assert await admin.describe_acls() == [] and await admin.describe_client_quotas() == {}
        assert {each.name for each in await admin.list_users()} == {"bob"}


async def test_what_cannot_be_done_is_said_and_the_rest_is_done(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with real_nodes(tmp_path) as nodes, Admin(str(nodes.addresses[0])) as admin:
        tidelog, where = Shell(nodes, capsys), ("-f", str(files))
        await admin.create_topic("orders", partitions=4, replication_factor=1)
        (files / "more.json").write_text(
            '{"topics": {"wrong": {"configs": {"retention.mss": 1}}, "far": {"replication-factor": 9}},'
            ' "users": {"dora": {}}}'
        )
        monkeypatch.delenv("ALICE_PASSWORD")
        monkeypatch.setattr(admin_calls, "NODES_START_MS", 0)  # each apply would wait for eight nodes
        shown = await applied(tidelog, *where, "--diff", code=2)
        expected = {
            ("topic", "orders"): "partitions only grow",
            ("topic", "wrong"): "retention.mss",
            ("topic", "far"): "9",
            ("user", "dora"): "no password is known",
        }
        refused = {key: each["error"] for key, each in shown.items() if each["error"]}
        assert refused.keys() == expected.keys(), "--diff reads no passwords: a reviewer has none"
        found = await applied(tidelog, *where, code=1)
        expected["user", "alice"] = "the environment variable which password-env names is not set"
        refused = {key: each["error"] for key, each in found.items() if each["error"]}
        assert refused.keys() == expected.keys()
        assert all(says in refused[key] for key, says in expected.items())
        assert [each.name for each in await admin.list_topics()] == ["orders", "payments"]
        assert [each.name for each in await admin.list_users()] == ["bob"]
        await tidelog("apply", *where, code=1)
        assert "5 refused" in tidelog.err

        await admin.create_topic("former-name", partitions=1, replication_factor=1)
        for extra, code in ((("--diff",), 2), ((), 1)):
            found = await applied(tidelog, *where, "--prune", *extra, code=code)
            assert "something before it was refused" in found["topic", "former-name"]["error"]
        assert "former-name" in [each.name for each in await admin.list_topics()], "what replaces it is not there"


async def test_a_password_is_set_again_only_when_asked(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster does not tell passwords: a changed one looks like an unchanged one."""
    async with real_nodes(tmp_path) as nodes:
        tidelog, where = Shell(nodes, capsys), ("-f", str(files / "access.toml"))
        await applied(tidelog, *where)
        found = await applied(tidelog, *where, "--set-passwords")
        assert found["user", "alice"]["details"] == [f"SCRAM-SHA-{bits}: password set again" for bits in (256, 512)]
        (files / "access.toml").write_text(ACCESS.replace("4096", "5000"))
        assert (await applied(tidelog, *where))["user", "bob"]["details"] == ["SCRAM-SHA-256: iterations 4096 -> 5000"]
        assert await credentials(nodes) == [("alice", 1, ITERATIONS), ("alice", 2, ITERATIONS), ("bob", 1, 5000)]


async def test_the_number_of_replicas_follows_the_file(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, 2) as nodes, Admin(str(nodes.addresses[0])) as admin:
        tidelog, where = Shell(nodes, capsys), ("-f", str(files / "topics.toml"))
        await tidelog("apply", *where)
        (files / "topics.toml").write_text(TOPICS.replace("factor = 1\nconfigs", "factor = 2\nconfigs"))
        assert (await applied(tidelog, *where))["topic", "orders"]["details"] == ["replicas: 1 -> 2"]
        assert {len(each.replicas) for each in (await admin.describe_topic("orders")).partitions} == {2}
        assert actions(await applied(tidelog, *where)) == {"none"}
