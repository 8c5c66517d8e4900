"""`tidelog up` on a directory that has a cluster: all of it, or none. No process is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from tidelog.cli import main
from tidelog.protocol.v1 import admin_pb2, common_pb2


def test_a_part_of_a_cluster_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One node of three has no majority: it announced success and answered from what it knew when it was stopped."""
    nodes = LocalCluster(tmp_path, 3).nodes
    before = [node.config.read_text(encoding="utf-8") for node in nodes]
    assert main(["up", "-n", "1", "--data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"tidelog: {tmp_path} has a cluster of 3 nodes, and 1 of them may not be a majority of its voters: start all "
        "(--nodes 3), or choose another directory\n"
    )
    assert [node.config.read_text(encoding="utf-8") for node in nodes] == before


def test_the_nodes_of_the_directory_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def run(self: LocalCluster, **_: Any) -> None:
        started.append(len(self.nodes))

    monkeypatch.setattr(LocalCluster, "run", run)
    LocalCluster(tmp_path / "two", 2)
    for words in (("two",), ("two", "-n", "4"), ("new",)):
        assert main(["up", "--data", str(tmp_path / words[0]), *words[1:]]) == 0
    assert started == [2, 4, 3]


def test_a_cluster_without_a_controller_has_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(tmp_path, 2)
    nodes = [admin_pb2.NodeStatus(address=common_pb2.NodeAddress(node_id=number)) for number in range(2)]
    for controller, is_up in ((-1, False), (0, True)):
        answer = admin_pb2.DescribeClusterResponse(nodes=nodes, controller_id=controller)
        monkeypatch.setattr(cluster, "describe", lambda _node, answer=answer: answer)
        assert cluster._joined() is is_up
