"""`tidelog cluster upgrade-check`: nothing is wrong, or the check that fails says what, with exit code 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.quorum import driver
from replication.controller import features
from tests.node.real_nodes import real_nodes
from tests.node.shell import Shell
from tidelog.cli.upgrade_check import checks_of
from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import (
    ClusterDescription,
    NodeDescription,
    ReassignmentDescription,
    VoterDescription,
)
from tidelog.errors import FeatureUpdateFailed
from tidelog.types import (
    DirectoryId,
    Endpoint,
    Incarnation,
    NodeEpoch,
    NodeId,
    PartitionIndex,
    TopicPartition,
)

ID = UUID(int=1)
NODES = tuple(
    NodeDescription(
        NodeId(n),
        Endpoint("127.0.0.1", n),
        "",
        NodeEpoch(1),
        Incarnation(ID),
        fenced=False,
        draining=False,
        leaders=2,
        replicas=6,
    )
    for n in range(3)
)
VOTERS = tuple(VoterDescription(NodeId(n), DirectoryId(ID)) for n in range(3))
HEALTHY = ClusterDescription("c", NodeId(0), 1, 9, NODES, VOTERS, 1, 6, 0, 0, 0, feature_level=7)
MOVE = ReassignmentDescription(TopicPartition("orders", PartitionIndex(0)), (), (), (), ())
OLD_NODE = FeatureUpdateFailed("node 2 (knows level 7)")


def with_node(**changes: Any) -> ClusterDescription:
    return replace(HEALTHY, nodes=(*NODES[:2], replace(NODES[2], **changes)))


def test_a_healthy_cluster_passes_every_check() -> None:
    assert [each.name for each in checks_of(HEALTHY, [], 8) if each.passed] == [
        "quorum",
        "nodes",
        "partitions",
        "disks",
        "moves",
        "feature level",
    ]


@pytest.mark.parametrize(
    ("found", "moves", "level", "failed", "says"),
    [
        (replace(HEALTHY, controller_id=NodeId(-1)), [], 8, {"quorum"}, "a majority of the voters (nodes 0, 1, 2)"),
        (with_node(fenced=True), [], 8, {"quorum", "nodes"}, "1 of 3 voters not in service (node 2)"),
        (with_node(draining=True), [], 8, {"nodes"}, "node 2 is draining"),
        (replace(HEALTHY, under_replicated_partitions=2), [], 8, {"partitions"}, "2 partitions under-replicated"),
        (replace(HEALTHY, leaderless_partitions=1), [], 8, {"partitions"}, "1 partition without a leader"),
        (replace(HEALTHY, under_min_isr_partitions=1), [], 8, {"partitions"}, "too few in-sync replicas"),
        (replace(HEALTHY, damaged_partitions=1), [], 8, {"partitions"}, "damaged"),
        (replace(HEALTHY, full_partitions=1), [], 8, {"disks"}, "full disks"),
        (replace(HEALTHY, unanswered_nodes=(NodeId(1),)), [], 8, {"disks"}, "no report of node 1"),
        (HEALTHY, [MOVE] * 7, 8, {"moves"}, "7 reassignments in progress (orders-0"),
        (HEALTHY, [], OLD_NODE, {"feature level"}, "7; node 2 (knows level 7)"),
    ],
)
def test_what_stands_against_an_upgrade_is_named(
    found: ClusterDescription, moves: list[ReassignmentDescription], level: Any, failed: set[str], says: str
) -> None:
    checks = checks_of(found, moves, level)
    assert {each.name for each in checks if not each.passed} == failed
    assert says in " ".join(each.detail for each in checks if not each.passed)


async def test_the_level_is_raised_when_every_node_knows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster was made by the version before, and its nodes were restarted with this one: the check says what to
    do next, before the level is raised and after it."""
    monkeypatch.setattr(driver, "FEATURE_LEVEL", features.LATEST - 1)
    async with real_nodes(tmp_path) as nodes, Admin(str(nodes.addresses[0])) as admin:
        tidelog = Shell(nodes, capsys)
        assert "feature level" in await tidelog("cluster", "upgrade-check")
        would = (
            f"`tidelog cluster upgrade` would raise the feature level from {features.LATEST - 1} to {features.LATEST}"
        )
        assert would in tidelog.err
        assert (await admin.describe_cluster()).feature_level == features.LATEST - 1, "the check raises nothing"
        await tidelog("cluster", "upgrade")
        (checked,) = await tidelog.json("cluster", "upgrade-check")
        assert (checked["ready"], checked["feature_level"], checked["next_level"]) == (True, *[features.LATEST] * 2)
        await tidelog("cluster", "upgrade-check")
        assert "nodes may be restarted with a newer version" in tidelog.err


async def test_a_node_that_is_away_ends_the_check_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, 2) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("topic", "create", "orders", "-p", "1", "-r", "2")
        await nodes.stop(1)
        await nodes.wait_until(lambda: nodes.nodes[0].node.image.nodes[NodeId(1)].fenced)  # type: ignore[union-attr]
        (checked,) = await tidelog.json("cluster", "upgrade-check", code=1)
        assert not checked["ready"]
        failed = {each["name"]: each["detail"] for each in checked["checks"] if not each["passed"]}
        assert "node 1 is fenced" in failed["nodes"]
        assert "1 partition under-replicated" in failed["partitions"]
        await tidelog("cluster", "upgrade-check", code=1)
        assert "checks failed: do not go on yet" in tidelog.err
