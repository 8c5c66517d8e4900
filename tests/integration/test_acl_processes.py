"""ACLs of a node as a process: its settings, the commands of an operator, and the audit log on the disk."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from node.process.process import EXIT_CONFIG
from replication.controller import features
from tests.certificates import Authority, settings_of
from tests.integration.load import Load
from tidelog import Admin, Consumer, Producer
from tidelog.cli import main
from tidelog.errors import TopicAuthorizationFailed, UnsupportedVersion
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType

pytestmark = pytest.mark.integration

FIRST_VERSION = Path(__file__).parent.parent / "vectors" / "tidelog-one-voter.tar.xz"
SETTINGS = """
authorizer.class.name = "StandardAuthorizer"
super.users = ["User:admin"]
allow.everyone.if.no.acl.found = true
audit.log.file = "AUDIT"
"""
"""A process without TLS or SASL does not know who calls: everyone is User:ANONYMOUS, who may use what no rule names."""


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node with these settings, and the file of its audit log."""
    path = tmp_path / "audit.log"
    cluster = LocalCluster(tmp_path, nodes=1)
    try:
        cluster.start()
        cluster.wait_healthy()
        cluster.stop_node(0)
        node = cluster.nodes[0]
        node.config.write_text(SETTINGS.replace("AUDIT", str(path)) + node.config.read_text())
        cluster.start_node(0)
        cluster.wait_healthy()
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", str(node.address))
        yield path
        assert cluster.stop_node(0) == 0
    finally:
        cluster.kill_all()


def of_alice(operation: AclOperation) -> AclBinding:
    """Allows the holder of the certificate for alice an operation on topic `orders`."""
    literal, allow = PatternType.LITERAL, AclPermission.ALLOW
    return AclBinding(ResourceType.TOPIC, "orders", literal, "User:CN=alice", "*", operation, allow)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_operator_adds_lists_tests_and_removes_rules(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tidelog(command: str) -> tuple[int, str, str]:
        code = main(command.split())
        said = capsys.readouterr()
        return code, said.out, said.err

    for topic in ("secret", "free"):
        assert tidelog(f"topic create {topic}")[0] == 0
    given = "acl add --allow User:alice --deny User:bob -o read -o describe-configs --topic sec --prefixed"
    assert tidelog(f"{given} --validate-only")[2] == "4 ACLs can be added\n"
    assert tidelog(given)[2] == "4 ACLs added\n"
    assert tidelog(f"{given} -o alter --json")[1].startswith('{"created": 2, ')
    code, listed, _ = tidelog("acl list --topic secret --json")
    assert code == 0
    assert [(each["permission"], each["principal"], each["operation"]) for each in json.loads(listed)] == [
        ("ALLOW", "User:alice", "READ"),
        ("ALLOW", "User:alice", "ALTER"),
        ("ALLOW", "User:alice", "DESCRIBE_CONFIGS"),
        ("DENY", "User:bob", "READ"),
        ("DENY", "User:bob", "ALTER"),
        ("DENY", "User:bob", "DESCRIBE_CONFIGS"),
    ]
    assert "User:alice" in tidelog("acl list --principal User:alice")[1]
    assert "User:bob" not in tidelog("acl list --principal User:alice")[1]

    assert tidelog("acl test User:alice describe --topic secret") == (
        0,
        "",
        "allowed: allowed by the ACL: allow User:alice to READ topic sec (PREFIXED) from any host\n",
    )
    code, out, _ = tidelog("acl test User:bob read --topic secret --host 10.0.0.7 --json")
    assert code == 1
    assert json.loads(out)["rule"]["permission"] == "DENY"
    assert tidelog("acl test User:admin delete --topic secret")[2].startswith("allowed: User:admin is a super user")
    assert tidelog("acl test User:carol read --topic secret")[0] == 1
    assert tidelog("acl test User:carol read --topic free")[0] == 0

    code, _, said = tidelog("topic describe secret")
    assert (code, said) == (
        1,
        (
            "tidelog: User:ANONYMOUS has no permission to DESCRIBE topic secret from 127.0.0.1: an operator can give "
            "it (`tidelog acl add --allow User:ANONYMOUS -o describe --topic secret`; a client that reads or writes "
            "needs `-o read` or `-o write` instead, which imply it), or find out why (`tidelog acl test`)\n"
        ),
    )
    assert [topic["name"] for topic in json.loads(tidelog("topic list --json")[1])] == ["free"]

    assert tidelog("acl remove --topic secret")[2] == "no ACL has these values: none was removed\n"
    assert json.loads(tidelog("acl remove --topic sec --prefixed --validate-only --json")[1])["removed"] is False
    assert "User:bob" in tidelog("acl remove --topic sec --prefixed")[1]
    assert json.loads(tidelog("acl list --json")[1]) == []
    assert tidelog("topic describe secret")[0] == 0

    found = events(audit)
    done = [event["request"] for event in found if event["event"] == "change" and event["outcome"] in ("ok", {"ok": 1})]
    assert done.count("Controller.CreateAcls") == 3, "the controller records what a node asks of it"
    assert [request for request in done if request.startswith("Admin.")] == [
        "Admin.CreateTopics",
        "Admin.CreateTopics",
        "Admin.CreateAcls",
        "Admin.CreateAcls",
        "Admin.CreateAcls",
        "Admin.DeleteAcls",
        "Admin.DeleteAcls",
        "Admin.DeleteAcls",
    ]
    (denied,) = [event for event in found if event["event"] == "denied"]
    assert (denied["principal"], denied["operation"], denied["resource"]) == ("User:ANONYMOUS", "DESCRIBE", "secret")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("acl add --allow User:alice --topic orders", "missing: an operation (--operation). For example: tidelog acl"),
        ("acl add --allow User:alice -o read", "missing: a resource (--topic, --group, --transactional-id, --user or"),
        ("acl add -o read", "missing: a principal (--allow or --deny) and a resource (--topic"),
        ("acl add --allow alice -o read --topic orders", "principal 'alice': write User:NAME"),
        ("acl add --allow User:a -o drop --topic orders", "unknown operation 'drop'; valid operations: all, read"),
        ("acl add --allow User:a -o cluster-action --topic a", "operation CLUSTER_ACTION does not exist for a TOPIC"),
        ("acl add --allow User:a -o read --topic a --group b", "name one resource: --topic, --group"),
        ("acl add --allow User:a -o read --topic a --host x", "host 'x': write one IP address, or *"),
        ("acl remove", "name a --principal or a resource, so that not all ACLs are removed"),
        ("acl test User:a read", "name a resource, for example --topic orders or --cluster"),
        ("acl test User:a read --topic a --host here", "host 'here': write one IP address"),
    ],
)
def test_a_mistake_is_reported_without_a_cluster(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--bootstrap", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


async def test_a_cluster_with_mutual_tls_enforces_rules_through_kills_and_restarts(tmp_path: Path) -> None:
    """Principals are the subjects of certificates. Nodes have no rule and are no super users: their certificates let
    them take part. Rules and refusals outlive the death of each node."""
    authority = Authority(tmp_path / "certificates")
    admin, alice, bob = (authority.client(name) for name in ("admin", "alice", "bob"))
    settings = {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL", "INNER:GRPC_SSL"],
        "super.users": ["User:CN=admin"],
    }

    async def refused(cluster: LocalCluster) -> None:
        async with Producer(cluster.bootstrap, tls=bob) as producer:
            with pytest.raises(TopicAuthorizationFailed, match="User:CN=bob has no permission"):
                await producer.send("orders", b"of bob")

    with LocalCluster(tmp_path / "cluster", settings=settings, inner=True, tls=admin) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 1, min_insync_replicas="2")
        acknowledged = 0
        async with Admin(cluster.bootstrap, tls=admin) as operator:
            given = AclBinding(
                ResourceType.TOPIC,
                "ord",
                PatternType.PREFIXED,
                "User:CN=alice",
                "127.0.0.1",
                AclOperation.WRITE,
                AclPermission.ALLOW,
            )
            await operator.create_acls([given])
            for node in cluster.nodes:
                async with Admin(str(node.address), tls=admin) as asked:
                    while await asked.describe_acls() != [given]:  # it has not applied the change yet
                        pass
            async with Producer(cluster.bootstrap, tls=alice) as producer:
                for node_id in range(3):
                    await asyncio.to_thread(cluster.kill, node_id)
                    await producer.send("orders", b"of alice")
                    acknowledged += 1
                    await refused(cluster)
                    cluster.start_node(node_id)
                    await asyncio.to_thread(cluster.wait_healthy, 60)
            assert await operator.describe_acls() == [given]
            await operator.delete_acls([AclFilter(principal="User:CN=alice")])
            async with Consumer(cluster.bootstrap, tls=admin) as consumer:
                consumer.assign([("orders", 0)])
                read = await consumer.poll(timeout=30)
                assert [record.value for record in read] == [b"of alice"] * acknowledged
        assert acknowledged == 3
        said = "".join(node.log.read_text() for node in cluster.nodes)
    assert "no permissions" not in said
    lines = [line[line.index("{") :] for line in said.splitlines() if "node.audit" in line and "{" in line]
    found = [json.loads(line) for line in lines]
    assert {event["principal"] for event in found if event["event"] == "denied"} == {"User:CN=bob"}
    assert {event["request"] for event in found if event["principal"] == "User:CN=admin"} == {
        "Admin.CreateTopics",
        "Admin.CreateAcls",
        "Admin.DeleteAcls",
    }


def test_a_node_that_knows_its_callers_and_restricts_none_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    settings = {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL"],
        "authorizer.class.name": "none",
    }
    with LocalCluster(tmp_path / "cluster", 1, settings=settings, tls=authority.client("alice")) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 1, 1)
    said = cluster.nodes[0].log.read_text()
    assert "no permissions: listener 'GRPC' requires certificates, and by authorizer.class.name = " in said


@pytest.mark.deep
@pytest.mark.timeout(180)
def test_a_cluster_that_restricted_none_moves_to_rules_while_clients_that_have_one_go_on(tmp_path: Path) -> None:
    """The steps of docs/operations.md, Upgrading: rules are added while they refuse nothing, then the nodes are
    restarted one by one with an administrator."""
    authority = Authority(tmp_path / "certificates")
    admin, alice, bob = (authority.client(name) for name in ("admin", "alice", "bob"))
    settings = {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL", "INNER:GRPC_SSL"],
        "authorizer.class.name": "none",
    }

    async def story(cluster: LocalCluster, load: Load) -> None:
        async with Admin(cluster.bootstrap, tls=admin) as operator, Producer(cluster.bootstrap, tls=bob) as others:
            await others.send("others", b"of bob")
            async with load.running():
                await load.wait_more()
                await operator.create_acls(of_alice(each) for each in (AclOperation.READ, AclOperation.WRITE))
                for node in cluster.nodes:
                    assert await asyncio.to_thread(cluster.stop_node, node.node_id) == 0
                    text = node.config.read_text()
                    node.config.write_text(
                        text.replace('"authorizer.class.name" = "none"', '"super.users" = ["User:CN=admin"]')
                    )
                    cluster.start_node(node.node_id)
                    await asyncio.to_thread(cluster.wait_healthy, 60)
                    await load.wait_for_new_records()
            with pytest.raises(TopicAuthorizationFailed, match="User:CN=bob has no permission"):
                await others.send("others", b"of bob")
        assert await load.check() >= len(load.acknowledged)

    with LocalCluster(tmp_path / "cluster", settings=settings, inner=True, tls=admin) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 3, min_insync_replicas="2")
        cluster.create_topic("others")
        asyncio.run(story(cluster, Load(cluster.bootstrap, "orders", 3, tls=alice)))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_node_whose_callers_authenticate_does_not_start_without_an_administrator(
    tmp_path: Path, protocol: str
) -> None:
    authority = Authority(tmp_path / "certificates")
    (tmp_path / "secret").write_text("0123456789abcdef" * 2)
    given = settings_of(authority.node()) if protocol == "SSL" else {"cluster.secret.file": str(tmp_path / "secret")}
    settings = {**given, "listener.security.protocol.map": [f"GRPC:GRPC_{protocol}"]}
    cluster = LocalCluster(tmp_path / "cluster", 1, settings=settings)
    cluster.start()
    process = cluster.nodes[0].process
    assert process is not None
    assert process.wait(60) == EXIT_CONFIG
    cluster.kill_all()
    assert "super.users: missing" in cluster.nodes[0].log.read_text()


@pytest.mark.timeout(120)
async def test_below_the_feature_level_of_acls_administrators_and_nodes_are_let_in_and_nobody_else(
    tmp_path: Path,
) -> None:
    """Directories of the first version, whose level has no ACLs: there is no rule, so the default decides. The
    administrator raises the level and adds the first rule."""
    with tarfile.open(FIRST_VERSION) as tar:
        tar.extractall(tmp_path, filter="data")
    authority = Authority(tmp_path / "certificates")
    admin, alice = authority.client("admin"), authority.client("alice")
    settings = {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL"],
        "super.users": ["User:CN=admin"],
        "log.retention.ms": -1,
    }
    given = of_alice(AclOperation.WRITE)

    with LocalCluster(tmp_path, settings=settings, tls=admin) as cluster:
        cluster.wait_healthy()
        async with Admin(cluster.bootstrap, tls=admin) as operator:
            assert (await operator.describe_cluster()).feature_level < features.ACLS
            with pytest.raises(UnsupportedVersion, match="`tidelog cluster upgrade`"):
                await operator.create_acls([given])
            async with Producer(cluster.bootstrap, tls=alice) as producer:
                with pytest.raises(TopicAuthorizationFailed, match="User:CN=alice has no permission"):
                    await producer.send("orders", b"before")
            await operator.update_features(features.LATEST)
            await operator.create_acls([given])
            for node in cluster.nodes:
                async with Admin(str(node.address), tls=admin) as asked:
                    while await asked.describe_acls() != [given]:  # it has not applied the change yet
                        pass
            async with Producer(cluster.bootstrap, tls=alice) as producer:
                await producer.send("orders", b"after")
