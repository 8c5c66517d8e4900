"""The cluster as a client knows it: which nodes there are, and who leads each partition.

Kept true:
  1. Within one life of a topic a partition's leader epoch only grows: an answer of a node that lags changes nothing.
  2. A topic's id changes only on the word of a node whose metadata are as new as any seen before.
  3. An answer of another cluster is refused.
Left to others: what a change means (producer, consumer). `ClusterView` is pure; `Cluster` asks the nodes.
Source: KIP-320 and KIP-516 for epochs and ids, Kafka's `Metadata` for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final
from uuid import UUID

from tidelog.errors import (
    ConnectionFailed,
    InconsistentClusterId,
    InvalidConfig,
    LeaderNotAvailable,
    NodeNotAvailable,
    NodeShuttingDown,
    NotController,
    RequestTimedOut,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.protocol.network import Clock, Transport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import (
    NO_NODE,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    TopicId,
    TopicPartition,
)

ASK_MS: Final = 3_000
"""How long one node may take to answer a question about metadata, which it answers from memory."""
BACKOFF_MS: Final = 100
"""Pause between two rounds of questions (Kafka's `retry.backoff.ms`)."""
AGE_MS_MAX: Final = 300_000
"""Metadata are asked for again after this time without any cause (Kafka's `metadata.max.age.ms`)."""
STALE_MS: Final = 4_000
"""A node that has no news for so long, while somebody looks for some, may be cut off: another one is asked next."""
NEW_TOPIC_MS: Final = 3_000
"""How long a call that asks about a topic takes "unknown topic" for the answer of a node that has not yet heard of a
new one. While no node answers, this time begins anew."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Who leads a partition: NO_NODE where nobody does."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic in its present life."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionView, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All that is known at one moment."""

    cluster_id: str = ""
    controller: NodeId = NO_NODE
    metadata_offset: int = -1
    nodes: Mapping[NodeId, Endpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    errors: Mapping[str, TidelogError] = field(default_factory=dict)
    """Why a topic that was asked for is not in `topics`."""

    def merged(self, answer: admin_pb2.GetMetadataResponse, asked: Endpoint) -> ClusterView:
        """This view with a node's answer taken in. Raises InconsistentClusterId."""
        if self.cluster_id and answer.cluster_id and answer.cluster_id != self.cluster_id:
            raise InconsistentClusterId(
                f"the node at {asked} belongs to cluster {answer.cluster_id}, the others to {self.cluster_id}: name "
                "nodes of one cluster only"
            )
        fresh = answer.metadata_offset >= self.metadata_offset
        topics, errors = dict(self.topics), dict(self.errors)
        for topic in answer.topics:
            if topic.HasField("error"):
                if fresh:
                    topics.pop(topic.name, None)
                    errors[topic.name] = from_proto(topic.error)
                continue
            known = topics.get(topic.name)
            told = _topic_view(topic)
            if known is None or (fresh and known.topic_id != told.topic_id):
                topics[topic.name] = told
            elif known.topic_id == told.topic_id:
                topics[topic.name] = _newer(known, told, fresh=fresh)
            errors.pop(topic.name, None)
        view = replace(self, cluster_id=self.cluster_id or answer.cluster_id, topics=topics, errors=errors)
        if not fresh:
            return view
        return replace(
            view,
            controller=NodeId(answer.controller_id),
            metadata_offset=answer.metadata_offset,
            nodes={NodeId(node.node_id): Endpoint(node.host, node.port) for node in answer.nodes},
        )

    def with_leader(self, topic_partition: TopicPartition, hint: NodeAddress) -> ClusterView:
        """This view with what an error said about the leader, where that is newer."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return self
        known = topic.partitions[topic_partition.partition]
        if hint.node_id < 0 or hint.leader_epoch <= known.leader_epoch:
            return self
        partitions = list(topic.partitions)
        partitions[topic_partition.partition] = replace(known, leader=hint.node_id, leader_epoch=hint.leader_epoch)
        topics = {**self.topics, topic.name: replace(topic, partitions=tuple(partitions))}
        return replace(self, topics=topics, nodes={**self.nodes, hint.node_id: hint.endpoint})

    def topic(self, name: str) -> TopicView:
        """The topic. Raises the reason where it is not known."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        error = self.errors.get(name)
        if error is not None:
            raise error
        raise UnknownTopicOrPartition(
            f"topic {name!r} is not known: create it, or wait until the nodes have heard of it"
        )

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """The partition. Raises UnknownTopicOrPartition."""
        topic = self.topic(topic_partition.topic)
        if not 0 <= topic_partition.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(
                f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, {topic_partition.partition} is "
                "none of them: name one of these, or add partitions"
            )
        return topic.partitions[topic_partition.partition]

    def leader(self, topic_partition: TopicPartition) -> tuple[Endpoint, PartitionView]:
        """Where the leader is reached. Raises UnknownTopicOrPartition, LeaderNotAvailable."""
        partition = self.partition(topic_partition)
        endpoint = self.nodes.get(partition.leader)
        if endpoint is None:
            what = (
                "has no leader" if partition.leader == NO_NODE else f"is led by node {partition.leader}, not seen alive"
            )
            raise LeaderNotAvailable(
                f"{topic_partition} {what} (leader epoch {partition.leader_epoch}): start one of its replicas "
                f"{list(partition.replicas)}, in sync are {list(partition.isr)}"
            )
        return endpoint, partition


def _topic_view(topic: admin_pb2.TopicMetadata) -> TopicView:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition)
    return TopicView(
        topic.name,
        TopicId(UUID(bytes=topic.topic_id)),
        tuple(
            PartitionView(
                NodeId(told.leader),
                LeaderEpoch(told.leader_epoch),
                tuple(NodeId(node) for node in told.replicas),
                tuple(NodeId(node) for node in told.isr),
            )
            for told in partitions
        ),
        dict(topic.configs),
    )


def _newer(known: TopicView, told: TopicView, *, fresh: bool) -> TopicView:
    """Partition by partition the larger leader epoch; at equal ones the newer answer."""
    partitions = list(told.partitions)
    for index, partition in enumerate(known.partitions[: len(partitions)]):
        theirs = partitions[index]
        if partition.leader_epoch > theirs.leader_epoch or (
            partition.leader_epoch == theirs.leader_epoch and not fresh
        ):
            partitions[index] = partition
    partitions.extend(known.partitions[len(partitions) :])
    return replace(told if fresh else known, partitions=tuple(partitions))


def parse_bootstrap(servers: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """`"host:port,host:port"` or a list of such. Raises InvalidConfig."""
    parts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise TypeError(f'bootstrap is a str "host:port,host:port" or a list of such, not {servers!r}')
    endpoints = []
    for part in (part.strip() for part in parts):
        host, _, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not set(host).isdisjoint("/@ \t\r\n") or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidConfig(f"{part!r} is no address of a node: name it as host:port, several with commas between")
        endpoints.append(Endpoint(host, int(port)))
    if not endpoints:
        raise InvalidConfig("no address of a node is given: name one as host:port, several with commas between")
    return tuple(endpoints)


class Cluster:
    """Asks nodes, keeps the view, tells who wants to know. `run` has to be running for `ask` to have an effect."""

    def __init__(self, bootstrap: Iterable[Endpoint], transport: Transport, clock: Clock, rng: Random) -> None:
        self.view = ClusterView()
        self.transport = transport
        self.clock = clock
        self._rng = rng
        self._bootstrap = tuple(bootstrap)
        self._topics: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._answered: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[TidelogError | None], None]] = []
        self._last: Endpoint | None = None
        self._left: Endpoint | None = None
        """A node that had no news for long: asked last."""
        self._no_news_ms: Millis | None = None
        """When the node asked last first had no news."""

    def on_change(self, listener: Callable[[TidelogError | None], None]) -> None:
        """Call `listener(None)` after each answer, `listener(error)` after a round in which no node answered."""
        self._listeners.append(listener)

    def ask(self, topic: str) -> None:
        """Ask about this topic soon, and with every question from now on."""
        self._topics[topic] = None
        self._wanted.set()

    def note_leader(self, topic_partition: TopicPartition, hint: NodeAddress | None) -> None:
        """Take in what an error said about the leader."""
        if hint is not None:
            self.view = self.view.with_leader(topic_partition, hint)

    async def run(self) -> None:
        """Ask whenever `ask` was called, at most ten times a second, and every five minutes."""
        while True:
            with_cause = True
            try:
                async with asyncio.timeout(AGE_MS_MAX / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                with_cause = False
            self._wanted.clear()
            if with_cause or self._topics:
                await self._ask_once()
            await self.clock.sleep_ms(int(BACKOFF_MS * self._rng.uniform(0.8, 1.2)))

    async def refresh(self, topic: str) -> ClusterView:
        """The view after an answer to a question asked from now on. Raises ConnectionFailed where no node answers."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered.append(answered)
        self.ask(topic)
        await answered
        return self.view

    async def wait_topic(self, topic: str, *, timeout_ms: int) -> TopicView:
        """The topic, once a node knows it. Raises the reason it is not known, after `timeout_ms` at most."""
        known = self.view.topics.get(topic)
        if known is not None:
            return known
        start = self.clock.monotonic_ms()
        unknown_since: Millis | None = None
        said: TidelogError | None = None
        while True:
            error: TidelogError
            try:
                left = start + timeout_ms - self.clock.monotonic_ms()
                async with asyncio.timeout(max(left, 1) / 1000):
                    return (await self.refresh(topic)).topic(topic)
            except UnknownTopicOrPartition as cause:
                if unknown_since is None:
                    unknown_since = self.clock.monotonic_ms()
                error, end = cause, min(unknown_since + NEW_TOPIC_MS, start + timeout_ms)
            except ConnectionFailed as cause:
                unknown_since = None
                error, end = cause, start + timeout_ms
            except TimeoutError as cause:
                if said is not None:  # what the last round said is more than that this one was cut short
                    raise said from None
                raise RequestTimedOut(
                    f"no metadata of topic {topic!r} within {timeout_ms} ms: no node answered in time; ask again"
                ) from cause
            if self.clock.monotonic_ms() + BACKOFF_MS >= end:
                raise error
            said = error

    async def call_any(self, method: Method[Request, Answer], request: Request, *, timeout_ms: int = ASK_MS) -> Answer:
        """Ask one node after another until one answers, the one that answered last first.

        Only for questions: a node may be asked although an earlier one did the work. Raises what a node answers, and
        ConnectionFailed, naming each address, where none answers.
        """
        failures: list[TidelogError] = []
        for endpoint in self.candidates():
            try:
                answer: Answer = await self.transport.call(endpoint, method, request, timeout_ms=timeout_ms)
            except (ConnectionFailed, RequestTimedOut, NodeShuttingDown, NodeNotAvailable, NotController) as error:
                failures.append(error)
            else:
                self._last = endpoint
                return answer
        raise self.nobody(failures)

    def candidates(self) -> list[Endpoint]:
        """Whom to ask, in which order: the last to answer, the other known nodes, the bootstrap addresses."""
        known = list(dict.fromkeys([*self.view.nodes.values(), *self._bootstrap]))
        self._rng.shuffle(known)
        if self._left in known:
            known.remove(self._left)
            known.append(self._left)
        if self._last in known:
            known.remove(self._last)
            known.insert(0, self._last)
        return known

    def nobody(self, failures: Sequence[TidelogError]) -> ConnectionFailed:
        """The error for a round in which no node answered."""
        said = "; ".join(failure.message for failure in failures)
        return ConnectionFailed(f"no node of the cluster answers, {len(failures)} asked: {said}")

    def end(self, error: TidelogError) -> None:
        """Nothing is asked any more: whoever waits gets the error."""
        for future in self._answered:
            if not future.done():
                future.set_exception(error)

    def _mind_silence(self, *, news: bool) -> None:
        """Leave a node that has had no news for long: it answers from what it knew when it was cut off."""
        at = self.clock.monotonic_ms()
        if news:
            self._no_news_ms = None
        elif self._no_news_ms is None:
            self._no_news_ms = at
        elif at - self._no_news_ms >= STALE_MS:
            self._left, self._last, self._no_news_ms = self._last, None, None

    async def _ask_once(self) -> None:
        waiting, self._answered = self._answered, []
        failure: TidelogError | None = None
        try:
            request = admin_pb2.GetMetadataRequest(topics=list(self._topics))
            answer = await self.call_any(methods.ADMIN_GET_METADATA, request)
            before, self.view = self.view, self.view.merged(answer, self._last or self._bootstrap[0])
            self._mind_silence(news=self.view.metadata_offset > before.metadata_offset)
        except TidelogError as error:
            failure = error
            self._last = None
        except BaseException:
            self._answered = [*waiting, *self._answered]
            raise
        for future in waiting:
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
        for listener in self._listeners:
            listener(failure)
