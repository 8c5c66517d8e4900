"""Handlers of the Controller service: pass requests to the controller and return its results.

A node that is not the active controller raises NotController, which names the address of the active one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node.api.admin_requests import (
    AlterReassignmentsRequest,
    ChangedPartitions,
    ChangedTopics,
    ElectLeadersRequest,
    TopicPartitionId,
)
from node.api.controller_requests import Envelope, EnvelopeAnswer
from node.controller.controller_driver import ControllerDriver
from node.requests.context import RequestContext
from node.requests.topic_settings import TopicSettings
from replication.controller import events, features, snapshot_events
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import Millis, PartitionKey


class ControllerHandlers:
    """One method per RPC; each responds when everything that its result depends on is committed."""

    def __init__(self, driver: ControllerDriver, settings: TopicSettings, lease_ms: Callable[[], Millis]) -> None:
        """lease_ms: the lease of a node whose heartbeat is acknowledged now."""
        self._driver, self._settings, self._lease_ms = driver, settings, lease_ms

    async def register_node(self, request: events.RegisterNode, _context: RequestContext) -> events.Registered:
        """Register the new incarnation of a node. Raises DuplicateNodeRegistration if the earlier one still runs."""
        await self._driver.ensure_ended(request)
        return await self._driver.ask(request, events.Registered)

    async def heartbeat(self, request: events.Heartbeat, _context: RequestContext) -> events.HeartbeatAnswer:
        """Note that a node is alive. Every voter receives heartbeats: the next controller knows the silent nodes."""
        self._driver.heartbeat_received(request.node_id, request.node_epoch)
        if request.is_notice and not self._driver.active:
            return events.HeartbeatAnswer(fenced=False, drained=False)  # no error: there is nothing to ask of anybody
        answer = await self._driver.ask(request, events.HeartbeatAnswer)
        return answer if answer.fenced else replace(answer, lease_ms=self._lease_ms())

    async def alter_partition(
        self, request: events.AlterPartition, _context: RequestContext
    ) -> events.AlteredPartitions:
        """Apply in-sync sets that a leader proposes."""
        return await self._driver.ask(request, events.AlteredPartitions)

    async def allocate_producer_ids(
        self, request: events.AllocateProducerIds, _context: RequestContext
    ) -> events.ProducerIdBlock:
        """Allocate a block of producer ids to a node."""
        return await self._driver.ask(request, events.ProducerIdBlock)

    async def record_topic_snapshot(
        self, request: snapshot_events.RecordTopicSnapshot, _context: RequestContext
    ) -> snapshot_events.TopicSnapshotChanged:
        """Record a topic snapshot that a node has taken."""
        return await self._driver.ask(request, snapshot_events.TopicSnapshotChanged)

    async def envelope(self, request: Envelope, _context: RequestContext) -> EnvelopeAnswer:
        """Make a change that a node forwards. The node has authorized who asked for it. It forwards topics one by one,
        so that a change can be repeated after an error that excludes any effect."""
        if request.api.answered is ChangedTopics:
            changes = map(self._event, request.asked.topics)
            changed = [await self._driver.ask(change, events.ChangedTopic) for change in changes]
            return EnvelopeAnswer(request.api, ChangedTopics(tuple(changed)))
        changes_partitions = request.api.answered is ChangedPartitions
        answered = await self._driver.ask(
            self._event(request.asked), events.PartitionOutcomes if changes_partitions else request.api.answered
        )
        return EnvelopeAnswer(request.api, _changed(answered) if changes_partitions else answered)

    def _event(self, asked: Any) -> events.Request:
        """The change as the controller gets it. Raises InvalidRequest."""
        match asked:
            case events.CreateTopic():
                return replace(asked, configs=self._settings.at_creation(asked.configs))
            case events.AlterConfigs():
                return replace(asked, changes=tuple(map(self._config_change, asked.changes)))
            case events.UpdateFeatures(level=0):
                return replace(asked, level=features.LATEST)
            case ElectLeadersRequest():
                if asked.validate_only and asked.type is not events.ElectionType.UNCLEAN:
                    raise InvalidRequest("validate_only is supported for an unclean election only")
                return events.ElectLeaders(asked.type, tuple(map(_key_of, asked.partitions)), asked.validate_only)
            case AlterReassignmentsRequest():
                moves = tuple(
                    events.Reassignment(
                        _key_of(each.partition),
                        each.replacements or each.replicas,
                        each.cancel,
                        keeps_factor=bool(each.replacements),
                        queued=each.queued,
                    )
                    for each in asked.partitions
                )
                if len({each.partition for each in moves}) < len(moves):
                    raise InvalidRequest("a partition is listed twice in one reassignment: list each once")
                return events.AlterReassignments(moves)
        request: events.Request = asked
        return request

    def _config_change(self, change: events.ConfigChange) -> events.ConfigChange:
        return change if change.value is not None else replace(change, value=self._settings.when_removed(change.key))


def _key_of(place: TopicPartitionId) -> PartitionKey:
    """The key of a partition in a forwarded request: names may mean another topic here than at the sender."""
    if place.topic_id is None:
        raise InvalidRequest(f"partition {place.partition} of topic {place.topic!r} was forwarded without its topic id")
    return PartitionKey(place.topic_id, place.partition)


def _changed(outcomes: events.PartitionOutcomes) -> ChangedPartitions:
    return ChangedPartitions(tuple(map(_changed_partition, outcomes.partitions)))


def _changed_partition(result: events.PartitionOutcome) -> PartitionResult:
    place = TopicPartitionId("", result.key.partition, result.key.topic_id)
    if isinstance(result.outcome, TidelogError):
        return PartitionResult(place, result.outcome, loss=result.loss)
    return PartitionResult(place, None, result.outcome.leader, result.outcome.leader_epoch, result.loss)
