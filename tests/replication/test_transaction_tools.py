"""ListTransactions and DescribeTransactions (KIP-664, KIP-994)."""

from __future__ import annotations

import pytest

from replication.coordination.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
    ListedTransaction,
    ListTransactions,
)
from tests.replication.transaction_world import World, is_error, parts
from tidelog.errors import InvalidRequest, TransactionalIdNotFound
from tidelog.types import Millis, ProducerId


@pytest.fixture
def world() -> World:
    """Transactional ids a (nothing open), b (open for 2 s), c (decided and not complete, open for 1 s)."""
    world = World()
    world.init(name="a")
    for name in "bc":
        answer = world.init(name=name)
        world.write((answer.producer_id, answer.producer_epoch), "orders-1", "orders-0", name=name)
        world.later(1_000)
    world.end(world.producer("c"), committed=True, name="c")
    return world


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ListTransactions(), "abc"),
        (ListTransactions(states=("Empty", "PrepareCommit")), "ac"),
        (ListTransactions(states=("empty", "PREPARECOMMIT")), "ac"),
        (ListTransactions(producer_ids=(ProducerId(1_002), ProducerId(9))), "b"),
        (ListTransactions(duration_ms_min=0), "bc"),
        (ListTransactions(duration_ms_min=1_001), "b"),
        (ListTransactions(duration_ms_min=2_001), ""),
        (ListTransactions(states=("Ongoing",), duration_ms_min=2_000), "b"),
        (ListTransactions(states=("CompleteAbort",)), ""),
    ],
)
def test_transactions_are_listed_by_state_producer_and_age(
    world: World, request_: ListTransactions, names: str
) -> None:
    answer = world.ask(request_)
    assert "".join(each.transactional_id for each in answer.transactions) == names


def test_a_listed_transaction_has_its_start(world: World) -> None:
    start = Millis(world.now.wall_ms - 2_000)
    assert world.ask(ListTransactions()).transactions == (
        ListedTransaction("a", ProducerId(1_001), "Empty", Millis(-1)),
        ListedTransaction("b", ProducerId(1_002), "Ongoing", start),
        ListedTransaction("c", ProducerId(1_003), "PrepareCommit", Millis(start + 1_000)),
    )


def test_an_unknown_state_is_refused_with_the_known_ones(world: World) -> None:
    answer = world.ask(ListTransactions(states=("Ongoing", "Lost")))
    assert is_error(answer, InvalidRequest)
    assert "'Lost'" in answer.message
    assert "PrepareAbort" in answer.message


def test_transactions_are_described_in_the_order_of_the_request(world: World) -> None:
    answer = world.ask(DescribeTransactions(("b", "nobody", "a", "b"))).transactions
    assert [each.transactional_id for each in answer] == ["b", "nobody", "a", "b"]
    start = Millis(world.now.wall_ms - 2_000)
    assert answer[0] == DescribedTransaction(
        "b", None, "Ongoing", ProducerId(1_002), 0, 60_000, start, parts("orders-0", "orders-1"), 0
    )
    assert isinstance(answer[1].error, TransactionalIdNotFound)
    assert (answer[2].state, answer[2].start_ms, answer[2].partitions) == ("Empty", -1, ())


def test_a_complete_transaction_is_not_open_any_more(world: World) -> None:
    world.settle()
    (described,) = world.ask(DescribeTransactions(("c",))).transactions
    assert (described.state, described.start_ms, described.partitions) == ("CompleteCommit", -1, ())
    assert (described.producer_epoch, described.coordinator_epoch) == (1, 0)
