"""The lease of a node, as it counts it and as controllers fence nodes."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from node.controller.controller_lease import ControllerLease
from node.controller.node_registration import Identity, Registration
from node.replication_settings import ReplicationConfig
from replication.controller.sessions import Sessions, lease_ms
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tidelog.errors import RequestTimedOut
from tidelog.types import Endpoint, Incarnation, Millis, NodeId

SESSION_MS, HEARTBEAT_MS = 2_000, 400
NODE = NodeId(1)


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    loop = SimLoop(random.Random(1))
    clock = SimClock(loop)
    lease = ControllerLease(clock)
    assert lease.why_ended(), "there was no heartbeat"
    sent_at = clock.monotonic_ms()
    loop.run_for(0.3)
    lease.renew(sent_at, Millis(1_000))
    loop.run_for(0.69)
    assert not lease.why_ended()
    assert lease.ended_ms() == 0
    loop.run_for(0.02)
    assert "acknowledged no heartbeat of this node for 10" in lease.why_ended()
    assert lease.ended_ms() == 10


def test_a_fenced_node_has_no_lease() -> None:
    loop = SimLoop(random.Random(1))
    lease = ControllerLease(SimClock(loop))
    lease.renew(Millis(0), Millis(1 << 40))
    assert not lease.why_ended()
    lease.renew(Millis(0), Millis(0))
    assert lease.why_ended()


@given(
    unconfirmed_ms=st.integers(0, 3_000),
    transit_ms=st.integers(0, 500),
    voter_lag_ms=st.integers(0, HEARTBEAT_MS),
    elected_ms=st.integers(0, 3_000),
)
def test_no_controller_fences_a_node_within_its_lease(
    unconfirmed_ms: int, transit_ms: int, voter_lag_ms: int, elected_ms: int
) -> None:
    """Neither the one that acknowledged, nor the next one: it may be elected as soon as the majority was last heard
    from, and may have received the last heartbeat one interval before that."""
    sent_at = 10_000
    received_at = Millis(sent_at + transit_ms)
    ends_at = sent_at + lease_ms(SESSION_MS, HEARTBEAT_MS, unconfirmed_ms)
    acknowledging, following = Sessions(SESSION_MS), Sessions(SESSION_MS)
    acknowledging.begin(received_at, [NODE])
    acknowledging.renew(NODE)
    confirmed_at = received_at - unconfirmed_ms
    following.advance(Millis(confirmed_at - voter_lag_ms))
    following.renew(NODE)
    following.begin(Millis(confirmed_at + elected_ms), [NODE])
    for sessions in (acknowledging, following):
        for now in range(max(received_at, confirmed_at + elected_ms), ends_at, 50):
            sessions.advance(Millis(now))
            assert sessions.alive(NODE)


class Voters:
    """Two voters that are not the active controller; the first one does not answer."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self.received: dict[str, list[Millis]] = defaultdict(list)

    def inactive_controllers(self) -> list[Endpoint]:
        return [Endpoint("silent", 1), Endpoint("running", 1)]

    async def send(self, target: Endpoint, _api: Any, _request: Any, *, timeout_ms: int) -> None:
        self.received[target.host].append(self._clock.monotonic_ms())
        if target.host == "silent":
            await self._clock.sleep_ms(timeout_ms)
            raise RequestTimedOut("no answer")


def test_a_voter_gets_heartbeats_at_the_full_rate_while_another_one_is_silent() -> None:
    """The lease assumes that the next controller received a heartbeat within the last interval."""
    loop = SimLoop(random.Random(1))
    clock = SimClock(loop)
    voters, times = Voters(clock), ReplicationConfig()
    metadata: Any = SimpleNamespace(image=SimpleNamespace(offset=0))
    controller: Any = voters
    registration = Registration(
        Identity(NodeId(1), Incarnation(UUID(int=1)), {}, "", b""),
        (),
        metadata,
        controller,
        clock=clock,
        times=times,
        refused=tuple,
        probe=lambda _: None,
    )
    task = loop.create_task(registration._send_to_voters())
    loop.run_for(4)
    task.cancel()
    loop.run_for(0.1)
    at = voters.received["running"]
    assert len(at) >= 9
    assert max(later - earlier for earlier, later in pairwise(at)) <= times.heartbeat_ms + 1
