"""`tidelog up` on a directory that has a cluster starts all of it. No process is started here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from node.config import parse
from node.process.local_cluster import ClusterFailed, LocalCluster, LocalNode
from tidelog.cli import main
from tidelog.protocol.v1 import admin_pb2, common_pb2


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of nodes of the clusters that were to start."""
    counts: list[int] = []

    def run(self: LocalCluster, *, ready: Callable[[], None], say: object) -> None:
        counts.append(len(self.nodes))
        for node in self.nodes:
            node.process = cast("Any", SimpleNamespace(pid=1))
        ready()

    monkeypatch.setattr(LocalCluster, "run", run)
    return counts


def test_a_part_of_a_cluster_is_not_started(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """One node of three has no majority: it announced success and answered from what it knew when it was stopped."""
    nodes = LocalCluster(tmp_path, 3, kafka=True).nodes
    before = [node.config.read_text(encoding="utf-8") for node in nodes]
    assert main(["up", "-n", "1", "--data", str(tmp_path)]) == 0
    assert started == [3]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        f"{tmp_path} has a cluster of 3 nodes: all are started, since 1 may not be a majority of its voters"
    )
    assert said[1].startswith("3 nodes up: ")
    assert_first_commands_reach(nodes[0], said)
    with pytest.raises(ClusterFailed, match=r"start all \(--nodes 3\), or choose another directory"):
        LocalCluster(tmp_path, 2)
    assert [node.config.read_text(encoding="utf-8") for node in nodes] == before


def test_each_kind_of_client_has_a_port_that_can_be_foretold(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """And keeps it: a directory from which a cluster ran without a listener for Kafka gets one."""
    assert main(["up", "--data", str(tmp_path / "new")]) == 0
    nodes = LocalCluster(tmp_path / "new", 3, kafka=True).nodes
    assert [str(node.kafka) for node in nodes] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    assert [str(node.address) for node in nodes] == ["127.0.0.1:9192", "127.0.0.1:9193", "127.0.0.1:9194"]
    assert_first_commands_reach(nodes[0], capsys.readouterr().err.splitlines())
    (before,) = LocalCluster(tmp_path / "old", 1).nodes
    assert main(["up", "--data", str(tmp_path / "old"), "--port", "20000", "--json"]) == 0
    addresses = json.loads(capsys.readouterr().out)
    assert (addresses["bootstrap"], addresses["kafka_bootstrap"]) == (str(before.address), "127.0.0.1:20000")
    assert addresses["metrics"] == [f"http://{before.metrics}/metrics"]


def test_ports_follow_from_the_first_one_and_stay(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes that are added continue them; another port on the command line is refused with the reason."""
    assert main(["up", "--data", str(tmp_path), "--port", "21000", "-n", "2", "--json"]) == 0
    addresses = json.loads(capsys.readouterr().out)
    assert addresses["kafka_bootstrap"] == "127.0.0.1:21000,127.0.0.1:21001"
    assert addresses["bootstrap"] == "127.0.0.1:21100,127.0.0.1:21101"
    assert addresses["metrics"] == ["http://127.0.0.1:21200/metrics", "http://127.0.0.1:21201/metrics"]
    assert main(["up", "--data", str(tmp_path), "-n", "3"]) == 0
    said = capsys.readouterr().err
    assert "127.0.0.1:21002" in said and "http://127.0.0.1:21202/; metrics at /metrics" in said
    assert main(["up", "--data", str(tmp_path), "--port", "9092"]) == 0
    assert "has a cluster at 127.0.0.1:21000, which keeps its addresses" in capsys.readouterr().err


def assert_first_commands_reach(node: LocalNode, said: list[str]) -> None:
    ours, kafkas = said[-2:]
    assert ours == f"try: tidelog topic create greetings -b {node.address}"
    assert kafkas.count(f"-b {node.kafka} -t greetings") == 2


def test_the_nodes_of_the_directory_are_the_default(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    LocalCluster(tmp_path / "two", 2)
    for words in (("two",), ("two", "-n", "4"), ("new",)):
        assert main(["up", "--data", str(tmp_path / words[0]), *words[1:]]) == 0
        assert "all are started" not in capsys.readouterr().err
    assert started == [2, 4, 3]


def test_a_node_without_a_configuration_counts(tmp_path: Path, started: list[int]) -> None:
    """The file of an earlier version is removed, as its error says: two of three nodes would be started as all."""
    nodes = LocalCluster(tmp_path, 3, kafka=True).nodes
    nodes[0].config.write_text(nodes[0].config.read_text().replace("GRPC://", "client://"))
    with pytest.raises(ClusterFailed, match="Remove it"):
        LocalCluster(tmp_path, 3, kafka=True)
    nodes[0].config.unlink()
    assert main(["up", "--data", str(tmp_path)]) == 0
    assert started == [3]


def test_the_configuration_says_that_it_is_written_again_and_where_settings_go(
    tmp_path: Path, started: list[int]
) -> None:
    """A setting that was added to the file was gone without a word."""
    assert main(["up", "--data", str(tmp_path), "-n", "1"]) == 0
    file = tmp_path / "node-0" / "tidelog.toml"
    written = file.read_text(encoding="utf-8")
    file.write_text(f'{written}"log.retention.ms" = 7\n', encoding="utf-8")
    assert main(["up", "--data", str(tmp_path)]) == 0
    assert started == [1, 1]
    assert file.read_text(encoding="utf-8") == written, "as it says"
    said = [line for line in written.splitlines() if line.startswith("#")]
    assert "changes in this file are lost" in said[0]
    (variable,) = re.findall(r"(TIDELOG_\w+)=(\d+)", written)
    read = parse(file.read_text(encoding="utf-8"), dict([variable]), source=str(file), host_name="")
    assert read.log_config.retention_ms == int(variable[1])


def test_a_cluster_without_a_controller_has_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(tmp_path, 2)
    nodes = [admin_pb2.NodeStatus(address=common_pb2.NodeAddress(node_id=number)) for number in range(2)]
    for controller, is_up in ((-1, False), (0, True)):
        answer = admin_pb2.DescribeClusterResponse(nodes=nodes, controller_id=controller)
        monkeypatch.setattr(cluster, "describe", lambda _node, answer=answer: answer)
        assert cluster._joined() is is_up


def test_a_folder_is_the_object_store_of_a_tiered_cluster(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """And stays it when the directory is started again without the option: segments may be in the store only."""
    home = tmp_path / "with a space"
    for options in (("--tiered",), ()):
        assert main(["up", "--data", str(home), "-n", "1", *options, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["object_store"] == str(home / "object-store")
        config = (home / "node-0" / "tidelog.toml").read_text(encoding="utf-8")
        assert f'"remote.log.storage.url" = "file://{tmp_path}/with%20a%20space/object-store"' in config
    assert main(["up", "--data", str(home)]) == 0
    assert f"remote tier in {home}/object-store" in capsys.readouterr().err
    assert main(["up", "--data", str(tmp_path / "plain"), "-n", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["object_store"] is None
    assert not (tmp_path / "plain" / "object-store").exists()
