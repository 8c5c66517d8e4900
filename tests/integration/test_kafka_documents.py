"""The examples of docs/kafka.md that need this checkout alone, and kcat where it is installed, run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.document_commands import ROOT
from tests.kafka_nodes import QUICK_GROUPS, kafka_cluster

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
CLIENTS = ("Python: confluent-kafka (librdkafka)", "Python: aiokafka", "Python: kafka-python")


cluster = kafka_cluster(QUICK_GROUPS, nodes=1)


@pytest.fixture(scope="module", autouse=True)
def orders(cluster: LocalCluster) -> None:
    cluster.create_topic("orders", 3, 1)


def example(heading: str, language: str, cluster: LocalCluster) -> str:
    """The first block below the heading, with the address of the cluster."""
    below = PAGE.split(f"\n### {heading}\n", 1)[1]
    found = re.search(rf"^```{language}\n(.*?)^```", below, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert "localhost:9092" in found[1]
    return found[1].replace("localhost:9092", cluster.kafka_bootstrap)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_of_the_page_writes_and_reads(cluster: LocalCluster, client: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(example(client, "python", cluster))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "b'one espresso'\n"), done.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat: apt install kcat")
def test_kcat_writes_reads_and_lists(cluster: LocalCluster) -> None:
    commands = example("kcat", "sh", cluster)
    done = subprocess.run(["bash", "-e", "-c", commands], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "one espresso\n" in done.stdout
    assert f"broker 0 at {cluster.kafka_bootstrap}" in done.stdout
