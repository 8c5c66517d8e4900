"""Handlers of the Controller service: pass requests to the controller and return its results.

A node that is not the active controller raises NotController, which names the address of the active one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from node.api.admin_requests import ChangedPartition, ChangedPartitions, TopicPartitionId
from node.api.controller_requests import AcceptedIsr, AlterPartitionAnswer, ProposalOutcome
from node.controller.controller_driver import ControllerDriver
from node.requests.context import RequestContext
from node.requests.topic_settings import TopicSettings
from replication.controller import features
from replication.controller.events import (
    AclsCreated,
    AclsDeleted,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    AlterReassignments,
    AlterScramCredentials,
    ClientQuotasAltered,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    ElectionType,
    ElectLeaders,
    FeaturesUpdated,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOutcome,
    PartitionOutcomes,
    ProducerIdBlock,
    Registered,
    RegisterNode,
    RemoveVoter,
    ScramCredentialsAltered,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    UpdateFeatures,
    VoterRemoved,
)
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import Millis


class ControllerHandlers:
    """One method per RPC; each responds when everything that its result depends on is committed."""

    def __init__(self, driver: ControllerDriver, settings: TopicSettings, lease_ms: Callable[[], Millis]) -> None:
        """lease_ms: the lease of a node whose heartbeat is acknowledged now."""
        self._driver, self._settings, self._lease_ms = driver, settings, lease_ms

    async def register_node(self, request: RegisterNode, _context: RequestContext) -> Registered:
        """Register the new incarnation of a node. Raises DuplicateNodeRegistration if the earlier one still runs."""
        await self._driver.ensure_ended(request)
        return await self._driver.ask(request, Registered)

    async def heartbeat(self, request: Heartbeat, _context: RequestContext) -> HeartbeatAnswer:
        """Note that a node is alive. Every voter receives heartbeats: the next controller knows the silent nodes."""
        self._driver.heartbeat_received(request.node_id, request.node_epoch)
        answer = await self._driver.ask(request, HeartbeatAnswer)
        return answer if answer.fenced else replace(answer, lease_ms=self._lease_ms())

    async def alter_partition(self, request: AlterPartition, _context: RequestContext) -> AlterPartitionAnswer:
        """Apply in-sync sets that a leader proposes."""
        altered = await self._driver.ask(request, AlteredPartitions)
        return AlterPartitionAnswer(tuple(map(_altered, altered.partitions)))

    async def allocate_producer_ids(self, request: AllocateProducerIds, _context: RequestContext) -> ProducerIdBlock:
        """Allocate a block of producer ids to a node."""
        return await self._driver.ask(request, ProducerIdBlock)

    async def create_topic(self, request: CreateTopic, _context: RequestContext) -> TopicCreated:
        """Create a topic."""
        configs = self._settings.at_creation(request.configs)
        return await self._driver.ask(replace(request, configs=configs), TopicCreated)

    async def delete_topic(self, request: DeleteTopic, _context: RequestContext) -> TopicDeleted:
        """Delete a topic."""
        return await self._driver.ask(request, TopicDeleted)

    async def elect_leaders(self, request: ElectLeaders, _context: RequestContext) -> ChangedPartitions:
        """Elect the preferred leaders, or replicas that may lack committed records."""
        if request.validate_only and request.type is not ElectionType.UNCLEAN:
            raise InvalidRequest("validate_only is supported for an unclean election only")
        return _changed(await self._driver.ask(request, PartitionOutcomes))

    async def alter_partition_reassignments(
        self, request: AlterReassignments, _context: RequestContext
    ) -> ChangedPartitions:
        """Move partitions to other nodes."""
        if len({each.partition for each in request.partitions}) < len(request.partitions):
            raise InvalidRequest("a partition is listed twice in one reassignment: list each once")
        return _changed(await self._driver.ask(request, PartitionOutcomes))

    async def incremental_alter_configs(self, request: AlterConfigs, _context: RequestContext) -> TopicAltered:
        """Change topic settings."""
        changes = tuple(
            ConfigChange(each.key, self._settings.when_removed(each.key) if each.value is None else each.value)
            for each in request.changes
        )
        return await self._driver.ask(replace(request, changes=changes), TopicAltered)

    async def create_partitions(self, request: CreatePartitions, _context: RequestContext) -> TopicAltered:
        """Add partitions to a topic."""
        return await self._driver.ask(request, TopicAltered)

    async def update_features(self, request: UpdateFeatures, _context: RequestContext) -> FeaturesUpdated:
        """Raise the feature level; 0 selects the latest level of this controller."""
        return await self._driver.ask(replace(request, level=request.level or features.LATEST), FeaturesUpdated)

    async def remove_voter(self, request: RemoveVoter, _context: RequestContext) -> VoterRemoved:
        """Remove a voter whose node does not return."""
        return await self._driver.ask(request, VoterRemoved)

    async def alter_user_scram_credentials(
        self, request: AlterScramCredentials, _context: RequestContext
    ) -> ScramCredentialsAltered:
        """Set and remove SCRAM credentials."""
        return await self._driver.ask(request, ScramCredentialsAltered)

    async def create_acls(self, request: CreateAcls, _context: RequestContext) -> AclsCreated:
        """Add rules to the access control lists."""
        return await self._driver.ask(request, AclsCreated)

    async def delete_acls(self, request: DeleteAcls, _context: RequestContext) -> AclsDeleted:
        """Remove rules from the access control lists."""
        return await self._driver.ask(request, AclsDeleted)

    async def alter_client_quotas(self, request: AlterClientQuotas, _context: RequestContext) -> ClientQuotasAltered:
        """Change quotas."""
        return await self._driver.ask(request, ClientQuotasAltered)


def _altered(altered: AlteredPartition) -> ProposalOutcome:
    state = altered.outcome
    if isinstance(state, TidelogError):
        return ProposalOutcome(altered.key, state)
    return ProposalOutcome(altered.key, AcceptedIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr))


def _changed(outcomes: PartitionOutcomes) -> ChangedPartitions:
    return ChangedPartitions(tuple(map(_changed_partition, outcomes.partitions)))


def _changed_partition(result: PartitionOutcome) -> ChangedPartition:
    place = TopicPartitionId("", result.key.topic_id, result.key.partition)
    if isinstance(result.outcome, TidelogError):
        return ChangedPartition(place, result.outcome, loss=result.loss)
    return ChangedPartition(place, None, result.outcome.leader, result.outcome.leader_epoch, result.loss)
