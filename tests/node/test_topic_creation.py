"""Topics that a client of Kafka's protocol asks for and nobody has created: what it learns, and what they cost it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from node.api.admin_requests import ChangedTopics, CreateTopicsRequest
from node.api.metadata import GetMetadataRequest
from node.api.table import ADMIN_GET_METADATA
from node.quotas.client_quotas import ClientQuotas
from node.quotas.throttle import Quotas
from node.requests import topic_creation
from node.requests.context import RequestContext
from node.requests.one_by_one import PARTS_MAX
from node.requests.topic_creation import TopicCreation
from node.topic_defaults import TopicDefaults
from replication.controller.events import ChangedTopic
from replication.controller.image import EMPTY
from tests.node.audit_world import ALICE, World
from tidelog.errors import (
    ConnectionLost,
    InvalidTopic,
    NotController,
    RequestTimedOut,
    ThrottlingQuotaExceeded,
    TidelogError,
    TooFewNodes,
    TopicAuthorizationFailed,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.types import QuotaEntity, QuotaType

MUTATION = QuotaType.CONTROLLER_MUTATION_RATE


def creation() -> TopicCreation:
    return TopicCreation(TopicDefaults(creates_missing=True))


class Controller:
    """Makes topics, or answers with an error."""

    def __init__(self, error: TidelogError | None = None) -> None:
        self.error, self.created = error, list[str]()

    async def create(self, request: CreateTopicsRequest, context: RequestContext) -> ChangedTopics:
        for topic in request.topics:
            with context.throttle.mutation(100):
                self.created.append(topic.name)
        return ChangedTopics(tuple(ChangedTopic(topic.name, self.error) for topic in request.topics))


async def refusals(
    controller: Controller, *topics: str, context: RequestContext | None = None
) -> dict[str, type[TidelogError]]:
    request = GetMetadataRequest(topics, creates_missing=True)
    context = context or RequestContext("kafka", "client")
    found = await creation().create(request, EMPTY, controller.create, context)
    return {name: type(error) for name, error in found.items()}


@pytest.mark.parametrize("error", [NotController, RequestTimedOut, TooFewNodes, ThrottlingQuotaExceeded])
async def test_a_topic_that_cannot_be_made_now_does_not_exist(error: type[TidelogError]) -> None:
    """A client asks again for it. Java's consumer waited five minutes after the other numbers."""
    assert await refusals(Controller(error("not now")), "orders") == {"orders": UnknownTopicOrPartition}


@pytest.mark.parametrize("error", [InvalidTopic, TopicAuthorizationFailed])
async def test_a_client_learns_what_will_not_change(error: type[TidelogError]) -> None:
    assert await refusals(Controller(error("never")), "orders") == {"orders": error}


@pytest.mark.parametrize("error", [None, TopicExists("another client was quicker")])
async def test_a_topic_that_was_made_is_no_error(error: TidelogError | None) -> None:
    assert await refusals(Controller(error), "orders") == {}


async def test_a_client_does_not_wait_for_a_controller_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the other requests of its connection, which wait behind this one: it was 15 s."""
    monkeypatch.setattr(topic_creation, "WAIT_MS", 10)
    answers = asyncio.Event()

    async def late(_request: CreateTopicsRequest, _context: RequestContext) -> ChangedTopics:
        await answers.wait()
        raise AssertionError("nobody waits for the answer")

    request, context = GetMetadataRequest(("orders",), creates_missing=True), ALICE
    (error,) = (await creation().create(request, EMPTY, late, context)).values()
    assert isinstance(error, UnknownTopicOrPartition)
    assert "may still create it" in error.message


async def test_each_topic_that_was_made_or_has_failed_is_recorded_with_who_asked_for_it() -> None:
    """A client asks again and again: its failures are recorded once. Denials are recorded by the authorizer."""
    world, topics = World(), creation()
    context = replace(ALICE, audit=world.log)
    request = GetMetadataRequest(("orders",), creates_missing=True)
    for error in (
        None,
        TopicExists("made by another"),
        TopicAuthorizationFailed("no"),
        NotController("none"),
        NotController("none"),
        TooFewNodes("one"),
    ):
        await topics.create(request, EMPTY, Controller(error).create, context)
    assert [(each["principal"], each["client_id"], each["request"], each["outcome"]) for each in world.events] == [
        ("User:alice", "loader", "Admin.CreateTopics", {outcome: 1})
        for outcome in ("ok", "NOT_CONTROLLER", "TooFewNodes")
    ]
    assert [each["asked"]["topics"][0]["name"] for each in world.events] == ["orders"] * 3


async def test_an_attempt_whose_outcome_is_unknown_is_recorded_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Any of them may have created the topic: the audit log would not say for whom. The node's log says it once."""
    caplog.set_level("INFO", "node.requests")
    world, topics = World(), creation()
    request = GetMetadataRequest(("orders",), creates_missing=True)
    for error in (RequestTimedOut("late"), RequestTimedOut("late"), ConnectionLost("lost"), ConnectionLost("lost")):
        await topics.create(request, EMPTY, Controller(error).create, replace(ALICE, audit=world.log))
    assert len(world.events) == 4
    assert len(caplog.messages) == 2


async def test_a_controller_that_gets_slow_leaves_the_topics_that_it_has_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third may be created later; nobody has asked for the others."""
    monkeypatch.setattr(topic_creation, "WAIT_MS", 10)
    controller, world = Controller(), World()

    async def slow(request: CreateTopicsRequest, context: RequestContext) -> ChangedTopics:
        if len(controller.created) == 2:
            await asyncio.Event().wait()
        return await controller.create(request, context)

    request = GetMetadataRequest(("a", "b", "c", "d"), creates_missing=True)
    errors = await creation().create(request, EMPTY, slow, replace(ALICE, audit=world.log))
    assert controller.created == ["a", "b"]
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys("cd", UnknownTopicOrPartition)
    assert [(each["asked"]["topics"][0]["name"], each["outcome"]) for each in world.events] == [
        ("a", {"ok": 1}),
        ("b", {"ok": 1}),
        ("c", {"REQUEST_TIMED_OUT": 1}),
    ]


@pytest.mark.parametrize("error", [NotController, RequestTimedOut])
async def test_without_a_controller_only_one_topic_is_tried(error: type[TidelogError]) -> None:
    controller = Controller(error("none"))
    assert await refusals(controller, "a", "b") == dict.fromkeys("ab", UnknownTopicOrPartition)
    assert controller.created == ["a"]


async def test_a_request_for_very_many_topics_makes_some_of_them() -> None:
    """It was refused as a whole, which closes the connection of a client that asks the same again."""
    controller = Controller()
    assert await refusals(controller, *map(str, range(PARTS_MAX + 1))) == {}
    assert len(controller.created) == PARTS_MAX


async def test_topics_that_are_asked_for_count_in_the_quota_of_new_ones() -> None:
    """Without it, a client could pass its quota by asking for topics instead of creating them."""
    limits = ClientQuotas(lambda: 1_000_000)
    limits.configure({QuotaEntity(None, "greedy"): {MUTATION: 1.0}})
    quotas = Quotas(limits)
    quotas.enabled = True
    throttle = quotas.throttle(ADMIN_GET_METADATA.name, "User:alice", "greedy")
    context = RequestContext("kafka", "client", throttle=throttle)
    controller = Controller()
    assert await refusals(controller, "first", context=context) == {}
    with pytest.raises(ThrottlingQuotaExceeded):
        await refusals(controller, "second", context=context)
    assert controller.created == ["first"]
