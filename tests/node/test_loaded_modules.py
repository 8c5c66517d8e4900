"""What a node loads only when it is needed: an idle node keeps no memory for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster

LATER = (
    "bz2",  # with lzma and shutil: what argparse asks for the width of the terminal
    "cryptography",  # TLS
    "email",  # with http.client and html: what fetches keys of OAUTHBEARER, and Prometheus' library in tests
    "hashlib",  # with hmac: SASL, and compaction
    "hmac",
    "html",
    "http.client",
    "jwt",  # OAUTHBEARER
    "lzma",
    "node.listeners.kafka",  # without a listener of Kafka's protocol
    "prometheus_client",
    "replication.coordination.groups.group_machine",  # until the node leads a partition of an internal topic
    "replication.coordination.transactions.transaction_machine",
    "re2",  # members of groups that subscribe to a pattern
    "shutil",
    "stringprep",  # with unicodedata: names of users and hosts that are not ASCII
    "tidelog.client",  # the web console
    "tidelog.console.pages",
    "unicodedata",
)

_IMPORT = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)


@pytest.mark.integration
def test_a_node_does_not_load_what_it_may_never_need(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=1, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as cluster:
        cluster.wait_healthy()
        loaded = set(_IMPORT.findall(cluster.nodes[0].log.read_text()))
    assert {"node.process.process", "grpc.aio"} <= loaded, "Python has written what it imports"
    assert {name for name in loaded for later in LATER if f"{name}.".startswith(f"{later}.")} == set()
