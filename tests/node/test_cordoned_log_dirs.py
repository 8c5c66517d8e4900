"""An operator cordons log directories of running nodes (KIP-1066): new replicas go to the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from node.replication_settings import ReplicationConfig
from replication.controller import features
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.shell import Shell
from tidelog.client import admin
from tidelog.types import Millis, NodeId

PATIENT = ReplicationConfig(session_ms=Millis(60_000))
"""No node is fenced because the machine is busy: a fenced one gets no replicas, and does not say what it has."""


async def wait_for_logs(nodes: RealNodes, *expected: int) -> None:
    """Wait until the log directories of node 1 have so many logs of topics: a node makes them once it knows the
    topic."""

    def logs_in(path: str) -> int:
        return sum(re.fullmatch(r"[a-z]+-\d+", each.name) is not None for each in Path(path).iterdir())

    await nodes.wait_until(lambda: [logs_in(path) for path in nodes.log_directories(1)] == list(expected))


async def wait_for_cordon(nodes: RealNodes) -> None:
    """Wait until every node knows that a log directory of node 1 is cordoned: each answers by its own image."""

    def is_known() -> bool:
        images = [each.node.image for each in nodes.nodes.values()]
        return all(image is not None and image.nodes[NodeId(1)].cordoned_directories for image in images)

    await nodes.wait_until(is_known)


def paths_of(nodes: RealNodes, number: int) -> tuple[str, str]:
    one, two = nodes.log_directories(number)
    return one, two


async def test_a_running_node_puts_new_logs_into_the_directories_that_are_not_cordoned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, 2, directories=2, replication=PATIENT) as nodes:
        tidelog, (one, two) = Shell(nodes, capsys), paths_of(nodes, 1)
        await tidelog("topic", "create", "before", "-p", "4", "-r", "2")
        await wait_for_logs(nodes, 2, 2)
        await tidelog("node", "cordon", "1", "--log-dir", two)
        assert f"{two} of node 1 is cordoned" in tidelog.err
        await wait_for_cordon(nodes)
        await tidelog("topic", "create", "orders", "-p", "4", "-r", "2")
        await wait_for_logs(nodes, 6, 2)
        (found,) = await tidelog.json("log-dirs", "--node", "1")
        assert {each["path"]: each["cordoned"] for each in found} == {one: False, two: True}
        assert "1 of 2 log directories cordoned" in await tidelog("cluster", "status")

        await tidelog("node", "cordon", "1", "--log-dir", two, "--log-dir", one + "/")
        assert "are cordoned" in tidelog.err
        await tidelog("topic", "create", "everywhere", "-p", "1", "-r", "2", code=1)
        assert "tidelog node uncordon 1 --log-dir PATH" in tidelog.err
        await tidelog("topic", "create", "elsewhere", "-p", "2", "-r", "1")
        await wait_for_logs(nodes, 6, 2)

        await tidelog("node", "uncordon", "1", "--log-dir", two)
        assert f"{two} of node 1 may get new replicas again" in tidelog.err
        await tidelog("topic", "create", "everywhere", "-p", "2", "-r", "2")
        await wait_for_logs(nodes, 6, 4)


async def test_a_cordoned_directory_is_emptied_into_the_other_one_of_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As before a disk is replaced: nothing leaves the node for it, and nothing is sent over the network."""
    async with real_nodes(tmp_path, 3, directories=2, replication=PATIENT) as nodes:
        tidelog, (_, two) = Shell(nodes, capsys), paths_of(nodes, 1)
        await tidelog("topic", "create", "orders", "-p", "12", "-r", "2")
        await wait_for_logs(nodes, 4, 4)
        await tidelog("node", "cordon", "1", "--log-dir", two)
        await wait_for_cordon(nodes)
        drained = ("cluster", "rebalance", "--drain", "1", "--log-dir", two)
        saved = tmp_path / "plan.json"
        (plan,) = await tidelog.json(*drained, "--dry-run", "--save-plan", str(saved))
        one = paths_of(nodes, 1)[0]
        assert plan["moves"] == []
        assert [(each["node"], each["log_dir"]) for each in plan["log_dirs"]] == [(1, one)] * 4
        assert saved.read_text().count(one) == 4
        await tidelog(*drained)
        assert "warning" not in tidelog.err
        assert "4 replicas in the log directories of the plan" in tidelog.err

        def settled() -> bool:
            image = nodes.nodes[1].node.image
            assert image is not None
            entry = image.nodes[NodeId(1)]
            (open_directory,) = entry.open_directories
            found = [state.directory_of(NodeId(1)) for state in image.partitions() if 1 in state.replicas]
            return found == [open_directory.directory_id] * 8

        await nodes.wait_until(settled)


async def test_a_cordoned_directory_that_was_removed_from_its_node_is_shown_and_uncordoned_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else its cordon would stay for ever, and hold if the disk came back."""
    async with real_nodes(tmp_path, 1, directories=2, replication=PATIENT) as nodes:
        tidelog, (one, two) = Shell(nodes, capsys), paths_of(nodes, 0)
        await tidelog("node", "cordon", "0", "--log-dir", two)
        await nodes.stop(0)
        nodes.directories = 1
        await nodes.start(0)
        await nodes.wait_whole()
        (found,) = await tidelog.json("log-dirs", "--node", "0", code=1)
        (present, gone) = found
        assert (present["path"], present["cordoned"], gone["cordoned"]) == (one, False, True)
        assert f"`tidelog node uncordon 0 --log-dir {gone['path']}`" in gone["error"]
        await tidelog("node", "uncordon", "0", "--log-dir", gone["path"])
        assert "may get new replicas again" in tidelog.err
        (found,) = await tidelog.json("log-dirs", "--node", "0")
        assert [each["path"] for each in found] == [one]


async def test_a_directory_that_the_node_does_not_have_is_refused_with_those_that_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, 1) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("node", "cordon", "0", "--log-dir", "/elsewhere", code=1)
        assert "node 0 has no log directory '/elsewhere'" in tidelog.err
        assert nodes.log_directories(0)[0] in tidelog.err
        assert "cordoned" not in await tidelog("cluster", "status")


def test_the_client_knows_the_feature_level_of_the_nodes() -> None:
    """The client may not import it: an older node would cordon the whole node."""
    assert admin.DIRECTORY_CORDONS == features.DIRECTORY_CORDONS
