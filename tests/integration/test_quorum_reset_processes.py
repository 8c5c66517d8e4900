"""Real processes whose metadata quorum is in an epoch that no election can follow, and the command that brings them
back."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from node.quorum.state import QUORUM_STATE
from replication.raft.epoch_limits import EPOCH_MAX
from tests.integration.load import Load
from tests.integration.node_process import environment

pytestmark = pytest.mark.integration


def tidelog(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog.cli", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.deep
def test_a_cluster_reset_after_the_last_epoch_has_its_data(tmp_path: Path) -> None:
    """Three nodes start three times, and a command runs for each directory."""
    with LocalCluster(tmp_path, 3) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 3, min_insync_replicas="2")
        load = Load(cluster.bootstrap, "orders", 3)

        async def write() -> None:
            async with load.running():
                await load.wait_more()

        asyncio.run(write())
        running = tidelog("quorum", "reset-epoch", str(cluster.nodes[0].data))
        assert running.returncode == 1
        assert "stop all nodes" in running.stderr
        cluster.stop()
        for node in cluster.nodes:
            state = node.data / "__cluster_metadata-0" / QUORUM_STATE
            state.write_text(re.sub(r'"leaderEpoch":\d+', f'"leaderEpoch":{EPOCH_MAX}', state.read_text()))
        for node in cluster.nodes:
            cluster.start_node(node.node_id)
            assert node.process is not None
            assert node.process.wait(30) == 1
            assert "tidelog quorum reset-epoch" in node.log_tail()
        directories = [str(node.data) for node in cluster.nodes]
        shown = json.loads(tidelog("quorum", "reset-epoch", *directories, "--json").stdout)["directories"]
        assert {each["to_move"] for each in shown.values()} == {EPOCH_MAX}
        after = max(each["usable"] for each in shown.values())
        for directory in directories:
            assert tidelog("quorum", "reset-epoch", directory, "--after", str(after)).returncode == 0
        cluster.start()
        cluster.wait_healthy()
        found = asyncio.run(load.read_all())
        assert {place: found.get(place) for place in load.acknowledged} == load.acknowledged
        cluster.create_topic("later")
