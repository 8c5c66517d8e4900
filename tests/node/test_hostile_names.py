"""Names and bytes that callers choose, on a real node: no name becomes a path, forges a log line or breaks an answer,
and what producers write appears in no log line and no error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.observability import logs
from testbed.topic_requests import altering, changed, creating, deleting, growing
from tests.node.message_services import enveloped
from tests.node.real_coordinators import errors_in
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog.errors import TidelogError, UnknownServerError
from tidelog.protocol import methods
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import admin_pb2, common_pb2, controller_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, Millis, Offset

NAMES = (
    "",
    ".",
    "..",
    "../outside",
    "../../../../../../tmp/outside",
    "/tmp/outside",
    "a/b",
    "a\\b",
    "~",
    "nul\x00byte",
    "line\n2026-01-01 00:00:00.000 info node.process: stopped",
    "\x1b[2Jcleared",
    "\u202efdp.sredro",
    "%s%n%(message)s{0.__class__}",
    "x" * 100_000,
    "\u20ac" * 100_000,
    "__cluster_metadata",
    "orders-0",
    "a.0f-delete",
)

NAMES_OF_TOPICS = ("orders-0", "a.0f-delete")
"""Those of them that a topic may have: a request to create it asks for more replicas than there are nodes."""

SECRET = b"4111-1111-1111-1111"


def requests_with(name: str) -> Iterator[tuple[Method[Any, Any], Any]]:
    """Every request that has room for a name, with this one in each place."""
    place = admin_pb2.TopicPartitionId(topic=name)
    yield methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=[name], topic_ids=[name.encode()[:100]])
    replicas = 9 if name in NAMES_OF_TOPICS else 1
    changes: list[tuple[Method[Any, Any], Any]] = [
        (methods.ADMIN_CREATE_TOPICS, creating(name=name, partitions=1, replication_factor=replicas))
    ]
    for configs in {name: "1"}, {"retention.ms": name}, {"cleanup.policy": name}, {"durability": name}:
        new = creating(name="new", partitions=1, replication_factor=1, configs=configs)
        changes.append((methods.ADMIN_CREATE_TOPICS, new))
    changes.append((methods.ADMIN_DELETE_TOPICS, deleting(name=name)))
    for method, request in changes:
        yield method, request
        yield methods.CONTROLLER_ENVELOPE, enveloped(method, request)
    yield methods.CONTROLLER_ENVELOPE, controller_pb2.EnvelopeRequest(api=name)
    principal = controller_pb2.EnvelopeRequest(api="Admin.CreateTopics", principal=name)
    yield methods.CONTROLLER_ENVELOPE, principal
    yield methods.ADMIN_ELECT_LEADERS, admin_pb2.ElectLeadersRequest(partitions=[place])
    move = admin_pb2.PartitionReassignment(partition=place, replicas=[0])
    yield methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, admin_pb2.AlterPartitionReassignmentsRequest(partitions=[move])
    for key, value in (("retention.ms", name), (name, "1")):
        change = admin_pb2.ConfigChange(key=key, value=value)
        for topic in ("orders", name):
            request = altering(topic=topic, changes=[change])
            yield methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request
    yield methods.ADMIN_CREATE_PARTITIONS, growing(topic=name, count=2)
    yield methods.ADMIN_EXPLAIN_PARTITIONS, admin_pb2.ExplainPartitionsRequest(partitions=[place])
    yield (
        methods.CONTROLLER_REGISTER_NODE,
        controller_pb2.RegisterNodeRequest(
            cluster_id=name,
            node_id=7,
            incarnation=bytes(16),
            rack=name,
            listeners=[common_pb2.Listener(name=name, host=name)],
        ),
    )


async def refused_names(nodes: RealNodes, name: str) -> list[TidelogError]:
    """Send a name wherever it may stand. Returns the errors."""
    found: list[TidelogError] = []
    for method, request in requests_with(name):
        try:
            found.extend(error for error in errors_in(await nodes.call(0, method, request)) if error is not None)
        except TidelogError as error:
            found.append(error)
    return found


def printed(records: list[logging.LogRecord]) -> list[str]:
    return [form.format(record) for record in records for form in (logs.TextLines(0), logs.JsonLines(0))]


async def test_no_name_becomes_a_path_or_forges_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "node"):
        async with real_nodes(tmp_path / "home") as nodes:
            changed(
                await nodes.call(
                    0,
                    methods.ADMIN_CREATE_TOPICS,
                    creating(name="orders", partitions=1, replication_factor=1),
                )
            )
            image = nodes.nodes[0].node.image
            for name in NAMES:
                errors = await refused_names(nodes, name)
                assert len(errors) > 10
                for error in errors:
                    assert not isinstance(error, UnknownServerError), f"{name[:50]!r}: {error.message}"
                    assert len(error.message) <= 1_500
            assert nodes.nodes[0].defects == []
            made = {path.name for path in (tmp_path / "home" / "node-0").iterdir() if path.is_dir()}
            assert made == {"__cluster_metadata-0", "orders-0"}
            after = nodes.nodes[0].node.image
            assert image is not None
            assert after is not None
            assert (after.topics, after.nodes.keys()) == (image.topics, image.nodes.keys())
    assert [path.name for path in tmp_path.iterdir()] == ["home"], "nothing outside"
    for line in printed([record for record in caplog.records if not record.exc_info]):
        assert line.isprintable()
        assert len(line) < 10_000


def batches_with_the_secret() -> Iterator[bytes]:
    """Sound and damaged, compressed and not; and records that a topic refuses one by one."""
    record = Record(Offset(0), Millis(1_700_000_000_000), SECRET, SECRET * 50)
    for codec in Codec:
        sound = build_batch([record], codec)
        yield sound
        yield sound[:-1]
        for at in range(0, len(sound), 7):
            yield sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :]
    yield build_batch([record._replace(timestamp=Millis(2**62))])
    yield SECRET * 100


async def test_what_producers_write_is_in_no_error_and_no_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "node"):
        async with real_nodes(tmp_path) as nodes:
            create = creating(name="cards", partitions=1, replication_factor=1)
            topic_id = changed(await nodes.call(0, methods.ADMIN_CREATE_TOPICS, create)).topic_id
            errors = 0
            for batch in batches_with_the_secret():
                entry = ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=batch)
                request = ProduceRequest(acks=-1, timeout_ms=5_000, partitions=[entry])
                with contextlib.suppress(TidelogError):
                    answer = await nodes.call(0, methods.DATA_PRODUCE, request)
                    assert SECRET not in answer.SerializeToString()
                    errors += answer.partitions[0].HasField("error")
            assert nodes.nodes[0].defects == []
            assert errors > 50
    assert SECRET.decode() not in "".join(printed(caplog.records))
