"""What a scraper sees."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.coordinators.coordinator_figures import CoordinatorFigures, CoordinatorMeter
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.group_lag import GroupFigures, GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.observability.coordinator_metrics import CoordinationFigures
from node.observability.directory_metrics import DirectoryFigures
from node.observability.metrics import NodeFigures, NodeMetrics
from node.observability.metrics_server import MetricsServer
from node.observability.partition_metrics import AT_ONCE, PartitionFigures, partition_text
from node.observability.quota_metrics import QuotaCollector
from node.observability.security_metrics import SecurityCollector
from node.quotas.client_quotas import ClientQuotas
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.requests.context import RequestContext
from node.runtime.memory_budget import Kind, MemoryFigures
from node.runtime.request_meter import RequestMeters
from node.runtime.topic_meter import TopicMeters
from node.security.certificate_expiry import CertificateExpiry
from replication.controller.image import EMPTY
from replication.coordination.group_requests import FetchedOffset, ListedGroup
from tests.node.test_audit_log import World as AuditWorld
from tests.node.test_sasl_authenticator import World as SaslWorld
from tidelog.errors import InvalidConfig, NotLeaderOrFollower, TidelogError
from tidelog.security.certificates import create_authority
from tidelog.types import Endpoint, Offset, PartitionIndex, QuotaEntity, QuotaType, QuotaValue

LEADER = PartitionFigures(
    "orders",
    3,
    leads=True,
    isr_size=2,
    replicas=3,
    log_start=0,
    log_end=110,
    high_watermark=100,
    durable_offset=105,
    undecided=7,
)
FOLLOWER = PartitionFigures(
    "orders", 4, leads=False, isr_size=3, replicas=3, log_start=0, log_end=50, high_watermark=50, durable_offset=50
)
METER = CoordinatorMeter(requests=20, batches=4)
METER.loaded(1_500, 300)
METER.loaded(500, 10)
COORDINATION = CoordinationFigures(
    (CoordinatorFigures("group", {CoordinatorState.ACTIVE: 49, CoordinatorState.LOADING: 1}, 3, METER),),
    member_streams=7,
    transactions=TransactionFigures(5, 2, 4_500, 1),
)
GROUPS = GroupsCollected(
    (
        GroupFigures(
            ListedGroup('the "first"\\\n', "consumer", "Stable", 2),
            (FetchedOffset("orders", PartitionIndex(0), offset=Offset(40)),),
            60,
            7,
            unknown=2,
        ),
        GroupFigures(ListedGroup("new", "consumer", "Stable", 1), (), None, None, unknown=3),
    ),
    unknown=6,
)
FIGURES = NodeFigures(
    ready=True,
    metadata_offset=17,
    is_controller=False,
    offline_directories=("/b",),
    directories=("/a", "/b"),
    memory=MemoryFigures(1 << 26, {Kind.CONSUMER_FETCH: 4096, Kind.PRODUCE: 0}, {Kind.CONSUMER_FETCH: 3}),
    producers_forgotten=5,
    coordination=COORDINATION,
    working_directories=(
        DirectoryFigures(
            "/a",
            logs=2,
            free=90,
            reserve=100,
            below_reserve=True,
            loaded=1,
            to_load=2,
            open_segments=7,
            missing=0,
            damaged=1,
            scrubbed_bytes=4096,
            findings={"log": 1, "offset index": 0},
        ),
    ),
)


class Nanoseconds:
    """Monotonic time that the test advances."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, ms: int) -> None:
        self.now += ms * 1_000_000


async def some_groups() -> GroupsCollected:
    return GROUPS


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


def test_requests_and_state_are_there_to_be_scraped() -> None:
    async def story() -> str:
        clock = Nanoseconds()
        meters, topics = RequestMeters(clock), TopicMeters()
        metrics = NodeMetrics(meters)
        metrics.watch(lambda: FIGURES, lambda: iter((LEADER, FOLLOWER)), lambda: iter(topics), some_groups)
        answer(meters, clock, "Data.Fetch", 3)
        answer(meters, clock, "Data.Produce", 200, NotLeaderOrFollower("elsewhere"))
        meters.of("Data.FetchStream").streams_open += 1
        meters.of("Data.Fetch").response_bytes += 700
        meters.of("Admin.GetMetadata")
        topics.add_replica("orders").appended(size=100, records=3, converted=1)
        metrics.directory_worker("/a")(0.01)
        server = MetricsServer(lambda: metrics.text(nothing_else))
        address = await server.start(Endpoint("127.0.0.1", 0))
        head, body = await scrape(address)
        assert head.startswith("HTTP/1.1 200 OK")
        assert (await scrape(address, "GET / HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 404")
        assert (await scrape(address, "POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 405")
        await server.stop()
        return body

    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(asyncio.run(story()))
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
    assert samples[("tidelog_ready",)] == 1
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


def test_two_nodes_in_one_process_count_apart() -> None:
    meters, clock = RequestMeters(), Nanoseconds()
    first, second = NodeMetrics(meters), NodeMetrics(RequestMeters())
    answer(meters, clock, "Data.Fetch", 3)
    assert b'tidelog_requests_total{method="Data.Fetch",outcome="ok"} 1.0' in asyncio.run(first.text(nothing_else))
    assert b'method="Data.Fetch"' not in asyncio.run(second.text(nothing_else))


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
    async def story() -> bytes:
        metrics = NodeMetrics(RequestMeters())
        metrics.registry.register(QuotaCollector(Quotas(), OpenCalls()))
        metrics.registry.register(SecurityCollector(AuditWorld().log, SaslWorld().sasl))
        metrics.watch(lambda: FIGURES, lambda: iter((LEADER,)), lambda: iter(TopicMeters()))
        return await metrics.text(nothing_else)

    names = set(re.findall(r"^# TYPE (\w+) ", asyncio.run(story()).decode(), re.MULTILINE))
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

    async def story() -> str:
        metrics = NodeMetrics(RequestMeters())
        metrics.registry.register(QuotaCollector(quotas, OpenCalls()))
        return (await metrics.text(nothing_else)).decode()

    text = asyncio.run(story())
    assert re.findall(r"^tidelog_quota_wait_seconds\{(.*)\} (.*)$", text, re.MULTILINE) == [
        ('client_id="",quota="producer_byte_rate",user="alice"', "989.0"),
        ('client_id="batch",quota="producer_byte_rate",user="(default)"', "489.0"),
        ('client_id="(default)",quota="producer_byte_rate",user=""', "100.0"),
    ]
    assert 'tidelog_quota_exceeded_total{quota="producer_byte_rate"} 102.0' in text
    assert "tidelog_quota_entities 102.0" in text


def test_metrics_of_security_count_events_sessions_and_handshakes_without_names_of_callers() -> None:
    """Events that the audit log only counts are among them."""
    audit, sasl = AuditWorld(), SaslWorld()
    made = create_authority("test", now=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), days=100)
    for topic in ("orders", "orders", "others"):
        audit.deny(topic)
    audit.log.authentication_failed(listener="client", address="10.0.0.9:1", mechanism="PLAIN\n", reason="wrong")

    async def story() -> str:
        metrics = NodeMetrics(RequestMeters())
        expiry = CertificateExpiry("outside", "node.pem", sasl.clock)
        expiry.read(made.certificate)
        unreadable = CertificateExpiry("inside", "node.pem", sasl.clock)
        unreadable.read(b"not a certificate")
        metrics.registry.register(SecurityCollector(audit.log, sasl.sasl, [expiry, unreadable]))
        client, first = await sasl.begin()
        await sasl.complete(client, first, "tulip")
        await sasl.begin("bob")
        return (await metrics.text(nothing_else)).decode()

    text = asyncio.run(story())
    assert re.findall(r"^(tidelog_(?:audit|sasl|certificate)_.*)$", text, re.MULTILINE) == [
        'tidelog_audit_events_total{event="denied"} 3.0',
        'tidelog_audit_events_total{event="authentication_failed"} 1.0',
        'tidelog_audit_events_total{event="change"} 0.0',
        "tidelog_sasl_sessions 1.0",
        "tidelog_sasl_handshakes 1.0",
        'tidelog_certificate_not_after_seconds{listener="outside"} 1.7758656e+09',
    ]


async def nothing_else() -> None:
    """No other work waits for the loop."""


async def nothing() -> bytes:
    return b""


def test_a_scrape_of_many_partitions_yields_to_the_loop() -> None:
    """What one turn of the loop builds does not grow with the partitions: 10,000 of them took 405 ms at once."""
    looked_at, lots = 0, []

    def partitions() -> Iterator[PartitionFigures]:
        nonlocal looked_at
        for index in range(1_000):
            looked_at += 1
            yield replace(LEADER, partition=index)

    async def turn() -> None:
        lots.append(looked_at)

    text = asyncio.run(partition_text(partitions(), turn)).decode()
    assert lots[:4] == [2 * AT_ONCE, 3 * AT_ONCE, 4 * AT_ONCE, 5 * AT_ONCE]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert len(samples) == 3 + 9 * 1_000
    assert "tidelog_under_replicated 1000.0" in text


def test_a_taken_address_is_named() -> None:
    async def story() -> None:
        first, second = MetricsServer(nothing), MetricsServer(nothing)
        taken = await first.start(Endpoint("127.0.0.1", 0))
        with pytest.raises(InvalidConfig, match=rf"metrics\.listener = '{taken}': cannot be bound"):
            await second.start(taken)
        await first.stop()
        await second.stop()

    asyncio.run(story())


def test_the_memory_budget_is_there_to_be_scraped() -> None:
    metrics = NodeMetrics(RequestMeters())
    metrics.watch(lambda: FIGURES, lambda: iter(()), lambda: iter(()))
    lines = asyncio.run(metrics.text(nothing_else)).decode().splitlines()
    assert "tidelog_memory_limit_bytes 6.7108864e+07" in lines
    assert 'tidelog_memory_used_bytes{kind="consumer_fetch"} 4096.0' in lines
    assert 'tidelog_memory_waiting{kind="consumer_fetch"} 3.0' in lines
    assert "tidelog_producers_forgotten_total 5.0" in lines
