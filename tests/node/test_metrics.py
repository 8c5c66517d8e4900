"""What a scraper sees."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.coordinators.coordinator_figures import CoordinatorFigures, CoordinatorMeter
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.group_lag import GroupFigures, GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.observability.metric_text import AT_ONCE
from node.observability.metrics import (
    PARTITIONS,
    DirectoryLogs,
    DirectoryUpkeep,
    HostedPartition,
    MetricSources,
    WorkTimes,
    metrics_text,
)
from node.observability.metrics_server import MetricsServer
from node.quotas.client_quotas import ClientQuotas
from node.quotas.throttle import Quotas
from node.replicas.replica import Replica
from node.requests.context import RequestContext
from node.requests.incremental_sessions import SessionCache
from node.runtime.memory_budget import Kind, MemoryFigures
from node.runtime.request_meter import RequestMeters
from node.runtime.topic_meter import TopicMeters
from node.security.certificate_expiry import CertificateExpiry
from replication.controller.image import EMPTY, PartitionState
from replication.coordination.group_requests import FetchedOffset
from storage.directory.directory_cleaning import DirectoryCleaning
from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.scrub import Scrub
from storage.directory.scrub_segment import FindingKind
from tests.node.audit_world import World as AuditWorld
from tests.node.nanoseconds import Nanoseconds
from tests.node.sasl_world import World as SaslWorld
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import InvalidConfig, NotLeaderOrFollower, TidelogError
from tidelog.security.certificates import create_authority
from tidelog.types import Endpoint, Offset, PartitionIndex, QuotaEntity, QuotaType, QuotaValue, TopicPartition


def hosted(partition: int, *, leads: bool, isr: int, log: dict[str, int]) -> HostedPartition:
    """A replica of a partition with three replicas. log: its positions."""
    replica = SimpleNamespace(
        name=TopicPartition("orders", PartitionIndex(partition)),
        leader=object() if leads else None,
        log=SimpleNamespace(log_start_offset=0, size=0, segments=(None,), **log),
    )
    state = SimpleNamespace(isr=range(isr), replicas=range(3))
    return HostedPartition(cast("Replica", replica), cast("PartitionState", state))


LEADER = hosted(
    3,
    leads=True,
    isr=2,
    log={"log_end_offset": 110, "high_watermark": 100, "durable_offset": 105, "last_stable_offset": 93},
)
FOLLOWER = hosted(
    4,
    leads=False,
    isr=3,
    log={"log_end_offset": 50, "high_watermark": 50, "durable_offset": 50, "last_stable_offset": 50},
)
METER = CoordinatorMeter(requests=20, batches=4)
METER.loaded(1_500, 300)
METER.loaded(500, 10)
GROUPS = GroupsCollected(
    (
        GroupFigures(
            GroupListing('the "first"\\\n', "consumer", "Stable", 2),
            (FetchedOffset("orders", PartitionIndex(0), offset=Offset(40)),),
            60,
            7,
            unknown=2,
        ),
        GroupFigures(GroupListing("new", "consumer", "Stable", 1), (), None, None, unknown=3),
    ),
    unknown=6,
)
DIRECTORY = cast(
    "LogDirectory",
    SimpleNamespace(
        path="/a",
        logs={1: SimpleNamespace(damage=None), 2: SimpleNamespace(damage="rot")},
        reserve=SimpleNamespace(free=90, required=100, low=True),
        open_segments=range(7),
        missing=(),
    ),
)
SCRUB = SimpleNamespace(
    bytes_read=4096,
    segments_read=0,
    waiting=0,
    findings={FindingKind.LOG: 1, FindingKind.OFFSET_INDEX: 0},
)
CLEANING = SimpleNamespace(bytes_processed=0, rounds=0, cleaner=SimpleNamespace(dirty_share=0.5, uncleanable=()))
SOURCES = MetricSources(
    ready=True,
    metadata_offset=17,
    offline={"/a": False, "/b": True},
    producers_forgotten=5,
    directories=(DirectoryLogs(DIRECTORY, LoadProgress("/a", "orders-0", done=1, total=2, bytes=0)),),
    upkeep=(DirectoryUpkeep(DIRECTORY, cast("Scrub", SCRUB), cast("DirectoryCleaning", CLEANING)),),
    memory=MemoryFigures(1 << 26, {Kind.CONSUMER_FETCH: 4096, Kind.PRODUCE: 0}, {Kind.CONSUMER_FETCH: 3}),
    coordinators=(CoordinatorFigures("group", {CoordinatorState.ACTIVE: 49, CoordinatorState.LOADING: 1}, 3, METER),),
    member_streams=7,
    fetch_sessions=SessionCache(1, random.Random(1)),
    transactions=TransactionFigures(5, 2, 4_500, 1),
    groups=GROUPS,
)


def answer(meters: RequestMeters, clock: Nanoseconds, api: str, ms: int, error: TidelogError | None = None) -> None:
    """A call that waits so long for its answer."""
    request = RequestContext("client", "here", meter=meters.of(api)).begin()
    clock.pass_ms(ms)
    if error is None:
        request.entry_ended()
    else:
        request.fail(error)


async def scrape(address: Endpoint, request: str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[str, str]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request.encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def test_requests_and_state_are_there_to_be_scraped() -> None:
    clock = Nanoseconds()
    meters, topics = RequestMeters(clock), TopicMeters()
    work = WorkTimes("/a")
    answer(meters, clock, "Data.Fetch", 3)
    answer(meters, clock, "Data.Produce", 200, NotLeaderOrFollower("elsewhere"))
    meters.of("Data.FetchStream").streams_open += 1
    meters.of("Data.Fetch").response_bytes += 700
    meters.of("Admin.GetMetadata")
    topics.add_replica("orders").appended(size=100, records=3, converted=1)
    work.observe(0.01)
    sources = replace(SOURCES, partitions=(LEADER, FOLLOWER), topics=topics, work=(work,), requests=meters)
    server = MetricsServer(lambda: metrics_text(sources, nothing_else))
    address = await server.start(Endpoint("127.0.0.1", 0))
    head, body = await scrape(address)
    assert head.startswith("HTTP/1.1 200 OK")
    assert (await scrape(address, "GET / HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 404")
    assert (await scrape(address, "POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 405")
    await server.stop()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert samples["tidelog_requests_total", "Data.Fetch", "ok"] == 1
    assert samples["tidelog_requests_total", "Data.Produce", "NOT_LEADER_OR_FOLLOWER"] == 1
    assert ("tidelog_requests_total", "Data.Produce", "ok") not in samples
    assert samples["tidelog_request_errors_total", "Data.Produce", "NOT_LEADER_OR_FOLLOWER"] == 1
    assert samples["tidelog_request_seconds_count", "Data.Fetch"] == 1
    assert samples["tidelog_request_seconds_bucket", "0.0025", "Data.Fetch"] == 0
    assert samples["tidelog_request_seconds_bucket", "0.005", "Data.Fetch"] == 1
    assert samples["tidelog_request_seconds_bucket", "+Inf", "Data.Fetch"] == 1
    assert samples["tidelog_request_seconds_sum", "Data.Produce"] == pytest.approx(0.2)
    assert samples["tidelog_request_phase_seconds_total", "Data.Produce", "remote"] == pytest.approx(0.2)
    assert samples["tidelog_response_bytes_total", "Data.Fetch"] == 700
    assert ("tidelog_response_bytes_total", "Admin.GetMetadata") not in samples, "it has no requests"
    assert samples["tidelog_topic_bytes_in_total", "orders"] == 100
    assert samples["tidelog_topic_messages_in_total", "orders"] == 3
    assert samples["tidelog_topic_produce_message_conversions_total", "orders"] == 1
    assert samples["tidelog_streams_open", "Data.FetchStream"] == 1
    assert samples["tidelog_directory_work_seconds_count", "/a"] == 1
    assert samples["tidelog_directory_work_seconds_bucket", "/a", "0.005"] == 0
    assert samples["tidelog_directory_work_seconds_bucket", "/a", "0.01"] == 1
    assert samples[("tidelog_ready",)] == 1
    assert samples[("tidelog_fetch_sessions",)] == 0
    assert samples["tidelog_directory_offline", "/a"] == 0
    assert samples["tidelog_directory_offline", "/b"] == 1
    assert samples["tidelog_directory_free_bytes", "/a"] == 90
    assert samples["tidelog_directory_below_reserve", "/a"] == 1
    assert samples["tidelog_directory_logs_to_load", "/a"] == 2
    assert samples["tidelog_directory_logs_damaged", "/a"] == 1
    assert samples["tidelog_scrub_bytes_total", "/a"] == 4096
    assert samples["tidelog_scrub_findings_total", "/a", "log"] == 1
    assert ("tidelog_directory_free_bytes", "/b") not in samples, "nothing is known of a directory that is offline"
    assert samples[("tidelog_leaders",)] == 1
    assert samples[("tidelog_under_replicated",)] == 1
    assert samples["tidelog_partition_isr", "3", "leader", "orders"] == 2
    assert samples["tidelog_partition_uncommitted", "3", "leader", "orders"] == 10
    assert samples["tidelog_partition_not_durable", "3", "leader", "orders"] == 5
    assert samples["tidelog_partition_last_stable_offset_lag", "3", "leader", "orders"] == 7
    assert samples["tidelog_partition_high_watermark", "4", "follower", "orders"] == 50
    assert samples["tidelog_coordinator_partitions", "active", "group"] == 49
    assert samples["tidelog_coordinator_load_seconds_total", "group"] == 2
    assert samples["tidelog_coordinator_load_seconds_max", "group"] == 1.5
    assert samples["tidelog_coordinator_uncommitted", "group"] == 3
    assert samples[("tidelog_transaction_oldest_seconds",)] == 4.5
    assert samples["tidelog_group_members", "Stable", 'the "first"\\\n'] == 2
    assert samples["tidelog_group_lag", 'the "first"\\\n'] == 60
    assert samples["tidelog_group_committed_offset", "0", "orders", 'the "first"\\\n'] == 40
    assert samples["tidelog_group_lag_deleted", 'the "first"\\\n'] == 7
    assert samples["tidelog_group_unknown_partitions", 'the "first"\\\n'] == 2
    assert samples["tidelog_group_unknown_partitions", "new"] == 3
    assert ("tidelog_group_lag", "new") not in samples, "what is not known is not zero"
    assert samples[("tidelog_group_lag_unknown",)] == 6


DOCS = Path(__file__).parents[2] / "docs"
METRIC_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)


def documented() -> set[str]:
    """The names in the table of docs/operations.md. `_name` continues the first words of the name before it."""
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    names: set[str] = set()
    for row in METRIC_ROW.findall(text[text.index("## Metrics") :]):
        first, *others = re.findall(r"\w+", row)
        stem = "_".join(first.split("_")[:2])
        names |= {first, *(name if name.startswith("tidelog") else stem + name for name in others)}
    return names


def test_the_documentation_lists_every_metric_and_no_other() -> None:
    text = asyncio.run(metrics_text(MetricSources(), nothing_else))
    names = set(re.findall(r"^# TYPE (\w+) ", text.decode(), re.MULTILINE))
    assert documented() == names
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    assert {name for page in pages for name in re.findall(r"`(tidelog_\w+)`", page)} <= names


def test_metrics_of_quotas_name_the_quota_and_not_the_clients_that_a_default_holds_for() -> None:
    quotas = Quotas(ClientQuotas(lambda: 0))
    limit = (QuotaValue(QuotaType.PRODUCER_BYTE_RATE.value, 1),)
    entities = QuotaEntity(None, ""), QuotaEntity("alice", None), QuotaEntity("", "batch")
    quotas.on_image(replace(EMPTY, quotas=dict.fromkeys(entities, limit)))
    for number in range(100):
        quotas.throttle("Data.Produce", "User:ANONYMOUS", f"flood-{number}").received(12 + number)
    quotas.throttle("Data.Produce", "User:alice", "loader").received(1_000)
    quotas.throttle("Data.Produce", "User:bob", "batch").received(500)

    text = asyncio.run(metrics_text(MetricSources(quotas=quotas), nothing_else)).decode()
    assert re.findall(r"^tidelog_quota_wait_seconds\{(.*)\} (.*)$", text, re.MULTILINE) == [
        ('client_id="",quota="producer_byte_rate",user="alice"', "989.0"),
        ('client_id="batch",quota="producer_byte_rate",user="(default)"', "489.0"),
        ('client_id="(default)",quota="producer_byte_rate",user=""', "100.0"),
    ]
    assert 'tidelog_quota_exceeded_total{quota="producer_byte_rate"} 102.0' in text
    assert "tidelog_quota_entities 102.0" in text


async def test_metrics_of_security_count_events_sessions_and_handshakes_without_names_of_callers() -> None:
    """Events that the audit log only counts are among them."""
    audit, sasl = AuditWorld(), SaslWorld()
    made = create_authority("test", now=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), days=100)
    for topic in ("orders", "orders", "others"):
        audit.deny(topic)
    audit.log.authentication_failed(listener="client", address="10.0.0.9:1", mechanism="PLAIN\n", reason="wrong")
    expiry = CertificateExpiry("outside", "node.pem", sasl.clock)
    expiry.read(made.certificate)
    unreadable = CertificateExpiry("inside", "node.pem", sasl.clock)
    unreadable.read(b"not a certificate")
    sources = MetricSources(audit=audit.log, sasl=sasl.sasl, certificates=[expiry, unreadable])
    client, first = await sasl.begin()
    await sasl.complete(client, first, "tulip")
    await sasl.begin("bob")
    text = (await metrics_text(sources, nothing_else)).decode()
    assert re.findall(r"^(tidelog_(?:audit|sasl|certificate)_.*)$", text, re.MULTILINE) == [
        'tidelog_audit_events_total{event="denied"} 3.0',
        'tidelog_audit_events_total{event="authentication_failed"} 1.0',
        'tidelog_audit_events_total{event="change"} 0.0',
        "tidelog_sasl_sessions 1.0",
        "tidelog_sasl_handshakes 1.0",
        'tidelog_certificate_not_after_seconds{listener="outside"} 1775865600.0',
    ]


async def nothing_else() -> None:
    """No other work waits for the loop."""


async def nothing() -> bytes:
    return b""


def test_a_scrape_of_many_partitions_yields_to_the_loop() -> None:
    """What one turn of the loop builds does not grow with the partitions: 10,000 of them took 405 ms at once."""
    looked_at, lots = 0, []

    def partitions() -> Iterator[HostedPartition]:
        nonlocal looked_at
        for _ in range(1_000):
            looked_at += 1
            yield LEADER

    async def turn() -> None:
        lots.append(looked_at)

    text = asyncio.run(PARTITIONS.text(partitions(), turn)).decode()
    assert lots[:4] == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, 4 * AT_ONCE]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert len(samples) == 3 + 9 * 1_000
    assert "tidelog_under_replicated 1000.0" in text


async def test_a_taken_address_is_named() -> None:
    first, second = MetricsServer(nothing), MetricsServer(nothing)
    taken = await first.start(Endpoint("127.0.0.1", 0))
    with pytest.raises(InvalidConfig, match=rf"metrics\.listener = '{taken}': cannot be bound"):
        await second.start(taken)
    await first.stop()
    await second.stop()


def test_the_memory_budget_is_there_to_be_scraped() -> None:
    lines = asyncio.run(metrics_text(SOURCES, nothing_else)).decode().splitlines()
    assert "tidelog_memory_limit_bytes 67108864.0" in lines
    assert 'tidelog_memory_used_bytes{kind="consumer_fetch"} 4096.0' in lines
    assert 'tidelog_memory_waiting{kind="consumer_fetch"} 3.0' in lines
    assert "tidelog_producers_forgotten_total 5.0" in lines
