"""Client quotas: precedence of entities, token buckets, what is charged, bounds of what is tracked and logged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.quotas.client_quotas import ENTITIES_MAX, SAMPLE_MS, SAMPLES, ClientQuotas, ThrottledEntity
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas, Throttle
from node.quotas.throttle_log import LINES_MAX, WINDOW_MS
from node.quotas.token_bucket import DELAY_MS_MAX, TokenBucket
from replication.controller.image import EMPTY
from tests.client.memory_cluster import start, until
from tidelog.errors import RequestTimedOut, ThrottlingQuotaExceeded, TopicExists
from tidelog.types import QuotaEntity, QuotaType, QuotaValue

PRODUCE, FETCH = QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE
REQUEST, MUTATION = QuotaType.REQUEST_PERCENTAGE, QuotaType.CONTROLLER_MUTATION_RATE


@dataclass
class Clock:
    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


def quotas(clock: Clock, limits: dict[QuotaEntity, float], quota: QuotaType = PRODUCE) -> ClientQuotas:
    made = ClientQuotas(clock)
    made.configure({entity: {quota: limit} for entity, limit in limits.items()})
    return made


ORDER = [
    QuotaEntity("alice", "loader"),
    QuotaEntity("alice", ""),
    QuotaEntity("alice", None),
    QuotaEntity("", "loader"),
    QuotaEntity("", ""),
    QuotaEntity("", None),
    QuotaEntity(None, "loader"),
    QuotaEntity(None, ""),
]
"""Kafka's order, the most specific one first (KIP-55)."""


@pytest.mark.parametrize("first", range(len(ORDER)), ids=lambda first: str(ORDER[first]))
def test_the_most_specific_limit_holds(first: int) -> None:
    limits = {entity: 100.0 + index for index, entity in enumerate(ORDER) if index >= first}
    session = quotas(Clock(), limits).session("alice", "loader")
    assert session.limit(PRODUCE) == 100 + first


def test_each_type_of_quota_has_a_limit_of_its_own() -> None:
    made = ClientQuotas(Clock())
    made.configure({QuotaEntity("alice", "loader"): {PRODUCE: 1.0}, QuotaEntity("alice", None): {FETCH: 2.0}})
    session = made.session("alice", "loader")
    assert (session.limit(PRODUCE), session.limit(FETCH), session.limit(REQUEST)) == (1, 2, None)


def test_clients_of_a_user_share_its_limit_and_those_of_a_client_id_theirs() -> None:
    clock = Clock()
    made = quotas(clock, {QuotaEntity("alice", None): 100.0, QuotaEntity(None, ""): 100.0})
    made.session("alice", "a").charge(PRODUCE, 2_000)
    assert made.session("alice", "b").delay_ms(PRODUCE) > 0, "the same user"
    made.session("bob", "loader").charge(PRODUCE, 2_000)
    assert made.session("carol", "loader").delay_ms(PRODUCE) > 0, "the same client id"
    assert made.session("carol", "other").delay_ms(PRODUCE) == 0, "the default is a limit for each client id"


def test_an_idle_client_may_use_a_whole_window_at_once_and_then_waits_for_its_excess() -> None:
    """The window has 11 intervals of a second, as in Kafka."""
    clock = Clock()
    session = quotas(clock, {QuotaEntity("alice", None): 1_000.0}).session("alice", "")
    assert session.charge(PRODUCE, 11_000) == 0
    assert session.charge(PRODUCE, 3_000) == 3_000
    clock.now += 2_999
    assert session.delay_ms(PRODUCE) == 1
    clock.now += 1
    assert session.delay_ms(PRODUCE) == 0
    clock.now += 3_600_000
    assert session.charge(PRODUCE, 12_000) == 1_000, "idleness saves no more than one window"


def test_request_time_delays_by_one_window_at_most() -> None:
    clock = Clock()
    session = quotas(clock, {QuotaEntity("alice", None): 1.0}, REQUEST).session("alice", "")
    assert session.charge(REQUEST, 10_000, bounded=True) == SAMPLES * SAMPLE_MS
    assert session.charge(REQUEST, 1, bounded=True) == SAMPLES * SAMPLE_MS
    clock.now += SAMPLES * SAMPLE_MS
    assert session.delay_ms(REQUEST) == 0


def test_a_tiny_limit_names_an_hour_at_most_and_still_holds() -> None:
    clock = Clock()
    session = quotas(clock, {QuotaEntity("alice", None): 0.001}).session("alice", "")
    assert session.charge(PRODUCE, 1 << 40) == DELAY_MS_MAX
    clock.now += DELAY_MS_MAX
    assert session.delay_ms(PRODUCE) == DELAY_MS_MAX


def test_a_new_limit_holds_at_once_for_a_client_that_waits() -> None:
    clock = Clock()
    made = quotas(clock, {QuotaEntity("alice", None): 1_000.0})
    session = made.session("alice", "")
    assert session.charge(PRODUCE, 31_000) == 20_000
    made.configure({QuotaEntity("alice", None): {PRODUCE: 2_000.0}})
    assert session.delay_ms(PRODUCE) == 10_000
    made.configure({QuotaEntity("", None): {PRODUCE: 500.0}})
    assert session.delay_ms(PRODUCE) == 40_000, "the default is a limit for each user"
    made.configure({})
    assert session.delay_ms(PRODUCE) == 0
    assert session.charge(PRODUCE, 1 << 40) == 0
    assert made.tracked == 0


def test_a_limit_that_is_lowered_leaves_no_more_than_its_own_window() -> None:
    clock = Clock()
    made = quotas(clock, {QuotaEntity("alice", None): 1_000_000.0})
    session = made.session("alice", "")
    session.charge(PRODUCE, 1)
    made.configure({QuotaEntity("alice", None): {PRODUCE: 1_000.0}})
    assert session.charge(PRODUCE, 12_000) == 1_000


def test_a_flood_of_client_ids_is_tracked_within_bounds_and_forgets_the_idle_ones_first() -> None:
    clock = Clock()
    made = quotas(clock, {QuotaEntity(None, ""): 1_000.0})
    busy = made.session("alice", "busy")
    busy.charge(PRODUCE, 20_000)
    for number in range(ENTITIES_MAX + 100):
        made.session("mallory", f"flood-{number}").charge(PRODUCE, 1)
        if number % 1_000 == 0:
            busy.charge(PRODUCE, 1)
    assert made.tracked == ENTITIES_MAX
    assert busy.delay_ms(PRODUCE) > 0, "the flood did not set it free"
    assert len(made.throttled(20)) == 1


def test_who_waits_the_longest_is_named_first_by_its_quota() -> None:
    made = quotas(Clock(), {QuotaEntity(None, ""): 1_000.0, QuotaEntity("alice", "c3"): 1_000.0})
    for number in range(50):
        made.session("alice", f"c{number}").charge(PRODUCE, (100 if number == 3 else 11 + number) * 1_000)
    assert made.throttled(3) == [
        ThrottledEntity(PRODUCE, QuotaEntity("alice", "c3"), 89_000),
        ThrottledEntity(PRODUCE, QuotaEntity(None, ""), 49_000),
        ThrottledEntity(PRODUCE, QuotaEntity(None, ""), 48_000),
    ]
    assert made.totals[PRODUCE].exceeded == 49
    assert made.totals[PRODUCE].wait_ms == 89_000 + sum(range(50)) * 1_000 - 3_000


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 100_000)), min_size=1, max_size=60)
"""Milliseconds that pass, then an amount."""


@given(st.lists(st.integers(1, 500_000), min_size=10, max_size=60), st.integers(1, 20))
def test_a_greedy_client_gets_its_limit_whatever_the_sizes_of_its_messages(sizes: list[int], streams: int) -> None:
    """Each of its streams sends as soon as it may. Beyond the first window it gets the limit, and no less."""
    limit, clock, sent = 10_000, Clock(), 0
    made = quotas(clock, {QuotaEntity("alice", None): float(limit)})
    sessions = [made.session("alice", f"stream-{number}") for number in range(streams)]
    began = clock.now
    for index in range(0, len(sizes), streams):
        for session, size in zip(sessions, sizes[index : index + streams], strict=False):
            session.charge(PRODUCE, size)
            sent += size
        clock.now += sessions[0].delay_ms(PRODUCE)
    seconds = (clock.now - began) / 1_000
    assert sent <= limit * (seconds + SAMPLES) + 1
    if seconds:
        assert sent >= limit * (seconds - 0.001) + SAMPLES * limit - 1, "and no less"


@given(steps, st.floats(0.1, 1_000_000), st.integers(1_000, 60_000))
def test_a_bucket_is_never_below_what_its_slow_twin_allows(
    story: list[tuple[int, int]], limit: float, size_ms: int
) -> None:
    """The twin fills millisecond by millisecond."""
    bucket, now = TokenBucket(limit, size_ms, 0), 0
    full = twin = limit * size_ms / 1_000
    for passed, amount in story:
        now += passed
        for _ in range(passed):
            twin = min(full, twin + limit / 1_000)
        bucket.take(amount, now)
        twin -= amount
        expected = 0.0 if twin >= 0 else -twin / limit * 1_000
        assert bucket.delay_ms(now) == pytest.approx(min(DELAY_MS_MAX, expected), rel=1e-6, abs=1.01)


def applying(clock: Clock, limits: dict[QuotaEntity, float], quota: QuotaType) -> Quotas:
    """The quotas of a node in whose image these limits are."""
    made = Quotas(ClientQuotas(clock))
    values = {entity: (QuotaValue(quota.value, limit),) for entity, limit in limits.items()}
    made.on_image(replace(EMPTY, quotas=values))
    return made


def test_partitions_are_charged_until_the_bucket_is_below_zero_and_then_refused() -> None:
    clock = Clock()
    throttle = applying(clock, {QuotaEntity("alice", None): 2.0}, MUTATION).throttle(
        "Admin.CreateTopics", "User:alice", "tool"
    )
    for _ in range(2):
        with throttle.mutation(16):
            pass
    with (
        pytest.raises(ThrottlingQuotaExceeded, match=r"controller_mutation_rate=2 .* in 5000 ms") as refused,
        throttle.mutation(1),
    ):
        raise AssertionError("refused before it is carried out")
    assert refused.value.throttle_time_ms == 5_000
    with throttle.mutation(0):
        pass  # changes nothing, for example a validation
    clock.now += 5_000
    with throttle.mutation(1):
        pass


def test_a_request_that_fails_certainly_is_not_charged() -> None:
    throttle = applying(Clock(), {QuotaEntity("alice", None): 2.0}, MUTATION).throttle(
        "Admin.CreateTopics", "User:alice", ""
    )
    for _ in range(3):
        with pytest.raises(TopicExists), throttle.mutation(1 << 31):
            raise TopicExists("there is one")
    with pytest.raises(RequestTimedOut), throttle.mutation(30):
        raise RequestTimedOut("unknown whether it was created")
    with pytest.raises(ThrottlingQuotaExceeded), throttle.mutation(1):
        pass


async def test_a_tiny_quota_of_request_time_still_lets_an_operator_change_it() -> None:
    """Neither what is charged after a call nor what is charged in advance delays longer than a window."""
    made = applying(Clock(), {QuotaEntity("", None): 1e-6}, REQUEST)
    for _ in range(3):
        call = made.throttle("Admin.AlterClientQuotas", "User:operator", "")
        assert call.delay_ms() <= SAMPLES * SAMPLE_MS
        made.closed = True  # no wait: this is about its length
        await call.admit(10, None)
        call.worked(5_000_000)
    assert call.delay_ms() == SAMPLES * SAMPLE_MS


async def test_the_time_of_a_call_is_taken_in_advance_and_corrected_afterwards() -> None:
    made = applying(Clock(), {QuotaEntity("", None): 1.0}, REQUEST)

    def call() -> Throttle:
        return made.throttle("Admin.GetMetadata", "User:alice", "")

    first = call()
    await first.admit(10, None)
    first.worked(110_000_000)  # 11 percent seconds: the whole window
    made.closed = True
    waiting = [call() for _ in range(3)]
    delays = []
    for each in waiting:
        delays.append(each.delay_ms())
        await each.admit(10, None)
    assert delays == [0, 11_000, 11_000], "the third would wait longer than a window, and is not charged in advance"
    waiting[0].worked(10_000_000)
    assert call().delay_ms() == 1_000


async def test_calls_that_are_refused_and_calls_of_others_do_not_make_a_call_look_cheap() -> None:
    """Otherwise a client above its limit got all calls through that wait, at the end of the first one's wait."""
    clock, api, ms = Clock(), "Data.ListOffsets", 1_000_000
    quotas = applying(clock, {QuotaEntity("alice", None): 10.0, QuotaEntity("mallory", None): 10.0}, REQUEST)
    for _ in range(12):
        quotas.throttle(api, "User:alice", "one").worked(100 * ms)
    before = quotas.throttle(api, "User:alice", "one").delay_ms()
    for number in range(100):
        quotas.throttle(api, "User:mallory", "").worked(1)
        quotas.throttle(api, "User:alice", f"id {number}").worked(0)  # refused before it was handled
    waiting = start(quotas.throttle(api, "User:alice", "another").admit(10, None))
    await until(lambda: quotas.waiting)
    after = quotas.throttle(api, "User:alice", "one").delay_ms()
    waiting.cancel()
    assert after - before == 1_000, "100 ms of request time were taken in advance: 1 s of a limit of 10 %"


def test_a_client_cannot_hide_expensive_calls_among_as_many_cheap_ones() -> None:
    """The average of both was taken in advance, half of what an expensive call costs."""
    quotas, key = Quotas(), (REQUEST, "mallory", None)
    for _ in range(20):
        quotas.worked("Data.ListOffsets", key, 100_000)
        quotas.worked("Data.ListOffsets", key, 100_000_000)
    assert quotas.typical_ns("Data.ListOffsets", key) == 100_000_000
    for _ in range(50):
        quotas.worked("Data.ListOffsets", key, 100_000)
    assert quotas.typical_ns("Data.ListOffsets", key) < 1_000_000, "it falls once calls are cheap"


async def test_a_user_whose_calls_wait_leaves_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user with large calls occupied all the room, and small calls of others were refused."""
    monkeypatch.setattr("node.quotas.throttle.DELAYED_BYTES_MAX", 1_000)
    users = ("greedy", "second", "polite")
    quotas = applying(Clock(), {QuotaEntity(user, None): 0.001 for user in users}, PRODUCE)

    async def fill(user: str) -> int:
        """Make calls until one is refused. Returns the bytes of those that wait."""
        throttle, before = quotas.throttle("Data.Produce", f"User:{user}", ""), quotas.delayed_bytes
        throttle.received(1_000)
        while True:
            waiting = quotas.waiting
            call = start(throttle.admit(50, None))
            await until(lambda: call.done() or quotas.waiting > waiting)  # noqa: B023
            if call.done():
                with pytest.raises(ThrottlingQuotaExceeded, match="calls that wait already"):
                    await call
                return quotas.delayed_bytes - before

    found = {user: await fill(user) for user in users}
    quotas.close()
    await until(lambda: quotas.waiting == quotas.delayed_bytes == 0)
    assert found == {"greedy": 500, "second": 250, "polite": 100}


@pytest.mark.parametrize(
    "api",
    [
        "Controller.Envelope",
        "Quorum.FetchMetadata",
        "Data.GetReplicaLogInfo",
        "Data.WriteTxnMarkers",
        "Transactions.AddOrVerifyPartitions",
        "Data.LookAtEnds",
        "Transactions.HoldCommits",
        "RemoteLogs.BeginCopy",
        "Sasl.Authenticate",
    ],
)
def test_requests_of_nodes_and_handshakes_are_exempt(api: str) -> None:
    limits = {QuotaEntity("ANONYMOUS", None): 1e-6}
    throttle = applying(Clock(), limits, REQUEST).throttle(api, "User:ANONYMOUS", "")
    throttle.worked(10**12)
    assert (throttle.applies, throttle.delay_ms()) == (False, 0)


def test_log_lines_name_each_client_once_in_a_minute_and_not_the_ids_of_a_flood(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    made = applying(clock, {QuotaEntity(None, ""): 1.0}, PRODUCE)
    with caplog.at_level("INFO", "node.quotas"):
        for number in range(1_000):
            for _ in range(2):
                made.throttle("Data.Produce", "User:ANONYMOUS", f"flood\n{number}").received(12)
        assert len(caplog.messages) == LINES_MAX + 1
        first = r"user 'ANONYMOUS', client id 'flood\n0' exceeds the quota producer_byte_rate=1 and waits for 1000 ms"
        assert caplog.messages[0] == first
        clock.now += WINDOW_MS
        made.throttle("Data.Produce", "User:ANONYMOUS", "flood\n0").received(120)
        assert len(caplog.messages) == LINES_MAX + 2


def test_open_calls_are_limited_by_address_and_by_principal_and_forgotten_when_they_end() -> None:
    calls = OpenCalls(per_ip=3, per_principal=2)
    calls.open("ipv4:10.0.0.1", "User:alice")
    calls.open("ipv4:10.0.0.2", "User:alice")
    with pytest.raises(ThrottlingQuotaExceeded, match=r"principal User:alice has 2 .*per.principal is 2:"):
        calls.open("ipv4:10.0.0.3", "User:alice")
    calls.open("ipv4:10.0.0.1", "User:bob")
    calls.open("ipv4:10.0.0.1", "User:ANONYMOUS")
    with pytest.raises(ThrottlingQuotaExceeded, match=r"address ipv4:10.0.0.1 has 3 .* max.open.calls.per.ip is 3"):
        calls.open("ipv4:10.0.0.1", "User:carol")
    for number in range(3):
        calls.open(f"ipv4:10.0.1.{number}", "User:ANONYMOUS")
    assert calls.refused == 2
    calls.close("ipv4:10.0.0.1", "User:bob")
    calls.open("ipv4:10.0.0.1", "User:carol")
    for number in range(3):
        calls.close(f"ipv4:10.0.1.{number}", "User:ANONYMOUS")
    for address, principal in (
        ("ipv4:10.0.0.1", "User:alice"),
        ("ipv4:10.0.0.2", "User:alice"),
        ("ipv4:10.0.0.1", "User:ANONYMOUS"),
        ("ipv4:10.0.0.1", "User:carol"),
    ):
        calls.close(address, principal)
    assert (calls._by_ip, calls._by_principal) == ({}, {})
