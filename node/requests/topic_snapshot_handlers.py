"""Snapshots of topics: taking a consistent cut of several partitions, and the requests of operators about it.

The cut (decision 0034 has the proof):
  1. All transaction coordinators hold the commits of transactions with these topics.
  2. When the markers of all that was committed before are written, the leaders state their log ends, and which
     producers have a transaction open there. The ends are final once they are committed.
  3. The coordinators release the commits, and state that the hold has lasted.
  4. The controller records the ends, unless a coordinator or a leader has been replaced since 1.

Invariant: a transaction that was committed before the hold is below the ends in all partitions, with its markers; any
other one is left out in all of them. No log start has passed the recorded one where a replica has answered.

Not here: holding (replication/coordination/transactions/commit_holds.py), the ends (snapshot_end_handlers.py),
recording (replication/controller/pinned_topics.py).
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from node.api.api import Answered, Api, Asked
from node.api.marker_requests import PartitionId
from node.api.peers import Peers
from node.api.snapshot_requests import (
    CreateTopicSnapshotAnswer,
    CreateTopicSnapshotRequest,
    DescribeTopicSnapshotsAnswer,
    DescribeTopicSnapshotsRequest,
    LookAtEndsRequest,
    PartitionEnd,
)
from node.api.table import (
    ADMIN_CREATE_TOPIC_SNAPSHOT,
    ADMIN_DELETE_TOPIC_SNAPSHOT,
    ADMIN_DESCRIBE_TOPIC_SNAPSHOTS,
    ADMIN_EXTEND_TOPIC_SNAPSHOT,
    CONTROLLER_RECORD_TOPIC_SNAPSHOT,
    DATA_LOOK_AT_ENDS,
    TRANSACTIONS_HOLD_COMMITS,
)
from node.coordinators.node_listing import all_of
from node.metadata.metadata_log import MetadataLog
from node.requests.context import RequestContext
from node.requests.controller_client import ControllerClient
from node.requests.forwarded_changes import ForwardedChanges, ensure_not_internal
from node.requests.permitted import ensure_topic_permitted
from node.runtime.limits import ensure_few
from replication.controller import pinned_topics, snapshot_events
from replication.controller.image import ClusterImage, TopicState
from replication.controller.metadata_records import TopicSnapshotRecord
from replication.controller.topics import named as named_topic
from replication.coordination.transaction_requests import HeldCoordinator, HoldCommits, HoldStep
from tidelog.clock import Clock
from tidelog.errors import ConnectionFailed, InvalidRequest, PolicyViolation, TidelogError
from tidelog.security.acls import AclOperation
from tidelog.topic_snapshots import SnapshotPartition, SnapshotTopic, TopicSnapshot, TopicSnapshotInterrupted
from tidelog.types import TRANSACTIONS_TOPIC, Millis, NodeId, Offset, PartitionIndex, PartitionKey
from tidelog.values import dataclass

_log = logging.getLogger("node.snapshots")

HOLD_MS: Final = 2_000
"""The hold of the commits: markers and looks take some milliseconds, unless a node is slow."""

MARKERS_MS: Final = 1_000
"""How much of it may pass until all markers are written."""

CALL_MS: Final = 3_000
TAKE_MS: Final = 20_000
"""An interrupted attempt is repeated within this time. Coordinators rest for up to 10 s after a hold that took long."""

PAUSE_MS: Final = 5
AGAIN_MS: Final = 100
KEEP_MS_MAX: Final = 3_650 * 24 * 60 * 60 * 1_000
TOPICS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Cut:
    """The topics of an attempt, at one image."""

    snapshot_id: UUID
    """Also of the hold of the commits."""
    image: ClusterImage
    topics: tuple[TopicState, ...]


class SnapshotTaker:
    """Takes snapshots."""

    def __init__(
        self,
        metadata: MetadataLog,
        controller: ControllerClient,
        *,
        peers: Peers,
        listener: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """listener: the name of the listener between nodes."""
        self._metadata, self._controller, self._peers, self._listener = metadata, controller, peers, listener
        self._clock, self._rng = clock, rng

    async def take(self, name: str, topics: Sequence[str], keep_ms: int) -> CreateTopicSnapshotAnswer:
        """Take a snapshot and record it. Raises TopicSnapshotInterrupted if it failed for as long as `TAKE_MS`."""
        deadline = self._clock.monotonic_ms() + TAKE_MS
        while True:
            image = self._metadata.image
            pinned_topics.ensure_possible(image, name)
            found = tuple(named_topic(image, topic) for topic in sorted(topics))
            pinned_topics.ensure_suitable(name, found)
            cut = _Cut(UUID(bytes=self._rng.randbytes(16)), image, found)
            try:
                return await self._attempt(name, cut, keep_ms)
            except TopicSnapshotInterrupted as error:
                _log.info("snapshot %s is taken again: %s", name, error.message)
                if self._clock.monotonic_ms() >= deadline:
                    raise
                await self._clock.sleep_ms(AGAIN_MS)

    def ensure_expiry(self, expires_ms: int) -> None:
        """Raise InvalidRequest for a moment that is as far away as no new snapshot may expire."""
        if expires_ms > self._clock.wall_ms() + KEEP_MS_MAX:
            raise InvalidRequest("a snapshot is kept for at most 3,650 days from now on")

    async def _attempt(self, name: str, cut: _Cut, keep_ms: int) -> CreateTopicSnapshotAnswer:
        try:
            await self._hold(cut)
            began = self._clock.wall_ms()
            ends = await self._look(cut, Offset(0))
            ended = self._clock.wall_ms()
        finally:
            released = await self._ask_coordinators(cut, HoldStep.RELEASE)
        _ensure_held(cut, released)
        snapshot = TopicSnapshot(
            name,
            cut.snapshot_id,
            began,
            ended,
            Millis(ended + keep_ms),
            tuple(_snapshot_of(topic, ends) for topic in cut.topics),
        )
        recorded = await self._controller.call(
            CONTROLLER_RECORD_TOPIC_SNAPSHOT,
            snapshot_events.RecordTopicSnapshot(snapshot, pinned_topics.coordinator_epochs(cut.image)),
            timeout_ms=CALL_MS,
        )
        await self._ensure_kept(snapshot, cut, recorded.metadata_offset)
        return CreateTopicSnapshotAnswer(snapshot, recorded.metadata_offset)

    async def _hold(self, cut: _Cut) -> None:
        """Return once commits are held, and all that was committed before has its markers."""
        answers = await self._ask_coordinators(cut, HoldStep.BEGIN)
        deadline = self._clock.monotonic_ms() + MARKERS_MS
        while True:
            _ensure_held(cut, answers)
            if not any(each.completing for each in answers):
                return
            if self._clock.monotonic_ms() >= deadline:
                raise TopicSnapshotInterrupted(
                    f"the markers of committed transactions were not written within {MARKERS_MS} ms: a partition has "
                    "no leader, or a node is slow (`tidelog txn list --state PrepareCommit`)"
                )
            await self._clock.sleep_ms(PAUSE_MS)
            answers = await self._ask_coordinators(cut, HoldStep.LOOK)

    async def _ensure_kept(self, snapshot: TopicSnapshot, cut: _Cut, metadata_offset: Offset) -> None:
        """Return once all replicas that answer have applied the record, and so remove nothing more. If one has removed
        records since the ends were taken, the snapshot is deleted again."""
        try:
            ends = await self._look(cut, metadata_offset)
            for topic in snapshot.topics:
                for each in topic.partitions:
                    start = _start_of(ends[PartitionKey(topic.topic_id, each.partition)])
                    if start > each.start_offset:
                        raise TopicSnapshotInterrupted(
                            f"retention removed records of {topic.name}-{each.partition} while the snapshot was taken"
                        )
        except TidelogError:
            gone = snapshot_events.DeleteTopicSnapshot(snapshot.name, snapshot.snapshot_id)
            await self._controller.forward(ADMIN_DELETE_TOPIC_SNAPSHOT, gone, timeout_ms=CALL_MS)
            raise

    # --- other nodes ---

    async def _ask_coordinators(self, cut: _Cut, step: HoldStep) -> list[HeldCoordinator]:
        """The answers of all transaction coordinators."""
        topic = cut.image.topic(TRANSACTIONS_TOPIC)
        by_node: defaultdict[NodeId, list[PartitionIndex]] = defaultdict(list)
        for state in () if topic is None else topic.partitions:
            by_node[state.leader].append(state.partition)
        names = tuple(each.name for each in cut.topics)

        async def ask(node: NodeId, partitions: list[PartitionIndex]) -> Sequence[HeldCoordinator]:
            request = HoldCommits(cut.snapshot_id, step, names, HOLD_MS, tuple(partitions))
            try:
                return (await self._call(node, TRANSACTIONS_HOLD_COMMITS, request)).coordinators
            except TidelogError as error:
                return [HeldCoordinator(each, error) for each in partitions]

        answers = await all_of(ask(node, partitions) for node, partitions in sorted(by_node.items()))
        return [each for answer in answers for each in answer]

    async def _look(self, cut: _Cut, metadata_offset: Offset) -> dict[PartitionKey, list[PartitionEnd]]:
        """What the replicas of each partition answer. Raises TopicSnapshotInterrupted if a leader has not answered, and
        PolicyViolation for a topic that is compacted."""
        states = [state for topic in cut.topics for state in topic.partitions]
        by_node: defaultdict[NodeId, list[PartitionKey]] = defaultdict(list)
        for state in states:
            for node in state.replicas:
                by_node[node].append(state.key)
        found: defaultdict[PartitionKey, list[PartitionEnd]] = defaultdict(list)
        failures: dict[NodeId, TidelogError] = {}

        async def look(node: NodeId, keys: list[PartitionKey]) -> None:
            partitions = tuple(PartitionId(key.topic_id.bytes, key.partition) for key in keys)
            try:
                answer = await self._call(node, DATA_LOOK_AT_ENDS, LookAtEndsRequest(partitions, metadata_offset))
            except TidelogError as error:
                failures[node] = error
                return
            for key, end in zip(keys, answer.partitions, strict=True):
                found[key].append(end)

        nodes = cut.image.nodes
        await all_of(look(node, keys) for node, keys in sorted(by_node.items()) if node in nodes and nodes[node].active)
        for state in states:
            if any(each.leads for each in found[state.key]):
                continue
            causes = [*(each.error for each in found[state.key]), failures.get(state.leader)]
            why = next((each for each in causes if each is not None), None)
            name = f"{cut.image.topics[state.topic_id].name}-{state.partition}"
            if isinstance(why, PolicyViolation):
                raise why
            raise _interrupted(f"the leader of {name}", why)
        return found

    async def _call(self, node: NodeId, api: Api[Asked, Answered], request: Asked) -> Answered:
        known = self._metadata.image.nodes.get(node)
        endpoint = None if known is None else known.listeners.get(self._listener)
        if endpoint is None:
            raise ConnectionFailed(f"node {node} has no address on listener {self._listener!r}, as far as known here")
        return await self._peers.call(endpoint, api, request, timeout_ms=CALL_MS)


def _interrupted(who: str, why: TidelogError | None) -> TopicSnapshotInterrupted:
    return TopicSnapshotInterrupted(f"{who} did not answer as such{'' if why is None else f': {why.message}'}")


def _ensure_held(cut: _Cut, answers: Sequence[HeldCoordinator]) -> None:
    """Raise TopicSnapshotInterrupted unless each coordinator has held the commits from the beginning until now, in the
    leader epoch that the cut knows."""
    epochs = pinned_topics.coordinator_epochs(cut.image)
    for each in answers:
        who = f"the transaction coordinator {TRANSACTIONS_TOPIC}-{each.partition}"
        if isinstance(each.error, PolicyViolation):
            raise each.error
        if each.error is not None:
            raise _interrupted(who, each.error)
        if not each.held or each.leader_epoch != epochs[each.partition]:
            raise TopicSnapshotInterrupted(
                f"{who} has not held the commits of transactions for long enough: it is slow or was replaced, or "
                "another snapshot of these topics has held them just before"
            )


def _start_of(ends: Sequence[PartitionEnd]) -> Offset:
    """The highest log start of the replicas that answered: each of them may lead later."""
    return max(each.start_offset for each in ends if each.error is None)


def _snapshot_of(topic: TopicState, ends: Mapping[PartitionKey, Sequence[PartitionEnd]]) -> SnapshotTopic:
    partitions: list[SnapshotPartition] = []
    for state in topic.partitions:
        (end,) = (each.end for each in ends[state.key] if each.end is not None)
        start = min(_start_of(ends[state.key]), end.end_offset)
        partitions.append(replace(end, start_offset=start))
    return SnapshotTopic(topic.topic_id, topic.name, tuple(partitions))


Changed = TypeVar("Changed", snapshot_events.ExtendTopicSnapshot, snapshot_events.DeleteTopicSnapshot)


def _for_that(request: Changed, snapshot: TopicSnapshotRecord) -> Changed:
    """The request for the snapshot that its caller was checked for, unless it names one: else it might meet another one
    of this name, of other topics, which was taken meanwhile."""
    return request if request.snapshot_id is not None else replace(request, snapshot_id=snapshot.snapshot_id)


class TopicSnapshotHandlers(ForwardedChanges):
    """The requests of operators."""

    _taker: SnapshotTaker

    async def create_topic_snapshot(
        self, request: CreateTopicSnapshotRequest, context: RequestContext
    ) -> CreateTopicSnapshotAnswer:
        """Take a snapshot; respond when this node has applied it."""
        if not request.topics or len(request.topics) > TOPICS_MAX or len(set(request.topics)) < len(request.topics):
            raise InvalidRequest(f"name 1 to {TOPICS_MAX} topics for a snapshot, each once")
        if not 0 < request.keep_ms <= KEEP_MS_MAX:
            raise InvalidRequest("a snapshot is kept for 1 ms to 3,650 days")
        for topic in request.topics:
            ensure_topic_permitted(context, ADMIN_CREATE_TOPIC_SNAPSHOT, topic)
            ensure_not_internal(topic, "it cannot be in a snapshot")
        answer = await self._taker.take(request.name, request.topics, request.keep_ms)
        await self._applied(lambda image: image.offset >= answer.metadata_offset, "the snapshot was taken")
        return answer

    async def describe_topic_snapshots(
        self, request: DescribeTopicSnapshotsRequest, context: RequestContext
    ) -> DescribeTopicSnapshotsAnswer:
        """The snapshots in the image of this node. Of all: those whose topics the caller may describe."""
        image = self._metadata.image
        if request.names:
            ensure_few(request.names, "snapshots")
            found = [pinned_topics.named(image, name) for name in dict.fromkeys(request.names)]
            for snapshot in found:
                for topic in snapshot.topics:
                    ensure_topic_permitted(context, ADMIN_DESCRIBE_TOPIC_SNAPSHOTS, topic.name, by_id=True)
            return DescribeTopicSnapshotsAnswer(tuple(found))
        allows = context.authorizer.allows_topic
        shown = [
            snapshot
            for _, snapshot in sorted(image.topic_snapshots.items())
            if all(allows(context, AclOperation.DESCRIBE, topic.name) for topic in snapshot.topics)
        ]
        return DescribeTopicSnapshotsAnswer(tuple(shown))

    async def extend_topic_snapshot(
        self, request: snapshot_events.ExtendTopicSnapshot, context: RequestContext
    ) -> snapshot_events.TopicSnapshotChanged:
        """Forward; respond when this node has applied the new expiry."""
        snapshot = self._ensure_permitted(request.name, ADMIN_EXTEND_TOPIC_SNAPSHOT, context)
        self._taker.ensure_expiry(request.expires_ms)
        request = _for_that(request, snapshot)
        return await self._alter(ADMIN_EXTEND_TOPIC_SNAPSHOT, request, context, "the expiry was changed")

    async def delete_topic_snapshot(
        self, request: snapshot_events.DeleteTopicSnapshot, context: RequestContext
    ) -> snapshot_events.TopicSnapshotChanged:
        """Forward; respond when this node has applied the removal."""
        snapshot = self._ensure_permitted(request.name, ADMIN_DELETE_TOPIC_SNAPSHOT, context)
        request = _for_that(request, snapshot)
        return await self._alter(ADMIN_DELETE_TOPIC_SNAPSHOT, request, context, "the snapshot was deleted")

    def _ensure_permitted(self, name: str, api: Api[Any, Any], context: RequestContext) -> TopicSnapshotRecord:
        snapshot = pinned_topics.named(self._metadata.image, name)
        for topic in snapshot.topics:
            # The caller named the snapshot: its topics are not to be learned from a refusal.
            ensure_topic_permitted(context, api, topic.name, by_id=True)
        return snapshot
