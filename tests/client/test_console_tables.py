"""Tables of the console have a bounded number of rows, and say how many are not shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tidelog.client.admin import Admin
from tidelog.client.topic_admin import PARTITIONS_AT_ONCE
from tidelog.console.acl_page import acls
from tidelog.console.group_pages import group
from tidelog.console.layout import CELL_TEXTS_MAX, ROWS_SHOWN_MAX, few
from tidelog.console.page_call import Page, PageCall
from tidelog.console.page_exchange import PageRequest, Visitor
from tidelog.console.transaction_pages import transaction
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import PartitionIndex, TopicPartition

COUNT = ROWS_SHOWN_MAX + 77
SENTENCE = f"The first {ROWS_SHOWN_MAX} of {COUNT}; 77 are not shown."


async def shown(page: Page, **answers: Any) -> str:
    """A page, of these answers of the cluster."""

    def answer(value: Any) -> Any:
        async def method(*_arguments: Any) -> Any:
            return value

        return method

    admin: Any = SimpleNamespace(**{name: answer(value) for name, value in answers.items()})
    others: Any = None
    request = PageRequest("/", {"id": "x", "name": "x"})
    call = PageCall(request, Visitor("User:alice"), admin, others, others, others, 0)
    return "".join(filter(None, (await page(call)).body))


async def test_permissions_and_users() -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "x", PatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermission.ALLOW
    )
    user = SimpleNamespace(name="bob", mechanism="SCRAM-SHA-256", iterations=4_096)
    page = await shown(acls, describe_acls=[rule] * COUNT, list_users=[user] * COUNT)
    assert page.count("<tr>") == 2 * (ROWS_SHOWN_MAX + 1)
    assert page.count(SENTENCE) == 2


async def test_members_and_lags_of_a_group() -> None:
    topics = tuple(f"topic-{number}" for number in range(100))
    keys = tuple(TopicPartition("topic", PartitionIndex(number)) for number in range(100))
    member: Any = SimpleNamespace(
        instance_id="",
        member_id="m",
        client_id="c",
        client_host="h",
        member_epoch=1,
        topics=topics,
        topic_pattern="",
        assignment=keys,
        target=keys,
    )
    lag: Any = SimpleNamespace(
        partition=keys[0], committed=None, start=None, end=None, lag=1, deleted=0, instance_id="", member_id="m"
    )
    found: Any = SimpleNamespace(type="consumer", state="Stable", assignor="", group_epoch=1, members=[member] * COUNT)
    page = await shown(group, describe_groups={"x": found}, group_lag=[lag] * COUNT)
    assert page.count("<tr>") == 2 * (ROWS_SHOWN_MAX + 1)
    assert page.count(SENTENCE) == 2
    assert "topic-19 and 80 more" in page and "topic-20" not in page
    assert f">{COUNT}<" in page, "the sum of the lag counts all partitions"


async def test_partitions_of_a_transaction() -> None:
    key = TopicPartition("topic", PartitionIndex(0))
    found: Any = SimpleNamespace(
        start_ms=-1,
        state="Ongoing",
        transaction_timeout_ms=1,
        producer_id=1,
        producer_epoch=1,
        coordinator=0,
        partitions=[key] * COUNT,
    )
    page = await shown(transaction, describe_transactions={"x": found})
    assert page.count("<li>") == ROWS_SHOWN_MAX
    assert SENTENCE in page


def test_a_cell_has_few_texts() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few(["a"] * (CELL_TEXTS_MAX + 3)).endswith(" and 3 more")


async def test_a_list_of_many_partitions_leaves_the_loop_its_turns() -> None:
    """The console's client runs on the loop of the node."""
    turns = 0

    class Listing(Admin):
        def __init__(self) -> None:
            self._clock: Any = SimpleNamespace(sleep_ms=self._turn)

        async def _turn(self, _milliseconds: int) -> None:
            nonlocal turns
            turns += 1

        async def _metadata(self, **_given: Any) -> admin_pb2.GetMetadataResponse:
            partitions = [admin_pb2.PartitionMetadata(partition=number) for number in range(PARTITIONS_AT_ONCE // 2)]
            return admin_pb2.GetMetadataResponse(
                topics=[
                    admin_pb2.TopicMetadata(name=str(number), topic_id=UUID(int=number).bytes, partitions=partitions)
                    for number in range(9)
                ]
            )

    assert len(await Listing().list_topics()) == 9
    assert turns == 4
