"""The client's metadata cache: nodes, topics and partition leaders.

Invariants:
  1. For one topic id the leader epoch of a partition never decreases: the answer of a lagging node changes nothing.
  2. A topic's id changes only by an answer whose metadata offset is not older than any seen before.
  3. An answer from another cluster is rejected.
Not here: what a change means (producer.py, consumer.py). `ClusterView` is pure; `Cluster` queries the nodes.
Source: KIP-320 and KIP-516 for epochs and ids, Kafka's `Metadata` for the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, cast
from uuid import UUID

from tidelog.client.core_events import LeaderKnown
from tidelog.client.retries import BACKOFF_MS, Retries, backoff_ms
from tidelog.client.silence import SilenceWatch
from tidelog.clock import Clock
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
    TlsHandshakeFailed,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.network import Transport
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    TopicId,
    TopicPartition,
)

QUERY_TIMEOUT_MS: Final = 3_000
"""Timeout of one metadata request; a node answers it from memory."""
AGE_MS_MAX: Final = 300_000
"""Metadata are refreshed after this time even if nothing requested it (Kafka's `metadata.max.age.ms`)."""
STALE_MS: Final = 4_000
"""A node that has had no newer metadata for this time, while callers wait for some, may be cut off from the cluster:
another node is queried."""
NEW_TOPIC_MS: Final = 3_000
"""How long a call treats "unknown topic" as the answer of a lagging node; then the topic counts as missing. The time
restarts while no node answers."""


STAGGER_MS: Final = 400
"""A client that knows of no node that answers queries the next one after this time: a node that works answers earlier,
also far away."""

_NO_ANSWER: Final = (ConnectionFailed, RequestTimedOut, NodeShuttingDown, NodeNotAvailable, NotController)
"""Errors of one node: another one may answer."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Leader of a partition; NO_NODE if there is none."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """The current incarnation of a topic."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionView, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    reported_at: int = field(default=-1, compare=False)
    """The metadata offset of the answer that reported it."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """An immutable snapshot of the client's metadata."""

    cluster_id: str = ""
    controller: NodeId = NO_NODE
    metadata_offset: int = -1
    nodes: Mapping[NodeId, Endpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    errors: Mapping[str, TidelogError] = field(default_factory=dict)
    """Why a requested topic is not in `topics`."""

    def merged(self, answer: admin_pb2.GetMetadataResponse, endpoint: Endpoint) -> ClusterView:
        """Return this view updated by the answer of a node. Raises InconsistentClusterId."""
        if self.cluster_id and answer.cluster_id and answer.cluster_id != self.cluster_id:
            raise InconsistentClusterId(
                f"the node at {endpoint} belongs to cluster {answer.cluster_id}, the other nodes to {self.cluster_id}: "
                "list the nodes of one cluster only"
            )
        fresh = answer.metadata_offset >= self.metadata_offset
        topics, errors = dict(self.topics), dict(self.errors)
        for topic in answer.topics:
            if error := error_of(topic):
                if fresh and topic.name:  # without a name it is about an id, under which nothing is known
                    topics.pop(topic.name, None)
                    errors[topic.name] = error
                continue
            known = topics.get(topic.name)
            if known is not None and answer.metadata_offset == known.reported_at:
                continue  # all nodes report the same at one metadata offset; reading it again costs time
            reported = _topic_view(topic, answer.metadata_offset)
            if known is None or (fresh and known.topic_id != reported.topic_id):
                topics[topic.name] = reported
            elif known.topic_id == reported.topic_id:
                topics[topic.name] = _newer(known, reported, fresh=fresh)
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
        """Return this view with the leader from an error, if that leader is newer."""
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

    def topic(self, name: str, partition: int = 0) -> TopicView:
        """Return the topic, which has the partition. Raises the reason if they are not known."""
        topic = self.topics.get(name)
        if topic is not None:
            ensure_partition(name, len(topic.partitions), partition)
            return topic
        error = self.errors.get(name)
        if error is not None:
            raise error
        raise UnknownTopicOrPartition(
            f"no node knows topic {name!r}: check its name (`tidelog topic list`), or create it"
        )

    def endpoint(self, node: NodeId, topic_partition: TopicPartition) -> Endpoint:
        """Return the address of a node that was the leader of the partition. Raises LeaderNotAvailable."""
        endpoint = self.nodes.get(node)
        if endpoint is None:
            raise LeaderNotAvailable(
                f"{topic_partition} is led by node {node}, but no node reports that node as alive: is it starting?"
            )
        return endpoint

    def is_led_by(
        self, topic_partition: TopicPartition, topic_id: TopicId | None, node: NodeId, leader_epoch: LeaderEpoch
    ) -> bool:
        """Whether this node is the partition's leader in this epoch and alive, and the topic is this incarnation."""
        topic, index = self.topics.get(topic_partition.topic), topic_partition.partition
        if topic is None or topic.topic_id != topic_id or index >= len(topic.partitions):
            return False
        known = topic.partitions[index]
        return (known.leader, known.leader_epoch) == (node, leader_epoch) and node in self.nodes

    def leader(self, topic_partition: TopicPartition) -> tuple[Endpoint, PartitionView]:
        """Return the leader's address and the partition. Raises UnknownTopicOrPartition, LeaderNotAvailable."""
        topic = self.topic(topic_partition.topic, topic_partition.partition)
        partition = topic.partitions[topic_partition.partition]
        endpoint = self.nodes.get(partition.leader)
        if endpoint is None:
            what = (
                "has no leader"
                if partition.leader == NO_NODE
                else f"is led by node {partition.leader}, which is not alive"
            )
            raise LeaderNotAvailable(
                f"{topic_partition} {what} (leader epoch {partition.leader_epoch}): start one of its replicas "
                f"{list(partition.replicas)}; in sync: {list(partition.isr)}"
            )
        return endpoint, partition


def ensure_partition(topic: str, count: int, partition: int) -> None:
    """Raise UnknownTopicOrPartition if a topic of `count` partitions does not have this one."""
    if not 0 <= partition < count:
        raise UnknownTopicOrPartition(
            f"topic {topic!r} has partitions 0 to {count - 1}; partition {partition} does not exist: use an existing "
            "partition or add partitions"
        )


def _topic_view(topic: admin_pb2.TopicMetadata, reported_at: int) -> TopicView:
    # All members of a large group read a large topic: a slice copies a repeated field several times faster than a loop.
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition)
    return TopicView(
        topic.name,
        TopicId(UUID(bytes=topic.topic_id)),
        tuple(
            PartitionView(
                NodeId(reported.leader),
                LeaderEpoch(reported.leader_epoch),
                cast("tuple[NodeId, ...]", tuple(reported.replicas[:])),
                cast("tuple[NodeId, ...]", tuple(reported.isr[:])),
            )
            for reported in partitions
        ),
        dict(topic.configs),
        reported_at,
    )


def _newer(known: TopicView, reported: TopicView, *, fresh: bool) -> TopicView:
    """Merge per partition: the larger leader epoch wins, at equal epochs the newer answer."""
    partitions = list(reported.partitions)
    for index, partition in enumerate(known.partitions[: len(partitions)]):
        theirs = partitions[index]
        if partition.leader_epoch > theirs.leader_epoch or (
            partition.leader_epoch == theirs.leader_epoch and not fresh
        ):
            partitions[index] = partition
    # Partitions are only ever added: an answer with fewer is from a node that has not applied the addition yet.
    partitions.extend(known.partitions[len(partitions) :])
    return replace(reported if fresh else known, partitions=tuple(partitions))


def parse_bootstrap(servers: str | Sequence[str]) -> tuple[Endpoint, ...]:
    """Parse `"host:port,host:port"` or a list of such. Raises TypeError, InvalidConfig."""
    parts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise TypeError(f'bootstrap must be a str "host:port,host:port" or a list of such, not {servers!r}')
    endpoints = []
    for part in (part.strip() for part in parts):
        host, _, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not set(host).isdisjoint("/@ \t\r\n") or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidConfig(f"invalid node address {part!r}: use host:port, several separated by commas")
        endpoints.append(Endpoint(host, int(port)))
    if not endpoints:
        raise InvalidConfig("no node address is given: use host:port, several separated by commas")
    return tuple(endpoints)


class Cluster:
    """Queries nodes, keeps the view and notifies listeners. `request_refresh` needs a running `run`."""

    def __init__(self, bootstrap: Iterable[Endpoint], transport: Transport, clock: Clock, rng: Random) -> None:
        self.view = ClusterView()
        self.transport = transport
        self.clock = clock
        self._rng = rng
        self._bootstrap = tuple(bootstrap)
        self._topics: dict[str, None] = {}
        self._topic_ids: set[TopicId] = set()
        self._wanted = asyncio.Event()
        self._answered: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[TidelogError | None], None]] = []
        self._silence = SilenceWatch()
        self._last: Endpoint | None = None
        """The node that answered last; it is queried first."""
        self._stale_node: Endpoint | None = None
        """A node without newer metadata for `STALE_MS`; it is queried last."""
        self._stale_since_ms: Millis | None = None
        """Since when the last queried node has had no newer metadata."""

    def retries(self, timeout_ms: int) -> Retries:
        """Return the attempts of a call that may take this time."""
        return Retries(self.clock, self._rng, timeout_ms)

    def on_change(self, listener: Callable[[TidelogError | None], None]) -> None:
        """Call `listener(None)` after each answer and `listener(error)` after a round without any answer."""
        self._listeners.append(listener)

    def request_refresh(self, topic: str) -> None:
        """Request a refresh, and include this topic in every request from now on."""
        self._topics[topic] = None
        self._wanted.set()

    def request_names(self, topic_ids: Iterable[TopicId]) -> None:
        """Request a refresh that asks for topics by id, once."""
        self._topic_ids.update(topic_ids)
        self._wanted.set()

    def note_leader(self, topic_partition: TopicPartition, hint: NodeAddress | None) -> None:
        """Merge the leader named by an error."""
        if hint is not None:
            self.view = self.view.with_leader(topic_partition, hint)

    def leader_known(self, topic_partition: TopicPartition, failure: TidelogError | None) -> LeaderKnown:
        """Return the present leader of a partition as an event. failure: of the last round of requests."""
        topic, at = self.view.topics.get(topic_partition.topic), self.clock.monotonic_ms()
        topic_id = None if topic is None else topic.topic_id
        try:
            _, partition = self.view.leader(topic_partition)
        except TidelogError as cause:
            return LeaderKnown(topic_partition, topic_id, NO_NODE, NO_LEADER_EPOCH, at, failure or cause)
        return LeaderKnown(topic_partition, topic_id, partition.leader, partition.leader_epoch, at, failure)

    async def run(self) -> None:
        """Refresh when `request_refresh` was called, at most ten times a second, and every five minutes."""
        while True:
            was_requested = True
            try:
                async with asyncio.timeout(AGE_MS_MAX / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                was_requested = False
            self._wanted.clear()
            if was_requested or self._topics:  # a client without topics would ask for nothing
                await self._refresh_once()
            await self.clock.sleep_ms(backoff_ms(1, self._rng))

    async def refresh(self, topic: str) -> ClusterView:
        """Return the view after an answer to a request sent from now on. Raises ConnectionFailed if no node answers."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered.append(answered)
        self.request_refresh(topic)
        await answered
        return self.view

    def distrust_last(self) -> None:
        """Query the node that answered last only after all others: its metadata are out of date."""
        self._stale_node, self._last, self._stale_since_ms = self._last, None, None

    async def refresh_beside(self, node: NodeId, topic: str) -> None:
        """Refresh the view of a topic by the answer of another node than `node`; if it is the only one known, the view
        stays. Raises ConnectionFailed if no other node answers."""
        others = [endpoint for other, endpoint in self.view.nodes.items() if other != node]
        if others:
            self._rng.shuffle(others)
            request = admin_pb2.GetMetadataRequest(topics=[topic])
            self._merge(await self._call_in_turn(others, methods.ADMIN_GET_METADATA, request))
            self._notify(None)

    async def wait_topic(self, topic: str, *, timeout_ms: int, partition: int = 0, afresh: bool = False) -> TopicView:
        """Return the topic once a node knows it with this partition. Raises the reason after at most `timeout_ms`.
        afresh: query a node even if the topic is known."""
        known = self.view.topics.get(topic)
        if known is not None and partition < len(known.partitions) and not afresh:
            return known
        start = self.clock.monotonic_ms()
        unknown_since: Millis | None = None
        last_error: TidelogError | None = None
        while True:
            error: TidelogError
            try:
                left = start + timeout_ms - self.clock.monotonic_ms()
                async with asyncio.timeout(max(left, 1) / 1000):
                    return (await self.refresh(topic)).topic(topic, partition)
            except UnknownTopicOrPartition as cause:
                if unknown_since is None:
                    unknown_since = self.clock.monotonic_ms()
                error, end = cause, min(unknown_since + NEW_TOPIC_MS, start + timeout_ms)
            except ConnectionFailed as cause:
                unknown_since = None
                error, end = cause, start + timeout_ms
            except TimeoutError as cause:
                if last_error is not None:  # it names the cause, the timeout does not
                    raise last_error from None
                raise RequestTimedOut(
                    f"no metadata for topic {topic!r} within {timeout_ms} ms: no node answered in time; try again"
                ) from cause
            if self.clock.monotonic_ms() + BACKOFF_MS >= end:
                raise error
            last_error = error

    async def call_any(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Query the nodes in turn until one answers, starting with the node that answered last.

        For idempotent requests only: a node may be queried although an earlier one has handled the request. Raises the
        error that a node answers, or ConnectionFailed, naming each address, if none answers.
        """
        endpoints = self.candidates()
        if self._last is None and len(endpoints) > 1:
            return await self._call_staggered(endpoints, method, request)
        return await self._call_in_turn(endpoints, method, request)

    async def _call_staggered(
        self, endpoints: Sequence[Endpoint], method: Method[Request, Answer], request: Request
    ) -> Answer:
        """As `call_any` for a client that knows of no node that answers: the next node is queried after `STAGGER_MS`,
        or when one fails. Addresses that take no connection cost little time then, however many there are."""
        failures: list[TidelogError] = []
        answered: asyncio.Future[tuple[Endpoint, Answer]] = asyncio.get_running_loop().create_future()

        async def query(endpoint: Endpoint) -> None:
            try:
                answer = await self._query(endpoint, method, request)
            except _NO_ANSWER as error:
                failures.append(error)
            except TidelogError as error:
                if not answered.done():
                    answered.set_exception(error)
            else:
                if not answered.done():
                    answered.set_result((endpoint, answer))

        async with asyncio.TaskGroup() as tasks:
            queries: list[asyncio.Task[None]] = []
            for endpoint in endpoints:
                queries.append(tasks.create_task(query(endpoint)))
                pause = tasks.create_task(self.clock.sleep_ms(STAGGER_MS))
                await asyncio.wait([pause, *queries], return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                queries = [each for each in queries if not each.done()]
                if answered.done():
                    break
            while queries and not answered.done():
                await asyncio.wait(queries, return_when=asyncio.FIRST_COMPLETED)
                queries = [each for each in queries if not each.done()]
            for each in queries:
                each.cancel()
        if not answered.done():
            raise self.no_answer(failures)
        self._last, found = answered.result()
        return found

    async def _query(self, endpoint: Endpoint, method: Method[Request, Answer], request: Request) -> Answer:
        """Query one node."""
        self._silence.asked(endpoint)
        try:
            answer: Answer = await self.transport.call(endpoint, method, request, timeout_ms=QUERY_TIMEOUT_MS)
        except TlsHandshakeFailed:
            self._silence.answered()  # of these the transport warns
            raise
        except (ConnectionFailed, RequestTimedOut) as error:
            self._silence.failed(endpoint, error)
            raise
        except TidelogError:
            self._silence.answered()  # the node refused the request
            raise
        self._silence.answered()
        return answer

    async def _call_in_turn(
        self, endpoints: Iterable[Endpoint], method: Method[Request, Answer], request: Request
    ) -> Answer:
        failures: list[TidelogError] = []
        for endpoint in endpoints:
            try:
                answer = await self._query(endpoint, method, request)
            except _NO_ANSWER as error:
                failures.append(error)
            else:
                self._last = endpoint
                return answer
        raise self.no_answer(failures)

    def candidates(self) -> list[Endpoint]:
        """Return the addresses to query in order: the last that answered, other known nodes, bootstrap addresses."""
        known = list(dict.fromkeys([*self.view.nodes.values(), *self._bootstrap]))
        self._rng.shuffle(known)
        if self._stale_node in known:
            known.remove(self._stale_node)
            known.append(self._stale_node)
        if self._last in known:
            known.remove(self._last)
            known.insert(0, self._last)
        return known

    def no_answer(self, failures: Sequence[TidelogError]) -> ConnectionFailed:
        """Return the error for a round in which no node answered. If TLS failed in the same way at all nodes, the error
        is of that type: the program's certificates are the likely cause, not the nodes."""
        causes = "; ".join(_distinct(failures))
        kinds = {type(failure) for failure in failures}
        kind = kinds.pop() if len(kinds) == 1 else ConnectionFailed
        if issubclass(kind, TlsHandshakeFailed):
            return kind(causes)
        return ConnectionFailed(f"no node of the cluster answered ({len(failures)} queried): {causes}")

    def end(self, error: TidelogError) -> None:
        """Stop; every waiting caller gets the error."""
        self._silence.answered()
        for future in self._answered:
            if not future.done():
                future.set_exception(error)

    def _note_freshness(self, *, is_newer: bool) -> None:
        """Note whether the last answer had newer metadata. After `STALE_MS` without any, the node is queried last."""
        at = self.clock.monotonic_ms()
        if is_newer:
            self._stale_since_ms = None
        elif self._stale_since_ms is None:
            self._stale_since_ms = at
        elif at - self._stale_since_ms >= STALE_MS:
            self.distrust_last()

    async def _refresh_once(self) -> None:
        waiting, self._answered = self._answered, []
        failure: TidelogError | None = None
        try:
            topic_ids, self._topic_ids = sorted(self._topic_ids), set()
            request = admin_pb2.GetMetadataRequest(
                topics=list(self._topics), topic_ids=[topic_id.bytes for topic_id in topic_ids]
            )
            answer = await self.call_any(methods.ADMIN_GET_METADATA, request)
            before = self.view
            self._merge(answer)
            self._note_freshness(is_newer=self.view.metadata_offset > before.metadata_offset)
        except TidelogError as error:
            failure = error
            self._last = None
        except BaseException:
            self._answered = [*waiting, *self._answered]  # `end` fails them: they would wait for ever
            raise
        for future in waiting:
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
        self._notify(failure)

    def _merge(self, answer: admin_pb2.GetMetadataResponse) -> None:
        self.view = self.view.merged(answer, self._last or self._bootstrap[0])

    def _notify(self, failure: TidelogError | None) -> None:
        for listener in self._listeners:
            listener(failure)


def _distinct(failures: Sequence[TidelogError]) -> list[str]:
    """The messages, each `call at address: cause`. Those with the same call and cause become one, with all
    addresses."""
    places: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        found = re.fullmatch(r"(\S+ at )(\S+)(: .*)", failure.message, re.DOTALL)
        call, address, cause = ("", "", failure.message) if found is None else found.groups()
        places.setdefault((call, cause), []).append(address)
    return [f"{call}{', '.join(addresses) if call else ''}{cause}" for (call, cause), addresses in places.items()]
