"""One real node as a process: what it says, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.parser import text_string_to_metric_families

from node.observability.metrics import TABLES
from node.process import local_cluster
from node.process.local_cluster import ClusterFailed, LocalCluster
from tests.integration.node_process import environment
from tests.node.promtool import needs_promtool, promtool
from tidelog.errors import TooFewNodes, TopicExists

pytestmark = pytest.mark.integration


@pytest.fixture
def single(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path, nodes=1)
    try:
        cluster.start()
        cluster.wait_healthy()
        yield cluster
    finally:
        cluster.kill_all()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("shared"), nodes=1) as cluster:
        yield cluster


@pytest.fixture
def serving(shared: LocalCluster) -> LocalCluster:
    """One node for all tests that leave its data as they were; it runs again."""
    shared.start()
    shared.wait_healthy()
    return shared


def run_node(config: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "node", "--config", str(config)],
        env={**environment(), **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_ready_is_said_in_one_line_and_a_signal_stops_clean(
    single: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    monkeypatch.setattr(local_cluster, "keep_ports", kept.extend)
    node = single.nodes[0]
    assert f"ready node=0 GRPC={node.address}\n" in node.log.read_text()
    assert f"new log directory {node.data}: it was empty" in node.log.read_text()
    assert "recovered log directory" not in node.log.read_text()
    assert single.stop_node(0) == 0
    assert set(kept) == {node.address.port, node.metrics.port}, "no other cluster gets its ports"
    assert (node.data / ".kafka_cleanshutdown").exists()
    single.start_node(0)
    single.wait_healthy()
    assert not (node.data / ".kafka_cleanshutdown").exists(), "the marker is used up by the start"
    assert "clean=True" in node.log.read_text()


def test_a_node_ends_with_the_process_that_started_it(serving: LocalCluster) -> None:
    process = serving.nodes[0].process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0


def test_a_second_signal_ends_it_at_once(serving: LocalCluster) -> None:
    process = serving.nodes[0].process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)  # both signals wait until it runs again, and are then seen in one turn
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(20) == 130
    assert not (serving.nodes[0].data / ".kafka_cleanshutdown").exists()


def test_a_node_that_waits_for_others_to_form_a_cluster_can_be_stopped(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=2)
    cluster.start_node(0)
    try:
        said = cluster.nodes[0].log
        cluster.wait_until(lambda: "forming a cluster: waiting for" in said.read_text(), within_s=20, what="it waits")
        assert cluster.describe(0).controller_id == -1
        assert cluster.stop_node(0) == 0
    finally:
        cluster.kill_all()


def test_a_failed_log_directory_is_left_out_and_reported(single: LocalCluster, tmp_path: Path) -> None:
    single.stop_node(0)
    node = single.nodes[0]
    (tmp_path / "file").write_text("no directory")
    directories = f'"{node.data}", "{tmp_path / "file"}"'
    node.config.write_text(node.config.read_text().replace(f'"{node.data}"', directories))
    single.start_node(0)
    single.wait_healthy()
    assert "error   node.lifecycle" in node.log.read_text()
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert f'tidelog_directory_offline{{directory="{tmp_path / "file"}"}} 1.0' in text
    assert f'tidelog_directory_offline{{directory="{node.data}"}} 0.0' in text


def test_a_cluster_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    up = "import sys; from tidelog.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", up, "up", "--json", "--nodes", "2", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert re.search(r'"bootstrap": *"127\.0\.0\.1:\d+,127\.0\.0\.1:\d+"', process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
    for node in range(2):
        assert "stopped" in (tmp_path / f"node-{node}" / "node.log").read_text().splitlines()[-1]


def test_a_directory_in_use_and_a_port_in_use_are_refused_by_name(serving: LocalCluster) -> None:
    """Two more nodes are started, each of which ends by itself."""
    node = serving.nodes[0]
    second = run_node(node.config)
    assert second.returncode == 2
    assert f"listener 'GRPC': {node.address} cannot be bound" in second.stderr
    free = {"TIDELOG_LISTENERS": "GRPC://127.0.0.1:0", "TIDELOG_METRICS_LISTENER": "127.0.0.1:0"}
    second = run_node(node.config, **free)
    assert second.returncode == 1
    assert f"the log directory {node.data} is in use by another process" in second.stderr
    assert serving.describe(0).controller_id == 0, "the first one serves on"


def test_a_node_that_everyone_may_reach_as_a_node_says_so_and_needs_permission(serving: LocalCluster) -> None:
    """Two more nodes are started, each of which ends by itself."""
    reachable = {
        "TIDELOG_LISTENERS": "GRPC://0.0.0.0:0",
        "TIDELOG_ADVERTISED_LISTENERS": "GRPC://localhost:1",
        "TIDELOG_METRICS_LISTENER": "127.0.0.1:0",
    }
    refused = run_node(serving.nodes[0].config, **reachable)
    assert refused.returncode == 2
    assert "takes everyone for a node" in refused.stderr
    permitted = run_node(serving.nodes[0].config, TIDELOG_ALLOW_INSECURE="true", **reachable)
    assert permitted.returncode == 1, "the directory is in use"
    assert "insecure, as allow.insecure permits: listener 'GRPC' binds 0.0.0.0:0" in permitted.stderr
    assert "insecure" not in serving.nodes[0].log.read_text()


def test_an_audit_log_that_cannot_be_opened_is_refused_before_the_first_event(serving: LocalCluster) -> None:
    """Two more nodes are started, each of which ends by itself."""
    serving.stop_node(0)
    missing = serving.directory / "missing" / "audit.log"
    for path in (missing, serving.directory):  # a directory that is missing, a file that is a directory
        refused = run_node(serving.nodes[0].config, TIDELOG_AUDIT_LOG_FILE=str(path))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"audit.log.file = '{path}': it cannot be written (" in refused.stderr


def test_a_directory_of_another_node_is_refused(serving: LocalCluster) -> None:
    serving.stop_node(0)
    refused = run_node(serving.nodes[0].config, TIDELOG_NODE_ID="7")
    assert refused.returncode == 2
    assert "belongs to node 0, not to node 7" in refused.stderr


def json_lines(text: str) -> list[dict[str, object]]:
    """Every line, each an object."""
    return [json.loads(line) for line in text.splitlines()]


def test_json_logs_are_json_from_the_first_line_to_the_last(serving: LocalCluster) -> None:
    """One more run of a node: gRPC writes lines of its own to standard error, here all that it can."""
    serving.stop_node(0)
    talkative = {"TIDELOG_LOGGING_FORMAT": "json", "GRPC_VERBOSITY": "DEBUG", "GRPC_TRACE": "http"}
    with subprocess.Popen(
        [sys.executable, "-m", "node", "--config", str(serving.nodes[0].config)],
        env={**environment(), **talkative},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready node=0 ")
        process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=30)
    assert process.returncode == 0
    lines = json_lines(written)
    assert {"at", "level", "logger", "message", "node"} <= lines[0].keys()
    assert lines[-1]["message"] == "stopped"
    assert any(line["logger"] == "grpc" for line in lines)
    assert not any(line["logger"] == "stderr" for line in lines), "lines of gRPC are recognized"


def test_json_logs_are_json_if_the_node_cannot_start(serving: LocalCluster, tmp_path: Path) -> None:
    """Two more nodes are started, each of which ends by itself."""
    serving.stop_node(0)
    refused = run_node(serving.nodes[0].config, TIDELOG_LOGGING_FORMAT="json", TIDELOG_NODE_ID="7")
    assert refused.returncode == 2
    assert "belongs to node 0, not to node 7" in str(json_lines(refused.stderr)[-1]["message"])
    config = tmp_path / "tidelog.toml"
    config.write_text('"logging.format" = "json"\nlisteners = ["GRPC://127.0.0.1:0"]\n')
    (line,) = json_lines(run_node(config, TIDELOG_NODE_ID="0").stderr)
    assert "controller.quorum.bootstrap.servers: missing" in str(line["message"])
    assert line["level"] == "error"


def test_a_bad_configuration_is_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "tidelog.toml"
    missing = run_node(config)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert re.fullmatch(r"tidelog: .*tidelog\.toml: cannot be read \(.*\)\. Name a TOML file.*\n", missing.stderr)
    config.write_text('listeners = ["GRPC://127.0.0.1:0"]\n')
    bad = run_node(config, TIDELOG_NODE_ID="0")
    assert bad.returncode == 2
    assert re.fullmatch(r"tidelog: .*tidelog\.toml: controller\.quorum\.bootstrap\.servers: missing; .*\n", bad.stderr)


def test_metrics_and_reflection_are_served(single: LocalCluster) -> None:
    single.create_topic("orders", partitions=2, replicas=1)

    def scraped() -> str:
        with urllib.request.urlopen(f"http://{single.nodes[0].metrics}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    single.wait_until(lambda: "tidelog_leaders 2.0" in scraped(), within_s=10, what="the node leads both partitions")
    text = scraped()
    assert 'tidelog_partition_isr{partition="1",role="leader",topic="orders"} 1.0' in text
    assert 'tidelog_requests_total{method="Admin.CreateTopics",outcome="ok"} 1.0' in text
    assert "tidelog_disk_seconds_count" in text
    served = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in (metric for table in TABLES for metric in table.metrics):
        family = served.pop(metric.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (metric.type, metric.help), metric.name
    assert not served, "docs/metrics.md lists all"
    for name in ("tidelog_build_info", "tidelog_cluster_info", "tidelog_event_loop_lag_seconds_count"):
        assert re.search(rf"^{name}(?:{{.*}})? [1-9]", text, re.MULTILINE), name
    with grpc.insecure_channel(str(single.nodes[0].address)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"tidelog.v1.Data", "tidelog.v1.Admin", "grpc.health.v1.Health"} <= set(database.get_services())
        service = DescriptorPool(database).FindServiceByName("tidelog.v1.Data")
        assert "FetchStream" in service.methods_by_name
        assert re.search(r'^tidelog_connections{listener="GRPC"} [1-9]', scraped(), re.MULTILINE)


@needs_promtool
def test_prometheus_finds_nothing_wrong_with_the_metrics(serving: LocalCluster) -> None:
    with urllib.request.urlopen(f"http://{serving.nodes[0].metrics}/metrics", timeout=5) as answer:
        checked = promtool("check", "metrics", given=answer.read().decode())
    assert (checked.stdout + checked.stderr, checked.returncode) == ("", 0)


def test_errors_of_the_controller_reach_the_caller_as_they_are(serving: LocalCluster) -> None:
    serving.create_topic("orders", replicas=1)
    with pytest.raises(TopicExists, match="orders"):
        serving.create_topic("orders", replicas=1)
    with pytest.raises(TooFewNodes, match="1 of 1 registered nodes are usable"):
        serving.create_topic("wide", replicas=3)


def test_the_start_does_not_wait_for_a_node_that_ended(serving: LocalCluster) -> None:
    os.kill(serving.nodes[0].pid, signal.SIGKILL)
    with pytest.raises(ClusterFailed, match="node 0 was ended by SIGKILL"):
        serving.wait_healthy(20)


def test_more_logs_than_the_system_lets_a_process_begin_with(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=1)
    (node,) = cluster.nodes
    node.wrapper = ("sh", "-c", 'ulimit -Sn 150 && exec "$0" "$@"')
    try:
        cluster.start()
        cluster.wait_healthy()
        cluster.create_topic("many", partitions=250, replicas=1)
        cluster.wait_until(
            lambda: len(list(node.data.glob("many-*/*.log"))) == 250, within_s=20, what="all logs have been made"
        )
        assert "offline" not in node.log.read_text()
    finally:
        cluster.kill_all()


def test_a_log_directory_whose_logs_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=1)
    (node,) = cluster.nodes
    more = node.directory / "more"
    node.config.write_text(node.config.read_text().replace(f'["{node.data}"]', f'["{node.data}", "{more}"]'))
    assert str(more) in node.config.read_text()
    try:
        cluster.start()
        cluster.wait_healthy()
        cluster.create_topic("orders", partitions=4, replicas=1)
        cluster.wait_until(lambda: len(list(more.glob("orders-*/*.log"))) == 2, within_s=20, what="two logs lie there")
        cluster.kill(0)
        first = min(more.glob("orders-*/*.log"))
        first.unlink()
        first.mkdir()  # opening it as a file fails with an error of the disk
        cluster.start_node(0)
        cluster.wait_until(
            lambda: sum(state.leader == 0 for state in cluster.metadata(0, "orders").topics[0].partitions) == 2,
            within_s=20,
            what="the partitions of the other directory are led",
        )
        assert "left out" in node.log.read_text()
    finally:
        cluster.kill_all()
