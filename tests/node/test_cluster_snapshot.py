"""`tidelog cluster snapshot` of one cluster, and `restore` into an empty one, on real nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.real_nodes import OPERATOR, RealNodes, real_nodes
from tests.node.shell import Shell
from tidelog.cli import main
from tidelog.cli.snapshot_commands import check_replaceable, replace_file
from tidelog.cli.state_files import read_state
from tidelog.client.admin import Admin
from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.producer import Producer
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.desired.snapshots import take_snapshot
from tidelog.errors import InvalidConfig
from tidelog.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.types import Offset, QuotaEntity

RULES = [
    AclBinding(ResourceType.TOPIC, "orders", PatternType.PREFIXED, "User:*", "*", operation, AclPermission.ALLOW)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE)
]


def bootstrap_of(nodes: RealNodes) -> str:
    return str(nodes.addresses[0])


async def filled(nodes: RealNodes) -> None:
    """A cluster with something of each kind."""
    async with Admin(bootstrap_of(nodes)) as admin:
        configs = {"retention.ms": "3600000", "durability": "page-cache"}
        await admin.create_topic("orders", partitions=3, replication_factor=1, configs=configs)
        await admin.create_topic("gone", partitions=1, replication_factor=1)
        await admin.create_acls(RULES)
        await admin.set_password("alice", "of alice", mechanisms=["SCRAM-SHA-256"], iterations=4096)
        await admin.alter_client_quotas({QuotaEntity("alice", ""): {"producer_byte_rate": 1_000.5}})
        async with Producer(bootstrap_of(nodes)) as producer:
            for number in range(30):
                await producer.send("orders", b"order %d" % number, partition=0)
        committed = CommittedOffset(Offset(20), metadata="by hand")
        await admin.alter_group_offsets("billing", {("orders", 0): committed, ("gone", 0): Offset(0)})
        await admin.delete_topic("gone")


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["error"] or each["action"] for each in document["objects"]}


async def test_a_snapshot_makes_an_empty_cluster_like_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "cluster.json")
    async with real_nodes(tmp_path / "first") as nodes:
        await filled(nodes)
        tidelog = Shell(nodes, capsys)
        await tidelog("cluster", "snapshot", file)
        assert "1 topic, 1 user (without passwords), 2 ACLs, quotas of 1, offsets of 1 group" in tidelog.err
        assert "passwords of users: no request returns them" in tidelog.err
        (on_stdout,) = [json.loads(await tidelog("cluster", "snapshot", "-"))]
    written = json.loads(Path(file).read_text())
    assert written["snapshot"].pop("taken-at") and on_stdout["snapshot"].pop("taken-at")
    assert written == on_stdout
    offset = {"topic": "orders", "partition": 0, "offset": 20, "metadata": "by hand"}
    assert written["group-offsets"] == {"billing": [offset]}, "a deleted topic has no offsets"
    assert "of alice" not in Path(file).read_text()
    written["snapshot"]["cluster-id"] = "first"  # the generators of these nodes begin with the same seed
    Path(file).write_text(json.dumps(written))

    async with real_nodes(tmp_path / "second") as nodes, Admin(bootstrap_of(nodes)) as admin:
        tidelog = Shell(nodes, capsys)
        (shown,) = await tidelog.json("cluster", "restore", file, "--diff", "--group-offsets", code=2)
        assert (await admin.describe_cluster()).topics <= 1, "no topic but that of the coordinators"
        await tidelog("cluster", "snapshot", file, code=1)
        assert "is a snapshot of another cluster, first" in tidelog.err
        assert json.loads(Path(file).read_text()) == written, "it is the last one of the lost cluster"
        (found,) = await tidelog.json("cluster", "restore", file, "--group-offsets", code=1)
        assert outcomes(found).keys() == outcomes(shown).keys() and len(outcomes(found)) == 6
        refused = {name: error for name, error in outcomes(found).items() if error != "create"}
        assert refused.keys() == {"alice"} and "no password is known" in refused["alice"]

        written["users"]["alice"]["password-env"] = "ALICE_PASSWORD"
        monkeypatch.setenv("ALICE_PASSWORD", "another password")
        Path(file).write_text(json.dumps(written))
        (found,) = await tidelog.json("cluster", "restore", file, "--group-offsets")
        assert {name for name, outcome in outcomes(found).items() if outcome != "none"} == {"alice"}
        (found,) = await tidelog.json("cluster", "restore", file, "--group-offsets")
        assert set(outcomes(found).values()) == {"none"}, "it is idempotent"

        taken = await take_snapshot(admin)
        restored, hidden = taken.state, taken.hidden
        expected = read_state([file])
        assert hidden == 0
        for part in ("kinds", "acls", "quotas", "group_offsets"):
            assert getattr(restored, part) == getattr(expected, part), part
        (before, after) = (state.topics["orders"] for state in (expected, restored))
        assert (after.partitions, after.configs) == (before.partitions, before.configs)
        assert after.topic_id != before.topic_id
        assert restored.users["alice"].mechanisms == expected.users["alice"].mechanisms

        await admin.alter_group_offsets("billing", {("orders", 0): Offset(25)})
        (found,) = await tidelog.json("cluster", "restore", file, "--group-offsets")
        assert set(outcomes(found).values()) == {"none"}, "a group that has gone on is not set back"
        assert (await admin.list_group_offsets("billing"))["orders", 0] == CommittedOffset(Offset(25))

        await admin.create_topic("more", partitions=1, replication_factor=1)
        await admin.delete_group_offsets("billing", [("orders", 0)])
        await tidelog("cluster", "restore", file, "--diff")
        assert "offsets of 1 group are left out: pass --group-offsets" in tidelog.err
        await tidelog("apply", "--file", file, "--diff")
        assert "offsets of 1 group are left out" in tidelog.err, "apply reads snapshots too"
        await tidelog("apply", "--file", file, "--diff", "--prune", "--json", code=1)
        assert [each.name for each in await admin.list_topics()] == ["__consumer_offsets", "more", "orders"]


async def test_a_topic_that_is_deleted_or_created_meanwhile_is_not_taken_for_a_hidden_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is there for one of the two looks at the number of topics; two others are hidden all the time."""
    described, changes = Admin.describe_cluster, ["create", "delete", "", ""]

    async def with_hidden_ones(admin: Admin) -> ClusterDescription:
        cluster = await described(admin)
        match changes.pop(0):
            case "create":
                await admin.create_topic("short", partitions=1, replication_factor=1)
            case "delete":
                await admin.delete_topic("short")
        return replace(cluster, topics=cluster.topics + 2)

    async with real_nodes(tmp_path) as nodes, Admin(bootstrap_of(nodes)) as admin:
        await filled(nodes)
        assert (await take_snapshot(admin)).hidden == 0
        monkeypatch.setattr(Admin, "describe_cluster", with_hidden_ones)
        assert (await take_snapshot(admin)).hidden == 2
        assert changes == []


async def test_a_topic_that_is_deleted_meanwhile_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and is gone when its settings are asked for."""
    described = Admin.describe_topic_settings

    async def after_a_deletion(admin: Admin, topics: Sequence[str]) -> Any:
        if "payments" in topics:
            await admin.delete_topic("payments")
        return await described(admin, topics)

    async with real_nodes(tmp_path / "nodes") as nodes, Admin(bootstrap_of(nodes)) as admin:
        for name in ("orders", "payments"):
            await admin.create_topic(name, partitions=1, replication_factor=1)
        monkeypatch.setattr(Admin, "describe_topic_settings", after_a_deletion)
        file = tmp_path / "cluster.json"
        tidelog = Shell(nodes, capsys)
        await tidelog("cluster", "snapshot", str(file))
    assert "left out, because they were deleted meanwhile: payments" in tidelog.err
    written = json.loads(file.read_text())
    assert (list(written["topics"]), written["snapshot"]["missing-topics"]) == (["orders"], 0)


def of_auditor(kind: ResourceType, name: str, *operations: AclOperation) -> list[AclBinding]:
    return [
        AclBinding(kind, name, PatternType.LITERAL, "User:auditor", "*", each, AclPermission.ALLOW)
        for each in operations
    ]


async def test_a_snapshot_without_hidden_topics_prunes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An auditor takes it, and an administrator applies it later: topics that it lacks would be deleted."""
    reads = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    file = str(tmp_path / "cluster.json")
    async with (
        real_nodes(tmp_path / "nodes", 1, {"auditor": "User:auditor"}) as nodes,
        Admin(str(nodes.further[OPERATOR][0])) as admin,
    ):
        auditor, operator = (Shell(nodes, capsys, nodes.further[who]) for who in ("auditor", OPERATOR))
        for name in ("orders", "payments"):
            await admin.create_topic(name, partitions=1, replication_factor=1)
        rules = [
            *of_auditor(ResourceType.CLUSTER, CLUSTER_NAME, *reads),
            *of_auditor(ResourceType.TOPIC, "orders", *reads),
        ]
        await admin.create_acls(rules)
        await auditor("cluster", "snapshot", file, code=1)
        assert "1 topic missing" in auditor.err
        written = json.loads(Path(file).read_text())
        assert (list(written["topics"]), written["snapshot"]["missing-topics"]) == (["orders"], 1)

        await operator("cluster", "restore", file)
        assert f"{file} is incomplete: it lacks 1 topic that its cluster had" in operator.err
        await operator("apply", "-f", file, "--prune", "--diff", code=2)
        await operator("apply", "-f", file, "--prune", code=1)
        assert f"{file} is an incomplete snapshot: it lacks 1 topic, which --prune would delete" in operator.err
        assert [each.name for each in await admin.list_topics()] == ["orders", "payments"]

        await operator("cluster", "snapshot", file)
        await operator("apply", "-f", file, "--prune")
        assert "incomplete" not in operator.err
        complete = Path(file).read_text()
        await auditor("cluster", "snapshot", file, code=1)
        assert "is a complete snapshot, and this one would lack 1 topic" in auditor.err
        assert Path(file).read_text() == complete


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no snapshot"),
        ("[]", "is no snapshot"),
        ('{"topics": {}}', "is no snapshot"),
        ('{"snapshot": {"cluster-id": "lost"}, "users": {}}', "another cluster, lost, perhaps the last one"),
        ('{"snapshot": {"cluster-id": "c"}, "users": {"alice": {"password-env": "A"}}}', "as of user 'alice'"),
    ],
)
def test_a_snapshot_does_not_replace_what_it_does_not_contain(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "cluster.json"
    check_replaceable(file, "c", 0)
    file.write_text('{"snapshot": {"cluster-id": "c"}, "users": {"alice": {}}}')
    check_replaceable(file, "c", 0)
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=says):
        check_replaceable(file, "c", 0)


def test_an_incomplete_snapshot_replaces_no_complete_one_of_the_same_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    check_replaceable(file, "c", 1)
    for header in ('"missing-topics": 0', '"tidelog": "1"'):
        file.write_text(f'{{"snapshot": {{"cluster-id": "c", {header}}}, "users": {{}}}}')
        check_replaceable(file, "c", 0)
        with pytest.raises(InvalidConfig, match="would lack 2 topics that you may not DESCRIBE: it is not replaced"):
            check_replaceable(file, "c", 2)
    file.write_text('{"snapshot": {"cluster-id": "c", "missing-topics": 2}, "users": {}}')
    check_replaceable(file, "c", 3)


def test_a_snapshot_is_written_to_the_file_that_a_link_names(tmp_path: Path) -> None:
    (tmp_path / "monday.json").write_text('\ufeff{"snapshot": {"cluster-id": "c"}, "users": {}}', encoding="utf-8")
    latest = tmp_path / "latest.json"
    latest.symlink_to("monday.json")
    check_replaceable(latest, "c", 0)
    replace_file(latest, "new")
    assert latest.is_symlink()
    assert (tmp_path / "monday.json").read_text() == "new"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["latest.json", "monday.json"]


def test_a_snapshot_is_named_as_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "snapshot", "cluster.toml"]) == 2
    assert "name the file *.json" in capsys.readouterr().err
    assert main(["cluster", "restore", "absent.json", "--diff"]) == 2
    assert "absent.json cannot be read" in capsys.readouterr().err
