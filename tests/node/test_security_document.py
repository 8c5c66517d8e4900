"""docs/security.md agrees with the code: every limit is the one that is checked. Who may call each RPC: see
test_permissions.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from node import config
from node.boundary import boundary
from node.config import NodeConfig
from node.listeners.grpc import incomplete_messages, request_limits, server
from node.observability import logs
from node.runtime import limits
from replication.controller import partition_limits, registration, topics
from storage import log_config
from tidelog.protocol import status
from tidelog.settings import settings_of
from tidelog.types import TOPIC_NAME_LENGTH_MAX

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"

LIMITS = {
    "connections of a listener": server.CONNECTIONS_MAX,
    "time for the first settings of a connection": server.HANDSHAKE_MS,
    "open calls and streams of a connection": server.CONCURRENT_STREAMS_MAX,
    "bytes of a request without records": boundary.REQUEST_BYTES_MAX,
    "fields of a request, nested ones included": request_limits.FIELDS_MAX,
    "entries of a produce or fetch message": limits.ENTRIES_MAX,
    "bytes of a request to the health and reflection services": server.NAME_BYTES_MAX,
    "partitions of a topic": topics.PARTITIONS_MAX,
    "partitions of the cluster, internal topics not counted": partition_limits.CLUSTER_DEFAULT,
    "replicas on a node, internal topics not counted": partition_limits.NODE_DEFAULT,
    "characters of a client id": server.CLIENT_ID_MAX,
    "bytes of an error's message": status.MESSAGE_BYTES_MAX,
    "incomplete messages of all connections of a listener": incomplete_messages.INCOMPLETE_BYTES_MAX,
    "unread answer of a call": limits.UNREAD_ANSWER_MS,
    "unread answer of a stream or a fetch call, while others wait for memory": limits.SLOW_READER_MS,
    "characters of a message in a log line": logs.MESSAGE_LENGTH_MAX,
    "characters of a topic's name, of the value of a setting": TOPIC_NAME_LENGTH_MAX,
    "characters of a name in a registration": registration.NAME_LENGTH_MAX,
}


def rows_below(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the document, without its head."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None, f"no table below {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def test_limits_are_those_that_are_checked() -> None:
    documented = {what: limit for what, limit, _ in rows_below("Limits")}
    for what, limit in LIMITS.items():
        assert re.match(rf"{limit}\b", documented[what]), what
    assert log_config.VALUE_LENGTH_MAX == 255
    assert settings_of(NodeConfig)["connections_max"].default == server.CONNECTIONS_MAX


def test_a_node_accepts_each_configuration_that_the_document_shows() -> None:
    """With addresses and files, which some leave out. Once a listener authenticates, ACLs decide."""
    examples = re.findall(r"^```toml\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    whole = [example for example in examples if example.startswith("listeners")]
    assert len(whole) == 4
    for example in whole:
        advertised = [f"{name}://{name}.node-0:9192" for name in re.findall(r"(\w+)://0\.0\.0\.0", example)]
        environment = {
            "TIDELOG_NODE_ID": "0",
            "TIDELOG_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "node-0:9193",
            **({"TIDELOG_ADVERTISED_LISTENERS": ",".join(advertised)} if advertised else {}),
        }
        files = CERTIFICATES if "SSL" in example and "ssl.ca.file" not in example else ""
        read = config.parse(example + files, environment, source="security.md", host_name="node-0")
        assert read.authorizer.enabled is ("SSL" in example), example


CERTIFICATES = """
"ssl.certificate.file" = "tls.crt"
"ssl.key.file" = "tls.key"
"ssl.ca.file" = "ca.crt"
"""
