"""What a scraper sees."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.controller.controller_driver import REQUEST_S
from node.coordinators.coordinator_figures import CoordinatorFigures, CoordinatorMeter
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.group_lag import GroupFigures, GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.observability import metrics_server
from node.observability.http_connections import HttpPeer
from node.observability.metric_sources import (
    BuildInfo,
    ControllerFigures,
    DirectoryLogs,
    DirectoryUpkeep,
    HostedPartition,
    MetricSources,
    QuorumFigures,
)
from node.observability.metric_text import AT_ONCE
from node.observability.metrics import TABLES, metrics_text
from node.observability.metrics_server import MetricsServer
from node.observability.partition_families import PARTITIONS
from node.quotas.client_quotas import ClientQuotas
from node.quotas.throttle import Quotas
from node.replicas.isr_changes import IsrChanges
from node.replicas.replica import Replica
from node.requests.context import RequestContext
from node.requests.incremental_sessions import SessionCache
from node.runtime.disk_times import DiskTimes, operation_of
from node.runtime.gc_watch import GcWatch
from node.runtime.histogram import Histogram
from node.runtime.loop_watch import PERIOD_S, WINDOW_S, LoopWatch
from node.runtime.memory_budget import Kind, MemoryFigures
from node.runtime.request_meter import RequestMeters
from node.runtime.topic_meter import TopicMeters
from node.security.certificate_expiry import CertificateExpiry
from node.tiering.remote_tier import TierFigures
from node.tiering.tiered_partition import CopyMeter
from replication.controller.events import ElectionCause
from replication.controller.image import EMPTY, NodeRegistration, PartitionState, TopicState
from replication.controller.node_state import NodeCause
from replication.coordination.group_requests import FetchedOffset
from storage.directory.directory_cleaning import DirectoryCleaning
from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.scrub import Scrub
from storage.directory.scrub_segment import FindingKind
from tests.node.audit_world import World as AuditWorld
from tests.node.monitoring_files import generated
from tests.node.nanoseconds import Nanoseconds
from tests.node.sasl_world import World as SaslWorld
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import InvalidConfig, NotLeaderOrFollower, TidelogError
from tidelog.security.certificates import create_authority
from tidelog.types import Endpoint, NodeId, Offset, PartitionIndex, QuotaEntity, QuotaType, QuotaValue, TopicPartition


def hosted(
    partition: int, *, leads: bool, isr: int, log: dict[str, int], adding: tuple[int, ...] = (), least: int = 2
) -> HostedPartition:
    """A replica of a partition with three replicas, of which node 1 has fetched up to 104. log: its positions. least:
    `min.insync.replicas`."""
    positions = {1: SimpleNamespace(log_end=104)}
    in_sync = SimpleNamespace(is_enough=isr >= least, min_insync=least, positions=positions.get)
    replica = SimpleNamespace(
        name=TopicPartition("orders", PartitionIndex(partition)),
        leader=SimpleNamespace(core=SimpleNamespace(in_sync=in_sync)) if leads else None,
        offline=None,
        log=SimpleNamespace(log_start_offset=0, size=0, segments=(None,), **log),
    )
    state = SimpleNamespace(isr=range(isr), replicas=range(3), adding=adding, leader=0)
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
            lags={("orders", PartitionIndex(0)): 60},
        ),
        GroupFigures(GroupListing("new", "consumer", "Stable", 1), (), None, None, unknown=3),
    ),
    unknown=6,
)
DIRECTORY = cast(
    "LogDirectory",
    SimpleNamespace(
        path="/a",
        logs={
            1: SimpleNamespace(damage=None, pinned=True, size=700, config=SimpleNamespace(remote_storage=False)),
            2: SimpleNamespace(damage="rot", pinned=False),
            3: SimpleNamespace(damage=None, pinned=True, size=9, config=SimpleNamespace(remote_storage=True)),
        },
        reserve=SimpleNamespace(total=1_000, free=90, required=100, low=True),
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
    coordinators=(
        CoordinatorFigures(
            "group",
            {CoordinatorState.ACTIVE: 49, CoordinatorState.LOADING: 1},
            3,
            {"classic_group": 8, "offset": 30},
            METER,
        ),
    ),
    member_streams=7,
    fetch_sessions=SessionCache(1, random.Random(1)),
    transactions=TransactionFigures(5, 2, 4_500, 1),
    tier=TierFigures(CopyMeter(3, 3_000, 1), 2, 2_000, 1, 5, 1, 512, 9, 4, 700, 5, 2, 6, 3, 8),
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


def samples_of(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels, sorted."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_requests_and_state_are_there_to_be_scraped() -> None:
    clock = Nanoseconds()
    meters, topics = RequestMeters(clock), TopicMeters()
    disks = DiskTimes()
    answer(meters, clock, "Data.Fetch", 3)
    answer(meters, clock, "Data.Produce", 200, NotLeaderOrFollower("elsewhere"))
    meters.of("Data.FetchStream").streams_open += 1
    meters.of("Data.Fetch").response_bytes += 700
    meters.of("Admin.GetMetadata")
    topics.add_replica("orders").appended(size=100, records=3, converted=1)
    disks.of("/a", "fsync").observe(0.01)
    sources = replace(
        SOURCES,
        partitions=(LEADER, FOLLOWER),
        topics=topics,
        disks=(disks,),
        executors={"records": Histogram()},
        requests=meters,
    )
    server = MetricsServer(lambda: metrics_text(sources, nothing_else))
    address = await server.start(Endpoint("127.0.0.1", 0))
    head, body = await scrape(address)
    assert head.startswith("HTTP/1.1 200 OK")
    assert (await scrape(address, "GET / HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 404")
    assert (await scrape(address, "POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 405")
    await server.stop()
    samples = samples_of(body)
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
    assert samples["tidelog_disk_seconds_count", "/a", "fsync"] == 1
    assert samples["tidelog_disk_seconds_bucket", "/a", "0.005", "fsync"] == 0
    assert samples["tidelog_disk_seconds_bucket", "/a", "0.01", "fsync"] == 1
    assert samples["tidelog_executor_seconds_count", "records"] == 0
    assert samples[("tidelog_ready",)] == 1
    assert samples[("tidelog_fetch_sessions",)] == 0
    assert samples["tidelog_directory_offline", "/a"] == 0
    assert samples["tidelog_directory_offline", "/b"] == 1
    assert samples["tidelog_directory_free_bytes", "/a"] == 90
    assert samples["tidelog_directory_total_bytes", "/a"] == 1_000
    assert samples["tidelog_directory_below_reserve", "/a"] == 1
    assert samples["tidelog_directory_logs_to_load", "/a"] == 2
    assert samples["tidelog_directory_logs_damaged", "/a"] == 1
    assert samples["tidelog_scrub_bytes_total", "/a"] == 4096
    assert samples["tidelog_scrub_findings_total", "/a", "log"] == 1
    assert ("tidelog_directory_free_bytes", "/b") not in samples, "nothing is known of a directory that is offline"
    assert samples[("tidelog_leaders",)] == 1
    assert samples[("tidelog_under_replicated",)] == 1
    assert samples[("tidelog_under_min_isr",)] == 0
    assert samples[("tidelog_at_min_isr",)] == 1
    assert samples["tidelog_partition_isr", "3", "leader", "orders"] == 2
    assert samples["tidelog_partition_replica_lag", "1", "3", "leader", "orders"] == 6
    assert samples["tidelog_partition_uncommitted", "3", "leader", "orders"] == 10
    assert samples["tidelog_partition_not_durable", "3", "leader", "orders"] == 5
    assert samples["tidelog_partition_last_stable_offset_lag", "3", "leader", "orders"] == 7
    assert samples["tidelog_partition_high_watermark", "4", "follower", "orders"] == 50


async def test_groups_transactions_and_their_coordinators_are_there_to_be_scraped() -> None:
    samples = samples_of((await metrics_text(SOURCES, nothing_else)).decode())
    assert samples["tidelog_coordinator_partitions", "active", "group"] == 49
    assert samples["tidelog_coordinator_load_seconds_total", "group"] == 2
    assert samples["tidelog_coordinator_load_seconds_max", "group"] == 1.5
    assert samples["tidelog_coordinator_uncommitted", "group"] == 3
    assert samples["tidelog_coordinator_entries", "group", "offset"] == 30
    assert samples[("tidelog_transaction_oldest_seconds",)] == 4.5
    assert samples["tidelog_group_members", "Stable", 'the "first"\\\n'] == 2
    assert samples["tidelog_group_lag", 'the "first"\\\n'] == 60
    assert samples["tidelog_group_committed_offset", "0", "orders", 'the "first"\\\n'] == 40
    assert samples["tidelog_group_partition_lag", "0", "orders", 'the "first"\\\n'] == 60
    assert samples["tidelog_group_lag_deleted", 'the "first"\\\n'] == 7
    assert samples["tidelog_group_unknown_partitions", 'the "first"\\\n'] == 2
    assert samples["tidelog_group_unknown_partitions", "new"] == 3
    assert ("tidelog_group_lag", "new") not in samples, "what is not known is not zero"
    assert samples[("tidelog_group_lag_unknown",)] == 6


DOCS = Path(__file__).parents[2] / "docs"
METRICS = [metric for table in TABLES for metric in table.metrics]


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_pages_rules_and_dashboards_are_those_of_the_table(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == generated()[path], "run make monitoring"


def test_the_table_lists_every_metric_of_the_endpoint_and_no_other() -> None:
    text = asyncio.run(metrics_text(MetricSources(), nothing_else))
    names = re.findall(r"^# TYPE (\w+) ", text.decode(), re.MULTILINE)
    assert len(names) == len(set(names)), "a family is written once"
    assert {metric.name for metric in METRICS} == set(names)
    others = "testing.md"  # its names are those of fixtures
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md") if page.name != others]
    known = {metric.name for metric in METRICS}
    assert {name for page in pages for name in re.findall(r"`(tidelog_\w+)`", page)} <= known


def test_every_metric_says_what_it_means_and_what_to_do() -> None:
    """The page is a table: a cell must not end it."""
    for metric in METRICS:
        assert metric.help[0].isupper() or metric.help[0].isdigit(), metric.name
        assert metric.action, metric.name
        assert "|" not in metric.help + metric.action, metric.name
        assert "\n" not in metric.help + metric.action, metric.name
    alerts = [alert for metric in METRICS for alert in metric.alerts]
    assert len({alert.name for alert in alerts}) == len(alerts)


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
    assert len(samples) == 7 + 10 * 1_000
    assert "tidelog_under_replicated 1000.0" in text


async def test_health_and_readiness_are_answered_over_http() -> None:
    why_not = "node 1 recovers its logs: 3 of 9"
    server = MetricsServer(nothing, lambda: why_not)
    address = await server.start(Endpoint("127.0.0.1", 0))

    async def get(path: str, method: str = "GET") -> tuple[str, str]:
        head, body = await scrape(address, f"{method} {path} HTTP/1.1\r\n\r\n")
        return head.split(" ", 2)[1], body

    assert await get("/healthz") == ("200", "alive\n"), "it must not be restarted because of other nodes"
    assert await get("/readyz") == ("503", f"{why_not}\n")
    why_not = ""
    assert await get("/readyz?verbose") == ("200", "ready\n")
    assert await get("/readyz", "HEAD") == ("200", "")
    assert await get("/health") == ("404", "there are /metrics, /healthz and /readyz\n")
    await server.stop()


async def test_a_scraper_that_does_not_read_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_REQUEST_S_MAX", 0.1)
    served: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    class Watched(MetricsServer):
        async def _answer(
            self, connection: HttpPeer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await super()._answer(connection, reader, writer)
            served.put_nowait(writer)

    async def text() -> bytes:
        return b"#" * 16_000_000

    server = Watched(text)
    address = await server.start(Endpoint("127.0.0.1", 0))
    with socket.create_connection((address.host, address.port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(5):
            writer = await served.get()
            await writer.wait_closed()
    await server.stop()


async def test_a_taken_address_is_named() -> None:
    first, second = MetricsServer(nothing), MetricsServer(nothing)
    taken = await first.start(Endpoint("127.0.0.1", 0))
    with pytest.raises(InvalidConfig, match=rf"metrics\.listener = '{taken}': cannot be bound"):
        await second.start(taken)
    await first.stop()
    await second.stop()


def test_the_logs_that_snapshots_keep_are_there_to_be_scraped() -> None:
    """Of a log with a remote tier, what is copied leaves the node all the same."""
    lines = asyncio.run(metrics_text(SOURCES, nothing_else)).decode().splitlines()
    assert [each for each in lines if each.startswith("tidelog_directory_pinned_bytes")] == [
        'tidelog_directory_pinned_bytes{directory="/a"} 700.0'
    ]


def test_the_memory_budget_is_there_to_be_scraped() -> None:
    lines = asyncio.run(metrics_text(SOURCES, nothing_else)).decode().splitlines()
    assert "tidelog_memory_limit_bytes 67108864.0" in lines
    assert 'tidelog_memory_used_bytes{kind="consumer_fetch"} 4096.0' in lines
    assert 'tidelog_memory_waiting{kind="consumer_fetch"} 3.0' in lines
    assert "tidelog_producers_forgotten_total 5.0" in lines


def test_a_replica_that_a_reassignment_adds_is_not_missing() -> None:
    log = {"log_end_offset": 110, "high_watermark": 100, "durable_offset": 105, "last_stable_offset": 93}
    assert hosted(1, leads=True, isr=2, log=log).is_under_replicated
    assert not hosted(1, leads=True, isr=2, log=log, adding=(2,)).is_under_replicated
    assert not hosted(1, leads=False, isr=2, log=log).is_under_replicated, "its leader counts it"


def test_a_set_that_is_too_small_and_one_that_is_just_large_enough_are_told_apart() -> None:
    log = {"log_end_offset": 110, "high_watermark": 100, "durable_offset": 105, "last_stable_offset": 93}
    states = [hosted(1, leads=True, isr=isr, log=log) for isr in (1, 2, 3)]
    assert [each.is_under_min_isr for each in states] == [True, False, False]
    assert [each.is_at_min_isr for each in states] == [False, True, False]
    assert not hosted(1, leads=True, isr=3, least=3, log=log).is_at_min_isr, "it would be so all the time"


def partition_state(
    index: int, *, leader: int, isr: tuple[int, ...], adding: tuple[int, ...] = (), queued: tuple[int, ...] = ()
) -> PartitionState:
    """A partition with the replicas 0, 1 and 2."""
    known = SimpleNamespace(
        leader=leader, isr=isr, adding=adding, removing=(), queued=queued, replicas=(0, 1, 2), partition=index
    )
    return cast("PartitionState", known)


async def test_the_active_controller_counts_partitions_and_nodes_of_the_cluster() -> None:
    partitions = (
        partition_state(0, leader=0, isr=(0, 1, 2), queued=(1, 2, 3)),
        partition_state(1, leader=1, isr=(1, 2), queued=(2, 1, 0)),
        partition_state(2, leader=-1, isr=(0,)),
        partition_state(3, leader=0, isr=(0, 1), adding=(2,)),
    )
    topic = SimpleNamespace(partitions=partitions, min_insync_replicas=2)
    nodes = [
        SimpleNamespace(
            fenced=fenced, draining=draining, gets_no_replicas=cordoned, directories="ab", open_directories="a"
        )
        for fenced, draining, cordoned in ((0, 0, 1), (0, 1, 0), (1, 0, 1))
    ]
    image = SimpleNamespace(
        topics={1: cast("TopicState", topic)},
        nodes=dict(enumerate(cast("list[NodeRegistration]", nodes))),
        partitions=lambda: iter(partitions),
        min_insync=lambda _state: 2,
        topic_snapshots={"friday": None, "monday": None},
    )
    controller = ControllerFigures(
        1,
        {NodeCause.REFUSED: 2},
        dict.fromkeys(ElectionCause, 0) | {ElectionCause.FAILED: 3},
        Histogram(REQUEST_S),
        4,
        1_500,
    )
    quorum = QuorumFigures(NodeId(0), 7, 100, 99, 0, 3, is_voter=True, lag={"1": 1, "2": 100})
    sources = MetricSources(cluster=cast("Any", image), controller=controller, quorum=quorum, cluster_id="abc")
    text = (await metrics_text(sources, nothing_else)).decode()
    assert re.findall(r"^tidelog_cluster_(\w+(?:\{.*\})?) (\d+)", text, re.MULTILINE) == [
        ('info{cluster_id="abc"}', "1"),
        ("topics", "1"),
        ("partitions", "4"),
        ("offline_partitions", "1"),
        ("under_replicated_partitions", "2"),
        ("under_min_isr_partitions", "1"),
        ("reassigning_partitions", "1"),
        ("queued_moves", "2"),
        ("not_preferred_leaders", "1"),
        ('nodes{state="active"}', "1"),
        ('nodes{state="draining"}', "1"),
        ('nodes{state="fenced"}', "1"),
        ("cordoned_nodes", "2"),
        ("cordoned_log_dirs", "3"),
        ("topic_snapshots", "2"),
    ]
    assert 'tidelog_elections_total{kind="failed"} 3.0' in text
    assert "tidelog_controller_oldest_request_seconds 1.5" in text
    assert "tidelog_quorum_epoch 7.0" in text
    assert 'tidelog_quorum_replica_lag{voter="2"} 100.0' in text
    assert (
        "tidelog_cluster_offline_partitions 1.0"
        not in (await metrics_text(replace(sources, cluster=None), nothing_else)).decode()
    ), "only the active controller knows"


def test_changes_of_in_sync_sets_are_counted_as_shrinks_and_expansions() -> None:
    changes = IsrChanges()
    changes.changed((0, 1, 2), (0, 1))  # type: ignore[arg-type]
    changes.changed((0, 1), (0, 1, 2))  # type: ignore[arg-type]
    changes.changed((0, 1), (0, 2))  # type: ignore[arg-type]
    changes.changed((0, 1), (1, 0))  # type: ignore[arg-type]
    assert (changes.shrinks, changes.expansions) == (2, 2)


def test_work_on_disks_is_named_by_directory_and_operation() -> None:
    """The names of executors contain paths, which may contain spaces."""
    directories = ("/data", "/my disk")
    assert operation_of("/data", directories) == ("/data", "writer")
    assert operation_of("/my disk sync", directories) == ("/my disk", "fsync")
    assert operation_of("/data quorum", directories) == ("/data", "metadata_fsync")
    assert operation_of("records", directories) is None
    assert operation_of("/my disk", ("/my",)) is None


def test_the_longest_delay_of_the_loop_is_forgotten_after_two_windows() -> None:
    now = 0.0
    watch = LoopWatch(lambda: now)
    watch.measured(0.4)
    watch.measured(0.002)
    assert watch.longest_s == 0.4
    now = WINDOW_S + 1
    watch.measured(0.1)
    assert watch.longest_s == 0.4, "a scraper once a minute must see it"
    now = 2 * WINDOW_S + 2
    assert watch.longest_s == 0.1
    now = 9 * WINDOW_S
    assert watch.longest_s == 0.0
    assert sum(watch.lag.counts) == 3
    assert watch.lag.total_s == pytest.approx(0.502)


async def test_the_loop_is_watched_while_it_runs() -> None:
    loop = asyncio.get_running_loop()
    watch = LoopWatch(loop.time)
    watch.start()
    began = loop.time()
    while loop.time() - began < 0.2:  # a callback that takes long
        pass
    later = asyncio.Event()
    loop.call_later(0, later.set)  # due after the watch's own timer
    await later.wait()
    watch.stop()
    assert watch.longest_s >= 0.2 - PERIOD_S - 0.005


def test_collections_of_the_garbage_collector_are_measured() -> None:
    times = iter((1.0, 1.25))
    watch = GcWatch(lambda: next(times))
    watch._changed("start", {"generation": 2, "collected": 0})
    watch._changed("stop", {"generation": 2, "collected": 40})
    assert (watch.collections[2], watch.seconds[2], watch.objects[2], watch.longest_s) == (1, 0.25, 40, 0.25)
    watch.start()
    watch.stop()
    watch.stop()


def test_the_build_is_named() -> None:
    sources = MetricSources(build=BuildInfo("1.2", "3.11.2", "uvloop"))
    text = asyncio.run(metrics_text(sources, nothing_else)).decode()
    assert 'tidelog_build_info{loop="uvloop",python="3.11.2",version="1.2"} 1.0' in text


async def test_requests_of_followers_have_times_of_their_own() -> None:
    clock = Nanoseconds()
    meters = RequestMeters(clock)
    meter = meters.of("Data.FetchStream")
    context = RequestContext("client", "here", meter=meter)
    follower = replace(context, meter=meter.of_followers())
    for each, ms in ((context, 2), (follower, 400)):
        request = each.begin()
        clock.pass_ms(ms)
        request.entry_ended()
    text = (await metrics_text(MetricSources(requests=meters), nothing_else)).decode()
    sums = re.findall(r'^tidelog_request_seconds_sum\{method="(.*)"\} (.*)$', text, re.MULTILINE)
    assert sums == [("Data.FetchStream", "0.002"), ("Data.FetchStream.follower", "0.4")]
    buckets = re.findall(r'request_seconds_bucket\{le="(.*?)",method="Data.FetchStream"', text)
    assert (buckets[0], buckets[-2]) == ("0.0001", "60.0")
