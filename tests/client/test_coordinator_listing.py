"""A listing from all nodes is complete, or an error says what is missing; coordinators move and nodes fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tidelog.client.coordinator_listing import NODE_TIMEOUT_MS, list_all
from tidelog.client.retries import Retries
from tidelog.errors import (
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRegularExpression,
    RequestTimedOut,
    TidelogError,
    UnreadableCoordinatorRecord,
)
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import transactions_pb2 as pb
from tidelog.types import TRANSACTIONS_TOPIC, Endpoint, NodeId

TIMEOUT_MS = 25_000


class Nodes:
    """Nodes whose answers the test chooses, by pass over the nodes, each pass a list with an answer of each node; the
    last pass is repeated."""

    def __init__(self, *passes: list[pb.ListTransactionsResponse | TidelogError]) -> None:
        self.passes = passes
        self.asked = 0
        self.timeouts: list[int] = []
        self.loop = SimLoop(random.Random(1))
        self.clock = SimClock(self.loop)

    async def nodes(self) -> dict[NodeId, Endpoint]:
        self.asked += 1
        return {NodeId(number): Endpoint("node", number) for number, _ in enumerate(self._now)}

    @property
    def _now(self) -> list[pb.ListTransactionsResponse | TidelogError]:
        return self.passes[min(self.asked or 1, len(self.passes)) - 1]

    async def ask(self, to: Endpoint, timeout_ms: int) -> pb.ListTransactionsResponse:
        self.timeouts.append(timeout_ms)
        answer = self._now[to.port]
        if answer is HANGS:
            await self.clock.sleep_ms(timeout_ms)
        if isinstance(answer, TidelogError):
            raise answer
        return answer

    def list(self, on_missing: Callable[[TidelogError], None] | None = None) -> list[str]:
        retries = Retries(self.clock, Random(1), TIMEOUT_MS)
        work = list_all(TRANSACTIONS_TOPIC, self.nodes, self.ask, retries, on_missing=on_missing)
        task = self.loop.create_task(work)
        self.loop.run_until(task.done, within=100)
        return sorted(each.transactional_id for answer in task.result().values() for each in answer.transactions)


def covers(count: int = 2, **listed: str | TidelogError) -> pb.ListTransactionsResponse:
    """The answer of a node that leads these partitions, for example p0="a b", with the ids, or why there are none."""
    answer = pb.ListTransactionsResponse(partition_count=count)
    for name, of in listed.items():
        coordinator = answer.coordinators.add(partition=int(name[1:]))
        if isinstance(of, TidelogError):
            coordinator.error.CopyFrom(to_proto(of))
        else:
            answer.transactions.extend(pb.ListedTransaction(transactional_id=each) for each in of.split())
    return answer


WHOLE: list[Any] = [covers(p0="a b"), covers(p1="c")]
HANGS = RequestTimedOut("no answer in time")
LOADS, DOWN = CoordinatorLoadInProgress("it loads"), ConnectionFailed("connection refused")
UNREADABLE = UnreadableCoordinatorRecord("offset 3 is malformed")


def ignore(_missing: TidelogError) -> None:
    """The caller wants the rest."""


def test_the_answers_of_one_pass_are_all() -> None:
    nodes = Nodes(WHOLE)
    assert nodes.list() == ["a", "b", "c"]
    assert nodes.asked == 1


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([covers(p0="a b"), covers()], id="it moves and no node has it yet"),
        pytest.param([covers(p0="a b"), covers(p1=LOADS)], id="its new leader loads it"),
        pytest.param([covers(p0="a b"), covers(0)], id="a node does not know the topic yet"),
        pytest.param([covers(p0="a b"), covers(p0="a b", p1="c")], id="it moved between the answers"),
        pytest.param([covers(p0="a b"), DOWN], id="its node has just died"),
        pytest.param([DOWN, DOWN], id="no node answers"),
        pytest.param([covers(0), DOWN], id="the node that knows the topic does not answer"),
    ],
)
def test_the_nodes_are_asked_again_until_each_coordinator_is_listed_once(first: list[Any]) -> None:
    nodes = Nodes(first, first, WHOLE)
    assert nodes.list() == ["a", "b", "c"]
    assert nodes.asked == 3


def test_a_node_without_coordinators_may_be_down() -> None:
    nodes = Nodes([*WHOLE, DOWN])
    assert nodes.list() == ["a", "b", "c"]
    assert nodes.asked == 1


def test_a_node_that_hangs_is_not_waited_for_if_the_others_list_all() -> None:
    nodes = Nodes([*WHOLE, HANGS])
    assert nodes.list() == ["a", "b", "c"]
    assert nodes.clock.monotonic_ms() == 0


def test_a_node_that_hangs_may_know_of_the_topic() -> None:
    nodes = Nodes([covers(0), HANGS], WHOLE)
    assert nodes.list() == ["a", "b", "c"]


def test_a_topic_that_no_node_knows_holds_nothing() -> None:
    nodes = Nodes([covers(0), covers(0)])
    assert nodes.list() == []
    assert nodes.asked == 1


def test_one_node_may_not_take_all_of_the_time() -> None:
    nodes = Nodes([covers(p0="a b"), HANGS])
    with pytest.raises(CoordinatorNotAvailable, match=r"no answer in time"):
        nodes.list()
    assert nodes.timeouts[::2][:2] == [NODE_TIMEOUT_MS] * 2
    assert nodes.timeouts[-1] < NODE_TIMEOUT_MS, "the last pass has what is left"
    assert nodes.clock.monotonic_ms() <= TIMEOUT_MS


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([covers(p0="a b"), covers()], r"__transaction_state-1 .* is missing .*no node that answered leads it"),
        ([covers(p0="a b"), DOWN], r"__transaction_state-1 .*leads it \(connection refused\)"),
        ([covers(p0="a b"), covers(p1=LOADS)], r"__transaction_state-1 .*it loads"),
        ([covers(p0="a b", p1="c"), covers(p1="c")], r"__transaction_state-1 .*moved between nodes"),
    ],
)
def test_a_listing_that_stays_incomplete_is_an_error_that_names_the_partition(answers: list[Any], said: str) -> None:
    nodes = Nodes(answers)
    with pytest.raises(CoordinatorNotAvailable, match=said):
        nodes.list()
    assert nodes.clock.monotonic_ms() >= TIMEOUT_MS - 200


def test_without_any_answer_the_error_of_a_node_is_raised() -> None:
    with pytest.raises(ConnectionFailed, match="connection refused"):
        Nodes([DOWN, DOWN]).list(ignore)


def test_an_unreadable_coordinator_is_an_error_at_once() -> None:
    nodes = Nodes([covers(p0="a b"), covers(p1=UNREADABLE)])
    with pytest.raises(UnreadableCoordinatorRecord, match=r"__transaction_state-1 .*offset 3 is malformed"):
        nodes.list()
    assert nodes.asked == 1


def test_who_asks_for_it_gets_the_rest_and_an_error_for_each_missing_part() -> None:
    missing: list[TidelogError] = []
    nodes = Nodes(
        [covers(3, p0="a b"), covers(3, p1=UNREADABLE, p2=LOADS)], [covers(3, p0="a b"), covers(3, p1=UNREADABLE)]
    )
    assert nodes.list(missing.append) == ["a", "b"]
    assert [type(each) for each in missing] == [UnreadableCoordinatorRecord, CoordinatorNotAvailable]
    assert "__transaction_state-1" in missing[0].message
    assert "__transaction_state-2" in missing[1].message


def test_a_refused_request_is_not_repeated() -> None:
    nodes = Nodes([covers(p0="a b"), InvalidRegularExpression("no pattern")])
    with pytest.raises(InvalidRegularExpression):
        nodes.list(ignore)
    assert nodes.asked == 1
